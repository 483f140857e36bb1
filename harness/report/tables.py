"""The markdown table of a suite: ours, with spread over seeds, beside the printed numbers, and how it was measured."""

import hashlib
import re
import statistics
from collections.abc import Container
from pathlib import Path

import pandas as pd

from harness.files import write_atomically
from harness.plan.specs import Suite
from harness.records import METRICS, TrialRecord
from harness.report.markdown import escaped
from harness.report.notes import COMPAT_MARK, notes_of
from harness.report.published import PrintedCell, PrintedNumbers
from harness.report.rows import Row, reduction, rows

NOTHING = "-"
PRINTED = {  # metrics that are set beside a paper's -> their name in a column, decimals
    "valid_ppl": ("valid ppl", 2),
    "test_ppl": ("test ppl", 2),
    "test_ppl_word": ("test ppl/word", 2),
    "test_ppl_byte": ("test ppl/byte", 3),
    "test_bits_per_character": ("bits/char", 3),
}
MAX_LABEL = 100


def render(
    suite: Suite,
    records: dict[str, TrialRecord],
    printed: PrintedNumbers,
    *,
    only: set[str] | None = None,
    interrupted: Container[str] = (),
) -> str:
    """The table as markdown: a title, a row for each corpus, backbone and head, notes.

    Depends on the arguments only: the same ones give the same bytes.
    Args:
        only: ids of trials whose rows are shown; all of them when None. What the rows say does not change with it.
        interrupted: ids of trials without a record that have a checkpoint.
    """
    lines = rows(suite, records, interrupted)
    frame = pd.DataFrame(_columns(suite, lines, printed)).map(escaped).rename(columns=escaped)
    shown = frame[[only is None or any(trial.id in only for trial in line.trials) for line in lines]]
    table = shown.to_markdown(index=False, disable_numparse=True, stralign="left")
    notes = "\n".join(f"- {escaped(note)}" for note in notes_of(suite, lines, records, printed))
    return f"# {escaped(_title(suite))}\n\n{table}\n\n{notes}\n"


def file_name(suite: Suite) -> str:
    """'ptb_mixtures.md'; 'ptb_mixtures.epochs=1.md' for an overridden suite, which so never passes for the full one."""
    told = [f"{key.removeprefix('train.')}={value}" for key, value, _ in suite.overrides]
    label = ".".join(re.sub(r"[^A-Za-z0-9_=.-]+", "_", each) for each in told)
    exact = all(re.fullmatch(r"[A-Za-z0-9_=.-]+", each) for each in told)
    if not exact or len(label) > MAX_LABEL:
        label = f"{label[:MAX_LABEL]}-{hashlib.sha256(repr(told).encode()).hexdigest()[:8]}"
    return f"{suite.name}.{label}.md" if told else f"{suite.name}.md"


def all_of(suite: str, results: Path) -> str:
    """The texts of a suite's tables, the full one first, then those of overridden suites."""
    folder = results / "tables"
    places = [*folder.glob(f"{suite}.md"), *sorted(folder.glob(f"{suite}.*.md"))]
    return "\n".join(place.read_text(encoding="utf-8") for place in places)


def write(suite: Suite, markdown: str, results: Path) -> Path:
    """Write the table below results/tables when it changed; returns its path."""
    place = results / "tables" / file_name(suite)
    if not place.exists() or place.read_text(encoding="utf-8") != markdown:
        write_atomically(place, markdown.encode())
    return place


def _title(suite: Suite) -> str:
    changes = []
    for key, value, before in suite.overrides:
        number = before is not None and re.fullmatch(
            r"[0-9]{1,19}(\.[0-9]{1,19})?", before
        )  # what the file had may be anything
        fewer = key == "train.epochs" and number and suite.trials[0].train.epochs < float(before)
        instead = f" instead of {before}" if before is not None else ""
        changes.append(f"{'SHORTENED' if fewer else 'CHANGED'}: {key} = {value}{instead}")
    return "; ".join([f"{suite.name}, version {suite.version}", *changes])


def _columns(suite: Suite, lines: list[Row], printed: PrintedNumbers) -> dict[str, list[str]]:
    columns: dict[str, list[str]] = {}
    for name in ("corpus", "backbone"):
        if len({getattr(line, name) for line in lines}) > 1:
            columns[name] = [getattr(line, name) for line in lines]
    columns["head"] = [line.head if line.compat is None else f"{line.head} {COMPAT_MARK}" for line in lines]
    if suite.match is not None:
        columns[f"{suite.match.vary} (matched)"] = [_width(line, suite.match.vary) for line in lines]
    columns["params"] = [f"{line.params_total:,}" for line in lines]
    columns["head params"] = [f"{line.params_head:,}" for line in lines]
    if _measured(lines, "start_valid_ppl"):
        columns["valid ppl before training"] = [_mean(line, "start_valid_ppl") for line in lines]
    for metric, (name, digits) in PRINTED.items():
        if metric in ("valid_ppl", "test_ppl") or _measured(lines, metric):
            columns[name] = [_mean(line, metric, digits) for line in lines]
    if any(line.boundary == "sos_eos" for line in lines):
        columns["test ppl, standard counting"] = [_mean(line, "test_ppl_standard") for line in lines]
    if suite.table.baseline is not None:
        columns[f"reduction vs {suite.table.baseline}"] = [_reduction(line, lines, suite) for line in lines]
    columns["train ms/batch"] = [_mean(line, "train_ms_per_batch", digits=1) for line in lines]
    columns["eval ms/batch"] = [_mean(line, "eval_ms_per_batch", digits=1) for line in lines]
    if batches := _measured(lines, "inference_batch"):
        name = f"inference ms/batch (b={', '.join(f'{batch:g}' for batch in batches)})"
        columns[name] = [_mean(line, "inference_ms_per_batch", digits=1) for line in lines]
    if printed.cells:
        columns |= _printed_columns(lines, printed)
    columns["n"] = [line.state for line in lines]
    return columns


def _printed_columns(lines: list[Row], printed: PrintedNumbers) -> dict[str, list[str]]:
    columns: dict[str, list[str]] = {}
    for metric, (name, digits) in PRINTED.items():
        cells = [_cell(line, printed, metric) for line in lines]
        if any(cells):
            last = f"last_{metric}"
            ours = [last if cell and cell.weights == "last" and last in METRICS else metric for cell in cells]
            if last in ours:
                columns[f"{name}, last epoch"] = [_mean(line, last) for line in lines]
            columns[f"printed {name}"] = [cell.value if cell else NOTHING for cell in cells]
            differences = map(_difference, lines, ours, cells, [digits] * len(lines))
            columns[f"ours - printed {name}"] = list(differences)
    for metric, name in {"train_ms_per_batch": "ms/batch", "inference_ms_per_batch": "inference ms/batch"}.items():
        times = [_cell(line, printed, metric) for line in lines]
        if any(times):
            devices = ", ".join(dict.fromkeys(cell.note for cell in times if cell))
            columns[f"printed {name} ({devices})"] = [cell.value if cell else NOTHING for cell in times]
    return columns


def _measured(lines: list[Row], metric: str) -> list[float]:
    """The different values of a metric; none where no row has it."""
    return list(dict.fromkeys(value for line in lines for value in line.values(metric)))


def _cell(line: Row, printed: PrintedNumbers, metric: str) -> PrintedCell | None:
    return printed.find(line.trials[0], line.params, metric)


def _width(line: Row, vary: str) -> str:
    """What a parameter that matching varies is in a row: the head's own, or the backbone's."""
    width = line.head_params.get(vary, line.backbone_params.get(vary))
    return NOTHING if width is None else str(width)


def _difference(line: Row, metric: str, cell: PrintedCell | None, digits: int) -> str:
    """Ours minus printed, only where both count tokens alike."""
    values = line.values(metric)
    if cell is None or not values:
        return NOTHING
    if cell.counting and cell.counting != line.boundary:
        return f"{NOTHING} (counted by {cell.counting})"
    if cell.number is None:
        return NOTHING
    return f"{statistics.fmean(values) - cell.number:+.{digits}f}"


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
