"""Parameters of components: a constructor's keyword-only parameters, with types and defaults, are its YAML schema."""

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

REQUIRED = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Parameter:
    """One keyword-only parameter of a component's constructor. `default` is REQUIRED if it has no default."""

    name: str
    annotation: Any
    default: Any

    def __str__(self) -> str:
        kind = getattr(self.annotation, "__name__", None) if not get_args(self.annotation) else None
        shown = kind or str(self.annotation).replace("typing.", "")
        shown = shown.replace("pathlib._local.", "pathlib.")  # what Python 3.13 calls it
        return f"{self.name}: {shown}" + ("" if self.default is REQUIRED else f" = {self.default!r}")


@cache
def parameters(cls: type) -> dict[str, Parameter]:
    """Return the parameters of a component by name, in the order of its signature."""
    hints = get_type_hints(cls.__init__)
    return {
        name: Parameter(name, hints.get(name, Any), parameter.default)
        for name, parameter in inspect.signature(cls).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }


def resolved(cls: type, params: dict[str, Any]) -> dict[str, Any]:
    """Return the values of all parameters: the given values, and defaults for the others."""
    defaults = {name: p.default for name, p in parameters(cls).items() if p.default is not REQUIRED}
    return {**defaults, **params}


def checked(parameter: Parameter, value: Any) -> Any:
    """Check a value and return it in the parameter's type (7 becomes 7.0 for a float).

    The check is strict: no string for a number, no float for an integer.

    Raises: ValueError with what was expected and what was found.
    """
    try:
        adapter = TypeAdapter(parameter.annotation, config=ConfigDict(strict=True, allow_inf_nan=False))
        return adapter.validate_json(json.dumps(value))
    except ValidationError as error:
        raise ValueError(sentence(_nearest_miss(error.errors()))) from None
    except PydanticUserError:
        raise ValueError(f"a suite cannot give a value for its annotation {parameter.annotation}") from None


def axis(parameter: Parameter, value: Any) -> list[Any]:
    """Return the values that a suite gives for a parameter.

    A list is a grid axis: one trial for each of its values. For a parameter that itself takes a list, only a list of
    lists is a grid axis; if it takes a mapping, too, so is a list of lists and mappings.
    """
    if not isinstance(value, list):
        return [value]
    kinds = _kinds(parameter.annotation)
    values = (list, dict) if dict in kinds else (list,)
    if kinds & {list, tuple} and not (value and all(isinstance(item, values) for item in value)):
        return [value]
    return value


def is_place(parameter: Parameter) -> bool:
    """Return whether a parameter is a path. Paths are not part of a trial's id."""
    return Path in _kinds(parameter.annotation)


def takes_name(parameter: Parameter) -> bool:
    """Return whether a parameter is a path or a name: `Path | str`."""
    return {Path, str} <= _kinds(parameter.annotation)


@cache
def places(cls: type) -> frozenset[str]:
    """Return the names of a component's parameters that are paths."""
    return frozenset(name for name, parameter in parameters(cls).items() if is_place(parameter))


def paths(cls: type, params: dict[str, Any]) -> dict[str, Any]:
    """Return the paths that a component's parameters give, by name; those within a mapping as 'tokenizer.pretrained'.

    A mapping has paths where the annotation is dict[Literal["pretrained"], Path].
    """
    found: dict[str, Any] = {}
    for name, value in _known(cls, params):
        if is_place(parameters(cls)[name]):
            found[name] = value
        elif isinstance(value, dict):
            keys = _path_keys(parameters(cls)[name].annotation)
            found |= {f"{name}.{key}": entry for key, entry in value.items() if key in keys}
    return {name: value for name, value in found.items() if value is not None}


def with_paths(cls: type, params: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a component's parameters with each path changed, also those within mappings."""
    return {
        **params,
        **{name: changed_paths(parameters(cls)[name], value, change) for name, value in _known(cls, params)},
    }


def changed_paths(parameter: Parameter, value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a value of a parameter with its paths changed: the value itself, or entries of a mapping."""
    if value is not None and is_place(parameter):
        return change(value)
    keys = _path_keys(parameter.annotation)
    if isinstance(value, dict) and keys:
        return {key: change(entry) if key in keys else entry for key, entry in value.items()}
    return value


def is_width(parameter: Parameter) -> bool:
    """Return whether a parameter is a width: an integer whose name begins with d_ (d_model, d_ff, d_embed, d_gate)."""
    return parameter.name.startswith("d_") and int in _kinds(parameter.annotation) <= {int, NoneType}


def sentence(error: dict[str, Any]) -> str:
    """Return one of pydantic's errors as a sentence in the words of this project."""
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
    """Return one error for the alternatives of a union: that of the alternative which accepted most of the value.

    If all alternatives fail at the same place, the returned error lists what each of them expected.
    """
    depth = max(len(error["loc"]) for error in errors)
    deepest = [error for error in errors if len(error["loc"]) == depth]
    expected = "Input should be "
    if any(error["input"] != deepest[0]["input"] or not error["msg"].startswith(expected) for error in deepest):
        return deepest[0]
    alternatives = dict.fromkeys(error["msg"].removeprefix(expected) for error in deepest)
    return {**deepest[0], "msg": expected + " or ".join(alternatives)}


def _known(cls: type, params: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the given parameters that a component has. A record may have others."""
    return [(name, value) for name, value in params.items() if name in parameters(cls)]


def _kinds(annotation: Any) -> set[Any]:
    """Return the classes that an annotation allows: {list, NoneType} for list[int] | None."""
    return {get_origin(option) or option for option in _options(annotation)}


def _options(annotation: Any) -> list[Any]:
    """Return the alternatives of a union; of another annotation itself."""
    options = get_args(annotation) if get_origin(annotation) not in (list, tuple, dict) else ()
    if options and not any(isinstance(option, str | int) for option in options):
        return [inner for option in options for inner in _options(option)]
    return [annotation]


def _path_keys(annotation: Any) -> set[str]:
    """Return the keys of mappings whose values are paths: {'pretrained'} for dict[Literal['pretrained'], Path]."""
    mappings = [get_args(option) for option in _options(annotation) if get_origin(option) is dict]
    return {key for keys, value in mappings if value is Path for key in get_args(keys)}
