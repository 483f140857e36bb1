"""Boards: frozen suites to which heads are submitted, with their submissions and who was first when."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from harness import plan
from harness.errors import HarnessError
from harness.extensions import provided
from harness.plan.specs import BOARD
from harness.plan.suite import Suite
from harness.records import choices, store
from harness.records.sidecars import SIDECARS
from harness.report import study
from harness.report.content import NOTHING, Cell, Column, Line, Table
from harness.report.grouping import grouped
from harness.report.page.document import Section
from harness.report.row_facts import RowFacts
from harness.report.statistics import MeanDifference
from harness.report.study import Study

Received = Any  # a submission, of harness.submissions, which need not be there
Warn = Callable[[str], None]
COPIED = (store.FILE_NAME, choices.FILE_NAME, *SIDECARS)


def is_board(found: Study) -> bool:
    return found.suite.name.startswith(BOARD)


@contextmanager
def with_submissions(found: Sequence[Study], folder: Path, warn: Warn) -> Iterator[tuple[list[Study], list[Received]]]:
    """The studies of some suites, those of boards with the trials of submissions; and all submissions of a folder.

    The files of both are there within the context only. Without the extension `submissions` there are none.
    """
    read = provided("harness.submissions.received:read", None)
    if read is None or not folder.is_dir():
        yield list(found), []
        return
    with TemporaryDirectory(prefix="harness-site-") as place:
        received = read(folder, Path(place, "unpacked"), warn)
        studies = []
        for each in found:
            if is_board(each):
                each, received = _with_those(each, received, Path(place, "results"), warn)
            studies.append(each)
        of_boards = {each.suite.name for each in studies if is_board(each)}
        why = "the site has no board of this suite"
        others = [each for each in received if each.suite not in of_boards and not each.why_not]
        yield studies, [each.without_numbers(why) if each in others else each for each in received]


def _with_those(found: Study, received: list[Received], results: Path, warn: Warn) -> tuple[Study, list[Received]]:
    """The study of a board with its submissions, and all submissions, now with what prevents that one is shown."""
    name, counted = found.suite.name, []
    runs = store.runs_folder(results, name)
    for number, each in enumerate(received):
        if each.suite != name or each.why_not:
            continue
        if not counted:
            shutil.copytree(found.evidence.runs, runs, ignore=_others, dirs_exist_ok=True)
        try:
            each.add_to(results)
            counted.append(each)
        except HarnessError as fault:
            warn(f"{each.submission.place}: {fault}")
            received[number] = each.without_numbers("its records cannot be read")
    if not counted:
        return found, received
    suite, left = _extended(found.suite, counted)
    for each, why in left:
        warn(f"{each.submission.place}: {why}")
        received[received.index(each)] = each.without_numbers("the board has this head already, or cannot plan it")
    return study.load(suite, results, warn=warn), received


def _others(folder: str, names: list[str]) -> list[str]:
    """The files of a folder of trials that are no records, and lie beside none: checkpoints, logs."""
    return [name for name in names if name not in COPIED and not (Path(folder) / name).is_dir()]


def _extended(suite: Suite, counted: Sequence[Received]) -> tuple[Suite, list[tuple[Received, str]]]:
    """A suite with the heads of submissions, and those that cannot be planned, with the reason."""
    try:
        return plan.load(suite.path, tuple(each.change for each in counted)), []
    except HarnessError:
        pass
    made, left, changes = suite, [], ()
    for each in counted:
        try:
            made = plan.load(suite.path, (*changes, each.change))
            changes = (*changes, each.change)
        except HarnessError as fault:
            left.append((each, str(fault)))
    return made, left


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadOnBoard:
    """A head of a board.

    Args:
        rows: at each size, in the order of the suite; None at a size without one.
        submission: which it is from; None for a head of the suite.
    """

    name: str
    rows: tuple[RowFacts | None, ...]
    gains: tuple["Gain | None", ...]
    submission: Received | None


@dataclass(frozen=True, slots=True)
class Gain:
    """How much lower the loss of a row is than that of the strongest control of its size, in nats for each token.

    Args:
        difference: with its interval; None for the strongest control itself.
    """

    nats: float
    difference: MeanDifference | None = None


def sizes(found: Study) -> list[tuple[str, str]]:
    """Corpus and backbone at each size of a board, in the order of the suite."""
    return list(dict.fromkeys(row.group for row in found.rows if not row.is_ngram))


def heads_of(found: Study, received: Sequence[Received]) -> list[HeadOnBoard]:
    """The heads of a board, in the order of the suite; submissions last."""
    made, places = [], sizes(found)
    for name, rows in grouped((row.head, row) for row in found.rows if not row.is_ngram).items():
        at = {row.group: row for row in rows}
        ids = {trial for row in rows for trial in row.ids}
        of = [each for each in received if each.suite == found.suite.name and not each.why_not]
        submission = next((each for each in of if each.trials & ids), None)
        of_sizes = tuple(at.get(place) for place in places)
        gains = tuple(None if row is None else _gain(found, row) for row in of_sizes)
        made.append(HeadOnBoard(name=name, rows=of_sizes, gains=gains, submission=submission))
    return made


def _gain(found: Study, row: RowFacts) -> Gain | None:
    known = found.findings.controls.get(row.group, ())
    if known and row is known[0]:
        return Gain(0.0) if row.ok else None
    compared = found.findings.compared.get(row)
    if compared is None:
        return None
    gain = compared.difference.reverse
    return Gain(gain.mean, gain)


def history(found: Study, received: Sequence[Received]) -> list[tuple[str, HeadOnBoard]]:
    """Days, and the head that was first from then on: by the mean gain at the last size, of heads with a gain at each.

    It begins with the best head of the suite, on the day of the last of their trials. A submission counts from the day
    of its first check.
    """
    complete = [each for each in heads_of(found, received) if each.gains and None not in each.gains]
    own = [each for each in complete if each.submission is None]
    sent = [each for each in complete if each.submission is not None]
    firsts = []
    if own:
        records = [record for each in own for row in each.rows for record in row.records.values()]
        day = max(record.environment.finished for record in records)[:10]
        firsts.append((day, max(own, key=_last)))
    for each in sorted(sent, key=lambda one: (one.submission.counted_on, one.submission.stem)):
        if not firsts or _last(each) > _last(firsts[-1][1]):
            firsts.append((each.submission.counted_on, each))
    return firsts


def _last(head: HeadOnBoard) -> float:
    return head.gains[-1].nats


def history_table(found: Study, received: Sequence[Received]) -> Table:
    """The history of a board for its page, with the gains at each size in nats for a token."""
    places = sizes(found)
    several = len({corpus for corpus, _ in places}) > 1
    groups = [f"{corpus}, {backbone}" if several else backbone for corpus, backbone in places]
    columns = [Column(name="since"), Column(name="head")]
    columns += [Column(name="gain in nats", group=group, numeric=True) for group in groups]
    lines = []
    for day, head in history(found, received):
        of = head.submission
        by = Cell(text="the suite") if of is None else Cell(text=of.stem, link=f"../{of.page}")
        cells = (Cell(text=day), Cell(text=head.name), *map(_gain_cell, head.gains), by)
        lines.append(Line(cells=cells))
    lead = (
        "The head with the largest mean gain over the strongest control at the last size, in nats for each token, with "
        "95 % intervals. Where intervals overlap, the order of two heads may be chance."
    )
    title = "Who was first when"
    return Table(title=title, columns=(*columns, Column(name="by")), lines=tuple(lines), lead=lead)


def _gain_cell(gain: Gain) -> Cell:
    found = gain.difference
    if found is None or found.low is None:
        return Cell(text=f"{gain.nats:.4f}" if found is not None else NOTHING, value=gain.nats)
    text = f"{found.mean:+.4f} [{found.low:+.4f}, {found.high:+.4f}]"
    return Cell(text=text, value=found.mean, interval=(found.low, found.high))


def sections(found: Study, received: Sequence[Received]) -> list[Section]:
    """What the page of a board has more than that of a suite."""
    made = [Section(heading="History", tables=(history_table(found, received),))]
    listing = provided("harness.submissions.pages:listing", None)
    mine = [each for each in received if each.suite == found.suite.name]
    if listing is not None and mine:
        made.append(Section(heading="Submissions", tables=(listing(mine, "../"),)))
    return made
