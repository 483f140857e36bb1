"""Whether a head computes what a head of the harness computes.

Both get the same small inputs, and the parameters of one are given to the other where their shapes are the same. A head
with the same numbers under another name is the same head.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from harness.containment import contained
from harness.errors import HarnessError
from harness.extensions import needed
from harness.random_streams import seeded
from harness.registry import HEADS
from harness.submissions.outcomes import Check, judged

NEAR = 1e-9  # nats, in float64
NAME = "a head of its own"


def compared(name: str, params: dict[str, Any], others: Iterable[tuple[str, dict[str, Any]]]) -> Check:
    """Compare a head with heads of the harness: each of `others`, names with parameters, and each other one with its
    defaults.
    """
    faults, marks, number = [], [], 0
    case = needed("harness.conformance.heads:HeadCase", "the comparison of heads")
    mine = case(HEADS.get(name), params)
    candidates = [*others, *((each, {}) for each in HEADS.names() if each != name)]
    for other, given in candidates:
        shown = f"{other}{given or ''}"
        try:
            with contained(f"head {name}"):
                scores, losses = _distances(mine, case(HEADS.get(other), given))
        except (HarnessError, TypeError, ValueError, RuntimeError):
            continue  # it cannot be built without more parameters, or has others than this head
        number += 1
        if scores <= NEAR and losses <= NEAR:
            faults.append(f"with the same parameters it gives the numbers of {shown}, in training, too")
        elif scores <= NEAR:
            marks.append(f"it is evaluated as {shown}, and is trained with another loss")
    otherwise = f"its numbers are not those of the {number} of {len(candidates)} heads with such parameters"
    return judged(NAME, list(dict.fromkeys(faults)), list(dict.fromkeys(marks)), otherwise)


def _distances(mine: Any, other: Any) -> tuple[float, float]:
    """The largest difference of log-probabilities, and that of training losses, with the same parameters.

    Raises: ValueError when the shapes of the parameters differ.
    """
    hidden, targets = mine.hidden(), mine.targets()
    one, two = mine.build(), other.build()
    _give(one, two)
    with torch.no_grad():
        scores = (one(hidden).log_probs() - two(hidden).log_probs()).abs().max().item()
    found = []
    for head in (one.train(), two.train()):
        with seeded(0, "conformance", "likeness"):
            found.append(head(hidden).training_loss(targets).item())
    return scores, abs(found[0] - found[1])


def _give(one: nn.Module, two: nn.Module) -> None:
    """Give the parameters of one module to another: sorted by their shapes, those of one shape in their order."""
    sources, targets = (sorted(each.parameters(), key=lambda weight: tuple(weight.shape)) for each in (one, two))
    if [each.shape for each in sources] != [each.shape for each in targets]:
        raise ValueError("other parameters")
    with torch.no_grad():
        for source, target in zip(sources, targets, strict=True):
            target.copy_(source)
