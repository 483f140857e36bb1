"""Heads and backbones that end the program, raise what cannot be shown, or change what all trials share: plug-ins, so
that nothing of the harness knows of faults made for tests.
"""

import os
import random
import signal
import sys

import numpy as np
import torch
from torch import nn

from harness.backbones.lstm import StackedLSTM
from harness.heads.softmax import Softmax

SURROGATE = "caf\udce9"


class Unprintable(Exception):
    """Neither its text nor its representation can be shown."""

    def __str__(self):
        raise RuntimeError("no text")

    def __repr__(self):
        sys.exit(0)


class Beyond(BaseException):
    """No Exception, and none of Python's own either."""


def _raise(error):
    raise error


UNFINISHED = []


def _unfinished_inference(module):
    UNFINISHED.append(torch.inference_mode())
    UNFINISHED[-1].__enter__()


TURNED = []


def _turn_onednn(module):
    if module is None or module not in TURNED:  # once: turned twice it would be as it was
        TURNED.append(module)
        torch._C._set_mkldnn_enabled(not torch._C._get_mkldnn_enabled())


# What a component may do, by name; each is given the module, or None in a constructor.
RAISING = {
    "exit 0": lambda module: sys.exit(0),
    "exit 3": lambda module: sys.exit(3),
    "SystemExit": lambda module: _raise(SystemExit),
    "KeyboardInterrupt": lambda module: _raise(KeyboardInterrupt),
    "GeneratorExit": lambda module: _raise(GeneratorExit),
    "Beyond": lambda module: _raise(Beyond("all bounds")),
    "unprintable": lambda module: _raise(Unprintable()),
    "surrogate": lambda module: _raise(RuntimeError(SURROGATE)),
    "long": lambda module: _raise(RuntimeError("x" * 50_000_000)),
}
CHANGING = {
    "default dtype": lambda module: torch.set_default_dtype(torch.float64),
    "default device": lambda module: torch.set_default_device("meta"),
    "grad mode": lambda module: torch.set_grad_enabled(not torch.is_grad_enabled()),
    "inference mode": _unfinished_inference,
    "deterministic algorithms": lambda module: torch.use_deterministic_algorithms(True),
    "number of threads": lambda module: torch.set_num_threads(torch.get_num_threads() + 1),
    "autocast": lambda module: torch.autocast("cpu").__enter__(),
    "anomaly mode": lambda module: torch.autograd.set_detect_anomaly(True),
    "oneDNN": lambda module: _turn_onednn(module),
    "flushing of denormals": lambda module: torch.set_flush_denormal(True),
    "precision of float32 products": lambda module: torch.set_float32_matmul_precision("medium"),
    "cuDNN settings": lambda module: setattr(torch.backends.cudnn, "benchmark", True),
    "kernels of attention": lambda module: torch.backends.cuda.enable_flash_sdp(False),
    "filling of uninitialised memory": lambda module: setattr(
        torch.utils.deterministic, "fill_uninitialized_memory", False
    ),
}


def _everything_else(module):
    """What is put back without an error."""
    os.chdir("/")
    random.seed(0)
    np.random.seed(0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


DEEDS = RAISING | CHANGING | {"everything else": _everything_else, "nothing": lambda module: None}


class _Acts(torch.autograd.Function):
    """The identity, whose backward pass does something."""

    @staticmethod
    def forward(ctx, x, deed):
        ctx.deed = deed
        return x.clone()

    @staticmethod
    def backward(ctx, upstream):
        DEEDS[ctx.deed](None)
        return upstream, None


class Misbehaving(Softmax):
    """A softmax that does something it must not.

    Args:
        does: what, of DEEDS.
        where: 'plan': in the constructor, always; 'constructor': there, but not when it is only counted; 'forward',
            'training_loss', 'nll', 'backward', 'eval'.
    """

    def __init__(self, dims, embedding, *, does: str = "nothing", where: str = "forward"):
        super().__init__(dims, embedding)
        self.does, self.where = does, where
        if where == "plan" or (where == "constructor" and not embedding.weight.is_meta):
            DEEDS[does](None)

    def forward(self, hidden):
        if self.where == "forward":
            DEEDS[self.does](self)
        if self.where == "backward" and self.training:
            hidden = hidden._replace(layers=(*hidden.layers[:-1], _Acts.apply(hidden.layers[-1], self.does)))
        distribution = super().forward(hidden)
        if self.where in ("training_loss", "nll"):
            method = getattr(distribution, self.where)

            def acting(*arguments):
                DEEDS[self.does](self)
                return method(*arguments)

            setattr(distribution, self.where, acting)
        return distribution

    def train(self, mode=True):
        if getattr(self, "where", "") == "eval" and not mode:
            DEEDS[self.does](self)
        return super().train(mode)


class MisbehavingBackbone(StackedLSTM):
    """An LSTM of one layer that does something it must not, in its constructor or in forward."""

    def __init__(self, vocab_size, *, does: str = "nothing", where: str = "forward"):
        super().__init__(vocab_size, d_model=8, num_layers=1)
        self.does, self.where = does, where
        if where == "constructor" and not self.embedding.weight.is_meta:
            DEEDS[does](None)

    def forward(self, tokens_BT, state=None):
        if self.where == "forward":
            DEEDS[self.does](self)
        return super().forward(tokens_BT, state)


class Drawing(Softmax):
    """Honest: it draws from all three generators where it is built and where it is called."""

    def __init__(self, dims, embedding):
        super().__init__(dims, embedding)
        self.scale = nn.Parameter(torch.tensor(1 + random.random() / 100 + np.random.rand() / 100))

    def forward(self, hidden):
        noise = 1 + (random.random() + np.random.rand()) / 1000 + torch.rand(()) / 1000
        return super().forward(hidden._replace(layers=(*hidden.layers[:-1], hidden.layers[-1] * self.scale * noise)))
