"""Run the checks for a head or a backbone on each variant of its parameters."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args, get_origin

from harness.conformance.backbones import BACKBONE_CHECKS, BackboneCase
from harness.conformance.heads import HEAD_CHECKS, HeadCase
from harness.conformance.require import Nonconforming, count
from harness.containment import contained, first_line, guarded
from harness.errors import ExecutionError, HarnessError, UnknownComponent, nearest
from harness.machine.environment import torch_threads
from harness.model import on_meta
from harness.plan.parameters import REQUIRED, Parameter, checked, parameters
from harness.plan.specs import value_text
from harness.printable import sentence
from harness.registry import BACKBONES, HEADS

MAX_PARAMETERS = 200_000_000  # of a variant: with gradients in float64 they take 3 GB
DEFAULTS = "defaults"  # the first variant, without values from the user
CONSTRUCTION = "construction"
KINDS = {"head": (HEADS, HeadCase, HEAD_CHECKS), "backbone": (BACKBONES, BackboneCase, BACKBONE_CHECKS)}
EXPLAINS = (CONSTRUCTION, "shapes")  # without these, the failures of other checks say nothing new


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """The outcome of one check of one variant.

    Args:
        not_run: how many later checks of this variant were not run, because this failure explains them.
        ends: whether no other variant was tried, because of this failure.
    """

    check: str
    variant: str
    ok: bool
    detail: str
    errors: dict[str, float] = field(default_factory=dict)
    not_run: int = 0
    ends: bool = False

    def __str__(self) -> str:
        return f"{self.check} [{self.variant}]: {self.detail}"


def conformance(name: str, given: dict[str, Any] | None = None) -> tuple[str, list[CheckOutcome]]:
    """Run all checks of the component called `name`, in each of its variants.

    The variants are: the defaults; then, one parameter at a time, the other value of every boolean parameter and every
    other choice of a parameter with fixed choices. Variants with more than MAX_PARAMETERS are left out.

    After a failure that explains others (EXPLAINS), the other checks of the variant are not run; of the defaults, also
    no other variant.

    Args:
        given: values of parameters for all variants. A parameter without a default must be given.
    Returns: the kind of the component, 'head' or 'backbone', and an outcome for each check of each variant.
    Raises: UnknownComponent when neither a head nor a backbone has that name; ExecutionError when a required
        parameter is not given, or a given one does not fit.
    """
    kind = _kind_of(name)
    registry, of_case, checks = KINDS[kind]
    known = parameters(cls := registry.get(name))
    variants = list(_variants(known, _base(name, known, given or {})))
    first, _ = variants[0]
    outcomes: list[CheckOutcome] = []
    with torch_threads(1):
        for variant, params in variants:
            found = _outcomes(f"{kind} '{name}'", variant, of_case(cls, params), checks, chosen=variant == first)
            ends = variant == first and found[-1].not_run > 0 and len(variants) > 1
            outcomes += [*found[:-1], replace(found[-1], ends=ends)]
            if ends:
                break
    return kind, outcomes


def _outcomes(
    who: str, variant: str, case: Any, checks: dict[str, Callable[[Any], Any]], *, chosen: bool
) -> list[CheckOutcome]:
    """Construct a component, in messages "head 'mos'", then run its checks. `chosen`: it is the first variant."""
    if (refusal := _construction(who, variant, case, len(checks), chosen=chosen)) is not None:
        return [refusal]
    outcomes = []
    for number, (title, check) in enumerate(checks.items(), start=1):
        outcomes.append(_outcome(title, variant, check, case, who))
        if title in EXPLAINS and not outcomes[-1].ok:
            return [*outcomes[:-1], replace(outcomes[-1], not_run=len(checks) - number)]
    return outcomes


def _construction(who: str, variant: str, case: Any, checks: int, *, chosen: bool) -> CheckOutcome | None:
    """The outcome of a variant that cannot be built, or that is left out; None for others.

    Raises: ExecutionError when the constructor refuses the first variant.
    """
    try:
        with contained(who), guarded(who, "its constructor"):
            size = _num_parameters(case) if isinstance(case, BackboneCase) else 0
            if size > MAX_PARAMETERS and not chosen:
                detail = f"left out: {size:,} parameters; check this variant alone with --set"
                return CheckOutcome(CONSTRUCTION, variant, True, detail)
            case.build()
    except ValueError as refusal:
        if chosen:
            raise ExecutionError(f"{who} cannot be built: {refusal}") from refusal
        return CheckOutcome(CONSTRUCTION, variant, True, f"refused: {refusal}")
    except Exception as error:  # any exception of a constructor is a failed check
        return CheckOutcome(CONSTRUCTION, variant, False, first_line(error), not_run=checks)
    return None


def _kind_of(name: str) -> str:
    for kind, (registry, _, _) in KINDS.items():
        if name in registry.names():
            return kind
    known = [*HEADS.names(), *BACKBONES.names()]
    what = f"unknown head or backbone '{name}'{nearest(name, known)} (known: {', '.join(known)})"
    raise UnknownComponent("; ".join((what, *HEADS.faults(name), *BACKBONES.faults(name))))


@dataclass(frozen=True, slots=True)
class Summary:
    """All outcomes of one component.

    Args:
        worst: the largest error of each check that measures one, over all variants and number types.
        failures: one sentence for each failed check.
    """

    name: str
    variants: int
    checks: int
    worst: dict[str, float]
    failures: list[str]
    seconds: float
    not_run: int = 0


def summary(name: str) -> Summary:
    """Run a component's checks and return their summary. A component that needs parameters counts as a failure."""
    started = time.perf_counter()
    try:
        _, outcomes = conformance(name)
    except HarnessError as error:
        return Summary(name, 0, 0, {}, [str(error)], time.perf_counter() - started)
    worst: dict[str, float] = {}
    for outcome in outcomes:
        if outcome.errors:
            worst[outcome.check] = max(worst.get(outcome.check, 0.0), *outcome.errors.values())
    variants = len({outcome.variant for outcome in outcomes})
    failures = [str(outcome) for outcome in outcomes if not outcome.ok]
    not_run = sum(outcome.not_run for outcome in outcomes)
    return Summary(name, variants, len(outcomes), worst, failures, time.perf_counter() - started, not_run)


def _base(name: str, known: dict[str, Parameter], given: dict[str, Any]) -> dict[str, Any]:
    missing = [key for key, parameter in known.items() if parameter.default is REQUIRED and key not in given]
    unknown = [key for key in given if key not in known]
    if missing or unknown:
        needed = f"needs --set {missing[0]}=..., because it has no default" if missing else ""
        what = needed or f"has no parameter '{unknown[0]}'"
        raise ExecutionError(f"'{name}' {what} (it takes: {', '.join(map(str, known.values()))})")
    values = {}
    for key, value in given.items():
        try:
            values[key] = checked(known[key], value)
        except ValueError as error:
            raise ExecutionError(f"'{name}': {key}: {error}") from None
    return values


def _variants(known: dict[str, Parameter], base: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield ", ".join(f"{name}={value_text(value)}" for name, value in base.items()) or DEFAULTS, base
    for name, parameter in known.items():
        options: tuple[Any, ...] = ()
        if parameter.annotation is bool:
            options = (False, True)
        elif get_origin(parameter.annotation) is Literal:
            options = get_args(parameter.annotation)
        for option in options:
            if name not in base and option != parameter.default:
                yield f"{name}={option}", {**base, name: option}


def _num_parameters(case: BackboneCase) -> int:
    try:
        with on_meta():
            return count(case.build())
    # it cannot be built there; the check 'counted without allocating' reports this
    except (RuntimeError, NotImplementedError):
        return 0


def _outcome(title: str, variant: str, check: Callable[[Any], Any], case: Any, who: str) -> CheckOutcome:
    try:
        with contained(who):
            found = check(case)
    except Exception as error:  # any exception of a component is a failed check
        found = sentence(str(error)) if isinstance(error, Nonconforming) else first_line(error)
        return CheckOutcome(title, variant, False, found)
    if isinstance(found, str):
        return CheckOutcome(title, variant, True, found)
    return CheckOutcome(title, variant, True, ", ".join(f"{name} {error:.0e}" for name, error in found.items()), found)
