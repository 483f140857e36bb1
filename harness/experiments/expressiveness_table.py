"""The table of `harness experiment expressiveness`."""

from collections.abc import Sequence
from pathlib import Path

from harness.experiments.degeneracy_table import made
from harness.experiments.expressiveness import Reached
from harness.experiments.fitting import FIRST_STEPS, MORE_STEPS, SOLVED, STARTS
from harness.experiments.problems import CONTEXTS, PROBLEMS, VOCABULARY, WIDTH
from harness.report import outputs
from harness.report.content import Cell, Column, Line, Table
from harness.report.suite_table import FORMS

NAME, TITLE = "expressiveness", "Can this head say it? The lowest KL to distributions that one softmax cannot have"
DIGITS = 4
NOTES = (
    "Each cell is the lowest KL(target || head) in nats that was found; 0: the head can have this distribution. The "
    "numbers are means ± standard deviations over seeds.",
    f"The output matrix is random and fixed, V = {VOCABULARY} words of width {WIDTH}. Hidden states and the other "
    f"parameters of the head are fitted: {STARTS} starts of {FIRST_STEPS} steps, then up to {MORE_STEPS} more from the "
    f"best one; below {SOLVED:g} the search ends. A mixture is no convex problem: it may reach less than was found.",
    "king and woman: 1/2 each, where the vectors of king and woman have the same sum as those of queen and man; one "
    "softmax has at least log 2 = 0.693. rare word: probability 1 for a word whose vector is the mean of four others'; "
    "one softmax, and every mixture of them, has at least log 5 = 1.609. k words: k random words with the same "
    f"probability in each of {CONTEXTS} contexts.",
    "Mixtape gives the most frequent tenth of the words their own gates: in one row words of the problem, in the other "
    "row other words.",
    "Equations and sources: harness/experiments/problems.py, harness/experiments/fitting.py. What the result says: "
    "harness docs experiments.",
)


def table(found: Sequence[Reached], seeds: Sequence[int]) -> Table:
    """A line for each head, and for what one softmax can reach at best."""
    columns = (Column(name="head"), *(Column(name=name, numeric=True) for name in PROBLEMS))
    lines = [
        Line(
            cells=(
                Cell(text=each.name),
                *(Cell.mean([max(kl, 0.0) for kl in each.kl[name]], DIGITS) for name in PROBLEMS),
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
