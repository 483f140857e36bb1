"""The checks of backbones. Each takes a case. It returns its numerical errors by name, or a text, and raises
Nonconforming if the check fails.

Shape letters: see harness/protocols.py.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from harness.conformance.require import (
    require,
    require_all_trained,
    require_equal_counts,
    require_module,
    require_nothing_learned,
)
from harness.containment import guarded
from harness.model import FromTheRight
from harness.protocols import Bidirectional, require_hidden
from harness.random_streams import seeded

B, T, V = 2, 6, 11


@dataclass(frozen=True, slots=True)
class BackboneCase:
    """A backbone's class and parameters, and small inputs for it."""

    cls: type
    params: dict[str, Any]

    def build(self, dtype: torch.dtype = torch.float64) -> nn.Module:
        """Build the backbone in evaluation mode, always from the same seed."""
        with seeded(0, "conformance", "backbone"):
            with guarded(f"backbone {self.cls.__name__}", "its constructor"):
                backbone = self.cls(V, **self.params)
            require_module(backbone)
            return backbone.to(dtype).eval()

    def tokens(self) -> Tensor:
        """(B, T) token ids."""
        with seeded(0, "conformance", "tokens"):
            return torch.randint(V, (B, T))


class _FromTheRightCase(BackboneCase):
    """The same for the states that are read from right to left."""

    def build(self, dtype: torch.dtype = torch.float64) -> nn.Module:
        """Build the backbone as one that reads texts which begin with their last token."""
        return FromTheRight(super().build(dtype)).eval()


def shapes(case: BackboneCase) -> str:
    """The layers have the shapes (B, T, D_l), bottom to top, and the embedding has V rows."""
    backbone = case.build()
    # Not isinstance(): from Python 3.12 on it does not see an nn.Module's modules.
    require(all(hasattr(backbone, name) for name in ("layer_dims", "embedding")), "layer_dims or embedding is missing")
    num_rows = backbone.embedding.num_embeddings
    require(num_rows == V, f"the embedding has {num_rows} rows for V={V}")
    hidden = backbone(case.tokens())
    require_hidden(hidden, "the backbone")
    found = [tuple(layer.shape) for layer in hidden.layers]
    expected = [(B, T, width) for width in backbone.layer_dims]
    require(found == expected, f"layers have shapes {found}, layer_dims promise {expected}")
    return f"{len(found)} layers, E = {backbone.embedding.embedding_dim}"


def causal(case: BackboneCase) -> str:
    """The output at t has a gradient of exactly zero to the inputs after t, and depends on the input at t."""
    backbone, embedded = case.build(), []
    backbone.embedding.register_forward_hook(lambda module, args, output: embedded.append(output))
    hidden = backbone(case.tokens())
    for layer in range(len(hidden.layers)):
        for t in range(T):
            (gradient_BTE,) = torch.autograd.grad(
                hidden.layers[layer][:, t].square().sum(), embedded[0], retain_graph=True
            )
            leak = gradient_BTE[:, t + 1 :].abs().sum().item()
            require(leak == 0, f"layer {layer} at position {t} sees later inputs (gradient {leak:.1e})")
            require(gradient_BTE[:, t].abs().sum() > 0, f"layer {layer} at position {t} does not see its own input")
    return f"{T} positions of every layer"


def rows_apart(case: BackboneCase) -> dict[str, float]:
    """The output of a row of the batch does not depend on the other rows."""
    backbone, tokens = case.build(), case.tokens()
    together, alone = backbone(tokens).layers[-1][:1], backbone(tokens[:1]).layers[-1]
    error = (together - alone).abs().max().item()
    require(error <= 1e-12, f"a row alone differs by {error:.1e}")
    return {"a row alone": error}


def carries_state(case: BackboneCase) -> dict[str, float] | str:
    """With carried state, two halves of a segment give the same as the whole segment, to 1e-12 in float64."""
    backbone, tokens = case.build(), case.tokens()
    whole = backbone(tokens)
    if whole.state is None:
        return "no state"
    first = backbone(tokens[:, : T // 2])
    second = backbone(tokens[:, T // 2 :], first.state)
    error = max(
        (torch.cat(halves, dim=1) - layer).abs().max().item()
        for *halves, layer in zip(first.layers, second.layers, whole.layers, strict=True)
    )
    require(error <= 1e-12, f"two halves differ from the whole by {error:.1e}")
    return {"two halves": error}


def reproducible(case: BackboneCase) -> str:
    """The same seed gives the same top states in training, bit for bit, with dropout."""
    tops = []
    for _ in range(2):
        backbone = case.build(torch.float32).train()
        with seeded(0, "conformance", "dropout"):
            tops.append(backbone(case.tokens()).layers[-1])
    require(torch.equal(*tops), "two runs of one seed differ")
    return "bit-equal"


def trains_every_parameter(case: BackboneCase) -> str:
    """Every parameter gets a finite gradient from the top layer, which after one step is not zero everywhere; of a
    bidirectional backbone, from the top layer of one of the two directions.
    """
    backbone = case.build()

    def loss() -> Tensor:
        tops = [backbone(case.tokens()).layers[-1]]
        if isinstance(backbone, Bidirectional):
            tops.append(backbone.reversed_states(case.tokens()).layers[-1])
        with seeded(0, "conformance", "direction"):
            return sum((top * torch.randn_like(top)).sum() for top in tops)

    return require_all_trained(backbone, loss)


def learns_nothing(case: BackboneCase) -> str:
    """What it reads in evaluation changes no parameter and no buffer."""
    backbone = case.build()
    return require_nothing_learned(backbone, lambda: backbone(case.tokens()))


def from_the_right(case: BackboneCase) -> str:
    """The states that a bidirectional backbone reads from right to left pass the same checks as the others: shapes,
    no dependence on what is read later, rows, same seed.
    """
    if not issubclass(case.cls, Bidirectional):
        return "reads from left to right only"
    reversed_case = _FromTheRightCase(case.cls, case.params)
    for check in (shapes, causal, rows_apart, reproducible):
        check(reversed_case)
    return "as from the left"


def counts_without_allocating(case: BackboneCase) -> str:
    """On the meta device it has the same number of parameters as on the CPU, because plans count parameters there."""
    with torch.device("meta"):
        planned = case.cls(V, **case.params)
    return require_equal_counts(planned, case.build())


BACKBONE_CHECKS = {
    "shapes": shapes,
    "no dependence on later tokens": causal,
    "rows are independent": rows_apart,
    "carried state": carries_state,
    "same seed, same output": reproducible,
    "from right to left": from_the_right,
    "nothing is learned in evaluation": learns_nothing,
    "every parameter is trained": trains_every_parameter,
    "counted without allocating": counts_without_allocating,
}
