"""The settings of measurements: sizes of published experiments, short names of heads, and inputs.

Letters: N tokens, d width of hidden states and output embedding, V vocabulary, K mixtures, P partitions.
"""

import re
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from harness.errors import ExecutionError
from harness.protocols import HeadDims, Hidden
from harness.registry import HEADS

NUM_LAYERS = 3  # layers of hidden states for a head, as many as the complete MFS reads


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The sizes of a measurement. `bias`: whether output layers have one; `num_layers`, `num_heads`: of the GPT-2 whose
    inference is measured; `backbone`: of whole steps, one of BACKBONE_SIZES.
    """

    name: str
    tokens: int
    width: int
    vocab: int
    heads: tuple[str, ...]
    bias: bool = True
    gpu_tokens: int | None = None
    num_layers: int | None = None
    num_heads: int | None = None
    backbone: str = "transformer_encoder"


BACKBONE_SIZES = {  # as in suites/: of Benka et al. (2021), and of the language models that the LSTM suites reproduce
    "transformer_encoder": {"num_layers": 4, "num_heads": 4, "d_ff": 200, "dropout": 0.2},
    "lstm": {"num_layers": 2, "dropout": 0.2},
}
ALL_HEADS = ("softmax", "mos2", "mos3", "mos5", "mos10", "mos15", "mfs", "sigsoftmax")
TINY_HEADS, GPT2_HEADS = ("softmax", "mos2", "mfs", "sigsoftmax"), ("softmax", "mos3", "mfs")
LARGE = {"heads": ("softmax", "mos5"), "bias": False, "gpu_tokens": 4096}  # output layers of today's models
GPT2_SMALL = {"tokens": 1024, "gpu_tokens": 4096, "width": 768, "vocab": 50_257, "num_layers": 12, "num_heads": 12}
SETTINGS = {
    "ptb": Setting(name="ptb", tokens=700, width=200, vocab=10_000, heads=ALL_HEADS),
    "wt2": Setting(name="wt2", tokens=700, width=200, vocab=33_278, heads=("softmax", "mos5", "mos15")),
    "gpt2-small": Setting(name="gpt2-small", heads=GPT2_HEADS, **GPT2_SMALL),
    "smollm2": Setting(name="smollm2", tokens=256, width=576, vocab=49_152, **LARGE),
    "llama-1b": Setting(name="llama-1b", tokens=64, width=2048, vocab=128_256, **LARGE),
    "llama-8b": Setting(name="llama-8b", tokens=256, width=4096, vocab=128_256, **LARGE),
    "tiny": Setting(name="tiny", tokens=70, width=16, vocab=97, heads=TINY_HEADS, num_layers=3, num_heads=2),
}
NAMED_HEADS = {
    "softmax": ("softmax", {}),
    "sigsoftmax": ("sigsoftmax", {}),
    # mfs has only the partitions, to measure the evaluation; mfs-inputs is the complete head of the poster
    "mfs": ("mfs", {"num_mixtures": 3, "num_partitions": 4, "num_input_layers": 1, "window": 0}),
    "mfs-inputs": ("mfs", {"num_mixtures": 3, "num_partitions": 4, "num_input_layers": 3, "window": 2}),
    "poster-softmax": ("mfs", {"num_mixtures": 1, "num_partitions": 1, "num_input_layers": 1, "window": 0}),
    "poster-mos3": ("mfs", {"num_mixtures": 3, "num_partitions": 1, "num_input_layers": 1, "window": 0}),
}


def setting_of(
    name: str, device: torch.device, tokens: int | None = None, backbone: str = "transformer_encoder"
) -> Setting:
    """Return a setting by its name, with another number of tokens if it is given. Raises ExecutionError."""
    if backbone not in BACKBONE_SIZES:
        raise ExecutionError(f"--backbone {backbone}: expected {', '.join(BACKBONE_SIZES)}")
    if name not in SETTINGS:
        raise ExecutionError(f"--setting {name}: expected {', '.join(SETTINGS)}")
    found = SETTINGS[name]
    on_gpu = found.gpu_tokens if device.type == "cuda" else None
    return replace(found, tokens=tokens or on_gpu or found.tokens, backbone=backbone)


def component(name: str) -> tuple[str, dict]:
    """Return a head's registry name and parameters: ('mos', {'num_mixtures': 5}) for 'mos5'. Raises ExecutionError."""
    if name in NAMED_HEADS:
        return NAMED_HEADS[name]
    mixture = re.fullmatch(r"mos([1-9]\d{0,2})", name)
    if mixture is None:
        raise ExecutionError(f"--heads {name}: expected {', '.join(NAMED_HEADS)}, or mos with its K, as in mos5")
    return "mos", {"num_mixtures": int(mixture[1])}


def mixtures(name: str) -> int:
    """Return K, the number of mixtures of a head."""
    return component(name)[1].get("num_mixtures", 1)


def head(name: str, setting: Setting, device: torch.device) -> nn.Module:
    """Build a head with the sizes of the setting, always with the same weights."""
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
