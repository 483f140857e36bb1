"""`harness run`, `plan` and `table`: what is done with a suite."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from harness import plan as planning
from harness import records, screen
from harness.cli.options import RESULTS, Data, Device, Executor, Json, Only, Results, Set, SuitePath, console, errors
from harness.corpora.download import DEFAULT_DATA
from harness.execution.driver import Tracking, run_trials
from harness.execution.events import Claim
from harness.execution.live import LiveView
from harness.plan.specs import Suite, TrialSpec
from harness.report import published, tables
from harness.trial.run import Setting


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
    shared: Annotated[
        bool, typer.Option("--shared", help="Other work runs on this machine: times are marked as taken while sharing.")
    ] = False,
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
        setting = Setting(
            suite=read.name,
            runs=runs,
            data=data.resolve(),
            device=wanted.value,
            executor=executor.value,
            shared=shared,
        )
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


def _show(markdown: str, place: Path) -> None:
    console.print(markdown, markup=False, highlight=False, soft_wrap=True)
    console.print(f"table: {place}", highlight=False, soft_wrap=True)
