"""What several commands share: their options, and where they write."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

console = Console(width=None if sys.stdout.isatty() else 160)
errors = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)


class Executor(StrEnum):
    ray = "ray"
    inline = "inline"


class Device(StrEnum):
    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


SuitePath = Annotated[Path, typer.Argument(help="The suite file, e.g. suites/quickstart.yaml.")]
Set = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="Change the suite: train.epochs=2. Repeatable.")
]
Only = Annotated[
    list[str], typer.Option("--only", metavar="KEY=VALUE[,...]", help="Commas mean and, repeating means or.")
]
Results = Annotated[
    Path, typer.Option("--results", envvar="HARNESS_RESULTS", help="Folder of records, tables, mlflow.db.")
]
Data = Annotated[Path, typer.Option("--data", envvar="HARNESS_DATA", help="Folder of the corpora's files.")]
Json = Annotated[bool, typer.Option("--json", help="JSON alone on standard output.")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace tables, pages and plots that are made of more finished trials.")
]
RESULTS = Path("results")
