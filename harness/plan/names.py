"""The names of rows: what every view calls a head, a backbone and a corpus.

A suite may give a component a `label`, a text with names of parameters in braces:
'ours, K = {num_mixtures}'. Without one, the name is what the class says, or its registered name;
after it stands what else differs between the entries of one suite:

    def label(cls, p): return f"MoS {p.num_mixtures}"
        MoS 2 | MoS 5 | MoS 5, dropout 0.2 | MoS 5, dropout 0.5
    no such method, `cosine: {sharpness: [5, 10]}`
        cosine, sharpness 5 | cosine, sharpness 10
"""

import inspect
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from harness.errors import ExecutionError
from harness.plan.parameters import Parameter, parameters, resolved, with_paths
from harness.plan.specs import ComponentSpec, value_text
from harness.registry import Registry

MAX_LABEL = 60  # characters, of a suite's label
_BRACES = re.compile(r"\{([^{}]*)\}")
_OPTIONAL = re.compile(r"\[[^\[\]]*\{.*\]")


def names_of(
    specs: Iterable[ComponentSpec],
    registry: Registry,
    *,
    labels: Mapping[str, str] | None = None,
    chosen: Collection[str] = (),
) -> dict[str, str]:
    """Return the names of components: str(spec) -> name. No two have the same.

    Of several entries of one class the parameters in which they differ are said, but for those that
    the class says itself: numbers always, other values where they are not the default. Where two
    names would be equal, both are written in full: 'mos(num_mixtures=2, gate=static)'.

    Args:
        labels: str(spec) -> the label that the suite gives.
        chosen: parameters whose values matching and tuning choose. They are in no name.
    Raises: ExecutionError when the `label` of a class fails, or its docstring has the former
        `Label:`.
    """
    by_class: dict[str, dict[str, ComponentSpec]] = {}
    for spec in specs:
        by_class.setdefault(spec.name, {})[str(spec)] = spec
    written: dict[str, ComponentSpec] = {}
    found: dict[str, str] = {}
    for name, entries in by_class.items():
        written |= entries
        values = {key: _values(spec, registry, chosen) for key, spec in entries.items()}
        differing = _differing(values.values())
        for key, spec in entries.items():
            found[key] = _name(spec, registry.get(name), values[key], differing)
    found |= labels or {}
    used = Counter(found[key] for key in written)
    for key, spec in written.items():
        if used[found[key]] > 1:
            found[key] = str(shown(spec, registry))
    return {key: found[key] for key in written}


def _differing(entries: Collection[Mapping[str, Any]]) -> list[str]:
    """Return the parameters that do not have one value in all entries of a class."""
    differing = []
    for name in dict.fromkeys(chain.from_iterable(entries)):
        values = {value_text(entry.get(name)) for entry in entries}
        if len(values) > 1:
            differing.append(name)
    return differing


def automatic(spec: ComponentSpec, registry: Registry, chosen: Collection[str] = ()) -> str:
    """Return what a class calls a component, without what differs from others of a suite: 'MoS 5'.

    Raises: as `names_of` does.
    """
    return _name(spec, registry.get(spec.name), _values(spec, registry, chosen), ())


def labelled(label: Any, spec: ComponentSpec, registry: Registry) -> str:
    """Return the name that a suite's label gives to one point of an entry.

    Raises: ValueError where the label is no short text, or names a parameter that the component
        does not have.
    """
    is_line = isinstance(label, str) and label.isprintable() and label == label.strip()
    if not (is_line and 0 < len(label) <= MAX_LABEL):
        expected = f"expected a text of 1 to {MAX_LABEL} characters in one line"
        raise ValueError(f"{expected}, got {str(label)[:MAX_LABEL]!r}")
    values = _values(spec, registry, ())
    for name in _BRACES.findall(label):
        if name not in values:
            raise ValueError(f"the label has {{{name}}}, which is no parameter of '{spec.name}'")
    if _OPTIONAL.search(label):  # which labels of classes once had, and would stand in the table
        raise ValueError("nothing in brackets is left out of a label; give each row one of its own")

    def filled(braces: re.Match[str]) -> str:
        value = values[braces[1]]
        return "" if value is None else _number(value)

    return _BRACES.sub(filled, label).strip()


def shown(spec: ComponentSpec, registry: Registry) -> ComponentSpec:
    """Return a component as views show it: with the name of a file or folder and not its path."""
    short = with_paths(registry.get(spec.name), spec.params, lambda path: Path(path).name)
    return ComponentSpec(name=spec.name, params=short) if short != spec.params else spec


def with_settings(spec: ComponentSpec, registry: Registry) -> str:
    """Return a component with its settings that are not the default: 'softmax(softcap=0.05)'."""
    known, changed = parameters(registry.get(spec.name)), {}
    for name, value in shown(spec, registry).params.items():
        if value_text(value) != value_text(known[name].default):
            changed[name] = value
    return str(ComponentSpec(name=spec.name, params=changed))


def family(cls: type) -> str:
    """Return what a component declares as its family in its docstring, `Family: plain`; '' without
    a declaration.
    """
    return section(cls, "Family")


def section(cls: type, title: str) -> str:
    """Return a section of a component's docstring, `Cost: K softmaxes`; '' without it."""
    docstring = inspect.cleandoc(cls.__doc__ or "")
    found = re.search(rf"^{title}:(.*(?:\n +.*)*)", docstring, re.MULTILINE)
    return found[1].strip() if found else ""


def without_sections(cls: type, titles: Collection[str]) -> str:
    """Return a component's docstring without the sections of some titles."""
    of_titles = rf"^(?:{'|'.join(titles)}):.*\n?(?: +.*\n?)*"
    return re.sub(of_titles, "", inspect.cleandoc(cls.__doc__ or ""), flags=re.MULTILINE)


def _values(spec: ComponentSpec, registry: Registry, chosen: Collection[str]) -> dict[str, Any]:
    values = {}
    for name, value in resolved(registry.get(spec.name), shown(spec, registry).params).items():
        if name not in chosen or name in spec.params:
            values[name] = value
    return values


class _Parameters:
    """The parameters of an entry as the `label` of its class sees them, and the names of those that
    it has read. One that matching or tuning chooses is ''.
    """

    def __init__(self, cls: type, values: Mapping[str, Any]):
        self._values = {**dict.fromkeys(parameters(cls), ""), **values}
        self._read: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if name not in self._values:
            raise AttributeError(f"there is no parameter '{name}'")
        self._read.add(name)
        return self._values[name]


def _name(
    spec: ComponentSpec,
    cls: type,
    values: Mapping[str, Any],
    differing: Collection[str],
) -> str:
    """Return the name of one entry, which differs from others of its class in some parameters."""
    label, p = spec.name, _Parameters(cls, values)
    if "label" in vars(cls):
        try:
            label = str(cls.label(p)).strip()
        except Exception as fault:
            raised = f"{type(fault).__name__}: {fault}"
            raise ExecutionError(f"the label of '{spec.name}' raised {raised}") from fault
    elif section(cls, "Label"):
        removed = "which was removed: a class method says the name, as label(cls, p) of heads/mos.py"
        raise ExecutionError(f"'{spec.name}' has 'Label:' in its docstring, {removed}")
    parts = [label]
    for name in differing:
        if name not in values or name in p._read:  # the label of the class says it
            continue
        if _is_shown(parameters(cls)[name], values[name]):
            parts.append(_with_value(name, values[name]))
    return ", ".join(parts)


def _is_shown(parameter: Parameter, value: Any) -> bool:
    """Whether a value says more than that it is the default. A number always does: nobody knows all
    defaults.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number or value_text(value) != value_text(parameter.default)


def _with_value(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return name if value else f"no {name}"
    return f"{name} {_number(value)}"


def _number(value: Any) -> str:
    """A value as text; a float without the zeros that say nothing: '30', '0.05'."""
    return f"{value:g}" if isinstance(value, float) else value_text(value)
