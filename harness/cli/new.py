"""`harness new` and `schema`: for writing a suite, a head or a backbone."""

from enum import StrEnum
from typing import Annotated

import typer

from harness import starters
from harness.cli.options import say
from harness.plan.reader import FOLDER
from harness.plan.suite_file import schema_text


class Kind(StrEnum):
    suite = "suite"
    head = "head"
    backbone = "backbone"


def new(
    kind: Annotated[Kind, typer.Argument(help="What to begin.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name, which is also that of the file.")],
) -> None:
    """Write a commented file to start from: a suite that runs, or a head or backbone that passes its checks.

    A suite is written to ./suites, a head or backbone to heads/ or backbones/ of this project. No file is replaced.
    """
    place = starters.write(kind.value, name)
    say(f"{kind.value} {name}: {place}")
    if kind is Kind.suite:
        say(f"next: harness plan {name}, harness run {name} --dry-run, harness run {name}")
        if not (FOLDER / "schema.json").exists():
            say(f"editors complete its keys with the schema: harness schema > {FOLDER}/schema.json")
    else:
        say(f"next: harness check {name}, then name it in a suite: - {name}")


def schema() -> None:
    """Print the JSON schema of suite files, with which editors complete keys and mark mistakes."""
    print(schema_text(), end="")
