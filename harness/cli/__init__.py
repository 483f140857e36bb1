"""The command line: it parses options, calls a function of another package, and sets the exit code."""

import atexit
import gc
import importlib
import io
import logging
import os
import signal
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

import harness
from harness.cli.commands import COMMANDS, FIRST
from harness.cli.options import Interrupted, errors, option, warn
from harness.errors import HarnessError, SuiteError
from harness.machine.limits import cpus_available
from harness.printable import counted, sentence

TERMINATED = 143  # exit code
SUMMARY = "Compare language-model output heads on equal terms: suites of trials, records, tables."


class _PlainFlags:
    """Help shows a flag as '--json', without '<bool>'."""

    def get_params(self, ctx: typer.Context) -> list:
        found = super().get_params(ctx)
        for each in found:
            if getattr(each, "is_flag", False):
                each.metavar = ""
        return found


class OneCommand(_PlainFlags, TyperCommand):
    """A command."""


class LazyGroup(_PlainFlags, TyperGroup):
    """COMMANDS, of which only the one that is called is imported: `harness --help` waits for none of them."""

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> tuple:
        """The called command with its options, where the list of commands has only its summary."""
        name, shown, rest = super().resolve_command(ctx, args)
        return name, None if shown is None else loaded(name), rest


def loaded(name: str) -> Any:
    """Import a command, and return it as typer calls it, with its options."""
    module, _, function = COMMANDS[name].place.partition(":")
    found = getattr(importlib.import_module(f"harness.cli.{module}"), function)
    alone = typer.Typer(add_completion=False)
    alone.command(name, epilog=f"Example: harness {COMMANDS[name].example}", cls=OneCommand)(found)
    return get_command(alone)


app = typer.Typer(cls=LazyGroup, no_args_is_help=True, pretty_exceptions_enable=False, help=SUMMARY)
for _name, _command in COMMANDS.items():
    _panel = "To begin with" if _name in FIRST else "More"
    # `resolve_command` puts the command itself in the place of this function.
    app.command(_name, help=_command.summary, rich_help_panel=_panel)(lambda: None)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(harness.__version__)
        raise typer.Exit


@app.callback()
def _of_all(
    version: Annotated[
        bool, option("Show the version and exit.", "--version", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """The options of `harness` itself."""


class _Warnings(logging.Handler):
    """Shows the warnings of the registries about files in heads/ and backbones/ that cannot be used."""

    def emit(self, record: logging.LogRecord) -> None:
        warn(record.getMessage())


def _skip_the_last_collection() -> None:
    """Let the process end 0.3 s earlier: the interpreter would visit all objects of torch once more."""
    if "triton" not in sys.modules:  # its bindings print a list of the objects that were not collected
        gc.freeze()


def main() -> None:
    """Run the command line. A user's mistake is one sentence on standard error and exit code 2, never a traceback.
    Ctrl-C gives exit code 130, and SIGTERM 143.
    """
    terminated = []
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # in a locale without UTF-8, ± and ≈ are shown as ?
    gc.set_threshold(10_000)  # default 700: importing torch makes 200,000 objects, and few of them can be collected
    atexit.register(_skip_the_last_collection)
    if (cores := cpus_available()) < (os.cpu_count() or 1):  # a container's: torch counts the machine's cores
        os.environ.setdefault("OMP_NUM_THREADS", str(cores))
    logging.getLogger("harness.registry").handlers = [_Warnings()]

    def on_sigterm(*_) -> None:
        terminated.append(True)
        raise KeyboardInterrupt  # Ray passes it on while it waits; it would turn a SystemExit into code 1

    signal.signal(signal.SIGTERM, on_sigterm)
    try:
        app()
    except SystemExit as leaving:
        if leaving.code != Interrupted.exit_code:
            raise
        errors.print("interrupted")
        sys.exit(TERMINATED if terminated else leaving.code)
    except SuiteError as error:
        for problem in error.problems:
            errors.print(problem)
        errors.print(f"{counted(len(error.problems), 'problem')}; nothing was run")
        sys.exit(2)
    except HarnessError as error:
        errors.print(str(error))
        sys.exit(TERMINATED if terminated and isinstance(error, Interrupted) else error.exit_code)
    except OSError as error:  # a file cannot be read or written; errors of torch and Ray within trials are statuses
        errors.print(sentence(f"{error.filename or 'a file'}: {error.strerror or error}"))
        sys.exit(2)
