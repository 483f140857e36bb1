"""The table and the plots of `harness experiment degeneracy`."""

import statistics
from collections.abc import Sequence
from pathlib import Path

import torch

import harness
from harness.experiments.degeneracy import INPUTS, WIDTH, Spectrum
from harness.machine import environment
from harness.report import outputs
from harness.report.table.content import Cell, Column, Line, Table
from harness.report.table.diagnosed_table import mean_cell
from harness.report.table.suite_table import FORMS

NAME, TITLE = "degeneracy", "Singular values of the Jacobian of a layer"
LAWS = {"uniform": "U(0, 1)", "normal": "N(0, 1)"}
SHARES = (0.01, 0.1)  # of the largest singular value
NOTES = (
    f"The Jacobian dy/dx of a layer of {WIDTH} ReLU units with {WIDTH} inputs, dense or a mixture of K experts, at its "
    f"initial weights. Singular values (s) are averaged over {INPUTS} inputs. The numbers are means ± standard "
    "deviations over seeds.",
    "Learned gates are the softmax of an affine map of the input; constant gates are 1 / K. Equations and source: "
    "harness/experiments/degeneracy.py. What the result says: harness docs experiments.",
)


def table(found: Sequence[Spectrum], seeds: Sequence[int]) -> Table:
    """A line for each law of the inputs and each layer: shares of small singular values, and the median and smallest
    value against the largest.
    """
    columns = [Column(name="inputs"), Column(name="layer")]
    columns += [Column(name=f"s below {share:.0%} of the largest (%)", numeric=True) for share in SHARES]
    columns += [Column(name=f"{name} / largest", numeric=True) for name in ("median", "smallest")]
    lines = []
    for each in found:
        shares = [mean_cell([100 * value for value in each.below(share)], 1) for share in SHARES]
        ratios = [[of(values) / values[0] for values in each.seeds] for of in (statistics.median, min)]
        names = (Cell(text=LAWS[each.inputs]), Cell(text=each.layer.name))
        lines.append(Line(cells=(*names, *shares, *(mean_cell(values, 3) for values in ratios))))
    return Table(title=TITLE, columns=tuple(columns), lines=tuple(lines), notes=(*NOTES, made(seeds)))


def write(found: Sequence[Spectrum], seeds: Sequence[int], results: Path) -> tuple[list[Path], list[Path]]:
    """Write the table in all forms below results/tables, and the plots below results/plots; returns their paths."""
    from harness.report.figures import lines, plots  # here: matplotlib takes a second to import

    content = table(found, seeds)
    tables = {results / "tables" / f"{NAME}{ending}": form(content).encode() for ending, form in FORMS.values()}
    drawn = []
    for inputs, law in LAWS.items():
        name = NAME if inputs == "uniform" else f"{NAME}_{inputs}_inputs"
        of_law = [each for each in found if each.inputs == inputs]
        drawn.append(lines.of_layers(of_law, name, TITLE, f"untrained; averaged over {INPUTS} inputs from {law}"))
    pictures, _ = plots.files_of(drawn, results / "plots" / NAME)
    outputs.write({**tables, **pictures})
    return list(tables), list(pictures)


def made(seeds: Sequence[int]) -> str:
    """The note on seeds, machine and versions."""
    machine = environment.device_name(torch.device("cpu"))
    return (
        f"Seeds: {', '.join(map(str, seeds))}. Computed in float64 on {machine}, torch {torch.__version__}, harness "
        f"{harness.__version__} at {environment.commit()}."
    )
