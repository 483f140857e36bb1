"""The tables and the plots of `harness experiment`."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

import harness
from harness.experiments.degeneracy import INPUTS, WIDTH, Inputs, Spectrum
from harness.machine import environment
from harness.printable import counted
from harness.report import outputs
from harness.report.content import Cell, Column, Line, Table
from harness.report.suite_table import FORMS

if TYPE_CHECKING:
    from harness.report.figures.drawn import Plot

JACOBIAN = "Singular values of the Jacobian of a layer"
LAWS = {"uniform": "U(0, 1)", "normal": "N(0, 1)"}
SHARES = (0.01, 0.1)  # of the largest singular value
OF_DEGENERACY = (
    f"The Jacobian dy/dx of a layer of {WIDTH} ReLU units with {WIDTH} inputs, dense or a mixture of K experts, at its "
    f"initial weights. Singular values (s) are averaged over {INPUTS} inputs. The numbers are means ± standard "
    "deviations over seeds.",
    "Learned gates are the softmax of an affine map of the input; constant gates are 1 / K. Equations and source: "
    "harness/experiments/degeneracy.py. What the result says: harness docs experiments.",
)


def of_degeneracy(found: Sequence[Spectrum], seeds: Sequence[int]) -> Table:
    """A line for each law of the inputs and each layer: shares of small singular values, and the median and smallest
    value against the largest.
    """
    columns = [Column(name="inputs"), Column(name="layer")]
    columns += [Column(name=f"s below {share:.0%} of the largest (%)", numeric=True) for share in SHARES]
    columns += [Column(name=f"{name} / largest", numeric=True) for name in ("median", "smallest")]
    lines = []
    for each in found:
        cells = [Cell(text=LAWS[each.inputs]), Cell(text=each.layer.name)]
        for share in SHARES:
            cells.append(Cell.mean([100 * value for value in each.below(share)], 1))
        for of in (statistics.median, min):
            cells.append(Cell.mean([of(values) / values[0] for values in each.seeds], 3))
        lines.append(Line(cells=tuple(cells)))
    return Table(title=JACOBIAN, columns=tuple(columns), lines=tuple(lines), notes=(*OF_DEGENERACY, _made(seeds)))


def write_degeneracy(found: Sequence[Spectrum], seeds: Sequence[int], results: Path) -> tuple[list[Path], list[Path]]:
    """Write the table in all forms below results/tables, and the plots below results/plots; returns their paths."""
    from harness.report.figures import plots  # here: matplotlib takes a second to import

    table = of_degeneracy(found, seeds)
    tables = {results / "tables" / f"degeneracy{ending}": form(table).encode() for ending, form in FORMS.values()}
    drawn = []
    for inputs in LAWS:
        drawn.append(_plot([each for each in found if each.inputs == inputs], inputs))
    pictures, _ = plots.files_of(drawn, results / "plots" / "degeneracy")
    outputs.write({**tables, **pictures})
    return list(tables), list(pictures)


def _plot(found: Sequence[Spectrum], inputs: Inputs) -> "Plot":
    """A line for each layer, a band over its seeds. The same values give the same bytes."""
    from harness.report.figures.lines import PlotPoint, Series, lines  # here: matplotlib takes a second to import
    from harness.report.figures.looks import by_index
    from harness.report.figures.style import Frame, finished, settings

    seeds = counted(len(found[0].seeds), "seed")
    name = "degeneracy" if inputs == "uniform" else f"degeneracy_{inputs}_inputs"
    below = f"untrained; averaged over {INPUTS} inputs from {LAWS[inputs]}; {seeds}"
    y = "singular value / the largest\nmean; bands: lowest to highest seed"
    layers = []
    for index, each in enumerate(found):
        points = []
        for number in range(len(each.seeds[0])):
            ratios = [values[number] / values[0] for values in each.seeds]
            points.append(PlotPoint(x=number + 1, y=statistics.fmean(ratios), low=min(ratios), high=max(ratios)))
        layers.append(Series(label=each.layer.name, look=by_index(index), points=tuple(points)))
    with settings():
        frame = Frame(title=JACOBIAN, below=below)
        on = lines(layers, "number of the singular value, the largest first", y, frame, bands=True)
        caption = "Singular values of dy/dx, each divided by the largest of its seed."
        return finished(on, name=name, title=JACOBIAN, caption=caption, of=seeds)


def _made(seeds: Sequence[int]) -> str:
    machine = environment.device_name(torch.device("cpu"))
    return (
        f"Seeds: {', '.join(map(str, seeds))}. Computed in float64 on {machine}, torch {torch.__version__}, harness "
        f"{harness.__version__} at {environment.commit()}."
    )
