"""Compare language-model output heads on equal terms: suites of trials, records, tables."""

# Parse, call, exit code; nothing else. Ray and MLflow are imported by the commands that need them only.

import json
import signal
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from harness import plan as planning
from harness import records, screen
from harness.conformance import conformance, summary
from harness.corpora.download import DEFAULT_DATA
from harness.errors import BrokenComponent, ExecutionError, HarnessError, SuiteError
from harness.execution.driver import Tracking, run_trials
from harness.execution.events import Claim
from harness.execution.live import LiveView
from harness.plan.parameters import parameters
from harness.plan.reader import assignment
from harness.plan.specs import Suite, TrialSpec
from harness.registry import BACKBONES, CORPORA, HEADS, Registry
from harness.report import published, tables
from harness.trial.run import Setting

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
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
RESULTS = Path("results")
INTERRUPTED, TERMINATED = 130, 143


@app.command(epilog="Example: harness run suites/quickstart.yaml --set train.epochs=1 --only head=mos,seed=1")
def run(
    suite: SuitePath,
    overrides: Set = [],  # noqa: B006 - typer copies it
    only: Only = [],  # noqa: B006
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    executor: Annotated[Executor, typer.Option(help="Ray Tune, or this process.")] = Executor.ray,
    address: Annotated[str, typer.Option(help="A Ray cluster's address.")] = "local",
    device: Annotated[Device, typer.Option(help="auto: a GPU where there is one.")] = Device.auto,
    gpus_per_trial: Annotated[float | None, typer.Option(min=0, help="Share of a GPU for a trial.")] = None,
    cpus_per_trial: Annotated[int | None, typer.Option(min=1, help="CPU cores and torch threads of a trial.")] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run failed trials again.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Run finished trials again.")] = False,
    no_tracking: Annotated[bool, typer.Option("--no-tracking", help="Write nothing to MLflow.")] = False,
) -> None:
    """Train what is not finished yet, and write the suite's table."""
    read = planning.load(suite, tuple(overrides))
    printed = published.load(read)
    chosen = planning.select(read.trials, tuple(only))
    runs = records.runs_folder(results, read.name)
    todo = records.pending(chosen, _records(runs, chosen), retry_failed=retry_failed, force=force)
    tracking = Tracking(None if no_tracking or not todo else results, errors)
    if todo:
        gpus = read.resources.gpus if gpus_per_trial is None else gpus_per_trial
        claim = Claim(cpus=cpus_per_trial or read.resources.cpus, gpus=gpus)
        wanted = Device.cuda if gpus_per_trial and device is Device.auto else device
        setting = Setting(suite=read.name, runs=runs, data=data.resolve(), device=wanted.value, executor=executor.value)
        run_trials(todo, setting, claim, address, LiveView(todo, console), tracking)
    else:
        console.print(f"nothing to run: all {len(chosen)} trials have a record", highlight=False)
    found = _records(runs, read.trials)
    markdown = tables.render(read, found, printed)
    place = tables.write(read, markdown, results)
    tracking.call(lambda tracker: tracker.describe(read.name, tables.all_of(read.name, results)))
    _show(markdown, place)
    elsewhere = "" if results == RESULTS else f" --results {results}"
    console.print(f"MLflow UI: {screen.command()} ui {read.name}{elsewhere}", highlight=False, soft_wrap=True)
    raise typer.Exit(0 if all(spec.id in found and found[spec.id].status == "ok" for spec in chosen) else 1)


@app.command(epilog="Example: harness plan suites/ptb_mixtures.yaml --json")
def plan(
    suite: SuitePath,
    overrides: Set = [],  # noqa: B006
    only: Only = [],  # noqa: B006
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """What would run: trial ids, parameter counts, what is finished. Downloads and allocates nothing."""
    read = planning.load(suite, tuple(overrides))
    published.load(read)
    chosen = planning.select(read.trials, tuple(only))
    found = _records(records.runs_folder(results, read.name), chosen)
    entries = [_entry(read, spec, found) for spec in chosen]
    if as_json:
        print(json.dumps({"suite": read.name, "version": read.version, "trials": entries}, indent=1))
        return
    console.print(screen.trials(chosen, entries))
    missing = sum(entry["state"] == "missing" for entry in entries)
    console.print(f"{len(entries)} trials, {missing} to run", highlight=False)
    if read.match is not None:
        console.print(f"parameters matched: {read.match}", highlight=False)


@app.command(epilog="Example: harness table suites/quickstart.yaml")
def table(
    suite: SuitePath,
    overrides: Set = [],  # noqa: B006
    only: Only = [],  # noqa: B006
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
) -> None:
    """The suite's markdown table again, from its records. With --only: those rows, on screen only."""
    read = planning.load(suite, tuple(overrides))
    printed = published.load(read)
    found = _records(records.runs_folder(results, read.name), read.trials)
    place = tables.write(read, tables.render(read, found, printed), results)
    chosen = {spec.id for spec in planning.select(read.trials, tuple(only))}
    _show(tables.render(read, found, printed, only=chosen), place)


@app.command("list", epilog="Example: harness list heads --json")
def list_components(
    what: Annotated[str, typer.Argument(help="heads, backbones, corpora or suites.")], as_json: Json = False
) -> None:
    """What is known by name, where it comes from, and its parameters."""
    registries = {"heads": HEADS, "backbones": BACKBONES, "corpora": CORPORA}
    if what == "suites":
        if not Path("suites").is_dir():
            raise ExecutionError(f"there is no folder suites in {Path.cwd()}")
        entries = [{"name": p.stem, "from": str(p), "parameters": []} for p in sorted(Path("suites").glob("*.yaml"))]
    elif what in registries:
        entries = [_component(registries[what], name) for name in registries[what].names()]
    else:
        raise ExecutionError(f"harness list {what}: expected heads, backbones, corpora or suites")
    if as_json:
        print(json.dumps(entries, indent=1))
        return
    console.print(screen.components(entries))


@app.command(epilog="Example: harness check mos, or harness check --all")
def check(
    name: Annotated[str | None, typer.Argument(help="A head or a backbone, a plug-in's too.")] = None,
    given: Annotated[list[str], typer.Option("--set", metavar="PARAM=VALUE", help="A parameter's value.")] = [],  # noqa: B006
    every_head: Annotated[bool, typer.Option("--all", help="Every head: worst errors and time.")] = False,
) -> None:
    """The conformance suite for one head or backbone, or for every head, over the variants of their parameters."""
    if every_head == (name is not None) or (every_head and given):
        raise ExecutionError("harness check: expected the name of a head or backbone, or --all alone")
    if every_head:
        raise typer.Exit(_check_all(HEADS.names()))
    kind, outcomes = conformance(name, dict(map(assignment, given)))
    for outcome in outcomes:
        verdict = "ok  " if outcome.passed else "FAIL"
        console.print(f"{verdict}  {outcome}", highlight=False, markup=False, soft_wrap=True)
    failed = sum(not outcome.passed for outcome in outcomes)
    console.print(f"{kind} {name}: {len(outcomes) - failed} of {len(outcomes)} checks passed", highlight=False)
    raise typer.Exit(1 if failed else 0)


@app.command(epilog="Example: harness sync --results results")
def sync(results: Results = RESULTS) -> None:
    """Rebuild MLflow from the records."""
    from harness.execution.tracking import Tracker

    folders = sorted({path.parent.parent for path in (results / "runs").glob(f"*/*/{records.FILE_NAME}")})
    if not folders:
        raise ExecutionError(
            f"{results / 'runs'} holds no records: run a suite first, or name the folder with --results"
        )
    tracker, total = Tracker(results), 0
    for folder in folders:
        found, warnings = records.load_all(folder, [path.name for path in sorted(folder.iterdir()) if path.is_dir()])
        for warning in warnings:
            errors.print(f"warning: {warning}")
        for record in found.values():
            tracker.log(record)
        tracker.keep_only(folder.name, set(found))
        total += len(found)
        tracker.describe(folder.name, tables.all_of(folder.name, results))
    console.print(f"{total} records of {len(folders)} suites are in {results / 'mlflow.db'}", highlight=False)


@app.command(epilog="Example: harness ui quickstart --port 5000")
def ui(
    suite: Annotated[str | None, typer.Argument(help="Open this suite's runs.")] = None,
    results: Results = RESULTS,
    port: Annotated[int, typer.Option(min=1, max=65535)] = 5000,
) -> None:
    """Start the MLflow UI on 127.0.0.1 and print the link to the suite's runs. Ctrl-C ends it."""
    from harness.execution.tracking import serve

    raise typer.Exit(serve(results, port, suite, lambda link: print(link, flush=True)))


def _check_all(names: list[str]) -> int:
    """A row for each component; 1 when one fails, else 0."""
    summaries = []
    for name in names:
        summaries.append(summary(name))
        for failure in summaries[-1].failures:
            console.print(f"FAIL  {name}: {failure}", highlight=False, markup=False, soft_wrap=True)
    console.print(screen.summaries(summaries))
    return 1 if any(each.failures for each in summaries) else 0


def _records(runs: Path, trials: tuple[TrialSpec, ...]) -> dict[str, records.TrialRecord]:
    """The verified records; a damaged one is named and counts as none."""
    found, warnings = records.load_all(runs, [trial.id for trial in trials])
    for warning in warnings:
        errors.print(f"warning: {warning}")
    return found


def _entry(suite: Suite, spec: TrialSpec, found: dict[str, records.TrialRecord]) -> dict[str, Any]:
    total, head = suite.params[spec.id]
    components = {kind: getattr(spec, kind).model_dump() for kind in ("corpus", "backbone", "head")}
    state = found[spec.id].status if spec.id in found else "missing"
    return {"id": spec.id, **components, "seed": spec.seed, "params_total": total, "params_head": head, "state": state}


def _component(registry: Registry, name: str) -> dict[str, Any]:
    """A broken plug-in is a row with its cause, not the end of the list."""
    try:
        shown = [str(parameter) for parameter in parameters(registry.get(name)).values()]
    except BrokenComponent as error:
        shown = [f"broken: {error}"]
    return {"name": name, "from": registry.origin(name), "parameters": shown}


def _show(markdown: str, place: Path) -> None:
    console.print(markdown, markup=False, highlight=False, soft_wrap=True)
    console.print(f"table: {place}", highlight=False, soft_wrap=True)


def main() -> None:
    """Entry point: a user's mistake is one sentence on standard error and exit code 2, never a traceback; Ctrl-C leaves
    with 130, SIGTERM with 143.
    """
    terminated = []

    def on_sigterm(*_) -> None:
        terminated.append(True)
        raise KeyboardInterrupt  # what Ray's own waiting lets through; a SystemExit it turns into code 1

    signal.signal(signal.SIGTERM, on_sigterm)
    try:
        app()
    except SystemExit as leaving:
        if leaving.code != INTERRUPTED:
            raise
        errors.print("interrupted: finished trials are kept, the same command goes on with the others")
        sys.exit(TERMINATED if terminated else INTERRUPTED)
    except SuiteError as error:
        for problem in error.problems:
            errors.print(problem)
        count = len(error.problems)
        errors.print(f"{count} problem{'s' if count > 1 else ''}; nothing was run")
        sys.exit(2)
    except HarnessError as error:
        errors.print(str(error))
        sys.exit(2)
    except OSError as error:  # a place that cannot be read or written; torch's and Ray's own faults are statuses
        errors.print(f"{error.filename or 'a file'}: {error.strerror or error}")
        sys.exit(2)


if __name__ == "__main__":
    main()
