"""Numbers printed in papers: results/published/<paper>.csv, one printed cell a row, the value as printed.

A file may also have the columns epoch, tolerance_percent, tolerance_reason and differs; see PrintedCell.
"""

import csv
import io
import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import harness
from harness.errors import HarnessError, SuiteError, nearest
from harness.machine.files import read_bounded
from harness.plan.parameters import resolved
from harness.plan.reader import value_of
from harness.plan.specs import TrialSpec, plain
from harness.plan.suite import Suite
from harness.printable import counted
from harness.records.metrics import METRICS
from harness.registry import HEADS
from harness.report.row_facts import RowFacts

MAX_BYTES = 4 * 1024**2
SOURCE = ("paper", "title", "year")
CELL = ("table", "params", "corpus", "backbone", "head", "metric", "value", "weights", "counting", "note")
Answer = Literal["yes", "no", "yes so far", "no so far", "not run", "not run in full", "failed"]
WORST_FIRST: tuple[Answer, ...] = ("no", "no so far", "failed", "not run in full", "not run", "yes so far", "yes")
YES, NO = ("yes", "yes so far"), ("no", "no so far")
NO_CAUSE = "cause not known"


@dataclass(frozen=True, slots=True)
class PrintedCell:
    """One number of a printed table.

    Args:
        params: the parameters that the row of the paper fixes: those of the head by their names, those of the backbone
            and the corpus with 'backbone.' and 'corpus.' before them.
        metric: the name in harness.records.metrics, or another one if only the paper has the metric.
        weights: 'last' if the paper tested the weights after the last epoch, 'best' for the best by validation.
        counting: the boundary rule of its token counts ('eos', 'sos_eos'), '' where it does not apply.
        note: the device of a time, or a peculiarity of the number.
        epoch: the epoch after which the metric was measured, for a point of a curve; None for the result of a run.
        tolerance: percent of the value by which ours may differ for the number to count as reproduced; None where
            nothing is decided.
        differs: the setting to which a difference is due, or '' if no cause is known.
        source: '<paper>/<table>'.
    """

    corpus: str
    backbone: str
    head: str
    params: dict[str, object]
    metric: str
    value: str
    weights: str
    counting: str
    note: str
    epoch: int | None = None
    tolerance: float | None = None
    reason: str = ""
    differs: str = ""
    source: str = ""

    @property
    def of_ours(self) -> str:
        """The metric of ours to compare with: that of the weights that the paper tested."""
        last = f"last_{self.metric}"
        return last if self.weights == "last" and last in METRICS else self.metric

    @property
    def number(self) -> float | None:
        """The printed value as a number; None if more than a number is printed."""
        try:
            return float(self.value)
        except ValueError:
            return None

    def fits(self, trial: TrialSpec, params: dict[str, object]) -> bool:
        """Whether the cell is of a trial's corpus, backbone and head. Parameters of the head that the cell does not
        name have to be at their defaults.

        Args:
            params: the values of all their parameters, defaults included, named as in a cell.
        """
        if (trial.corpus.name, trial.backbone.name, trial.head.name) != (self.corpus, self.backbone, self.head):
            return False
        named = {**resolved(HEADS.get(self.head), {}), **self.params}
        of_head = {name for name in params if "." not in name}
        return all(plain(params.get(name)) == plain(named.get(name)) for name in of_head | self.params.keys())


@dataclass(frozen=True, slots=True)
class PrintedNumbers:
    """The printed numbers that a suite compares with: the cells of the tables it names, in order, and their sources."""

    cells: tuple[PrintedCell, ...]
    sources: tuple[str, ...]

    def find(self, trial: TrialSpec, params: dict[str, object], metric: str) -> PrintedCell | None:
        """The first cell for a trial and a metric, of the result of a run; None if there is none."""
        fitting = (cell for cell in self.of(trial, params) if cell.metric == metric and cell.epoch is None)
        return next(fitting, None)

    def curve(self, trial: TrialSpec, params: dict[str, object], metric: str) -> dict[int, PrintedCell]:
        """Epoch -> the first cell for a trial and a metric after that epoch."""
        found: dict[int, PrintedCell] = {}
        for cell in self.of(trial, params):
            if cell.metric == metric and cell.epoch is not None:
                found.setdefault(cell.epoch, cell)
        return found

    def title(self, source: str) -> str:
        """The title and year of a cell's source; 'printed in the paper' where it is not known."""
        known = dict(each.split(": ", 1) for each in self.sources)
        return known.get(source, "printed in the paper")

    def of(self, trial: TrialSpec, params: dict[str, object]) -> list[PrintedCell]:
        """All cells for a trial, in order."""
        return [cell for cell in self.cells if cell.fits(trial, params)]


def load(suite: Suite) -> PrintedNumbers:
    """Read the numbers that a suite compares with, from results/published of its project or those of the harness.

    Raises: SuiteError, located in the suite, when a paper or table does not exist.
    """
    own = suite.path.resolve().parent.parent / "results" / "published"
    folder = own if own.is_dir() else harness.bundled("published")
    about = {row["paper"]: row for row in _rows(folder / "sources.csv", SOURCE)}
    cells, sources, problems = [], [], []
    for index, name in enumerate(suite.table.compare):
        paper, _, table = name.partition("/")
        path = folder / f"{paper}.csv"
        found = [_cell(row, path) for row in _rows(path, CELL) if row["table"] == table]
        if not found:
            known = _known(folder)
            message = f"'{name}' is not in {folder}{nearest(name, known)} (known: {', '.join(known) or 'none'})"
            place = suite.source.nearest_place(("table", "compare", index))
            problems.append(suite.source.problem(place, message))
            continue
        cells += found
        source = f"{about[paper]['title']}, {about[paper]['year']}" if paper in about else paper
        sources.append(f"{name}: {source}")
    if problems:
        raise SuiteError(problems)
    return PrintedNumbers(tuple(cells), tuple(sources))


def _known(folder: Path) -> list[str]:
    papers = [path for path in folder.glob("*.csv") if path.name != "sources.csv"]
    return sorted({f"{path.stem}/{row['table']}" for path in papers for row in _rows(path, CELL)})


def _rows(path: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    """Raises HarnessError when the file exists and is not a table with these columns."""
    if not path.exists():
        return []
    try:
        text = read_bounded(path, MAX_BYTES).decode("utf-8")
        read = csv.DictReader(io.StringIO(text, newline=""), restval="")
        missing = [column for column in columns if column not in (read.fieldnames or ())]
        if missing:
            raise HarnessError(f"{path}: the column '{missing[0]}' is missing")
        return list(read)
    except (OSError, UnicodeDecodeError, csv.Error) as cause:
        raise HarnessError(f"{path}: cannot be read as CSV ({cause})") from cause


def _cell(row: dict[str, str], path: Path) -> PrintedCell:
    pairs = [part.partition("=") for part in row["params"].split(";") if part]
    try:
        params = {name: value_of(value) for name, _, value in pairs}
    except ValueError as error:
        raise HarnessError(f"{path}: the parameters '{row['params']}': {error}") from error
    epoch, tolerance = _number(row, "epoch", path), _number(row, "tolerance_percent", path)
    return PrintedCell(
        params=params,
        **{name: row[name] for name in CELL[2:]},
        epoch=None if epoch is None else int(epoch),
        tolerance=tolerance,
        reason=row.get("tolerance_reason", ""),
        differs=row.get("differs", ""),
        source=f"{path.stem}/{row['table']}",
    )


def _number(row: dict[str, str], column: str, path: Path) -> float | None:
    """A number above 0; None for an empty cell."""
    text = row.get(column, "")
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise HarnessError(f"{path}: the {column} '{text}' is not a number above 0")
    return number


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """A printed number that has a tolerance, and ours.

    Args:
        metric: its name in words: 'test ppl', 'valid ppl after epoch 3'.
        values: ours, of each seed that is ok.
    """

    printed: PrintedCell
    metric: str
    values: tuple[float, ...]
    seeds: int
    finished: int
    changed: bool

    @property
    def answer(self) -> Answer:
        """'yes' if the mean over seeds is within the tolerance, else 'no'; 'so far' while seeds are missing. 'not run'
        without a finished trial, 'failed' if trials have finished and none is ok. A changed suite is another one: it is
        'not run in full'.
        """
        if not self.values:
            return "failed" if self.finished else "not run"
        if self.changed:
            return "not run in full"
        complete, so_far = YES if abs(self.difference) <= self.printed.tolerance else NO
        return complete if self.finished == self.seeds else so_far

    @property
    def mean(self) -> float | None:
        """Ours; None without a value."""
        return statistics.fmean(self.values) if self.values else None

    @property
    def difference(self) -> float | None:
        """100 (ours - printed) / printed: percent."""
        return None if not self.values else 100 * (self.mean - self.printed.number) / self.printed.number

    def __str__(self) -> str:
        """'test ppl within 2 % of 114.5 (one run is printed): yes, +0.42 %, 3 of 3 seeds'."""
        printed, why = self.printed, f" ({self.printed.reason})" if self.printed.reason else ""
        found = f"{self.metric} within {printed.tolerance:g} % of {printed.value}{why}: {self.answer}"
        if self.answer in (*YES, *NO):
            found += f", {self.difference:+.2f} %, {len(self.values)} of {counted(self.seeds, 'seed')}"
        return found + (f"; {printed.differs or NO_CAUSE}" if self.answer in NO else "")


def of_row(row: RowFacts, printed: PrintedNumbers, *, changed: bool) -> list[Reproduction]:
    """The numbers with a tolerance that are printed of a row, in the order of the published tables. A number that was
    counted by another rule than ours is none of them.
    """
    found = []
    for cell in printed.of(row.spec, row.params):
        if cell.tolerance is None or not cell.number or cell.counting not in ("", row.boundary):
            continue
        if cell.of_ours not in METRICS:  # of several rows together (harness/ladder/printed.py)
            continue
        label = METRICS[cell.metric].label if cell.metric in METRICS else cell.metric
        of_epoch = "" if cell.epoch is None else f" after epoch {cell.epoch}"
        values, seeds, finished = tuple(_values(cell, row)), len(row.trials), len(row.records)
        about = {"values": values, "seeds": seeds, "finished": finished, "changed": changed}
        found.append(Reproduction(printed=cell, metric=f"{label}{of_epoch}", **about))
    return found


def together(found: list[Reproduction]) -> Answer:
    """The answer for several numbers of one row: 'yes' if all of them are reproduced."""
    return min((each.answer for each in found), key=WORST_FIRST.index)


def furthest(found: list[Reproduction]) -> float | None:
    """Of several differences the largest, in percent; None where no number has an answer."""
    known = [each.difference for each in found if each.answer in (*YES, *NO)]
    return max(known, key=abs, default=None)


def in_short(found: list[Reproduction]) -> str:
    """The numbers of one row: 'yes (+0.42 %)', or 'yes (4 of 4, at most -2.81 %)'; '' if there are none."""
    if not found:
        return ""
    answer, difference = together(found), furthest(found)
    if difference is None:
        return answer
    within = sum(each.answer in YES for each in found)
    several = f"{within} of {len(found)}, at most " if len(found) > 1 else ""
    return f"{answer} ({several}{difference:+.2f} %)"


def _values(cell: PrintedCell, row: RowFacts) -> list[float]:
    """Ours of each ok seed: a metric of the whole run, or the validation perplexity after an epoch."""
    if cell.epoch is None:
        return row.values(cell.of_ours)
    curves = [record.curve for record in row.ok]
    return [point.valid_ppl for curve in curves for point in curve if point.epoch == cell.epoch]
