"""`harness experiment`: experiments on untrained layers, which need no suite."""

from enum import StrEnum
from typing import Annotated

import typer

from harness.cli.options import RESULTS, Results, say_files


class Experiment(StrEnum):
    degeneracy = "degeneracy"


def experiment(
    name: Annotated[Experiment, typer.Argument(help="The experiment.", metavar="NAME")],
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds: 1, 2, 3 and so on.")] = 5,
    results: Results = RESULTS,
) -> None:
    """Repeat an experiment on untrained layers, and write its table and plot.

    degeneracy: singular values of the Jacobian of a dense layer and of mixtures of experts.
    """
    from harness.experiments import degeneracy  # here: torch takes a second to import
    from harness.machine import environment
    from harness.report import degeneracy_views

    chosen = range(1, seeds + 1)
    with environment.torch_threads(1):
        found = [degeneracy.spectrum(layer, chosen) for layer in degeneracy.LAYERS]
    tables, plots = degeneracy_views.write(found, chosen, results)
    say_files("table", tables)
    say_files("plot", plots)
