"""`harness experiment`: experiments that need no suite and no training of a language model."""

from collections.abc import Sequence
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import track

from harness.cli.options import RESULTS, Results, errors, say_files
from harness.errors import ExecutionError


class Experiment(StrEnum):
    degeneracy = "degeneracy"
    expressiveness = "expressiveness"


def experiment(
    name: Annotated[Experiment, typer.Argument(help="The experiment.", metavar="NAME")],
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds: 1, 2, 3 and so on.")] = 5,
    head: Annotated[
        list[str],
        typer.Option("--head", metavar="HEAD", help="expressiveness: another head, at its defaults. Repeatable."),
    ] = [],  # noqa: B006
    results: Results = RESULTS,
) -> None:
    """Repeat an experiment that needs no suite, and write its table.

    degeneracy: singular values of the Jacobian of a dense layer and of mixtures of experts; also plots.

    expressiveness: how close each head comes to distributions that one softmax cannot have. Some 12 minutes of a core.
    """
    from harness.machine import environment  # here: torch takes a second to import

    if head and name is not Experiment.expressiveness:
        raise ExecutionError(f"--head is an option of `harness experiment expressiveness`, not of {name.value}")
    chosen = range(1, seeds + 1)
    with environment.torch_threads(1):
        if name is Experiment.degeneracy:
            _degeneracy(chosen, results)
        else:
            _expressiveness(chosen, head, results)


def _degeneracy(seeds: Sequence[int], results: Path) -> None:
    from harness.experiments import degeneracy, degeneracy_table

    found = [
        degeneracy.spectrum(layer, seeds, inputs=inputs)
        for inputs in degeneracy.INPUT_KINDS
        for layer in degeneracy.LAYERS
    ]
    tables, plots = degeneracy_table.write(found, seeds, results)
    say_files("table", tables)
    for _, files in groupby(plots, key=lambda place: place.stem):
        say_files("plot", list(files))


def _expressiveness(seeds: Sequence[int], heads: Sequence[str], results: Path) -> None:
    from harness.experiments import expressiveness, expressiveness_table
    from harness.registry import HEADS

    rows = [*expressiveness.ROWS, *(expressiveness.row(each) for each in heads)]
    for row in rows:
        HEADS.listed(row.head.name)  # a mistake is said before the first fit
    found = [expressiveness.optimum(seeds), expressiveness.optimum(seeds, bound=1.0)]
    shown = track(rows, "heads", console=errors, transient=True, disable=not errors.is_terminal)
    found += [expressiveness.reached(row, seeds) for row in shown]
    say_files("table", expressiveness_table.write(found, seeds, results))
