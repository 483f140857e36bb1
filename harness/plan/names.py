"""The names of rows: what every view calls a head, a backbone and a corpus.

A suite may give a component a `label`. Without one the name is made of the label in the docstring of the class, or of
the registered name, and of the parameters that are in this label or distinguish the entries of one suite:

    Label: [{projection:affine} ]softmax[, rank {d_embed}]        softmax | affine softmax | affine softmax, rank 16
    Label: MoS {num_mixtures}[, {gate} gate]                      MoS 2 | MoS 5 | MoS 5, static gate
    Label: DOC {components:top+second+third}                      DOC 15+5
    no label, `cosine: {sharpness: [5, 10]}`                      cosine, sharpness 5 | cosine, sharpness 10

`{d_embed}` is the value of a parameter, `{projection:affine}` a word where the value is true, and
`{activation:none=no tanh}` words where it is 'none'; `{components:top+second+third}` are the counts of a list or of a
mapping with these keys. What stands in brackets is left out where none of its parameters is said.
"""

import inspect
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.plan.parameters import Parameter, parameters, resolved, with_paths
from harness.plan.specs import ComponentSpec, value_text
from harness.registry import Registry

MAX_LABEL = 60  # characters, of a suite's label
_OPTIONAL = re.compile(r"\[([^\[\]]*)\]")
_VALUE = re.compile(r"\{(\w+)(?::([^{}]*))?\}")
_KEYS = re.compile(r"\w+(\+\w+)+")


def names_of(
    specs: Iterable[ComponentSpec],
    registry: Registry,
    *,
    labels: Mapping[str, str] | None = None,
    chosen: Collection[str] = (),
) -> dict[str, str]:
    """Return the names of components: str(spec) -> name. No two have the same.

    What is said are the parameters that the label of the class has and the suite gives, and of several entries of one
    class those in which they differ: numbers always, other values where they are not the default. Where two names would
    be equal, both are written in full: 'mos(num_mixtures=2, gate=static)'.

    Args:
        labels: str(spec) -> the label that the suite gives.
        chosen: parameters whose values matching and tuning choose. They are in no name.
    """
    together: dict[str, dict[str, ComponentSpec]] = {}
    for spec in specs:
        together.setdefault(spec.name, {})[str(spec)] = spec
    found = dict(labels or {})
    for name, entries in together.items():
        values = {key: _values(spec, registry, chosen) for key, spec in entries.items()}
        known = dict.fromkeys(parameter for each in values.values() for parameter in each)
        differing = [each for each in known if len({value_text(value.get(each)) for value in values.values()}) > 1]
        for key, spec in entries.items():
            found.setdefault(key, _name(spec, registry.get(name), values[key], differing))
    written = {key: spec for entries in together.values() for key, spec in entries.items()}
    used = Counter(found[key] for key in written)
    return {key: found[key] if used[found[key]] == 1 else str(shown(spec, registry)) for key, spec in written.items()}


def labelled(label: Any, spec: ComponentSpec, registry: Registry) -> str:
    """Return the name that a suite's label gives to one point of an entry.

    Raises: ValueError where the label is no short text, or names a parameter that the component does not have.
    """
    if not (isinstance(label, str) and label.isprintable() and 0 < len(label.strip()) == len(label) <= MAX_LABEL):
        raise ValueError(f"expected a text of 1 to {MAX_LABEL} characters in one line, got {str(label)[:MAX_LABEL]!r}")
    values = _values(spec, registry, ())
    if unknown := [name for name, _ in _VALUE.findall(label) if name not in values]:
        raise ValueError(f"the label has {{{unknown[0]}}}, which is no parameter of '{spec.name}'")
    return _worded(label, values, spec.params)


def shown(spec: ComponentSpec, registry: Registry) -> ComponentSpec:
    """Return a component as views show it: with the name of a file or folder instead of its path."""
    short = with_paths(registry.get(spec.name), spec.params, lambda path: Path(path).name)
    return ComponentSpec(name=spec.name, params=short) if short != spec.params else spec


def family(cls: type) -> str:
    """Return what a component declares as its family in its docstring, `Family: plain`; '' without a declaration."""
    return section(cls, "Family")


def section(cls: type, title: str) -> str:
    """Return what stands in a section of a component's docstring, `Label: MoS {num_mixtures}`; '' without it."""
    found = re.search(rf"^{title}:(.*(?:\n +.*)*)", inspect.cleandoc(cls.__doc__ or ""), re.MULTILINE)
    return found[1].strip() if found else ""


def without_sections(cls: type, titles: Collection[str]) -> str:
    """Return a component's docstring without the sections of some titles."""
    of_titles = rf"^(?:{'|'.join(titles)}):.*\n?(?: +.*\n?)*"
    return re.sub(of_titles, "", inspect.cleandoc(cls.__doc__ or ""), flags=re.MULTILINE)


def _values(spec: ComponentSpec, registry: Registry, chosen: Collection[str]) -> dict[str, Any]:
    values = resolved(registry.get(spec.name), shown(spec, registry).params)
    return {name: value for name, value in values.items() if name not in chosen or name in spec.params}


def _name(spec: ComponentSpec, cls: type, values: Mapping[str, Any], differing: Collection[str]) -> str:
    """Return the name of one entry, which differs from others of its class in some parameters."""
    label = "".join(line.strip() for line in section(cls, "Label").splitlines()) or spec.name
    of_label = [name for name, _ in _VALUE.findall(label)]
    said = [*differing, *(name for name in spec.params if name in of_label)]
    telling = [name for name in said if name in values and _is_shown(parameters(cls)[name], values[name])]
    others = [name for name in telling if name not in of_label]
    return "".join([_worded(label, values, telling), *(f", {_said(name, values[name])}" for name in others)])


def _is_shown(parameter: Parameter, value: Any) -> bool:
    """Whether a value says more than that it is the default. A number always does: nobody knows all defaults."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number or value_text(value) != value_text(parameter.default)


def _said(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return name if value else f"no {name}"
    return f"{name} {_number(value)}"


def _number(value: Any) -> str:
    """A value as text; a float without the zeros that say nothing: '30', '0.05'."""
    return f"{value:g}" if isinstance(value, float) else value_text(value)


def _worded(label: str, values: Mapping[str, Any], said: Collection[str]) -> str:
    """Return a label with the values of its parameters."""

    def kept(found: re.Match[str]) -> str:
        of_part = [name for name, _ in _VALUE.findall(found[1])]
        return found[1] if any(name in said and values.get(name) not in (None, False) for name in of_part) else ""

    def text(found: re.Match[str]) -> str:
        value, words = values.get(found[1]), found[2]
        if words is None:
            return "" if value is None else _number(value)
        if _KEYS.fullmatch(words):
            return _counts(value, words.split("+"))
        option, equals, of_option = words.partition("=")
        if equals:
            return of_option if value == option else ""
        return words if value else ""

    return _VALUE.sub(text, _OPTIONAL.sub(kept, label)).strip()


def _counts(value: Any, keys: list[str]) -> str:
    """'15+5' for (15, 5) and for {top: 15, second: 5}."""
    if isinstance(value, Mapping):
        value = [value.get(key, 0) for key in keys if any(later in value for later in keys[keys.index(key) :])]
    return "+".join(map(str, value or ()))
