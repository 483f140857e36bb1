"""The leaderboard: a table for each group of trials that compare, from all suites of a results folder."""

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from harness.code.fingerprints import harness_code
from harness.plan.specs import LEADERBOARD
from harness.records.contents import facts_of
from harness.registry import BACKBONES, HEADS
from harness.report.evidence import versions
from harness.report.evidence.findings import UNCERTIFIED_MARK
from harness.report.evidence.table_rows import shown
from harness.report.evidence.times import time_of
from harness.report.evidence.versions import OUTDATED_MARK
from harness.report.leaderboard.groups import Group, Standing
from harness.report.outputs import Trials
from harness.report.table.content import NOTHING, Cell, Column, Line, Table
from harness.report.table.formats import markdown
from harness.report.table.notes import UNCERTIFIED

FILE_NAME = f"{LEADERBOARD}.md"
SHARED = "(shared)"
MEANING = (
    "Test ppl is of the best epoch by validation; ± is the standard deviation over seeds; n counts trials that are ok, "
    "and those that are not. A trial counts once, whichever suites it is of.",
    "Each table compares like with like only: one text by its hash, one counting rule, one way of evaluation, one "
    "budget (epochs, and the kind of start). Batch sizes and learning rates are as each suite chose them.",
    f"Times are of an exclusive pass where there is one; {SHARED} marks those taken while trials shared the machine.",
)


def table(group: Group) -> Table:
    """A group as a table, best first."""
    columns = [Column(name="head"), Column(name="backbone")]
    if any(standing.training for standing in group.standings):
        columns.append(Column(name="training"))
    columns += [
        Column(name="test ppl", numeric=True),
        Column(name="n"),
        Column(name="params", numeric=True),
        Column(name="head params", numeric=True),
        Column(name="train ms/batch", numeric=True),
        Column(name="peak MiB", numeric=True),
        Column(name="context"),
        Column(name="device"),
        Column(name="suites"),
        Column(name="finished"),
    ]
    lines = []
    for standing in group.standings:
        cells = _cells(standing, group)
        trials = tuple(trial.id for trial in standing.row.trials)
        lines.append(Line(cells=tuple(cells[column.name] for column in columns), trials=trials))
    return Table(title=_title(group), columns=tuple(columns), lines=tuple(lines), notes=_notes(group))


def trials(groups: tuple[Group, ...]) -> Trials:
    """How many trials of some groups are ok, how many there are, and how many are invalid."""
    rows = [each.row for group in groups for each in (*group.standings, *group.invalid)]
    statuses = Counter(record.status for row in rows for record in row.records.values())
    return Trials(statuses["ok"], statuses.total(), statuses["invalid"])


def render(groups: tuple[Group, ...], *, unknown: int = 0, differing: Sequence[str] = ()) -> str:
    """All groups as markdown.

    Args:
        unknown: trials that are in no group, since nothing here tells what they read.
        differing: ids of trials that are in no group, since two suites have different results of them.
    """
    notes = [*MEANING]
    if unknown:
        notes.append(
            f"Left out: {unknown} trials that nothing here tells the text of: records from before they said it, or of "
            "a plug-in or harness that is not this one."
        )
    if differing:
        notes.append(f"Left out: trials of which two suites have different results: {', '.join(differing)}.")
    lines = "\n".join(f"- {note}" for note in notes)
    tables = [f"#{markdown(table(group))}" for group in groups]
    return "\n".join(["# Leaderboard\n", f"Trials: {trials(groups)}.\n", *tables, f"## What is compared\n\n{lines}\n"])


def as_json(groups: tuple[Group, ...]) -> list[dict[str, Any]]:
    """The groups with their numbers as they are, unrounded."""
    return [
        {
            "title": _title(group),
            "corpus": group.corpus.model_dump(),
            "content": group.content,
            "epochs": group.train.epochs,
            "pretrained": group.pretrained,
            "rows": [_entry(standing, group) for standing in group.standings],
            "invalid": [_entry(standing, group) for standing in group.invalid],
        }
        for group in groups
    ]


def _entry(standing: Standing, group: Group) -> dict[str, Any]:
    row, time = standing.row, time_of(standing.row, "train_ms_per_batch", group.timings)
    ppl = row.values("test_ppl")
    return {
        "head": shown(row.trials[0].head, HEADS).model_dump(),
        "backbone": shown(row.trials[0].backbone, BACKBONES).model_dump(),
        "training": standing.training,
        "test_ppl": statistics.fmean(ppl) if ppl else None,
        "sd": statistics.stdev(ppl) if len(ppl) > 1 else None,
        "seeds": row.ok_seeds,
        "certified": bool(ppl) and not row.uncertified,
        "outdated": sorted(row.changed),
        "left_out": sorted(row.left_out),
        "statuses": dict(Counter(record.status for record in row.records.values())),
        "params_total": row.params_total or None,
        "params_head": row.params_head or None,
        "train_ms_per_batch": time and time.value,
        "device": time and time.device,
        "exclusive": time and time.exclusive,
        "peak_memory_mib": max(row.values("peak_memory_mib"), default=None),
        "suites": list(standing.suites),
        "finished": standing.finished,
        "trials": [trial.id for trial in row.trials],
    }


def _cells(standing: Standing, group: Group) -> dict[str, Cell]:
    row, time = standing.row, time_of(standing.row, "train_ms_per_batch", group.timings)
    memory = max(row.values("peak_memory_mib"), default=None)
    mark = UNCERTIFIED_MARK if row.uncertified else ""
    return {
        "head": Cell(text=f"{row.head} {OUTDATED_MARK}", mark=OUTDATED_MARK) if row.outdated else Cell(text=row.head),
        "backbone": Cell(text=row.backbone),
        "training": Cell(text=standing.training),
        "test ppl": _mean(row.values("test_ppl")),
        "n": Cell(text=f"{_state(standing)} {mark}".strip(), value=len(row.ok_seeds), mark=mark),
        "params": _count(row.params_total),
        "head params": _count(row.params_head),
        "train ms/batch": _number(time and time.value, "" if time is None or time.exclusive else SHARED, digits=1),
        "peak MiB": _number(memory),
        "context": Cell(text=_context(standing)),
        "device": Cell(text=time.device if time is not None else NOTHING),
        "suites": Cell(text=", ".join(standing.suites)),
        "finished": Cell(text=standing.finished),
    }


def _mean(values: list[float]) -> Cell:
    if not values:
        return Cell(text=NOTHING)
    mean, spread = statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None
    told = f"{mean:.2f}" if spread is None else f"{mean:.2f} ± {spread:.2f}"
    return Cell(text=told, value=mean, spread=spread)


def _number(value: float | None, mark: str = "", digits: int = 0) -> Cell:
    if value is None:
        return Cell(text=NOTHING)
    return Cell(text=f"{value:,.{digits}f} {mark}".strip(), value=value, mark=mark)


def _count(value: int) -> Cell:
    """Of parameters: 0 where no record of the row tells, as where none was built."""
    return _number(value) if value else Cell(text=NOTHING)


def _state(standing: Standing) -> str:
    """'3', or '1; 1 diverged, 1 oom'."""
    statuses = Counter(record.status for record in standing.row.records.values())
    other = len(standing.row.left_out)
    bad = [f"{other} of other code"] * bool(other)
    bad += [f"{count} {status}" for status, count in sorted(statuses.items()) if status != "ok"]
    return "; ".join([f"{statuses['ok'] - other}", *([", ".join(bad)] if bad else [])])


def _context(standing: Standing) -> str:
    """'35', or '35 and state' where a backbone's state goes on from segment to segment."""
    carried = any(standing.row.values("state_carried"))
    return f"{standing.row.trials[0].train.seq_len}{' and state' if carried else ''}"


def _title(group: Group) -> str:
    """'ptb(boundary=sos_eos), 40 epochs, context 35'."""
    train, said = group.train, [str(group.corpus)]
    said.append("not trained" if not train.epochs else f"{train.epochs:g} epoch{'s' * (train.epochs != 1)}")
    said.append(f"context {train.seq_len}")
    said += ["blocks"] if train.batching == "blocks" else []
    said += [f"windows by {train.eval_stride}"] if train.eval_stride is not None else []
    said += [f"the first {train.eval_batches} batches"] if train.eval_batches is not None else []
    said += ["from pretrained weights"] if group.pretrained else []
    said += [f"computed with {group.compat}"] if group.compat is not None else []
    return ", ".join(said)


def _notes(group: Group) -> tuple[str, ...]:
    """What the group's trials have in common."""
    train, facts = group.train, facts_of(group.corpus)
    counting = f"; counting: {facts.counting}" if facts is not None else ""
    notes = [f"Text: {group.corpus}, sha256 {group.content[:12]}{counting}."]
    columns = f"{train.eval_batch_size} {'blocks a batch' if train.batching == 'blocks' else 'columns'}"
    notes.append(f"Evaluation: segments of {train.seq_len} tokens, {columns}.")
    if group.compat is not None:
        notes.append(f'compat {group.compat}: as a published code computes it; its "probabilities" need not sum to 1.')
    if any(standing.row.uncertified for standing in group.standings):
        notes.append(UNCERTIFIED)
    if group.invalid:
        names = "; ".join(f"{each.row.head} on {each.row.backbone}" for each in group.invalid)
        notes.append(
            f"Left out: {len(group.invalid)} rows with invalid trials, whose perplexity is not made of probabilities "
            f"(docs/certificates.md): {names}."
        )
    found = [record for standing in group.standings for record in standing.row.records.values()]
    rows = [(f"{each.row.head}, {each.row.backbone}", each.row) for each in group.standings]
    notes += versions.of_rows(rows, versions.changed(found))
    return (*notes, *versions.of_harness(found, harness_code().sha256))
