"""docs/example.ipynb: its cells run on the committed records, and it has no stored outputs."""

import ast
import json
import tempfile
from pathlib import Path

import pytest

NOTEBOOK = json.loads((Path(__file__).parent.parent.parent / "docs" / "example.ipynb").read_text(encoding="utf-8"))


def shown_by(cell: str, names: dict) -> object:
    """Run a cell, and return what a notebook would show: the value of its last expression."""
    *before, last = ast.parse(cell).body
    exec(compile(ast.Module(before, []), "<cell>", "exec"), names)
    return eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)


@pytest.fixture
def cells(tmp_path, monkeypatch) -> list[str]:
    """The code of its cells, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


@pytest.mark.system
def test_its_cells_show_table_forest_plot_frame_and_verdicts(cells, capsys):
    names: dict = {}
    study, plot, frame, verdicts = (shown_by(cell, names) for cell in cells)
    assert "<table" in study._repr_html_()
    assert "<svg" in plot._repr_svg_()
    assert frame["count"].sum() == len(study.suite.trials) == 80
    assert (verdicts["MoC 5"], verdicts["affine softmax, rank 16"]) == ("undecided", "control")
    assert r"\toprule" in capsys.readouterr().out


def test_it_stores_no_outputs():
    assert all(not cell.get("outputs") and not cell.get("execution_count") for cell in NOTEBOOK["cells"])
