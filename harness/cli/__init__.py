"""The command line: it parses options, calls a function of another package, and sets the exit code."""

import atexit
import gc
import io
import logging
import signal
import sys
from typing import Annotated

import typer

import harness
from harness.cli.lazy import Command, application
from harness.cli.options import Interrupted, errors, warn
from harness.errors import HarnessError, SuiteError
from harness.printable import counted, sentence

TERMINATED = 143  # exit code
SUMMARY = "Compare language-model output heads on equal terms: suites of trials, records, tables."

COMMANDS = {  # in the order in which `harness --help` shows them
    "run": Command(
        "run:run",
        "Train the trials of a suite that have no record yet, and write its table.",
        "run quickstart --set train.epochs=1 --only head=mos,seed=1",
    ),
    "plan": Command("plan:plan", "Show what would run.", "plan ptb_mixtures --memory"),
    "table": Command("table:table", "Write the table of a suite again.", "table quickstart"),
    "reproduce": Command(
        "ground_truth:reproduce",
        "Train published numbers again, and say which are reproduced.",
        "reproduce --cpus-per-trial 1, or harness reproduce --no-run",
    ),
    "diff": Command(
        "difference:diff",
        "Show how two heads or two trials differ.",
        "diff softmax mos --suite quickstart, or harness diff 9b8ba74e 3f2c01aa",
    ),
    "report": Command("report:report", "Write the plots and the web page of a suite.", "report quickstart"),
    "new": Command(
        "new:new",
        "Write a commented suite, head or backbone to start from.",
        "new head cosine, or harness new suite mine",
    ),
    "schema": Command("new:schema", "Print the JSON schema of suites, for editors.", "schema > suites/schema.json"),
    "list": Command("components:list_components", "List heads, backbones, corpora or suites.", "list heads --json"),
    "check": Command("checks:check", "Check a head or a backbone.", "check mos, or harness check --all"),
    "leaderboard": Command(
        "leaderboard:leaderboard", "Rank the finished trials of all suites.", "leaderboard --corpus ptb"
    ),
    "site": Command(
        "site:site",
        "Write all results as web pages.",
        "site --out site, or harness site --records results/showcase/records",
    ),
    "export": Command(
        "exchange:export", "Write records into a file.", "export records.zip --suite ptb_mixtures --no-token-nll"
    ),
    "import": Command("exchange:import_records", "Copy the records of such a file.", "import records.zip"),
    "verify": Command(
        "verification:verify",
        "Compare records with their weights, or with a new training.",
        "verify records.zip --retrain --only seed=1",
    ),
    "runs": Command("runs:runs", "List what was run, and how long it took.", "runs, or harness runs quickstart --json"),
    "inspect": Command(
        "diagnostics:inspect",
        "Show the most probable next words of a trained model.",
        'inspect 0d0e73a0d5b8 --text "it is a truth"',
    ),
    "sample": Command(
        "diagnostics:sample",
        "Write text with a trained model.",
        'sample 0d0e73a0d5b8 --prompt "it is a truth" --tokens 50 --top-p 0.9',
    ),
    "diagnose": Command(
        "diagnose:diagnose",
        "Compute what the trained heads of a suite can express.",
        "diagnose quickstart --contexts 2000 --only head=mos",
    ),
    "experiment": Command(
        "experiment:experiment", "Repeat an experiment on untrained layers.", "experiment degeneracy --seeds 5"
    ),
    "docs": Command("docs:docs", "Print a page of the documentation.", "docs tables"),
    "doctor": Command("machine:doctor", "Check whether this machine can run trials, and describe it.", "doctor"),
    "sync": Command("tracking:sync", "Write all records to MLflow.", "sync --results results"),
    "ui": Command("tracking:ui", "Start the MLflow UI.", "ui quickstart --port 5000"),
    "bench": Command(
        "bench:app", "Measure the speed and memory of heads.", "bench head --setting ptb --heads softmax,mos10"
    ),
}

app = application(COMMANDS, SUMMARY)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(harness.__version__)
        raise typer.Exit


@app.callback()
def _of_all(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
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
    logging.getLogger("harness.registry").handlers = [_Warnings()]

    def on_sigterm(*_) -> None:
        terminated.append(True)
        raise KeyboardInterrupt  # Ray passes it on while it waits; it would turn a SystemExit into code 1

    signal.signal(signal.SIGTERM, on_sigterm)  # guard: sigterm-handled
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
        # guard: exit-143 never
        sys.exit(TERMINATED if terminated and isinstance(error, Interrupted) else error.exit_code)
    except OSError as error:  # a file cannot be read or written; errors of torch and Ray within trials are statuses
        errors.print(sentence(f"{error.filename or 'a file'}: {error.strerror or error}"))
        sys.exit(2)
