"""A component's constructor is its schema: names, types and defaults of the keyword-only parameters, checked here."""

import inspect
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

REQUIRED = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Parameter:
    """One keyword-only parameter of a component's constructor; `default` is REQUIRED when there is none."""

    name: str
    annotation: Any
    default: Any

    def __str__(self) -> str:
        kind = getattr(self.annotation, "__name__", None) if not get_args(self.annotation) else None
        shown = kind or str(self.annotation).replace("typing.", "")
        return f"{self.name}: {shown}" + ("" if self.default is REQUIRED else f" = {self.default!r}")


@cache
def parameters(cls: type) -> dict[str, Parameter]:
    """The YAML schema of a component, in the order of its signature."""
    hints = get_type_hints(cls.__init__)
    return {
        name: Parameter(name, hints.get(name, Any), parameter.default)
        for name, parameter in inspect.signature(cls).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }


def resolved(cls: type, params: dict[str, Any]) -> dict[str, Any]:
    """Every parameter's value: the given ones, the defaults for the others."""
    defaults = {name: p.default for name, p in parameters(cls).items() if p.default is not REQUIRED}
    return {**defaults, **params}


def checked(parameter: Parameter, value: Any) -> Any:
    """The value in the parameter's own type (7 becomes 7.0 where a float belongs).

    Raises: ValueError saying what was expected and found. Strict: no text for a number, no float for an int.
    """
    try:
        adapter = TypeAdapter(parameter.annotation, config=ConfigDict(strict=True, allow_inf_nan=False))
        return adapter.validate_json(json.dumps(value))
    except ValidationError as error:
        raise ValueError(sentence(_nearest_miss(error.errors()))) from None
    except PydanticUserError:
        raise ValueError(f"its annotation {parameter.annotation} is none that a suite can give a value for") from None


def axis(parameter: Parameter, value: Any) -> list[Any]:
    """The values a suite gives a parameter: a list is a grid axis, unless the parameter itself takes a list; then a
    list of such values is: of lists, or of mappings where it takes a mapping too.
    """
    if not isinstance(value, list):
        return [value]
    kinds = _kinds(parameter.annotation)
    values = (list, dict) if dict in kinds else (list,)
    if kinds & {list, tuple} and not (value and all(isinstance(item, values) for item in value)):
        return [value]
    return value


def is_place(parameter: Parameter) -> bool:
    """True for parameters that say where something lies: left out of a trial's identity."""
    return Path in _kinds(parameter.annotation)


@cache
def places(cls: type) -> frozenset[str]:
    """The names of a component's parameters that are places."""
    return frozenset(name for name, parameter in parameters(cls).items() if is_place(parameter))


def is_integer(parameter: Parameter) -> bool:
    """True for parameters that take whole numbers, and at most None besides."""
    return int in _kinds(parameter.annotation) <= {int, NoneType}


def is_width(parameter: Parameter) -> bool:
    """True for whole numbers whose name begins with d_, as widths are called here: d_model, d_ff, d_embed, d_gate."""
    return parameter.name.startswith("d_") and is_integer(parameter)


def sentence(error: dict[str, Any]) -> str:
    """One of pydantic's errors in our words."""
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    if error["type"] == "too_short":
        return "must not be empty"
    message = error["msg"][0].lower() + error["msg"][1:]
    for theirs, ours in {"input should be": "expected", "a valid array": "a list", "an object": "a mapping"}.items():
        message = message.replace(theirs, ours)
    found = json.dumps(error["input"], default=str, ensure_ascii=False)
    shown = found if len(found) <= 80 else f"{found[:77]}..."
    return message if error["type"] == "missing" else f"{message}, got {shown}"


def _nearest_miss(errors: list[dict[str, Any]]) -> dict[str, Any]:
    """Of the errors of a union's alternatives, that of the one which fits furthest into the value; where none fits at
    all, what each expected.
    """
    depth = max(len(error["loc"]) for error in errors)
    deepest = [error for error in errors if len(error["loc"]) == depth]
    expected = "Input should be "
    if any(error["input"] != deepest[0]["input"] or not error["msg"].startswith(expected) for error in deepest):
        return deepest[0]
    alternatives = dict.fromkeys(error["msg"].removeprefix(expected) for error in deepest)
    return {**deepest[0], "msg": expected + " or ".join(alternatives)}


def _kinds(annotation: Any) -> set[Any]:
    """The plain classes an annotation allows: list[int] | None -> {list, NoneType}."""
    options = get_args(annotation) if get_origin(annotation) not in (list, tuple, dict) else ()
    if options and not any(isinstance(option, str | int) for option in options):
        return {kind for option in options for kind in _kinds(option)}
    return {get_origin(annotation) or annotation}
