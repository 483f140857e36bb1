"""`harness plan`: what a suite would run."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated

from rich.table import Table
from rich.text import Text

from harness import plan as planning
from harness.cli.options import (
    RESULTS,
    Data,
    Device,
    Json,
    Only,
    Results,
    Seeds,
    Set,
    SuitePath,
    changes,
    console,
    option,
    say,
    warn,
)
from harness.corpora.corpus import MANY_UNKNOWN
from harness.corpora.download import DEFAULT_DATA
from harness.corpora.overlap import MANY_SHARED, NOT_APART, NOT_NEW
from harness.execution.executors import RunOptions, repeated
from harness.execution.planned import PlannedSuite, PlannedTrial, planned
from harness.execution.timed import RowTime, match_text, reference, suite_times
from harness.machine.environment import resolve_device
from harness.plan.lengths import targets_of_epoch
from harness.plan.reader import introduction
from harness.plan.selection import choices, facts_of, key_texts
from harness.plan.specs import TrialSpec
from harness.plan.suite import Row, Suite
from harness.plan.tuning import point_text
from harness.printable import counted
from harness.records import store
from harness.records.contents import of_others
from harness.report import screen
from harness.report.grouping import grouped

HALF_A_LINE = 40
SCREEN = 25  # lines of a terminal
MAX_ROWS = 13  # of more rows, those with the same head share a line
FEWER_UNKNOWN = "a tokenizer, as {bpe: 2000}, has none; the wide table compares heads on known words, too"
NAMED_KEYS = 4  # of --only, in a plan without --keys
KINDS = ("corpus", "backbone", "head")


def plan(
    suite: SuitePath,
    overrides: Set = [],  # noqa: B006
    only: Only = [],  # noqa: B006
    seeds: Seeds = None,
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    trials: Annotated[bool, option("Show every trial with its id, point and state.", "--trials")] = False,
    keys: Annotated[bool, option("Show the components in full, and the keys that --only takes.", "--keys")] = False,
    time: Annotated[
        bool, option("Time some training steps of each row: the minutes of a trial here.", "--time")
    ] = False,
    device: Annotated[Device, option("The device of --time; auto: a GPU if there is one.")] = Device.auto,
    as_json: Json = False,
) -> None:
    """Show what would run: rows with their parameters and seeds, what is finished, and what it costs.

    Nothing is downloaded or trained, but by --time.
    """
    where = resolve_device(device.value)
    read = planning.load(suite, changes(overrides, seeds))
    found = planned(read, results, tuple(only), warn, *repeated(RunOptions(), results, data))
    times, minutes, busy = suite_times(found, data, where, warn) if time else (None, 0.0, 0.0)
    if as_json:
        measured = {} if times is None else {"times": [row.as_json() for row in times], "minutes_to_run": minutes}
        print(json.dumps({**found.as_json(), **measured}, indent=1))
        return
    match = found.suite.match
    below = [] if match is None else [f"{match.kind} matched: {match}"]
    notes = [*(note.text for note in found.suite.notes), *found.suite.control_notes]
    below += [f"note: {text}" for text in notes]
    if any(True for _ in found.to_run()) and (others := of_others(read, store.runs_folder(results, read.name))):
        below.append(f"note: {others}")
    below += [*_corpora(found.suite), *_ladder(found.suite, times or []), *([] if time else _cost(found))]
    below += _all_keys(found.suite) if keys else _keys(found.suite)
    room = SCREEN - sum(map(_lines, [str(found), *found.outdated, *below]))
    _print(_trials(found) if trials else _rows(found, None if keys or time else room))
    _print([str(found)])
    for sentence in found.outdated:
        say(sentence)  # its commands are in one line, to be copied
    _print(below)
    if times is not None:
        _print(_times(times, found.suite, str(where)))
        say(f"to run, one trial after the other: {screen.span(minutes)}")
        if not only and (text := match_text(found.suite, times, busy, where)) is not None:
            say(f"for the same training time for every head, in the suite file:\n{text}")


def _print(parts: Iterable[Text | Table | str]) -> None:
    """Print texts and tables; on a terminal texts are broken between words."""
    for part in parts:
        shown = Text(part) if isinstance(part, str) else part
        console.print(shown, soft_wrap=isinstance(shown, Text) and not console.is_terminal)


def _lines(part: Text | Table | str) -> int:
    """How many lines of the terminal a part needs."""
    return len(console.render_lines(Text(part) if isinstance(part, str) else part))


@dataclass(slots=True)
class _Row:
    """A row of the table of a suite, or several with the same head.

    Args:
        names: of its corpora, backbones and heads, in the order of KINDS.
        tuning, trials: state -> number of its tuning trials, of its trials of the table.
    """

    names: tuple[dict[str, None], ...]
    params: dict[str, None] = field(default_factory=dict)
    head_params: dict[str, None] = field(default_factory=dict)
    tuning: Counter = field(default_factory=Counter)
    trials: Counter = field(default_factory=Counter)
    minutes: list[float] = field(default_factory=list)

    def cells(self) -> list[str]:
        distinct = [" / ".join(found) for found in (*self.names, self.params, self.head_params)]
        states = []
        for of in (self.tuning, self.trials):
            states.append(", ".join(f"{number} {state}" for state, number in of.items()))
        mean = f"{sum(self.minutes) / len(self.minutes):.1f}" if self.minutes else ""
        return [cell or screen.NOTHING for cell in (*distinct, *states, mean)]


def _rows(found: PlannedSuite, room: int | None) -> Iterator[Text | Table | str]:
    """A line for each row of the table: what it is called there, its parameters, and how many of its trials are in
    which state. Where there are more than MAX_ROWS, rows with the same head share a line.

    Args:
        room: lines on a terminal, for as many rows as have room; None: all rows, as in a pipe.
    """
    suite = found.suite
    named = [(trial, names_of(suite.row_of(trial.spec))) for trial in found.tuning + found.trials]
    later = [(each, names_of(each.row)) for each in found.later]
    every = {names for _, names in (*named, *later)}
    by_head = len(every) * (2 if any(len(name) > HALF_A_LINE for names in every for name in names) else 1) > MAX_ROWS
    rows: dict[tuple[str, ...] | str, _Row] = {}

    def row_of(names: tuple[str, ...]) -> _Row:
        row = rows.setdefault(names[-1] if by_head else names, _Row(({}, {}, {})))
        for known, name in zip(row.names, names, strict=True):
            known[name] = None
        return row

    for number, (trial, names) in enumerate(named):
        row, of_table = row_of(names), number >= len(found.tuning)
        row.params[f"{trial.params_total:,}"] = row.head_params[f"{trial.params_head:,}"] = None
        (row.trials if of_table else row.tuning)[trial.state] += 1
        row.minutes += [trial.minutes] if of_table and trial.minutes is not None else []
    for each, names in later:
        row_of(names).trials["lost: tuning failed" if each.lost else "after tuning"] += len(each.seeds)
    cells = [row.cells() for row in rows.values()]
    columns = (*KINDS, "params", "head params", "tuning trials", "trials", "min/trial")
    right = ("params", "head params", "min/trial")
    keep = []
    for index, name in enumerate(KINDS):
        if len({of[index] for of in cells}) > 1:
            keep.append(name)
    keep += ["head", "params", "trials", *(["min/trial"] if any(row.minutes for row in rows.values()) else [])]

    def drawn(most: int) -> Iterator[Text | Table | str]:
        yield from screen.table(columns, cells[:most], keep=keep, right=right, width=_width())
        if len(cells) > most:
            yield f"and {counted(len(cells) - most, 'more row')}: --trials shows every trial"

    most = len(cells)
    while room is not None and console.is_terminal and most > 1 and sum(map(_lines, drawn(most))) > room:
        most -= 1
    return drawn(most)


def _trials(found: PlannedSuite) -> screen.Shown:
    """A line for each trial of each stage, and one for each row whose trials have no ids yet."""
    columns = ("trial", *KINDS, "point", "seed", "params", "head params", "state")
    look = {"keep": ("trial", "head", "seed", "state"), "right": ("seed", "params", "head params"), "width": _width()}

    def cells(trial: PlannedTrial) -> list[str]:
        names = names_of(found.suite.row_of(trial.spec))
        about = [point_text(trial.point) or screen.NOTHING, str(trial.spec.seed)]
        return [trial.spec.id, *names, *about, f"{trial.params_total:,}", f"{trial.params_head:,}", trial.state]

    of_table = list(map(cells, found.trials))
    for each in found.later:
        name, state = ("no point", "tuning failed") if each.lost else ("after tuning", "missing")
        of_table.append([name, *names_of(each.row), "-", ", ".join(map(str, each.seeds)), "-", "-", state])
    if found.suite.tune is not None:
        yield from screen.table(columns, map(cells, found.tuning), title="stage 1: tuning", **look)
    yield from screen.table(columns, of_table, title="stage 2: the table" if found.suite.tune else None, **look)


def _corpora(suite: Suite) -> Iterator[str]:
    """A line for each corpus: what was read of it, and what is known without reading it."""
    for name, facts in suite.corpora.items():
        said = []
        text, counts = facts.text, facts.num_tokens
        of_splits = {} if text is None or text.of_splits is None else text.of_splits
        if text is not None:
            characters = [] if text.characters is None else [counted(text.characters, "character")]
            said += [", ".join([counted(text.number, text.part), *characters]), text.splits]
            counts = {split: each.tokens for split, each in of_splits.items()}
        sizes = ", ".join(f"{split} {number:,}" for split, number in (counts or {}).items())
        said += [f"tokens: {sizes or 'known when it is tokenised'}", f"V = {facts.vocab_size:,}"]
        if of_splits:
            types = ", ".join(f"{split} {each.types:,}" for split, each in of_splits.items())
            said.append(f"different tokens: {types} ({of_splits['test'].unseen_types:,} of them not in train)")
            said += _unknown(of_splits["test"].unknown_share)
        lines = {} if text is None else text.lines_in_train
        shares = [f"{100 * share:.1f} % of {split}" for split, share in facts.in_train.items()]
        wholes = {split: share for split, share in lines.items() if share}
        shares += [f"{100 * share:.1f} % of {split} in whole lines or documents" for split, share in wholes.items()]
        if shares:
            many = text is not None and max([*facts.in_train.values(), *lines.values()]) > MANY_SHARED
            said.append(f"also in train: {', '.join(shares)}" + f": {NOT_NEW}" * many)
        if of_splits and (share := of_splits["test"].in_valid):
            said.append(f"also in valid: {100 * share:.1f} % of test" + f": {NOT_APART}" * (share > MANY_SHARED))
        yield f"{name}: {'; '.join(said)}"


def _ladder(suite: Suite, times: list[RowTime]) -> Iterator[str]:
    """A line for each size of a ladder: N, the training tokens and FLOPs of its rows, and the minutes of all trials."""
    minutes = {each.row: each.minutes for each in times}
    rows_of_sizes = [row for row in suite.rows if row.size is not None]
    of_size = grouped(((row.size, row.backbone.name, row.corpus.name), row) for row in rows_of_sizes)
    for (size, backbone, corpus), rows in of_size.items():
        said = [f"size {size}, {backbone} on {corpus}: N = {rows[0].non_embedding:,}"]
        counts = rows[0].facts.num_tokens
        if counts is not None:
            tokens = [row.train.epochs * targets_of_epoch(row.train, counts["train"]) for row in rows]
            said.append(f"{_range([f'{number:,.0f}' for number in tokens])} training tokens")
            known = [(row.flops, number) for row, number in zip(rows, tokens, strict=True)]
            flops = [each.total * number for each, number in known if not isinstance(each, str | None)]
            said += [f"{_range([f'{number:.2g}' for number in flops])} FLOPs a trial"] if flops else []
        timed = [row for row in rows if row in minutes]
        total = sum(minutes[row] * (len(row.candidates[0].trials) + len(row.tuning_trials)) for row in timed)
        said += [f"{screen.span(total)} for all trials"] if timed else []
        yield ", ".join(said)


def _range(texts: list[str]) -> str:
    """'4,000,000', or of different texts the least and the largest, '9e+12 to 2e+13'."""
    found = sorted(set(texts), key=lambda text: float(text.replace(",", "")))
    return found[0] if len(found) == 1 else f"{found[0]} to {found[-1]}"


def _unknown(share: float | None) -> list[str]:
    """What is said of the share of <unk> in the test tokens."""
    if share is None:
        return []
    said = f"{100 * share:.1f} % of the test tokens are <unk>"
    return [f"{said}, one token for all unknown words: {FEWER_UNKNOWN}" if share > MANY_UNKNOWN else said]


def _cost(found: PlannedSuite) -> list[str]:
    """What the suite costs, as far as it says so itself; nothing if all trials have a record."""
    if not any(True for _ in found.to_run()):
        return []
    minutes = found.suite.core_minutes
    said = introduction(found.suite.path)[1].partition(". ")[0].rstrip(".")
    known = f"{screen.span(minutes)} on a core of a CPU" if minutes is not None else said or "not known"
    return [f"cost of the suite: {known}; --time measures it here"]


def _keys(suite: Suite) -> list[str]:
    found = choices(facts_of(suite.possible_trials, suite))
    several = [key for key, values in found.items() if len(values) > 1]
    more = [f"{len(several) - NAMED_KEYS} more"] if len(several) > NAMED_KEYS else []
    return [f"--only takes {', '.join([*several[:NAMED_KEYS], *more, 'id'])}; --keys shows all"]


def _all_keys(suite: Suite) -> list[str]:
    specs = suite.possible_trials
    written = dict.fromkeys(_defined(suite, kind, spec) for kind in KINDS for spec in specs)
    keys = key_texts(choices(facts_of(specs, suite)))
    return [*written, "--only takes KEY=VALUE with these keys, and id:", *(f"  {key}" for key in keys)]


def _defined(suite: Suite, kind: str, trial: TrialSpec) -> str:
    """'head: affine softmax = softmax(projection=True)', or 'head: softmax' where name and definition are equal."""
    name, spec = getattr(suite.row_of(trial), kind).name, str(getattr(trial, kind))
    return f"{kind}: {spec}" if name == spec else f"{kind}: {name} = {spec}"


def _times(rows: list[RowTime], suite: Suite, device: str) -> screen.Shown:
    """A line for each row of the suite: milliseconds of a training step and of a batch of evaluation, minutes of a
    trial of the table. With a baseline also the time of a step divided by that of its step.
    """
    baseline = reference(suite)
    numbers = ["ms/step", "ms/eval batch", "minutes a trial"]
    if baseline is not None:
        called = {row.head.written: row.head.name for row in suite.rows}
        numbers.append(f"step / {called.get(baseline, baseline)}'s")
    lines = []
    for row in rows:
        cells = [screen.NOTHING] * len(numbers)
        if row.time is not None:
            cells[:3] = [f"{row.time.train_ms:.1f}", f"{row.time.eval_ms:.1f}", f"{row.minutes:.1f}"]
        if row.ratio:
            cells[3] = f"{row.ratio:.2f}"
        lines.append([*names_of(row.row), *cells])
    title = f"time on this machine, one trial at a time, {device}"
    yield from screen.table((*KINDS, *numbers), lines, keep=("head", *numbers), right=numbers, title=title)


def names_of(row: Row) -> tuple[str, str, str]:
    """Return what views call the corpus, the backbone and the head of a row."""
    return row.corpus.name, row.backbone.name, row.head.name


def _width() -> int | None:
    """The characters of the terminal; None for a pipe."""
    return console.width if console.is_terminal else None
