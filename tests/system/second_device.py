"""Training steps of each backbone and of each head on a device that is not the CPU, without such a device; prints JSON.

Torch lets Python name a backend; on it, torch's fake tensors have sizes, types and a device, and no numbers. An
operation that meets tensors of two devices is refused as a GPU would refuse it. Run by test_second_device.py, in a
process of its own, since a backend stays for good.
"""

import json
import os
import sys

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode

from harness.corpora.batching import Segment
from harness.distributions import Logits
from harness.kernels import forms, mixture
from harness.model import build, on_meta
from harness.plan.specs import ComponentSpec, TrainSpec
from harness.registry import BACKBONES, HEADS
from harness.training.optimizers import make_optimizer
from harness.training.step import EagerStep

NAME, V = "second", 11
SMALL = {
    "gpt2": {"d_model": 8, "num_heads": 2},
    "bilstm": {"d_model": 8},
    "lstm": {"d_model": 8},
    "awd_lstm": {"d_embed": 8, "d_hidden": 8},
    "transformer_encoder": {"d_model": 8, "num_heads": 2},
}
LAYERS = {"early": 2, "doc": 2, "doc_poster": 3}  # that a head reads, where it reads more than one
TRAIN = {"optimizer": "adam", "lr": 0.1, "epochs": 1, "batch_size": 2, "seq_len": 2, "clip": 0.25}


class Backend(backend_registration._DummyBackendModule):
    """What torch.autocast asks of a backend beside what torch's own stand-in has."""

    def get_amp_supported_dtype(self):
        return [torch.bfloat16, torch.float32]


class OnItsDevice(TorchFunctionMode):
    """torch.tensor copies numbers to a device beneath fake tensors, where this one has nothing: made there without."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func in (torch.tensor, torch.as_tensor) and torch.device(kwargs.get("device") or "cpu").type == NAME:
            device = kwargs.pop("device")
            here = func(*args, **kwargs)
            return torch.empty(here.shape, dtype=here.dtype, device=device)
        return func(*args, **kwargs)


class WithoutNumbers(TorchDispatchMode):
    """Answers what is asked of fake tensors, which have no numbers: `.item()` is 0, bool() is true, and all entries
    differ from 0.
    """

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten._local_scalar_dense.default:
            return args[0].dtype == torch.bool
        if func is torch.ops.aten.nonzero.default:
            return args[0].new_empty(args[0].numel(), args[0].dim(), dtype=torch.int64)
        if func.name().startswith("aten::_fused_") and not func._schema.returns:
            return None  # in place; torch has no rule for its sizes
        return func(*args, **(kwargs or {}))


def give_device(model: nn.Module) -> None:
    """Replace the meta device's tensors by the device's, in place; one that several modules share stays shared."""
    made, kept = {}, []  # kept: an id is that of a tensor that lives
    for module in model.modules():
        for name, tensor in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
            if id(tensor) not in made:
                empty = torch.empty(tensor.shape, dtype=tensor.dtype, device=NAME)
                is_parameter = isinstance(tensor, nn.Parameter)
                made[id(tensor)] = nn.Parameter(empty, tensor.requires_grad) if is_parameter else empty
            kept.append(tensor)
            setattr(module, name, made[id(tensor)])


def sized(backbone: str, layers: int) -> dict:
    """Small sizes of a backbone of so many layers."""
    if backbone != "hf":
        return {**SMALL[backbone], "num_layers": layers}
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "num_hidden_layers": layers}
    return {"config": {"model_type": "llama", **sizes}, "layers": list(range(layers))}


def run(backbone: str, head: str, precision: str) -> str:
    """Two training steps, then losses and probabilities in evaluation: 'ok', or what stands against it."""
    train = TrainSpec(**TRAIN, precision=precision)
    specs = ComponentSpec(name=backbone, params=sized(backbone, LAYERS.get(head, 1))), ComponentSpec(name=head)
    with on_meta():
        counts = torch.ones(V, dtype=torch.int64, device="cpu")
        model = build(*specs, vocab_size=V, seed=0, token_counts=counts, token_bytes=(b"ab",) * V)
    mixture._facet_numbers.cache_clear()  # fake tensors are those of one mode
    try:
        with OnItsDevice(), FakeTensorMode(allow_fallback_kernels=False):
            tokens = torch.empty(train.batch_size, train.seq_len, dtype=torch.int64, device=NAME)
            with WithoutNumbers():
                give_device(model)
                step = EagerStep(model, make_optimizer(model, train), train)
                step.begin_epoch()
                for _ in range(2):
                    step(Segment(tokens, tokens))
                states = [tensor for state in step.optimizer.state.values() for tensor in state.values()]
                elsewhere = {tensor.device.type for tensor in [*step.parameters, *states]} - {NAME}
                model.eval()
                with torch.no_grad():
                    distribution, _ = model(Segment(tokens, tokens))
                    scores = distribution.nll(tokens), distribution.log_probs()
                elsewhere |= {tensor.device.type for tensor in scores} - {NAME}
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return f"something is on {elsewhere}" if elsewhere else "ok"


class Right(nn.Module):
    """A head of one matrix, of which each of the planted ones differs by one fault."""

    def __init__(self, dims, embedding):
        super().__init__()
        self.output = nn.Linear(dims.layer_dims[-1], dims.vocab_size)

    def forward(self, hidden):
        return Logits(self.scored(hidden.layers[-1]))

    def scored(self, h):
        return self.output(h)


class MakesATensorOnTheCpu(Right):
    def scored(self, h):
        return self.output(h) + torch.ones(V)


class KeepsATensorThatIsNoBuffer(Right):
    def __init__(self, dims, embedding):
        super().__init__(dims, embedding)
        self.scale = torch.ones(dims.vocab_size)

    def scored(self, h):
        return self.output(h) * self.scale


class ReturnsFromTheCpu(Right):
    def scored(self, h):
        return self.output(h).cpu()


class MakesATensorOnTheCpuInEvaluation(Right):
    def scored(self, h):
        return self.output(h) if self.training else self.output(h) + torch.ones(V)


PLANTED = (Right, MakesATensorOnTheCpu, KeepsATensorThatIsNoBuffer, ReturnsFromTheCpu, MakesATensorOnTheCpuInEvaluation)


def main() -> None:
    """Print {'backbone, head, precision': outcome}, and whether the lean evaluation was what ran."""
    backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=Backend())
    forms.DEVICES = (*forms.DEVICES, NAME)  # the lean evaluation runs there, as on a GPU
    lean, calls = forms.lean, []
    forms.lean = lambda *given, **options: calls.append(given) or lean(*given, **options)
    heads = HEADS.names()
    cases = [("lstm", head, precision) for head in heads for precision in ("fp32", "bf16")]
    cases += [(backbone, head, "fp32") for backbone in (*SMALL, "hf") for head in ("softmax", "mos")]
    found = {}
    for case in dict.fromkeys(cases):
        print(*case, file=sys.stderr, flush=True)  # an error in a thread of the backend ends the process: where it was
        found[", ".join(case)] = run(*case)
    for planted in PLANTED:
        HEADS.register(planted.__name__)(planted)
        found[planted.__name__] = run("lstm", planted.__name__, "fp32")
    print(json.dumps({"outcomes": found, "lean": len(calls), "backbones": BACKBONES.names(), "heads": heads}))


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # torch's own end waits for the backend's threads, or aborts
