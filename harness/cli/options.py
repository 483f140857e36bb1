"""What several commands share: their options, and how they print."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

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


def option(about: str, *names: str, **more: Any) -> Any:
    """Return what a command says of an option. A flag with one name has no opposite."""
    return typer.Option(*names, help=about, **more)


def argument(about: str, **more: Any) -> Any:
    """Return what a command says of an argument."""
    return typer.Argument(help=about, **more)


class Device(StrEnum):
    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


A_SUITE = "The file of a suite, or the name of one in ./suites: quickstart."
SuitePath = Annotated[Path, argument(A_SUITE, metavar="SUITE")]
Set = Annotated[list[str], option("Change the suite: train.epochs=2. Repeatable.", "--set", metavar="KEY=VALUE")]
Seeds = Annotated[int | None, option("Run the seeds 1 to N, as --set seeds=N does.", "--seeds", min=1, metavar="N")]
Only = Annotated[
    list[str], option("Select trials: commas mean and, repeated options mean or.", "--only", metavar="KEY=VALUE[,...]")
]
Results = Annotated[Path, option("Folder of records, tables and mlflow.db.", "--results", envvar="HARNESS_RESULTS")]
Data = Annotated[Path, option("Folder of the corpora's files.", "--data", envvar="HARNESS_DATA")]
Json = Annotated[bool, option("Print JSON and nothing else on standard output.", "--json")]
RunDevice = Annotated[Device, option("auto: a GPU if there is one.")]
RESULTS = Path("results")


def changes(overrides: list[str], seeds: int | None) -> tuple[str, ...]:
    """The changes of the suite by --set and --seeds."""
    return (*overrides, *([] if seeds is None else [f"seeds={seeds}"]))


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
