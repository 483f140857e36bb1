"""Sizes of published experiments, heads by short names, and inputs.

Letters: N tokens, d width of hidden states and output embedding, V vocabulary, K mixtures.
"""

import argparse
import re
from typing import NamedTuple

import torch
from torch import Tensor, nn

from harness.errors import ExecutionError
from harness.protocols import HeadDims, Hidden
from harness.registry import HEADS

NUM_LAYERS = 3  # layers of hidden states for a head, as many as the complete MFS reads
NAMED = {
    "softmax": ("softmax", {}),
    "sigsoftmax": ("sigsoftmax", {}),
    # only the partitions of MFS; then the complete head of the poster
    "mfs": ("mfs", {"num_mixtures": 3, "num_partitions": 4, "num_input_layers": 1, "window": 0}),
    "mfs-inputs": ("mfs", {"num_mixtures": 3, "num_partitions": 4, "num_input_layers": 3, "window": 2}),
}


class Setting(NamedTuple):
    """The sizes of a measurement. `bias`: whether output layers have one."""

    tokens: int
    width: int
    vocab: int
    heads: str
    bias: bool = True


SETTINGS = {
    "ptb": Setting(700, 200, 10_000, "softmax,mos2,mos3,mos5,mos10,mos15,mfs,sigsoftmax"),
    "wt2": Setting(700, 200, 33_278, "softmax,mos5,mos15"),
    "gpt2-small": Setting(1024, 768, 50_257, "softmax,mos3,mfs"),
    "smollm2": Setting(256, 576, 49_152, "softmax,mos5", bias=False),
    "llama-1b": Setting(64, 2048, 128_256, "softmax,mos5", bias=False),
    "llama-8b": Setting(256, 4096, 128_256, "softmax,mos5", bias=False),
    "tiny": Setting(70, 16, 97, "softmax,mos2,mfs,sigsoftmax"),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that describe sizes and heads."""
    parser.add_argument("--setting", choices=SETTINGS, default="ptb")
    parser.add_argument("--tokens", type=int, help="instead of the setting's; multiples of 35 for steps")
    parser.add_argument("--heads", help="softmax, mosK, mfs, mfs-inputs, sigsoftmax; separated by commas")


def chosen(options: argparse.Namespace) -> tuple[Setting, list[str]]:
    """The setting and the heads that the options name."""
    setting = SETTINGS[options.setting]
    setting = setting._replace(tokens=options.tokens or setting.tokens)
    return setting, [name for name in (options.heads or setting.heads).split(",") if name]


def component(name: str) -> tuple[str, dict]:
    """A head's registry name and parameters: ('mos', {'num_mixtures': 5}) for 'mos5'. Raises ExecutionError."""
    if name in NAMED:
        return NAMED[name]
    mixture = re.fullmatch(r"mos([1-9]\d{0,2})", name)
    if mixture is None:
        raise ExecutionError(f"--heads {name}: expected {', '.join(NAMED)}, or mos with its K, as in mos5")
    return "mos", {"num_mixtures": int(mixture[1])}


def head(name: str, setting: Setting, device: torch.device) -> nn.Module:
    """A head with the sizes of the setting, always with the same weights."""
    registered, params = component(name)
    if not setting.bias:
        params = {**params, "bias": False}
    dims = HeadDims(vocab_size=setting.vocab, layer_dims=(setting.width,) * NUM_LAYERS, d_embed=setting.width)
    torch.manual_seed(0)
    return HEADS.get(registered)(dims, nn.Embedding(setting.vocab, setting.width), **params).to(device)


def inputs(setting: Setting, device: torch.device) -> tuple[Hidden, Tensor]:
    """Hidden states, (1, N, d) for each layer, which require gradients like those of a backbone; (1, N) targets."""
    generator = torch.Generator().manual_seed(1)
    shape = (1, setting.tokens, setting.width)
    layers = [torch.randn(shape, generator=generator).to(device).requires_grad_() for _ in range(NUM_LAYERS)]
    targets = torch.randint(setting.vocab, shape[:2], generator=generator)
    return Hidden(tuple(layers)), targets.to(device)
