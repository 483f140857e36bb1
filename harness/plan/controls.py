"""The controls of a suite: rows that compute a plain softmax of the state, with which each claim is compared.

A head is a control if its class says so of its parameters (MayBeControl in harness/protocols.py): `softmax` with any
`projection`, `bias` and `d_embed`, a mixture with K = 1. A suite may say `control: true` or `control: false` of an
entry of `heads`.
"""

from collections.abc import Iterable
from typing import NamedTuple

from harness.containment import guarded
from harness.plan.components import Component
from harness.plan.parameters import resolved
from harness.protocols import MayBeControl

TYING = "tie_weights"  # the parameter that ties the output matrix to the input embedding


class Role(NamedTuple):
    """Whether a head is a control, and whether the suite's file says so."""

    is_control: bool
    declared: bool = False


def roles(heads: Iterable[Component], chosen: set[str]) -> dict[str, Role]:
    """Return str(head) -> its role. Tied weights are a claim where the suite also has an untied control.

    Args:
        chosen: parameters that matching and tuning choose, which are not part of the keys.
    """
    heads = list(heads)
    controls = [each for each in heads if _computes_softmax(each)]
    has_untied = any(not _is_tied(each) for each in controls)
    found = {}
    for each in heads:
        is_control = each in controls and not (has_untied and _is_tied(each))
        declared = each.control is not None
        key = str(each.spec.without(chosen))
        found[key] = Role(each.control if declared else is_control, declared)
    return found


def _computes_softmax(head: Component) -> bool:
    if not isinstance(head.cls, MayBeControl):
        return False
    with guarded(f"head {head.spec.name}", "is_control"):
        return bool(head.cls.is_control(**resolved(head.cls, head.spec.params)))


def _is_tied(head: Component) -> bool:
    return bool(resolved(head.cls, head.spec.params).get(TYING, False))
