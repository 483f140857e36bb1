"""`harness experiment`: a table and a plot from one command."""

import csv

import pytest

from harness.experiments import degeneracy
from harness.experiments.degeneracy import Layer, Spectrum
from harness.report import degeneracy_views


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(degeneracy, "WIDTH", 6)
    monkeypatch.setattr(degeneracy, "INPUTS", 4)


def test_degeneracy_writes_a_table_and_a_plot_and_repeats(small, harness, tmp_path):
    done = harness("experiment", "degeneracy", "--seeds", "2", "--results", tmp_path)
    assert done.code == 0, done.err
    with (tmp_path / "tables/degeneracy.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [line["layer"] for line in lines] == [layer.name for layer in degeneracy.LAYERS]
    assert len(lines) == 9
    plots = sorted((tmp_path / "plots/degeneracy").iterdir())
    assert [place.name for place in plots] == ["degeneracy.pdf", "degeneracy.png", "degeneracy.svg"]
    before = [place.read_bytes() for place in plots]
    assert harness("experiment", "degeneracy", "--seeds", "2", "--results", tmp_path).code == 0
    assert [place.read_bytes() for place in plots] == before


def test_an_unknown_experiment_is_a_sentence(harness, tmp_path):
    done = harness("experiment", "degenerate", "--results", tmp_path)
    assert done.code == 2
    assert "'degenerate' is not" in done.err
    assert not list(tmp_path.iterdir())


def test_the_numbers_of_the_table():
    made = Spectrum(layer=Layer(experts=2), seeds=((4.0, 2.0, 0.3, 0.03), (1.0, 1.0, 1.0, 1.0)))
    (line,) = degeneracy_views.table([made], [1, 2]).lines
    # below 1 %: 1 of 4, and none; below 10 %: 2 of 4, and none; medians 1.15 / 4 and 1; smallest 0.0075 and 1
    assert [cell.value for cell in line.cells[1:]] == pytest.approx([12.5, 25.0, (1.15 / 4 + 1) / 2, (0.0075 + 1) / 2])
    assert line.cells[1].text == "12.5 ± 17.7"
