"""Whether printed numbers that have a tolerance are reproduced by the mean over the seeds that are ok."""

import statistics
from dataclasses import dataclass
from typing import Literal

from harness.printable import counted
from harness.records.metrics import METRICS
from harness.report.evidence.gather import Evidence
from harness.report.evidence.printed_numbers import PrintedCell
from harness.report.evidence.table_rows import Row

Answer = Literal["yes", "no", "yes so far", "no so far", "not run", "not run in full", "failed"]
WORST_FIRST: tuple[Answer, ...] = ("no", "no so far", "failed", "not run in full", "not run", "yes so far", "yes")
YES, NO = ("yes", "yes so far"), ("no", "no so far")
NO_CAUSE = "cause not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """A printed number that has a tolerance, and ours.

    Args:
        printed: the number, and its tolerance.
        metric: its name in words: 'test ppl', 'valid ppl after epoch 3'.
        values: ours, of each seed that is ok.
        seeds: how many seeds are planned.
        finished: how many of them have a record.
        changed: whether the suite was changed by --set.
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
    def sd(self) -> float | None:
        """The standard deviation over seeds; None for fewer than two."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

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


def of_row(row: Row, evidence: Evidence) -> list[Reproduction]:
    """The numbers with a tolerance that are printed of a row, in the order of the published tables. A number that was
    counted by another rule than ours is none of them.
    """
    cells = evidence.printed.of(row.trials[0], row.params)
    return [
        _of_cell(cell, row, evidence)
        for cell in cells
        if cell.tolerance is not None and cell.number and (not cell.counting or cell.counting == row.boundary)
    ]


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


def _of_cell(cell: PrintedCell, row: Row, evidence: Evidence) -> Reproduction:
    label = METRICS[cell.metric].label if cell.metric in METRICS else cell.metric
    return Reproduction(
        printed=cell,
        metric=label if cell.epoch is None else f"{label} after epoch {cell.epoch}",
        values=tuple(_values(cell, row)),
        seeds=len(row.trials),
        finished=len(row.records),
        changed=bool(evidence.suite.overrides),
    )


def _values(cell: PrintedCell, row: Row) -> list[float]:
    """Ours of each ok seed: a metric of the whole run, or the validation perplexity after an epoch."""
    if cell.epoch is None:
        return row.values(cell.of_ours)
    curves = [row.records[seed].curve for seed in row.ok_seeds]
    return [point.valid_ppl for curve in curves for point in curve if point.epoch == cell.epoch]
