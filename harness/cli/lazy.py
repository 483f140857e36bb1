"""Commands whose modules are imported when they run, so that `harness --help` waits for none of them."""

import importlib
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command


@dataclass(frozen=True, slots=True)
class Command:
    """A command, as the list of commands knows it.

    Args:
        place: its module below harness.cli and its function there, 'run:run'; or a typer.Typer with commands of its
            own, 'bench:app'.
        summary: what the list of commands says of it. Its own help is the docstring of the function.
        example: a call, without 'harness'.
    """

    place: str
    summary: str
    example: str

    def load(self) -> Any:
        """Import its module, and return its function or its typer.Typer."""
        module, _, name = self.place.partition(":")
        return getattr(importlib.import_module(f"harness.cli.{module}"), name)


class _FlagsWithoutType:
    """Help shows a flag as '--json', without '<bool>'."""

    def get_params(self, ctx: typer.Context) -> list:
        found = super().get_params(ctx)
        for each in found:
            if getattr(each, "is_flag", False):
                each.metavar = ""
        return found


class OneCommand(_FlagsWithoutType, TyperCommand):
    """A command."""


class CommandGroup(_FlagsWithoutType, TyperGroup):
    """A command with commands of its own."""


class LazyGroup(CommandGroup):
    """Commands of which only the one that is called is imported; of the others, their summaries are known."""

    known: dict[str, Command]

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> tuple:
        """The called command with its options, where the list of commands has only its summary."""
        name, shown, rest = super().resolve_command(ctx, args)
        return name, None if shown is None else loaded(name, self.known[name]), rest


def loaded(name: str, command: Command) -> Any:
    """The command as typer calls it, with its options."""
    found, example = command.load(), f"Example: harness {command.example}"
    if isinstance(found, typer.Typer):
        found.info.epilog = example
        return get_command(found)
    alone = typer.Typer(add_completion=False)
    alone.command(name, epilog=example, cls=OneCommand)(found)
    return get_command(alone)


def application(commands: dict[str, Command], about: str) -> typer.Typer:
    """A typer.Typer of these commands.

    Args:
        commands: by their names.
        about: what `--help` says of all of them.
    """
    group = type("Commands", (LazyGroup,), {"known": commands})
    app = typer.Typer(cls=group, no_args_is_help=True, pretty_exceptions_enable=False, help=about)
    for name, command in commands.items():
        app.command(name, help=command.summary)(_in_the_list)
    return app


def _in_the_list() -> None:
    """Stands for a command in the list of commands. `resolve_command` puts the command itself in its place."""
