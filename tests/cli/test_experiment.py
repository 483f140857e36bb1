"""`harness experiment`: a table and a plot from one command."""

import csv

import pytest

from harness.experiments import degeneracy, experiment_tables
from harness.experiments.degeneracy import Layer, Spectrum

pytestmark = pytest.mark.system


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(degeneracy, "WIDTH", 6)
    monkeypatch.setattr(degeneracy, "INPUTS", 4)


def test_degeneracy_writes_a_table_and_a_plot_and_repeats(small, harness, tmp_path):
    done = harness("experiment", "degeneracy", "--seeds", "2", "--results", tmp_path)
    assert done.code == 0, done.err
    said = (done.out + done.err).replace("\n", "")
    assert "degeneracy_normal_inputs.svg, .png, .pdf" in said
    with (tmp_path / "tables/degeneracy.csv").open() as file:
        lines = list(csv.DictReader(file))
    names = [layer.name for layer in degeneracy.LAYERS]
    assert len(names) == 9
    assert [(line["inputs"], line["layer"]) for line in lines] == [
        (law, name) for law in ("U(0, 1)", "N(0, 1)") for name in names
    ]
    plots = sorted((tmp_path / "plots/degeneracy").iterdir())
    assert [place.name for place in plots] == [
        f"{name}.{ending}" for name in ("degeneracy", "degeneracy_normal_inputs") for ending in ("pdf", "png", "svg")
    ]
    before = [place.read_bytes() for place in plots]
    assert harness("experiment", "degeneracy", "--seeds", "2", "--results", tmp_path).code == 0
    assert [place.read_bytes() for place in plots] == before


def test_the_numbers_of_the_table():
    made = Spectrum(layer=Layer(experts=2), seeds=((4.0, 2.0, 0.3, 0.03), (1.0, 1.0, 1.0, 1.0)))
    (line,) = experiment_tables.of_degeneracy([made], [1, 2]).lines
    # below 1 %: 1 of 4, and none; below 10 %: 2 of 4, and none; medians 1.15 / 4 and 1; smallest 0.0075 and 1
    assert [cell.value for cell in line.cells[2:]] == pytest.approx([12.5, 25.0, (1.15 / 4 + 1) / 2, (0.0075 + 1) / 2])
    assert line.cells[2].text == "12.5 ± 17.7"
