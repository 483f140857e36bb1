"""The command line: it parses options, calls a function of another package, and sets the exit code."""

import logging
import signal
import sys

import typer

from harness.cli import (
    bench,
    components,
    diagnostics,
    difference,
    exchange,
    ground_truth,
    leaderboard,
    machine,
    new,
    report,
    runs,
    site,
    suites,
    tracking,
    verification,
)
from harness.cli.options import errors, warn
from harness.errors import HarnessError, SuiteError
from harness.printable import sentence

INTERRUPTED, TERMINATED = 130, 143  # exit codes
SUMMARY = "Compare language-model output heads on equal terms: suites of trials, records, tables."

COMMANDS = {  # name -> function, example without 'harness'
    "run": (suites.run, "run quickstart --set train.epochs=1 --only head=mos,seed=1"),
    "plan": (suites.plan, "plan ptb_mixtures --memory"),
    "table": (suites.table, "table quickstart"),
    "reproduce": (ground_truth.reproduce, "reproduce --cpus-per-trial 1, or harness reproduce --no-run"),
    "diff": (difference.diff, "diff softmax mos --suite quickstart, or harness diff 9b8ba74e 3f2c01aa"),
    "report": (report.report, "report quickstart"),
    "new": (new.new, "new head cosine, or harness new suite mine"),
    "schema": (new.schema, "schema > suites/schema.json"),
    "list": (components.list_components, "list heads --json"),
    "check": (components.check, "check mos, or harness check --all"),
    "leaderboard": (leaderboard.leaderboard, "leaderboard --corpus ptb"),
    "site": (site.site, "site --out site, or harness site --records results/records"),
    "export": (exchange.export, "export records.zip --suite ptb_mixtures --no-token-nll"),
    "import": (exchange.import_records, "import records.zip"),
    "verify": (verification.verify, "verify records.zip --retrain --only seed=1"),
    "runs": (runs.runs, "runs, or harness runs quickstart --json"),
    "inspect": (diagnostics.inspect, 'inspect 0d0e73a0d5b8 --text "it is a truth"'),
    "sample": (diagnostics.sample, 'sample 0d0e73a0d5b8 --prompt "it is a truth" --tokens 50 --top-p 0.9'),
    "doctor": (machine.doctor, "doctor"),
    "sync": (tracking.sync, "sync --results results"),
    "ui": (tracking.ui, "ui quickstart --port 5000"),
}

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=SUMMARY)
for _name, (_function, _example) in COMMANDS.items():
    app.command(_name, epilog=f"Example: harness {_example}")(_function)
app.add_typer(
    bench.app,
    name="bench",
    help=bench.SUMMARY,
    epilog="Example: harness bench head --setting ptb --heads softmax,mos10",
)


class _Warnings(logging.Handler):
    """Shows the warnings of the registries about files in heads/ and backbones/ that cannot be used."""

    def emit(self, record: logging.LogRecord) -> None:
        warn(record.getMessage())


def main() -> None:
    """Run the command line. A user's mistake is one sentence on standard error and exit code 2, never a traceback.
    Ctrl-C gives exit code 130, and SIGTERM 143.
    """
    terminated = []
    logging.getLogger("harness.registry").handlers = [_Warnings()]

    def on_sigterm(*_) -> None:
        terminated.append(True)
        raise KeyboardInterrupt  # Ray passes it on while it waits; it would turn a SystemExit into code 1

    signal.signal(signal.SIGTERM, on_sigterm)
    try:
        app()
    except SystemExit as leaving:
        if leaving.code != INTERRUPTED:
            raise
        errors.print("interrupted: finished trials are kept; start the same command again to continue with the others")
        sys.exit(TERMINATED if terminated else INTERRUPTED)
    except SuiteError as error:
        for problem in error.problems:
            errors.print(problem)
        count = len(error.problems)
        errors.print(f"{count} problem{'s' if count > 1 else ''}; nothing was run")
        sys.exit(2)
    except HarnessError as error:
        errors.print(str(error))
        sys.exit(error.exit_code)
    except OSError as error:  # a file cannot be read or written; errors of torch and Ray within trials are statuses
        errors.print(sentence(f"{error.filename or 'a file'}: {error.strerror or error}"))
        sys.exit(2)
