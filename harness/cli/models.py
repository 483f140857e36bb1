"""The commands on trained models: `harness inspect`, `sample` and `diagnose`; and `experiment`, on untrained layers."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from itertools import groupby, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from harness import plan as planning
from harness.cli.options import (
    RESULTS,
    Data,
    Device,
    Interrupted,
    Json,
    Only,
    Results,
    RunDevice,
    Set,
    SuitePath,
    argument,
    console,
    errors,
    option,
    say,
    say_files,
    warn,
)
from harness.corpora.download import DEFAULT_DATA
from harness.errors import ExecutionError
from harness.plan.reader import shown
from harness.printable import counted, printable
from harness.report import screen

if TYPE_CHECKING:  # a command waits only for the modules that it works with, and its help for none
    from harness.diagnostics.diagnosed import Diagnosed
    from harness.diagnostics.diagnosing import DiagnosisOutcome, Watch
    from harness.diagnostics.facets import Position
    from harness.records.record import TrialRecord
    from harness.report.study import Study

MAX_NAMED = 3  # trials that a warning names
TrialId = Annotated[str, argument("A trial's id as `harness runs SUITE` shows it, or its first digits.")]


def inspect(
    trial: TrialId,
    text: Annotated[str, option("The text before the predicted word.", "--text")],
    top: Annotated[int, option("How many words are shown for each component.", min=1)] = 10,
    every: Annotated[bool, option("Predict after every token of the text, not only the last.", "--all")] = False,
    device: RunDevice = Device.auto,
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Show the most probable next words: of the mixture, and of each component and facet with its weight."""
    from harness.diagnostics import facets
    from harness.machine.environment import resolve_device
    from harness.trial import trained

    model = trained.load(results, trial, data, resolve_device(device.value))
    positions, is_mixture = facets.inspect(model, text, top=top, every=every)
    if as_json:
        about = {"trial": model.spec.id, "head": str(model.spec.head), "mixture": is_mixture}
        print(json.dumps({**about, "positions": [asdict(position) for position in positions]}, indent=1))
        return
    for position in positions:
        console.print(_voices(position))
    if not is_mixture:
        say(f"{model.spec.head} is not a mixture, so it has no components to show")


def sample(
    trial: TrialId,
    prompt: Annotated[str, option("The start of the text, at least one token.", "--prompt")],
    tokens: Annotated[int, option("How many tokens are drawn.", min=1)] = 50,
    temperature: Annotated[
        float, option("Logits are divided by it. With 0, the most probable token is always taken.")
    ] = 1.0,
    top_k: Annotated[int | None, option("Draw from this many of the most probable tokens.")] = None,
    top_p: Annotated[float | None, option("Draw from the fewest tokens that together have this probability.")] = None,
    seed: Annotated[int, option("The same seed draws the same text.", min=0, max=2**63 - 1)] = 1,
    num: Annotated[int, option("How many texts are drawn, all from the same prompt.", min=1)] = 1,
    device: RunDevice = Device.auto,
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Write text with a trained model, and show how many tokens a second were drawn.

    A backbone with a recurrent state sees the whole text. Any other sees at most as many tokens as its training
    segments had.
    """
    from harness.diagnostics import generation
    from harness.machine.environment import resolve_device
    from harness.trial import trained

    choice = generation.NextToken(temperature=temperature, top_k=top_k, top_p=top_p)
    model = trained.load(results, trial, data, resolve_device(device.value))
    drawn = generation.continue_text(model, prompt, tokens, choice, seed=seed, copies=num)
    if as_json:
        print(json.dumps({"trial": model.spec.id, **asdict(drawn)}, indent=1))
        return
    for text in drawn.texts:
        console.print(screen.lines(text), soft_wrap=True)
    say(f"{drawn.tokens_per_second:,.0f} tokens a second")


def _voices(position: "Position") -> Table:
    """The predictions after a token: a column for the mixture, each component and each facet, with its weight, its
    words and their probabilities.
    """
    table = Table(title=screen.text(f"after '{position.token}'"))
    columns = []
    for voice in position.voices:
        owned = f"\n{voice.owns}" if voice.owns else ""
        table.add_column(Text(f"{voice.name}\n{voice.weight:.3f}{owned}"), overflow="fold")
        columns.append([f"{word} {p:.4f}" for word, p in voice.words])
    for row in zip_longest(*columns, fillvalue=""):
        table.add_row(*map(screen.text, row))
    return table


def diagnose(
    suite: SuitePath,
    overrides: Set = [],  # noqa: B006
    only: Only = [],  # noqa: B006
    diagnostic: Annotated[
        list[str],
        option(
            "Only this one: spectrum, gates, gradients, jacobian, calibration, word_pairs, unargmaxable. Repeatable.",
            "--diagnostic",
            metavar="NAME",
        ),
    ] = [],  # noqa: B006
    contexts: Annotated[int, option("How many positions of the validation split are used.", min=2)] = 10_000,
    device: RunDevice = Device.auto,
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Compute what the trained heads of a suite can express: singular values, gates, gradients, calibration.

    The results are stored beside the records, so nothing is computed twice; tables and plots are written.
    """
    from harness.diagnostics import catalogue, diagnosed, diagnosing
    from harness.diagnostics.diagnostic import Settings
    from harness.machine.environment import resolve_device
    from harness.plan.selection import chosen_trials
    from harness.records import store
    from harness.report import study

    settings = Settings(contexts=contexts)
    found = study.load(planning.load(suite, tuple(overrides)), results, warn=warn)
    request = diagnosing.Request(
        runs=store.runs_folder(results, found.suite.name),
        diagnostics=catalogue.chosen(tuple(diagnostic)),
        settings=settings,
        data=data,
        device=resolve_device(device.value),
    )
    wanted = {trial.id for trial in chosen_trials(found.suite, tuple(only))}
    records = _finished(found, wanted)
    with _progress() as watch:
        outcome = diagnosing.diagnose(request, records, watch)
    _say_problems(outcome, found)
    of_each = diagnosed.gathered(found.evidence, request.diagnostics, settings.of)
    if not any(of.stored for of in of_each):
        raise ExecutionError(
            f"there is no result of {found.suite.name} to show: mend what is said above, or take "
            "other diagnostics by --diagnostic"
        )
    files = diagnosed.write(found.evidence, of_each, results)
    if as_json:
        print(json.dumps(_as_json(found, of_each, wanted), indent=1))
    else:
        say(f"{counted(outcome.computed, 'result')} computed, {outcome.known} known already")
        for of in of_each:
            _show(found, of, files)
    if outcome.failed:
        raise typer.Exit(1)


def _finished(found: "Study", wanted: set[str]) -> "list[TrialRecord]":
    records = [record for trial, record in found.records.items() if trial in wanted and record.status == "ok"]
    if not records:
        raise ExecutionError(f"no trial of these is finished; `harness run {shown(found.suite.path)}` trains them")
    return records


@contextmanager
def _progress() -> "Iterator[Watch]":
    """A progress bar on standard error, if that is a terminal, and the function that moves it. Ctrl-C leaves with a
    sentence.
    """
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal, refresh_per_second=2)
    task = bar.add_task("", total=None)

    def watch(done: int, total: int, what: str) -> None:
        bar.update(task, completed=done, total=total, description=printable(what))

    try:
        with bar:
            yield watch
    except KeyboardInterrupt as stop:
        done = int(bar.tasks[0].completed)
        raise Interrupted(f"interrupted: {counted(done, 'new result')} stored; the same command goes on") from stop


def _say_problems(outcome: "DiagnosisOutcome", found: "Study") -> None:
    for failure in outcome.failed:
        warn(failure)
    if trials := outcome.without_weights:
        more = f" and {len(trials) - MAX_NAMED} more" if len(trials) > MAX_NAMED else ""
        warn(
            f"{counted(len(trials), 'trial')} of {found.suite.name} without weights: imported, or removed "
            f"({', '.join(trials[:MAX_NAMED])}{more}); `harness run {shown(found.suite.path)} --force` trains again"
        )


def _show(found: "Study", of: "Diagnosed", files: Mapping[str, Sequence[Path]]) -> None:
    """The table of a diagnostic: on a terminal the few columns that fit, else all as markdown; or why there is none."""
    from harness.diagnostics import diagnosed
    from harness.report import table_forms

    if not of.results:
        reasons = dict.fromkeys(each.refused for each in of.stored.values())
        say(f"{of.diagnostic.name}: no trial has a result: {'; '.join(reasons)}")
        return
    if console.is_terminal:
        console.print(screen.short(diagnosed.summary(found.evidence, of), console.width))
    else:
        say(table_forms.markdown(diagnosed.build(found.evidence, of)))
    say_files("table", files[of.diagnostic.name])


def _as_json(found: "Study", stored: "list[Diagnosed]", wanted: set[str]) -> dict[str, object]:
    trials = []
    for trial in found.suite.trials:
        if trial.id in wanted:
            results = {}
            for of in stored:
                if trial.id in of.stored:
                    results[of.diagnostic.name] = of.stored[trial.id].model_dump(mode="json")
            about = {"id": trial.id, "head": str(trial.head), "seed": trial.seed}
            trials.append({**about, "diagnostics": results})
    return {"suite": found.suite.name, "trials": trials}


class Experiment(StrEnum):
    degeneracy = "degeneracy"


def experiment(
    name: Annotated[Experiment, argument("The experiment.", metavar="NAME")],
    seeds: Annotated[int, option("How many seeds: 1, 2, 3 and so on.", min=1)] = 5,
    results: Results = RESULTS,
) -> None:
    """Repeat an experiment that needs no suite, and write its table.

    degeneracy: singular values of the Jacobian of a dense layer and of mixtures of experts; also plots.
    """
    from harness.experiments import degeneracy, experiment_tables
    from harness.machine import environment  # here: torch takes a second to import

    chosen = range(1, seeds + 1)
    with environment.torch_threads(1):
        found = [
            degeneracy.spectrum(layer, chosen, inputs=inputs)
            for inputs in degeneracy.INPUT_KINDS
            for layer in degeneracy.LAYERS
        ]
    tables, plots = experiment_tables.write_degeneracy(found, chosen, results)
    say_files("table", tables)
    for _, files in groupby(plots, key=lambda place: place.stem):
        say_files("plot", list(files))
