"""`harness run`, `plan` and `table`: what is done with a suite."""

import json
import shlex
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from harness import plan as planning
from harness.cli import screen
from harness.cli.options import (
    RESULTS,
    Data,
    Device,
    Executor,
    Json,
    Only,
    Overwrite,
    Results,
    Set,
    SuitePath,
    console,
    errors,
)
from harness.code.fingerprints import is_outdated
from harness.corpora.download import DEFAULT_DATA
from harness.errors import ExecutionError, FewerTrialsError, StorageError
from harness.execution.driver import run_trials, tidy_finished, without_weights
from harness.execution.events import Claim
from harness.execution.exclusive_pass import time_rows
from harness.execution.progress.live import LiveView
from harness.machine.environment import resolve_device
from harness.plan.comparison import Shape
from harness.plan.specs import Suite, TrialSpec
from harness.records import record, store
from harness.records.contents import of_suite
from harness.report import retraining
from harness.report.evidence import printed_numbers
from harness.report.evidence.gather import gather
from harness.report.table import suite_table
from harness.tracking.description import description
from harness.tracking.safe_tracker import SafeTracker
from harness.trial.setting import Setting

OUTDATED = "outdated"  # the state of a trial that is ok, by code that has changed since
SHOWN = 5  # of the trials that a warning names


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
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep finished trials whose code has changed since: they count as they are.")
    ] = False,
    shared: Annotated[
        bool, typer.Option("--shared", help="Other work runs on this machine: times are marked as taken while sharing.")
    ] = False,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Stop at the first trial that fails.")] = False,
    no_tracking: Annotated[bool, typer.Option("--no-tracking", help="Write nothing to MLflow.")] = False,
    timing: Annotated[
        bool | None,
        typer.Option(
            "--timing/--no-timing",
            help="After training time a model of each row, one at a time: again, or not. Else as the suite says, once.",
            show_default=False,
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Train what is not finished yet, and write the suite's table."""
    read = planning.load(suite, tuple(overrides))
    printed_numbers.load(read)
    chosen = planning.select(read.trials, tuple(only))
    if force and keep:
        raise ExecutionError("--force trains finished trials anew and --keep keeps them: give one of the two")
    runs = store.runs_folder(results, read.name)
    known = _records(read, runs, chosen)
    outdated = [] if force or keep else retraining.sentences(read, chosen, known, *_elsewhere(results))
    for sentence in outdated:
        errors.print(sentence)
    todo = store.pending(chosen, known, retry_failed=retry_failed, force=force)
    finished = {trial: known[trial] for trial in known.keys() - set(_ids(todo))}
    tidy_finished(runs, finished)
    _warn_of_lost_weights(without_weights(runs, finished))
    tracking, view = SafeTracker(None if no_tracking else results, errors), LiveView(todo, console)
    gpus = read.resources.gpus if gpus_per_trial is None else gpus_per_trial
    claim = Claim(cpus=cpus_per_trial or read.resources.cpus, gpus=gpus)
    device = Device.cuda if gpus_per_trial and device is Device.auto else device
    setting = Setting(
        suite=read.name,
        runs=runs,
        data=data.resolve(),
        device=device.value,
        executor=executor.value,
        shared=shared,
        checkpoint=read.checkpoint,
        timeout=read.timeout,
        measure=read.measure,
        memory_gib=read.resources.memory_gib,
        fresh=force,
        replaces=store.digests(runs, _ids(todo)),
        contents=read.contents,
    )
    if not todo:
        what = "nothing else to run" if outdated else "nothing to run"
        console.print(f"{what}: all {len(chosen)} trials have a record", highlight=False)
    try:
        if todo:
            run_trials(todo, setting, claim, address, view, tracking, fail_fast=fail_fast)
        wanted = read.measure.exclusive if timing is None else timing
        again = replace(setting, fresh=force or bool(timing))
        timed = wanted and time_rows(chosen, again, claim, address, say=_say, warn=errors.print)
    except KeyboardInterrupt:
        _report(read, results, SafeTracker(None, errors), overwrite=overwrite)
        _totals(view)
        raise
    if not todo and not timed:
        tracking = SafeTracker(None, errors)  # nothing new to show
    found, written = _report(read, results, tracking, overwrite=overwrite)
    _totals(view)
    elsewhere = shlex.join([read.name, *_elsewhere(results)])
    console.print(f"MLflow UI: {screen.command()} ui {elsewhere}", highlight=False, soft_wrap=True)
    ok = all(spec.id in found and found[spec.id].status == "ok" for spec in chosen)
    raise typer.Exit(0 if ok and written and not outdated else 1)


def _elsewhere(results: Path) -> list[str]:
    """The option that names the results folder, where it is not the default."""
    return [] if results == RESULTS else ["--results", str(results)]


def _warn_of_lost_weights(trials: list[str]) -> None:
    if not trials:
        return
    more = f" and {len(trials) - SHOWN} more" if len(trials) > SHOWN else ""
    whose = f"{len(trials)} finished trial{'s' * (len(trials) > 1)} ({', '.join(trials[:SHOWN])}{more})"
    _warn(
        f"the weights, best.pt, are missing or damaged of {whose}. Records and tables do not need them; "
        "inspect, sample and exclusive times do. --force with --only trains such a trial again"
    )


def _totals(view: LiveView) -> None:
    """What the trials took, where there were any."""
    if view.total:
        _print(view.totals())


def _report(
    suite: Suite, results: Path, tracking: SafeTracker, *, overwrite: bool
) -> tuple[dict[str, record.TrialRecord], bool]:
    """Write and show the suite's table: the records it was made of, and whether it could be written."""
    evidence = gather(suite, results, _warn)
    found, table = evidence.records, suite_table.build(evidence)
    _print(suite_table.text(table))
    written = True
    try:
        _tell(suite_table.write(suite, table, results, overwrite=overwrite))
    except StorageError as fault:
        errors.print(str(fault))
        return found, False
    except FewerTrialsError as stays:
        errors.print(str(stays))
        written = False
    tracking.call(lambda tracker: tracker.catch_up(suite.name, found.values()))
    tracking.call(lambda tracker: tracker.describe(suite.name, description(suite.name, results)))
    return found, written


def plan(
    suite: SuitePath,
    overrides: Set = [],  # noqa: B006
    only: Only = [],  # noqa: B006
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    memory: Annotated[
        bool, typer.Option("--memory", help="Memory of a training step at its peak; seconds for each model.")
    ] = False,
    device: Annotated[Device, typer.Option(help="Of --memory; auto: a GPU where there is one.")] = Device.auto,
    as_json: Json = False,
) -> None:
    """What would run: trial ids, parameter counts, what is finished. Downloads and allocates nothing."""
    read = planning.load(suite, tuple(overrides))
    printed_numbers.load(read)
    chosen = planning.select(read.trials, tuple(only))
    runs = store.runs_folder(results, read.name)
    found, begun = _records(read, runs, chosen), store.interrupted(runs, _ids(chosen))
    entries = [_entry(read, spec, found, begun) for spec in chosen]
    if memory:
        _add_memory(entries, chosen, device)
    if as_json:
        print(json.dumps({"suite": read.name, "version": read.version, "trials": entries}, indent=1))
        return
    console.print(screen.trials(chosen, entries))
    missing = sum(entry["id"] not in found for entry in entries)
    outdated = sum(entry["state"] == OUTDATED for entry in entries)
    told = f", {outdated} outdated" if outdated else ""
    console.print(f"{len(entries)} trials, {missing} to run{told}", highlight=False)
    for sentence in retraining.sentences(read, chosen, found, *_elsewhere(results)):
        _say(sentence)
    if read.match is not None:
        console.print(f"parameters matched: {read.match}", highlight=False)
    if memory:
        console.print(screen.step_memory(chosen, entries, str(resolve_device(device.value))))


def _add_memory(entries: list[dict[str, Any]], trials: tuple[TrialSpec, ...], device: Device) -> None:
    """Each entry's 'memory': bytes of the parts and their total, or None; a sentence for each model without."""
    from harness.training.step_memory import plan_trials  # here: torch's fake tensors take a second to import

    found, unknown = plan_trials(trials, resolve_device(device.value))
    for entry in entries:
        of = found.get(entry["id"])
        entry["memory"] = None if of is None else {**asdict(of), "total": of.total}
    for sentence in unknown:
        errors.print(f"warning: the memory of a step cannot be told: {sentence}")


def table(
    suite: SuitePath,
    overrides: Set = [],  # noqa: B006
    only: Only = [],  # noqa: B006
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    shape: Annotated[
        Shape | None, typer.Option(help="How rows are laid out; if not the suite's, in files of its own.")
    ] = None,
    form: Annotated[suite_table.Form, typer.Option(help="What is printed; all three are written.")] = "md",
    overwrite: Overwrite = False,
) -> None:
    """The suite's table again, from its records: markdown, CSV, LaTeX. With --only: those rows, on screen only."""
    read = planning.load(suite, tuple(overrides))
    chosen = {spec.id for spec in planning.select(read.trials, tuple(only))}
    made = suite_table.build(gather(read, results, _warn), shape)
    _print(suite_table.text(suite_table.of_trials(made, chosen), form))
    places = suite_table.write(read, made, results, shape, overwrite=overwrite)
    if form == "md":  # what else is printed is a file's content, to be read by programs
        _tell(places)


def _records(suite: Suite, runs: Path, trials: tuple[TrialSpec, ...]) -> dict[str, record.TrialRecord]:
    """The verified records of some trials of a suite; one that is damaged or of other settings is named, and counts as
    none.
    """
    verified, warnings = store.load_all(runs, _ids(trials))
    found, misfits = of_suite(verified, suite)
    for warning in (*warnings, *misfits):
        _warn(warning)
    return found


def _warn(sentence: str) -> None:
    errors.print(f"warning: {sentence}")


def _ids(trials: Iterable[TrialSpec]) -> list[str]:
    return [trial.id for trial in trials]


def _entry(
    suite: Suite, spec: TrialSpec, found: dict[str, record.TrialRecord], interrupted: set[str]
) -> dict[str, Any]:
    total, head = suite.params[spec.id]
    components = {kind: getattr(spec, kind).model_dump() for kind in ("corpus", "backbone", "head")}
    state = _state(found[spec.id]) if spec.id in found else "interrupted" if spec.id in interrupted else "missing"
    return {"id": spec.id, **components, "seed": spec.seed, "params_total": total, "params_head": head, "state": state}


def _state(record: record.TrialRecord) -> str:
    return OUTDATED if is_outdated(record) else record.status


def _say(sentence: str) -> None:
    console.print(sentence, markup=False, highlight=False, soft_wrap=True)


def _print(text: str) -> None:
    console.print(
        text, markup=False, highlight=False, emoji=False, soft_wrap=True, end="" if text[-1:] == "\n" else "\n"
    )


def _tell(places: list[Path]) -> None:
    """'table: results/tables/quickstart.md, .csv, .tex'."""
    told = ", ".join([str(places[0]), *(place.suffix for place in places[1:])])
    console.print(f"table: {told}", highlight=False, soft_wrap=True)
