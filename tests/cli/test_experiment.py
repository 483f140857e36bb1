"""`harness experiment`: a table and a plot from one command."""

import csv
import math

import pytest

from harness.experiments import degeneracy, experiment_tables, expressiveness, fitting, problems
from harness.experiments.degeneracy import Layer, Spectrum
from harness.experiments.expressiveness import Reached

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


@pytest.fixture
def two_rows(monkeypatch):
    monkeypatch.setattr(expressiveness, "ROWS", (expressiveness.row("softmax"),))
    monkeypatch.setattr(fitting, "STARTS", 2)
    monkeypatch.setattr(problems, "CONTEXTS", 1)


def test_expressiveness_writes_a_table_with_further_heads(two_rows, harness, tmp_path):
    done = harness(
        "experiment", "expressiveness", "--seeds", "1", "--head", "doc_poster", "--head", "nce", "--results", tmp_path
    )
    assert done.code == 0, done.err
    with (tmp_path / "tables/expressiveness.csv").open() as file:
        lines = {line["head"]: line for line in csv.DictReader(file)}
    optimum = "one softmax, convex optimum"
    assert list(lines) == [optimum, f"{optimum}, states in [-1, 1]", "softmax", "doc_poster", "nce"]
    king = {name: float(line["king and woman"]) for name, line in lines.items()}
    assert king["softmax"] == pytest.approx(math.log(2), abs=1e-4)  # the bound of the theorem
    assert king["nce"] == pytest.approx(math.log(2), abs=1e-4)  # a softmax with another training loss
    assert king["doc_poster"] < 1e-3 < king[optimum] < king[f"{optimum}, states in [-1, 1]"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("expressiveness", "--head", "kneser_ney"), "belongs to trials of `ngrams`"),
        (("expressiveness", "--head", "adaptive"), "head adaptive: expected one parameter of shape (100, 16)"),
    ],
)
def test_heads_that_cannot_be_fitted_are_a_sentence(arguments, sentence, two_rows, harness, tmp_path):
    done = harness("experiment", *arguments, "--seeds", "1", "--results", tmp_path)
    assert done.code == 2
    assert sentence in done.err
    assert not list(tmp_path.iterdir())


def test_the_cells_of_expressiveness():
    names = list(expressiveness.PROBLEMS)
    made = Reached(
        name="mos", kl={**{name: (1.0, 1.0) for name in names}, names[0]: (0.1, 0.3), names[2]: (-1e-15, 0.0)}
    )
    (line,) = experiment_tables.of_expressiveness([made], [1, 2]).lines
    # the mean 0.2, the deviation sqrt(2 * 0.1^2); a rounding error below 0 is 0
    assert [cell.text for cell in line.cells[:4]] == ["mos", "0.2000 ± 0.1414", "1.0000 ± 0.0000", "0.0000 ± 0.0000"]
    assert len(line.cells) == 1 + len(names)
