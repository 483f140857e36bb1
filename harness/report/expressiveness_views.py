"""The table of `harness experiment expressiveness`."""

from collections.abc import Sequence
from pathlib import Path

from harness.experiments.expressiveness import CONTEXTS, MODES, PROBLEMS, STARTS, VOCABULARY, WIDTH, Reached
from harness.report import outputs
from harness.report.degeneracy_views import made
from harness.report.table.content import Cell, Column, Line, Table
from harness.report.table.diagnosed_table import mean_cell
from harness.report.table.suite_table import FORMS

NAME, TITLE = "expressiveness", "Can this head say it? The lowest KL to distributions that one softmax cannot have"
DIGITS = 4
NOTES = (
    "Each cell is the lowest KL(target || head) in nats that was found; 0: the head can have this distribution. The "
    "numbers are means ± standard deviations over seeds.",
    f"The output matrix is random and fixed, V = {VOCABULARY} words of width {WIDTH}. Hidden states and the other "
    f"parameters of the head are fitted, from {STARTS} starts. A mixture is no convex problem: it may reach less than "
    "was found.",
    "king and woman: 1/2 each, where the vectors of king and woman have the same sum as those of queen and man; one "
    "softmax has at least log 2 = 0.693. rare word: probability 1 for a word whose vector is the mean of four others'; "
    f"one softmax, and every mixture of them, has at least log 5 = 1.609. {MODES} words: {MODES} random words with the "
    f"same probability in each of {CONTEXTS} contexts.",
    "Equations and sources: harness/experiments/expressiveness.py. What the result says: docs/experiments.md.",
)


def table(found: Sequence[Reached], seeds: Sequence[int]) -> Table:
    """A line for each head, and for what one softmax can reach at best."""
    columns = (Column(name="head"), *(Column(name=name, numeric=True) for name in PROBLEMS))
    lines = [
        Line(
            cells=(
                Cell(text=each.name),
                *(mean_cell([max(kl, 0.0) for kl in each.kl[name]], DIGITS) for name in PROBLEMS),
            )
        )
        for each in found
    ]
    return Table(title=TITLE, columns=columns, lines=tuple(lines), notes=(*NOTES, made(seeds)))


def write(found: Sequence[Reached], seeds: Sequence[int], results: Path) -> list[Path]:
    """Write the table in all forms below results/tables; returns their paths."""
    content = table(found, seeds)
    tables = {results / "tables" / f"{NAME}{ending}": form(content).encode() for ending, form in FORMS.values()}
    outputs.write(tables)
    return list(tables)
