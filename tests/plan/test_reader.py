"""YAML to plain data: positions, limits, and one located sentence for whatever is no suite."""

import pytest

from harness.errors import SuiteError
from harness.plan.reader import MAX_BYTES, Problems, read

TEXT = """\
a: 1
bb:
  c:   word
  d: [10, {e: 2.5}]
  f:
    - x
    -   y
"""


PLACES = {  # of a value -> line and column of its key, and its own
    ("bb",): ((2, 1), (3, 3)),
    ("bb", "c"): ((3, 3), (3, 8)),
    ("bb", "d", 1): (None, (4, 11)),
    ("bb", "d", 1, "e"): ((4, 12), (4, 15)),
    ("bb", "f"): ((5, 3), (6, 5)),
    ("bb", "f", 1): (None, (7, 9)),
}


def test_data_is_plain_and_line_and_column_of_keys_and_values_are_known(write):
    data, source = read(write(TEXT))
    assert {place: (source.keys.get(place), source.values[place]) for place in PLACES} == PLACES
    assert data == {"a": 1, "bb": {"c": "word", "d": [10, {"e": 2.5}], "f": ["x", "y"]}}
    assert [type(value) for value in (data, data["a"], data["bb"]["c"], data["bb"]["d"])] == [dict, int, str, list]


def test_problems_of_a_file_come_by_line_and_column_once_each_and_those_of_a_set_first(tmp_path):
    path = tmp_path / "a: 9:9: b.yaml"  # what looks like a position is part of the name
    path.write_text(TEXT)
    problems = Problems(read(path)[1])
    problems.source.overridden["a",] = "a=2"
    for place in (("bb", "f", 1), ("bb", "d", 1), ("bb", "d", 0), ("bb", "f", 1), ("a",)):
        problems.add(place, "wrong")
    inside = [f"{path}:{at}: wrong" for at in ("4:7: bb.d.0", "4:11: bb.d.1", "7:9: bb.f.1")]
    with pytest.raises(SuiteError) as error:
        problems.raise_if_any(in_file_order=True)
    assert error.value.problems == ["--set a=2: a: wrong", *inside]


def test_problem_is_located_at_key_or_value_or_the_nearest_place_that_the_file_has_or_a_set_made(write):
    path = write(TEXT)
    _, source = read(path)
    assert source.problem(("bb", "c"), "wrong", at_key=True) == f"{path}:3:3: bb.c: wrong"
    assert source.problem(("bb", "c", "unknown"), "wrong") == f"{path}:3:8: bb.c.unknown: wrong"
    source.overridden["bb", "c"] = "bb.c=5"
    assert source.problem(("bb",), "wrong").endswith("bb: wrong (with --set bb.c=5)")
    del source.overridden["bb", "c"]
    source.overridden["match", "vary", "x"] = "match.vary.x=1"
    nearest = {
        "bb c str": 2,
        "match vary x int": 3,
        "match vary": 2,
        "match params": 1,
        "table": 0,
    }  # parts that are there
    for given, number in nearest.items():
        place = tuple(given.split())
        assert source.nearest_place(place) == place[:number]


SCALARS = {"1e-3": 0.001, "7e0": 7.0, "010": 10, "no": "no", "yes": "yes", "true": True, "null": None, "''": ""}
SCALARS |= {"2020-01-02": "2020-01-02", "&x true": True, "&x 1.5": 1.5, "&x word": "word"}


@pytest.mark.parametrize("text", SCALARS)
def test_scalars_are_yaml_1_2(write, text):
    found = read(write(f"a: {text}\n"))[0]["a"]
    assert (found, type(found)) == (SCALARS[text], type(SCALARS[text]))


def test_suite_may_have_256_kib_and_no_more(write, problems):
    head = "a: 1\n#"
    assert read(write(head + "x" * (MAX_BYTES - len(head))))[0] == {"a": 1}
    larger = problems(head + "x" * (MAX_BYTES - len(head) + 1), call=read)
    assert larger == ["1:1: larger than 256 KiB, the limit for a suite file"]


def test_aliases_count_as_often_as_they_are_named(write, problems):
    ones = f"a: &a [{', '.join(['1'] * 199)}]\n"  # 200 values
    assert len(read(write(f"{ones}b: [{', '.join(['*a'] * 58)}]\n"))[0]["b"]) == 58
    (problem,) = problems(f"{ones}b: [{', '.join(['*a'] * 60)}]\n", call=read)
    assert problem.endswith("expands to more than 12000 values")


def test_20_levels_are_read_and_21_refused(write, problems):
    lists = f"{'[' * 20}{']' * 20}"  # a, and 19 lists inside its list
    assert str(read(write(f"a: {lists}\n"))[0]["a"]) == lists
    (problem,) = problems(f"a: {'[' * 21}0{']' * 21}\n", call=read)  # far more: tests/security/test_hostile_suites.py
    assert problem.endswith(": nested more than 20 deep")
