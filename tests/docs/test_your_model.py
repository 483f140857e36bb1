"""docs/your_model.md: its suite is one that can be planned and trained, with any model folder and text."""

import json
import re
from pathlib import Path

import commands
import pytest
import tokenizer_folders
from stand_ins import model_in
from texts import shuffled

from harness import plan
from harness.report import study

pytestmark = pytest.mark.system

PAGE = (Path(__file__).parents[2] / "docs" / "your_model.md").read_text(encoding="utf-8")


@pytest.fixture
def suite(tmp_path):
    """The page's suite in a project with a small model and text."""
    model_in(tmp_path / "models" / "mine")
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "mine.txt").write_text(shuffled(tokenizer_folders.TEXT, seed=1), encoding="utf-8")
    (tmp_path / "suites").mkdir()
    path = tmp_path / "suites" / "mine.yaml"
    path.write_text(re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[1], encoding="utf-8")
    return path


def test_every_row_of_the_suite_starts_as_the_model(suite, harness, tmp_path, monkeypatch):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    changes, results = ("tune=null", "train.seq_len=64", "train.epochs=0", "seeds=[1]"), tmp_path / "results"
    given = [part for change in changes for part in ("--set", change)]
    assert harness("run", suite, *given, "--executor", "inline", "--no-timing", "--results", results).code == 0
    found = study.load(plan.load(suite, changes), results, warn=pytest.fail)
    names = ["own output layer", "own layer + affine", "MoS 2, no tanh", "MoC 2, no tanh"]
    assert [row.head for row in found.rows] == names
    ppl = [record.metrics["test_ppl"] for record in found.records.values()]
    assert ppl == pytest.approx([ppl[0]] * 4, rel=1e-5)


def test_the_head_of_the_page_starts_as_the_model_and_passes_the_checks(suite, tmp_path, monkeypatch):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "heads").mkdir()
    head = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1]
    (tmp_path / "heads" / "gated.py").write_text(head, encoding="utf-8")
    row = re.search(r"`(- gated: .*?)` in the suite", PAGE)[1]
    before, after = suite.read_text(encoding="utf-8").split("  - softmax: {start: pretrained, projection: true")
    suite.write_text(f"{before}  {row}\n{after[after.index('  - mos') :]}", encoding="utf-8")
    changes = ("tune=null", "train.seq_len=64", "train.epochs=0", "seeds=[1]", "table.baseline=own output layer")
    given = [part for change in changes for part in ("--set", change)]
    calls = [("run", "suites/mine.yaml", *given, "--executor", "inline", "--no-timing"), ("check", "gated")]
    for call in calls:
        process = commands.started(tmp_path, *call)
        out, err = process.communicate(timeout=commands.PATIENCE)
        assert process.returncode == 0, out + err
    records = [json.loads(place.read_text()) for place in tmp_path.glob("results/runs/mine/*/record.json")]
    ppl = {record["spec"]["head"]["name"]: record["metrics"]["test_ppl"] for record in records}
    assert ppl == pytest.approx(dict.fromkeys(("softmax", "gated", "mos", "moc"), ppl["softmax"]), rel=1e-5)
