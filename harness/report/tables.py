"""The markdown table of a suite: ours, with spread over seeds, beside the printed numbers, and how it was measured."""

import re
import statistics
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from harness.plan.parameters import resolved
from harness.plan.reader import value_of
from harness.plan.specs import Suite
from harness.records import TrialRecord, write_atomically
from harness.registry import CORPORA, HEADS
from harness.report.published import PrintedCell, PrintedNumbers
from harness.report.rows import Row, reduction, rows

NOTHING = "-"


def render(suite: Suite, records: dict[str, TrialRecord], printed: PrintedNumbers) -> str:
    """The whole table as markdown: a title, a row for each corpus, backbone and head, notes.

    Depends on the suite, the records and the printed numbers only: the same ones give the same bytes.
    """
    lines = rows(suite, records)
    frame = pd.DataFrame(_columns(suite, lines, printed))
    table = frame.map(_escaped).to_markdown(index=False, disable_numparse=True, stralign="left")
    notes = "\n".join(f"- {note}" for note in _notes(suite, lines, records, printed))
    return f"# {_title(suite)}\n\n{table}\n\n{notes}\n"


def file_name(suite: Suite) -> str:
    """'ptb_mixtures.md'; 'ptb_mixtures.epochs=1.md' for an overridden suite, which so never passes for the full one."""
    labels = [f"{key.rpartition('.')[2]}={value}" for key, value, _ in suite.overrides]
    return ".".join([suite.name, *(re.sub(r"[^A-Za-z0-9_=.-]+", "_", label) for label in labels), "md"])


def write(suite: Suite, markdown: str, results: Path) -> Path:
    """Write the table below results/tables when it changed; returns its path."""
    place = results / "tables" / file_name(suite)
    if not place.exists() or place.read_text(encoding="utf-8") != markdown:
        write_atomically(place, markdown.encode())
    return place


def _title(suite: Suite) -> str:
    changes = []
    for key, value, before in suite.overrides:
        fewer = key == "train.epochs" and before is not None and value_of(value) < value_of(before)
        instead = f" instead of {before}" if before is not None else ""
        changes.append(f"{'SHORTENED' if fewer else 'CHANGED'}: {key} = {value}{instead}")
    return "; ".join([f"{suite.name}, version {suite.version}", *changes])


def _columns(suite: Suite, lines: list[Row], printed: PrintedNumbers) -> dict[str, list[str]]:
    columns: dict[str, list[str]] = {}
    for name in ("corpus", "backbone"):
        if len({getattr(line, name) for line in lines}) > 1:
            columns[name] = [getattr(line, name) for line in lines]
    columns["head"] = [line.head for line in lines]
    columns["params"] = [f"{line.params_total:,}" for line in lines]
    columns["head params"] = [f"{line.params_head:,}" for line in lines]
    columns["valid ppl"] = [_mean(line, "valid_ppl") for line in lines]
    columns["test ppl"] = [_mean(line, "test_ppl") for line in lines]
    if any(_boundary(line) == "sos_eos" for line in lines):
        columns["test ppl, standard counting"] = [_mean(line, "test_ppl_standard") for line in lines]
    if suite.table.baseline is not None:
        columns[f"reduction vs {suite.table.baseline}"] = [_reduction(line, lines, suite) for line in lines]
    columns["train ms/batch"] = [_mean(line, "train_ms_per_batch", digits=1) for line in lines]
    columns["eval ms/batch"] = [_mean(line, "eval_ms_per_batch", digits=1) for line in lines]
    if printed.cells:
        columns |= _printed_columns(lines, printed)
    columns["n"] = [line.state for line in lines]
    return columns


def _printed_columns(lines: list[Row], printed: PrintedNumbers) -> dict[str, list[str]]:
    columns: dict[str, list[str]] = {}
    for metric, name in {"valid_ppl": "valid ppl", "test_ppl": "test ppl"}.items():
        cells = [_cell(line, printed, metric) for line in lines]
        if any(cells):
            ours = [f"last_{metric}" if cell is None or cell.weights == "last" else metric for cell in cells]
            columns[f"{name}, last epoch"] = [_mean(line, our) for line, our in zip(lines, ours, strict=True)]
            columns[f"printed {name}"] = [cell.value if cell else NOTHING for cell in cells]
            columns[f"ours - printed {name}"] = list(map(_difference, lines, ours, cells))
    times = [_cell(line, printed, "train_ms_per_batch") for line in lines]
    if any(times):
        devices = ", ".join(dict.fromkeys(cell.note for cell in times if cell))
        columns[f"printed ms/batch ({devices})"] = [cell.value if cell else NOTHING for cell in times]
    return columns


def _cell(line: Row, printed: PrintedNumbers, metric: str) -> PrintedCell | None:
    trial = line.trials[0]
    head_params = resolved(HEADS.get(trial.head.name), trial.head.params)
    return printed.find(trial, head_params, metric)


def _difference(line: Row, metric: str, cell: PrintedCell | None) -> str:
    """Ours minus printed, only where both count tokens alike."""
    values = line.values(metric)
    if cell is None or not values:
        return NOTHING
    if cell.counting != _boundary(line):
        return f"{NOTHING} (counted by {cell.counting})"
    return f"{statistics.fmean(values) - float(cell.value):+.2f}"


def _mean(line: Row, metric: str, digits: int = 2) -> str:
    """'mean ± sd' over seeds; the value itself when there is one."""
    values = line.values(metric)
    if not values:
        return NOTHING
    mean = f"{statistics.fmean(values):.{digits}f}"
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean


def _reduction(line: Row, lines: list[Row], suite: Suite) -> str:
    baseline = next(
        (other for other in lines if other.group == line.group and other.trials[0].head.name == suite.table.baseline),
        None,
    )
    value = reduction(line, baseline)
    return NOTHING if value is None else f"{100 * value:.1f} %"


def _boundary(line: Row) -> str:
    corpus = line.trials[0].corpus
    return resolved(CORPORA.get(corpus.name), corpus.params).get("boundary", "")


def _notes(suite: Suite, lines: list[Row], records: dict[str, TrialRecord], printed: PrintedNumbers) -> list[str]:
    train = suite.trials[0].train
    measured = [records[trial.id] for trial in suite.trials if trial.id in records]
    ok = [record for record in measured if record.status == "ok"]
    seeds = ", ".join(str(seed) for seed in dict.fromkeys(trial.seed for trial in suite.trials))
    notes = [
        f"Budget: {train.epochs} epochs, {train.optimizer}, lr {train.lr:g}, batch {train.batch_size}, "
        f"segments of {train.seq_len} tokens; seeds {seeds}.",
        *dict.fromkeys(f"Backbone: {trial.backbone}." for trial in suite.trials),
        "valid ppl and test ppl are of the best epoch by validation; ± is the standard deviation over seeds; n counts "
        "ok trials of planned ones.",
        *(
            f"Counting, {corpus}: {rule}; every token but a split's first is scored."
            for corpus, rule in suite.counting.items()
        ),
    ]
    if any(_boundary(line) == "sos_eos" for line in lines):
        notes.append("Standard counting: the same summed loss, divided by words and <eos> only.")
    if suite.table.baseline is not None:
        notes.append(
            f"Reduction: ({suite.table.baseline} - head) / {suite.table.baseline}, of mean test ppl over shared seeds."
        )
    notes += _distinct(ok, lambda r: f"Unigram test ppl, {r.spec.corpus}: {r.metrics['unigram_test_ppl']:.2f}.")
    notes += _distinct(
        [r for r in ok if "source_test_ppl" in r.metrics],
        lambda r: (
            f"Test ppl under the process that made the text, {r.spec.corpus}: {r.metrics['source_test_ppl']:.2f}."
        ),
    )
    notes += _distinct(ok, _context)
    notes += _distinct(measured, _machine)
    if any(record.environment.shared for record in measured):
        notes.append("Times were taken while trials shared the machine: compare them within this table only.")
    notes += [f"Printed, {source}. Weights after the last epoch." for source in printed.sources]
    notes += [
        f"{record.spec} ({record.id}): {record.status}: {record.message}"
        for record in measured
        if record.status != "ok"
    ]
    if measured:
        notes.append(f"Last trial finished {max(record.environment.finished for record in measured)}.")
    return notes


def _distinct(records: list[TrialRecord], sentence: Callable[[TrialRecord], str]) -> list[str]:
    return list(dict.fromkeys(sentence(record) for record in records))


def _context(record: TrialRecord) -> str:
    tokens = int(record.metrics["context_tokens"])
    carried = record.metrics["state_carried"]
    reach = "state carried from segment to segment" if carried else "nothing carried over: that is all its context"
    return f"Context, {record.spec.backbone.name}: segments of {tokens} tokens, {reach}."


def _machine(record: TrialRecord) -> str:
    e = record.environment
    return (
        f"Measured on {e.device}, {e.threads} thread(s) a trial, torch {e.torch}, Python {e.python}, "
        f"harness {e.harness} at {e.commit}, executor {e.executor}."
    )


def _escaped(cell: str) -> str:
    return cell.replace("\\", "\\\\").replace("|", "\\|").replace("`", "\\`").replace("\n", " ")
