"""The README's promises that a test can keep: its head conforms and trains, its commands and suites exist."""

import re
import sys
from functools import partial
from pathlib import Path

import handmade
import pytest
import torch
from stand_ins import placed

from harness import plan
from harness.board import ground_truths
from harness.board.ground_truths import found_in
from harness.conformance import conformance
from harness.model import build
from harness.plan.specs import ComponentSpec
from harness.registry import HEADS
from harness.report import study, suite_table
from harness.trial.run import run

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def cosine(tmp_path, monkeypatch):
    """The README's head, saved as it says and imported."""
    HEADS.names()
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    (tmp_path / "cosine_of_the_readme.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = dict(HEADS._classes)
    __import__("cosine_of_the_readme")
    yield "cosine"
    HEADS._classes.clear()
    HEADS._classes.update(before)
    del sys.modules["cosine_of_the_readme"]


def test_the_head_of_the_readme_conforms(cosine):
    _, outcomes = conformance(cosine)
    assert [str(outcome) for outcome in outcomes if not outcome.ok] == []


def test_the_head_of_the_readme_starts_with_the_output_matrix_of_the_other_heads(cosine):
    backbone = ComponentSpec(name="lstm", params={"d_model": 8})
    sizes = {"vocab_size": 23, "seed": 1, "token_counts": torch.ones(23, dtype=torch.long)}
    ours, softmax = (build(backbone, ComponentSpec(name=name), **sizes).head.output for name in (cosine, "softmax"))
    assert torch.equal(ours.weight, softmax.weight)


@pytest.mark.system
def test_the_head_of_the_readme_trains_over_its_grid(cosine, tiny_suite, tmp_path):
    text = tiny_suite.read_text().replace("  - softmax\n", "  - softmax\n  - cosine: {sharpness: [5.0, 10.0]}\n")
    tiny_suite.write_text(text)
    trials = [trial for trial in plan.load(tiny_suite).trials if trial.head.name == "cosine" and trial.seed == 1]
    setting = partial(handmade.task, runs=tmp_path / "runs")
    records = [run(setting(spec=trial)) for trial in trials]
    assert [(r.spec.head.params["sharpness"], r.status) for r in records] == [(5.0, "ok"), (10.0, "ok")]


GROUND_TRUTHS = ROOT / "results" / "showcase" / "tables" / "ground_truth.md"


def lines_of_table(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("|")]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_suite_is_the_quickstart(tmp_path):
    (text,) = re.findall(r"```yaml\n(.*?)```", README, flags=re.DOTALL)
    shown = tmp_path / "quickstart.yaml"
    shown.write_text(text)
    ids = [[trial.id for trial in plan.load(path).trials] for path in (shown, ROOT / "suites" / "quickstart.yaml")]
    assert ids[0] == ids[1]


def test_the_table_has_columns_of_the_committed_one_of_the_quickstart():
    committed = (ROOT / "results" / "showcase" / "tables" / "quickstart.md").read_text(encoding="utf-8")
    header, _, *rows = map(cells, lines_of_table(README))
    whole, _, *all_rows = map(cells, lines_of_table(committed))
    assert {"head", "test ppl", "verdict"} < set(header)
    assert rows == [[row[whole.index(name)] for name in header] for row in all_rows]


def test_as_many_published_numbers_are_reproduced_as_in_the_committed_table():
    whole, _, *rows = map(cells, lines_of_table(GROUND_TRUTHS.read_text(encoding="utf-8")))
    found = [row[whole.index("reproduced")] for row in rows]
    (said,) = re.findall(
        r"of (\d+) published numbers, (\d+) are\s+\[reproduced\].*? and (\d+) was not run", README, flags=re.DOTALL
    )
    assert tuple(map(int, said)) == (len(found), found.count("yes"), found.count("not run"))


def test_the_outcome_is_that_of_the_committed_table():
    committed = (ROOT / "results" / "showcase" / "tables" / "embedded_mixtures.md").read_text(encoding="utf-8")
    quoted = " ".join(line.removeprefix("> ") for line in README.splitlines() if line.startswith("> "))
    assert committed.splitlines()[2].startswith(quoted)


def test_the_committed_table_of_ground_truths_has_every_number_of_the_suites_that_has_a_tolerance(tmp_path):
    studies = [study.load(suite, tmp_path, warn=pytest.fail) for suite in found_in(ROOT / "suites")]
    expected, committed = (
        [line.split("|")[1].strip() for line in lines_of_table(text)]
        for text in (
            suite_table.text(ground_truths.table(studies)),
            GROUND_TRUTHS.read_text(encoding="utf-8"),  # `harness reproduce --no-run` writes it again
        )
    )
    assert [re.sub("[-:]", "", line) for line in committed] == [re.sub("[-:]", "", line) for line in expected]


def test_every_suite_of_ground_truths_says_its_cost_and_has_a_number_to_reproduce(tmp_path):
    for suite in found_in(ROOT / "suites"):
        assert suite.core_minutes is not None
        assert any(study.load(suite, tmp_path, warn=pytest.fail).findings.reproduced.values())


def test_every_plot_of_the_readme_is_there():
    plots = re.findall(r"!\[[^]]*\]\(([^)]+)\)", README)
    assert [plot for plot in plots if not (ROOT / plot).is_file()] == []


def test_the_readme_has_at_most_150_lines_and_650_words():
    assert README.count("\n") <= 150
    assert len(re.sub("[|]", " ", README).split()) <= 650


def test_the_first_screen_has_the_picture_the_outcome_and_the_words_in_it():
    first = README.partition("\n## ")[0]
    assert first.count("![") == 1
    assert "\n> " in first
    assert first.count("\n") <= 25
    assert [
        word for word in ("affine softmax", "MoS", "MoC", "rank", "controls") if word not in first.lower() + first
    ] == []


def test_every_suite_named_in_the_readme_is_there_and_loads():
    for name in set(re.findall(r"suites/(\w+\.yaml)", README + (ROOT / "Makefile").read_text())):
        assert plan.load(ROOT / "suites" / name).trials


@pytest.mark.system
def test_every_suite_loads_and_its_header_names_its_command(tmp_path):
    for path in sorted((ROOT / "suites").glob("*.yaml")):
        suite = plan.load(placed(path, tmp_path))
        assert suite.name == path.stem
        assert f"# Command: harness run suites/{path.name}" in path.read_text()
