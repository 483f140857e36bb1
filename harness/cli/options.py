"""What several commands share: their options, and how they print."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from harness.errors import HarnessError, Interruption
from harness.execution import EXECUTORS

console = Console(width=None if sys.stdout.isatty() else 160)
errors = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)


class Interrupted(HarnessError):
    """What `harness` says after Ctrl-C: what is saved and how to go on."""

    exit_code = 130


Executor = StrEnum("Executor", {name: name for name in EXECUTORS})


class Device(StrEnum):
    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


A_SUITE = "The file of a suite, or the name of one in ./suites: quickstart."
SuitePath = Annotated[Path, typer.Argument(metavar="SUITE", help=A_SUITE)]
Set = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="Change the suite: train.epochs=2. Repeatable.")
]
Only = Annotated[
    list[str],
    typer.Option("--only", metavar="KEY=VALUE[,...]", help="Select trials: commas mean and, repeated options mean or."),
]
Results = Annotated[
    Path, typer.Option("--results", envvar="HARNESS_RESULTS", help="Folder of records, tables and mlflow.db.")
]
Data = Annotated[Path, typer.Option("--data", envvar="HARNESS_DATA", help="Folder of the corpora's files.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on standard output.")]
Overwrite = Annotated[
    bool,
    typer.Option("--overwrite", help="Also replace tables, pages and plots that were made of more finished trials."),
]
RunDevice = Annotated[Device, typer.Option(help="auto: a GPU if there is one.")]
RESULTS = Path("results")


@contextmanager
def interruptible() -> Iterator[None]:
    """Within it, Ctrl-C leaves with one sentence on what is saved."""
    try:
        yield
    except Interruption as stop:
        raise Interrupted(str(stop)) from stop


def say(text: str) -> None:
    """Print a text on standard output as it is; nothing in it is read as markup."""
    end = "" if text.endswith("\n") else "\n"
    console.print(text, markup=False, highlight=False, emoji=False, soft_wrap=True, end=end)


def warn(sentence: str) -> None:
    """Print a warning on standard error."""
    errors.print(f"warning: {sentence}")


def say_files(what: str, files: list[Path]) -> None:
    """For example 'table: results/tables/quickstart.md, .csv, .tex'."""
    say(f"{what}: {', '.join([str(files[0]), *(place.suffix for place in files[1:])])}")
