"""A constructor's signature as schema: strict types, axes, places, and the sentences."""

from pathlib import Path
from typing import Literal

import pytest

from harness.plan.parameters import (
    REQUIRED,
    Parameter,
    axis,
    checked,
    is_width,
    parameters,
    paths,
    resolved,
    with_paths,
)


class Example:
    def __init__(
        self, dims, positional: int = 3, *, size: int, rate: float = 0.5, kind: Literal["tanh", "none"] = "tanh",
        widths: list[int] | None = None, path: Path = Path("here"),
    ):  # fmt: skip
        pass


COUNTS = dict[Literal["top", "second", "third"], int] | tuple[int, ...]


def of(annotation, name="x") -> Parameter:
    return Parameter(name, annotation, REQUIRED)


def test_parameters_are_the_keyword_only_ones_in_order_whose_defaults_given_values_replace():
    known = parameters(Example)
    assert list(known) == ["size", "rate", "kind", "widths", "path"]
    assert (known["size"], known["rate"]) == (of(int, "size"), Parameter("rate", float, 0.5))
    expected = {"rate": 0.1, "kind": "tanh", "widths": None, "path": Path("here"), "size": 4}
    assert resolved(Example, {"size": 4, "rate": 0.1}) == expected


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        *[(float, 7, 7.0), (bool, True, True), (str, "7", "7"), (Path, "a/b", Path("a/b")), (COUNTS, [15, 5], (15, 5))],
        (dict[Literal["log_epsilon"], float] | None, {"log_epsilon": 1}, {"log_epsilon": 1.0}),
    ],
)
def test_value_of_the_right_type_comes_back_in_the_parameters_own_type(annotation, value, expected):
    found = checked(of(annotation), value)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("annotation", "value", "values"),
    [
        *[(int, 3, [3]), (int, [], []), (list[int], [], [[]]), (list[int], [1, 2], [[1, 2]])],
        *[(list[int] | None, [[1], [2]], [[1], [2]]), (COUNTS, [15, 5], [[15, 5]]), (COUNTS, {"top": 3}, [{"top": 3}])],
        *[(COUNTS, [{"top": 3}, [2, 1]], [{"top": 3}, [2, 1]]), (dict[str, float], [{"a": 1.0}], [{"a": 1.0}])],
        (list[dict[str, int]], [{"a": 1}, {"a": 2}], [[{"a": 1}, {"a": 2}]]),
    ],
)
def test_list_is_an_axis_unless_the_parameter_itself_takes_one(annotation, value, values):
    assert axis(of(annotation), value) == values


MODEL = Literal["gpt2"] | dict[Literal["bpe"], int] | dict[Literal["pretrained"], Path] | None


class Placed:
    def __init__(
        self, *, path: Path | None = None, size: int = 3, model: MODEL = None, named: dict[str, Path] | None = None
    ):
        pass


@pytest.mark.parametrize(
    ("params", "found"),
    [
        ({"path": "a", "size": 4}, {"path": "a"}),
        ({"path": None, "model": {"bpe": 300}}, {}),
        ({"model": {"pretrained": "b"}, "path": "a"}, {"path": "a", "model.pretrained": "b"}),
        ({"model": {"pretrained": None}, "unknown": {"pretrained": "c"}}, {}),
    ],
)
def test_paths_are_found_and_changed_within_mappings_too(params, found):
    assert paths(Placed, params) == found
    changed = with_paths(Placed, params, lambda path: None if path is None else f"/{path}")
    assert paths(Placed, changed) == {name: f"/{path}" for name, path in found.items()}
    assert with_paths(Placed, changed, lambda path: path and path[1:]) == params


def test_a_width_is_a_whole_number_whose_name_begins_with_d():
    assert is_width(of(int | None, "d_embed"))
    assert not any(is_width(of(int, name)) for name in ("bad_d_", "depth"))
    for kind in (float, bool, int | float, int | str, list[int], Literal[1, 2]):
        assert not is_width(of(kind, "d_x"))


def test_a_parameter_reads_like_its_signature_and_an_annotation_that_cannot_be_understood_is_a_sentence():
    assert str(Parameter("kind", Literal["a", "b"], "a")) == "kind: Literal['a', 'b'] = 'a'"
    with pytest.raises(ValueError, match=r"a suite cannot give a value for its annotation .*Example"):
        checked(of(Example), 1)
