"""The controls of a suite: rows that compute a plain softmax of the state, with which each claim is compared.

A head is a control if its class says so of its parameters (MayBeControl in harness/protocols.py): `softmax` with any
`projection`, `bias` and `d_embed`, a mixture with K = 1. A suite may say `control: true` or `control: false` of an
entry of `heads`.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, get_args

from harness.containment import guarded
from harness.distributions import Start
from harness.plan.components import Component
from harness.plan.kept_models import Body
from harness.plan.parameters import parameters, resolved
from harness.protocols import MayBeControl

TYING = "tie_weights"  # the parameter that ties the output matrix to the input embedding
MAP = "projection"  # the parameter that puts an affine map before the output matrix
OF_MIXTURES = ("num_mixtures", "components")  # parameters of heads that map the state before they mix
NO_PLAIN = (
    "No row is a plain softmax, which may beat what beats a weaker control: add a `softmax` without `projection` to "
    "`heads`"
)
NO_AFFINE = (
    "Mixtures have an affine map before the output matrix, and no control has one: add `softmax: {projection: true}` "
    "to `heads`"
)
AT_RANDOM, *AT_IDENTITY = get_args(Start)  # how the map of a head may start


class Role(NamedTuple):
    """Whether a head is a control, and whether only the suite's file says so, against its class."""

    is_control: bool
    declared: bool = False


def roles(heads: Sequence[Component]) -> list[Role]:
    """Return the role of each head. Tied weights are a claim where the suite also has an untied control."""
    controls = [each for each in heads if computes_softmax(each)]
    has_untied = any(not _value(each, TYING) for each in controls)
    found = []
    for each in heads:
        is_control = each in controls and not (has_untied and _value(each, TYING))
        declared = each.control is not None and each.control != is_control
        found.append(Role(is_control != declared, declared))
    return found


def control_notes(
    heads: Sequence[Component], known: Sequence[Role], names: Sequence[str], bodies: Iterable[Body]
) -> list[str]:
    """Return sentences on controls: those that the suite's file declares, and the rows that it lacks.

    Args:
        known, names: the role of each head, and its name in views.
    """
    found, controls, claims = [], [], []
    for head, role, name in zip(heads, known, names, strict=True):
        (controls if role.is_control else claims).append(head)
        if role.declared:
            word = "a control" if role.is_control else "no control"
            found.append(f"{name} is {word} because the suite's file says so")
    mapped = [each for each in controls if _value(each, MAP) or _is_mixture(each)]
    has_plain = any(computes_softmax(each) and not (_value(each, MAP) or _is_mixture(each)) for each in heads)
    # a plain softmax fits only where the state is as wide as the embedding
    fits = all(body.fits for body in bodies)
    if claims and not has_plain and fits:
        found.append(NO_PLAIN)
    if not mapped and any(_is_mixture(each) and _start(each) == AT_RANDOM for each in claims):
        found.append(NO_AFFINE)
    starts = {_start(each) for each in mapped}
    for head, role, name in zip(heads, known, names, strict=True):
        has_map = _value(head, MAP) or _is_mixture(head)
        if role.is_control or not has_map or _start(head) in (AT_RANDOM, *starts):
            continue
        # such a map alone can gain as much as a mixture does (docs/heads.md)
        starts.add(_start(head))
        what = f"No control with a map starts as {name} does"
        found.append(f"{what}: add `softmax: {{projection: true, start: {_start(head)}}}` to `heads`")
    return list(dict.fromkeys(found))


def computes_softmax(head: Component) -> bool:
    """Return whether a head's class says that it computes a plain softmax with its parameters."""
    # a class that inherits the method computes something of its own, and has to say so itself
    if not isinstance(head.cls, MayBeControl) or "is_control" not in vars(head.cls):
        return False
    with guarded(f"head {head.spec.name}", "is_control"):
        return bool(head.cls.is_control(**resolved(head.cls, head.spec.params)))


def _start(head: Component) -> str:
    start = resolved(head.cls, head.spec.params).get("start")
    return start if start in AT_IDENTITY else AT_RANDOM


def _value(head: Component, name: str) -> bool:
    return bool(resolved(head.cls, head.spec.params).get(name, False))


def _is_mixture(head: Component) -> bool:
    return any(name in parameters(head.cls) for name in OF_MIXTURES)
