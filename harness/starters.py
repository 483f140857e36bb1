"""New suites, heads and backbones to start from: commented files that work as they are (`harness new`)."""

import keyword
import re
from pathlib import Path
from string import Template
from typing import Literal

from harness.errors import ExecutionError, StorageError, UnknownComponent
from harness.plan.reader import FOLDER
from harness.plan.specs import GROUND_TRUTH, LEADERBOARD, SUITE_NAME
from harness.registry import BACKBONES, HEADS

Kind = Literal["suite", "head", "backbone"]
COMPONENT_NAME = "[a-z][a-z0-9_]{0,39}"
NO_NAMES = {"true", "false", "null"}  # YAML reads no texts

SUITE = Template("""\
# yaml-language-server: $$schema=schema.json
# $name: say here what is compared, and what you expect.
# Every key is explained in docs/suites.md. Try it: harness plan $name, then harness run $name --dry-run
name: $name

# The texts. `harness list corpora` shows all; a text of your own, with its path
# from the folder of this file: - text: {path: ../my_text.txt}
corpora:
  - embedded

# The models below the heads. `harness list backbones` shows all, with their parameters.
backbones:
  - lstm: {d_model: 48, num_layers: 1, dropout: 0.1}

# What is compared. A list as a value is a grid: [2, 5] are two heads. `harness list heads` shows all.
# The softmax with a projection has the affine map that mixtures have, and K = 1 has that map and mixes nothing: these
# rows show whether it is the mixing that helps.
heads:
  - softmax: {projection: [false, true]}
  - mos: {num_mixtures: [1, 2, 5]}

# Each head is trained once with each seed. Two give intervals and p values; a verdict needs six.
seeds: [1, 2, 3]

# lr and epochs must be given. The others have these defaults: optimizer sgd, batch_size 20, seq_len 35, no clipping.
train: {lr: 7, epochs: 2, clip: 0.25}

# The same number of attempts at settings for every head, before the table:
# tune: {trials: 8, epochs: 1, space: {train.lr: {log_uniform: [0.5, 20]}}}
# Heads with equal numbers of parameters or equal training time: `match` in docs/suites.md.
# The head that the others are compared with, and the test: paired, or welch.
table: {baseline: "softmax(projection=True)", test: paired}
""")

HEAD = Template('''\
"""$title: say here what it is, and where it is from."""

import torch
from torch import nn

from harness.distributions import Mixture, output_layer
from harness.protocols import HeadDims, Hidden
from harness.registry import HEADS


@HEADS.register("$name")
class $cls(nn.Module):
    """log p(x) = log_softmax( W tanh(U h + c) + b )_x: a softmax over a latent vector.

    Shapes: top layer h (B, T, D) -> one facet (B, T, 1, L), output matrix W (V, L), bias b (V,).
    Args:
        d_latent: L, the width of the latent vector.
    Raises: ValueError when d_latent < 1.
    """

    # dims has the sizes: vocab_size V, layer_dims (D of each layer), d_embed. What follows * are the parameters that a
    # suite may set: each needs a type and a default.
    def __init__(self, dims: HeadDims, embedding: nn.Embedding, *, d_latent: int = 100):
        super().__init__()
        if d_latent < 1:
            raise ValueError(f"d_latent must be at least 1, got {d_latent}")
        self.latent = nn.Linear(dims.layer_dims[-1], d_latent)
        # Under one seed, the output layers of all heads start with the same W and b if these have the same shape.
        self.output = output_layer(dims, embedding, bias=True, tie_weights=False, width=d_latent)

    def forward(self, hidden: Hidden) -> Mixture:
        """(B, T, D) top states -> a Mixture of one component. hidden.layers has the states of all layers."""
        facet_BTL = torch.tanh(self.latent(hidden.layers[-1]))
        # facets are (B, T, K, L). Several of them need log priors (B, T, K) in place of None: see heads/mos.py.
        return Mixture(facet_BTL.unsqueeze(2), None, self.output.weight, self.output.bias)
''')

BACKBONE = Template('''\
"""$title: say here what it is, and where it is from."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.protocols import Hidden
from harness.registry import BACKBONES


@BACKBONES.register("$name")
class $cls(nn.Module):
    """Causal convolutions over the last tokens: h_0 = embedding(tokens), h_l = h_{l-1} + tanh(conv_l(h_{l-1})).

    Shapes: tokens (B, T) -> num_layers layers of (B, T, d_model); no state.
    Args:
        d_model: width of every layer and of the embedding.
        num_layers: number of convolutions.
        window: tokens that a convolution sees, the present one included.
    Raises: ValueError when one of them is below 1.
    """

    # What follows * are the parameters that a suite may set: each needs a type and a default.
    def __init__(self, vocab_size: int, *, d_model: int = 200, num_layers: int = 2, window: int = 4):
        super().__init__()
        for name, size in {"d_model": d_model, "num_layers": num_layers, "window": window}.items():
            if size < 1:
                raise ValueError(f"{name} must be at least 1, got {size}")
        self.window = window
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.layers = nn.ModuleList(nn.Conv1d(d_model, d_model, window) for _ in range(num_layers))
        self.layer_dims = (d_model,) * num_layers  # the widths that heads are built for, bottom to top
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)

    def forward(self, tokens_BT: Tensor, state: None = None) -> Hidden:
        """(B, T) token ids -> the states of all layers. Position t must not depend on tokens after t."""
        h_BDT = self.embedding(tokens_BT).transpose(1, 2)
        layers = []
        for layer in self.layers:
            h_BDT = h_BDT + torch.tanh(layer(functional.pad(h_BDT, (self.window - 1, 0))))
            layers.append(h_BDT.transpose(1, 2))
        return Hidden(tuple(layers), None)  # a recurrent backbone returns its state in place of None
''')


def write(kind: Kind, name: str) -> Path:
    """Write a file to start from into the current folder: suites/<name>.yaml, heads/<name>.py or backbones/<name>.py.

    Returns: its path.
    Raises: ExecutionError when the name cannot be used, or is used already; StorageError.
    """
    if kind == "suite":
        _refuse_suite_name(name)
        place, text = FOLDER / f"{name}.yaml", SUITE
    else:
        _refuse_component_name(kind, name)
        folder, text = {"head": ("heads", HEAD), "backbone": ("backbones", BACKBONE)}[kind]
        place = Path(folder) / f"{name}.py"
    if place.exists():
        raise ExecutionError(f"{place} exists already; choose another name, or remove the file")
    title = "".join(part.capitalize() for part in name.split("_"))
    try:
        place.parent.mkdir(exist_ok=True)
        with place.open("x", encoding="utf-8") as file:
            file.write(text.substitute(name=name, title=title, cls=_class_name(kind, title)))
    except OSError as fault:
        raise StorageError(f"{place} cannot be written: {fault.strerror}") from fault
    return place


def _class_name(kind: Kind, title: str) -> str:
    """'MixtureHead' for 'Mixture', which is imported by the file; 'MyHead' for 'MyHead'."""
    return title.removesuffix(kind.capitalize()) + kind.capitalize()


def _refuse_suite_name(name: str) -> None:
    if not re.fullmatch(SUITE_NAME, name) or name in (LEADERBOARD, GROUND_TRUTH):
        raise ExecutionError(
            f"'{name}' cannot be the name of a suite: expected lower-case letters, digits, _ and -, at most 64, and "
            f"not {LEADERBOARD} or {GROUND_TRUTH}"
        )


def _refuse_component_name(kind: Literal["head", "backbone"], name: str) -> None:
    registry = {"head": HEADS, "backbone": BACKBONES}[kind]
    if not re.fullmatch(COMPONENT_NAME, name) or keyword.iskeyword(name) or name in NO_NAMES:
        raise ExecutionError(
            f"'{name}' cannot be the name of a {kind}: expected a name of Python in lower-case letters, digits and _, "
            "at most 40, and no word of Python or YAML"
        )
    try:
        registry.get(name)
    except UnknownComponent:
        return
    raise ExecutionError(f"there is a {kind} '{name}' already: {registry.origin(name)}; choose another name")
