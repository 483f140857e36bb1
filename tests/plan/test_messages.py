"""What is said of a suite with mistakes: line, column, place and sentence of each (tests/golden/messages/*.yaml)."""

from pathlib import Path

import pytest
from ruamel.yaml import YAML

FILES = sorted((Path(__file__).parents[1] / "golden" / "messages").glob("*.yaml"))
GOLDEN = {path.stem: YAML(typ="safe").load(path) for path in FILES}
CASES = [(name, index) for name, golden in GOLDEN.items() for index in range(len(golden["cases"]))]


@pytest.mark.parametrize(("name", "index"), CASES)
def test_each_mistake_is_told_in_these_words_at_its_place(name, index, problems, layered, wide_heads):
    text, case = GOLDEN[name]["base"], GOLDEN[name]["cases"][index]
    for old, new in case.get("change", {}).items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    expected = case["says"] if isinstance(case["says"], list) else [case["says"]]
    assert problems(text + case.get("add", ""), *case.get("set", ())) == expected
