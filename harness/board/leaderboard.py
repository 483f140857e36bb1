"""The leaderboard: the trials of all suites, a table for each group of them that can be compared."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.board import ladders
from harness.board.groups import Entry, Group, gather, groups
from harness.board.row_json import difference_json, row_json
from harness.board.shared_ranks import MARGIN, Ranked, places
from harness.errors import ExecutionError, nearest
from harness.plan.loading import labels
from harness.plan.reader import ENDING, FOLDER
from harness.plan.specs import LEADERBOARD
from harness.printable import counted
from harness.records.metrics import Metric, metrics_of
from harness.records.record import TrialRecord
from harness.report import comparison_notes, convergence, table_forms, versions
from harness.report.columns import EMPTY, change, measured
from harness.report.content import NOTHING, OUTDATED_MARK, TIME_MARK, Cell, Column, Line, Table
from harness.report.findings import all_certified_earlier, certificate_mark
from harness.report.layouts import places_of, summary
from harness.report.notes import ALL_EARLIER, on_certificates
from harness.report.outputs import Trials
from harness.report.row_facts import time_mark, time_of
from harness.report.statistics import RANK_SEEDS
from harness.report.study import Study

FILE_NAME = f"{LEADERBOARD}.md"
OF_GROUP = ("rank", "label", "test_ppl", "vs_best", "train_ms_per_batch", "n")  # keys of the columns of a summary
LADDERS = "Does it hold at larger sizes?"
NAMED = 3  # rows of rank 1 that the contents name
MEANING = (
    f"rank: by test perplexity, as in the tables of suites, of rows with {RANK_SEEDS} seeds or more that can be judged "
    "(harness docs statistics). Rows share a rank, as 1-6, from the lowest of them to the last one that cannot be "
    f"distinguished from it: the 95 % interval of their difference includes 0, or is within {100 * MARGIN:g} %. The "
    "rows after that share the next rank in the same way. The other rows have none and follow, in the same order, "
    "n-grams last. Validation chooses the epoch, and the point of a tuned row; test perplexity chooses nothing, and "
    "orders the rows. ± is the standard deviation over seeds; seeds is the number of ok trials, followed by the trials "
    "that are not ok. A trial of several suites counts once.",
    "vs best: change of test perplexity against the first row, over the seeds that both have (pairs), with its "
    "95 % interval over seeds, at the settings that were used. It has no p and no star: records know neither the test "
    "that a suite declares nor what its tuning leaves open, and rows of several suites were not tuned alike. The "
    "tables of the suites have the tests.",
    "The rows of a table have the same text (by its hash), counting rule, evaluation and budget (epochs, and whether "
    "training began at pretrained weights, or was in both directions of reading). Batch sizes and learning rates are "
    "those that each suite chose; the table of the suite says whether they were tuned for each head.",
    "Times are of the newest exclusive pass that no other work disturbed, or else of the trials while they trained; "
    f"{TIME_MARK} marks times measured while other work ran.",
)


CellOf = Callable[[Entry, Ranked], Cell]


def table(group: Group) -> Table:
    """A group as a table, lowest test perplexity first."""
    columns, lines = _columns(group), []
    for entry, place in zip(group.entries, places(group), strict=True):
        cells = tuple(cell_of(entry, place) for _, cell_of in columns)
        lines.append(Line(cells=cells, trials=entry.row.ids))
    return Table(
        title=_title(group),
        columns=tuple(column for column, _ in columns),
        lines=tuple(lines),
        notes=_notes(group),
        lead=_comparable(group),
        conditions=ALL_EARLIER if all_certified_earlier([entry.row for entry in group.entries]) else "",
    )


def _columns(group: Group) -> list[tuple[Column, CellOf]]:
    """The columns of a group's table, in order, each with the cell of an entry at its place."""
    rows = [entry.row for entry in group.entries]

    def head(entry: Entry, place: Ranked) -> Cell:
        return Cell(text=entry.row.head).marked(OUTDATED_MARK if entry.row.outdated else "")

    def seeds(entry: Entry, place: Ranked) -> Cell:
        cell = Cell(text=_state(entry), value=len(entry.row.ok_seeds))
        return cell.marked(certificate_mark(entry.row, rows))

    def device(entry: Entry, place: Ranked) -> Cell:
        time = time_of(entry.row, "train_ms_per_batch", group.timings)
        return EMPTY if time is None else Cell(text=time.device)

    def said(name: str, text_of: Callable[[Entry], str], key: str = "") -> tuple[Column, CellOf]:
        return Column(name=name, key=key), lambda entry, place: Cell(text=text_of(entry))

    found = [(Column(name="rank", key="rank"), _rank), (Column(name="head", key="label"), head)]
    found.append(said("backbone", lambda entry: entry.row.backbone, "label"))
    if any(entry.training for entry in group.entries):
        found.append(said("training", lambda entry: entry.training))
    found += _of_metrics(group, "score")
    found += [
        (Column(name="seeds", key="n"), seeds),
        (Column(name="vs best", numeric=True, key="vs_best"), _versus),
        (Column(name="pairs", numeric=True), _pairs),
        *_of_metrics(group, "count", "setting", "cost"),
        said("context", _context),
        (Column(name="device"), device),
        said("suites", lambda entry: ", ".join(entry.suites)),
        said("finished", lambda entry: entry.finished),
    ]
    return found


def _of_metrics(group: Group, *kinds: str) -> list[tuple[Column, CellOf]]:
    found = []
    for metric in metrics_of(*kinds):
        if metric.leaderboard:
            found.append((Column(name=metric.label, numeric=True, key=metric.name), _measured(metric, group)))
    return found


def _measured(metric: Metric, group: Group) -> CellOf:
    def cell_of(entry: Entry, place: Ranked) -> Cell:
        cell = measured(entry.row, metric, group.timings)
        if metric.name == "test_ppl":
            return cell.marked(convergence.mark(entry.row))
        time = time_of(entry.row, metric.name, group.timings) if metric.timed else None
        return cell if time is None else cell.marked(time_mark(time, None))

    return cell_of


def _rank(entry: Entry, place: Ranked) -> Cell:
    """'7', or '1-6' for rows that share their rank."""
    if place.rank is None:
        return EMPTY
    first, last = place.rank
    return Cell(text=f"{first}" if first == last else f"{first}-{last}", value=first)


def _versus(entry: Entry, place: Ranked) -> Cell:
    found = place.difference
    return EMPTY if found is None else change(found.mean, found.low, found.high)


def _pairs(entry: Entry, place: Ranked) -> Cell:
    found = place.difference
    return EMPTY if found is None else Cell(text=str(found.n), value=found.n)


def of_group(table: Table) -> Table:
    """The summary of a table of the leaderboard, which compares with the row of rank 1. A backbone that all rows have
    stands in the title.
    """
    shared = {}
    for at in places_of(table, ["label"])[1:]:
        texts = {line.cells[at].text for line in table.lines}
        if len(texts) == 1:
            shared[at] = texts.pop()
    made = summary(table, [at for at in places_of(table, OF_GROUP) if at not in shared])
    return replace(made, title=", ".join([table.title, *shared.values()]))


def contents(groups: Sequence[Group], tables: Sequence[Group]) -> Table:
    """What the tables of some groups say first: the rows of rank 1, or the lowest row where none can be ranked.
    `tables`: the groups whose tables follow.
    """
    names = ("corpus", "table", "rows", "lowest test perplexity")
    lines = []
    for group in groups:
        link = f"#table-{tables.index(group) + 1}" if group in tables else ""
        texts = (group.corpus.name, _title(group), str(len(group.entries)), _first(group))
        lines.append(Line(cells=tuple(Cell(text=text, link=link if at == 1 else "") for at, text in enumerate(texts))))
    return Table(title="Contents", columns=tuple(Column(name=name) for name in names), lines=tuple(lines))


def ranking(groups: Sequence[Group]) -> tuple[Group, ...]:
    """The groups of which a row can be ranked; all, if there are none."""
    ranked = []
    for group in groups:
        if any(place.rank for place in places(group)):
            ranked.append(group)
    return tuple(ranked or groups)


def _first(group: Group) -> str:
    """'MoS 5', 'MoS 5; MoC 5 (2 share rank 1)', 'softmax (no row can be ranked)'; of many the first ones and '...'."""
    shared = [(entry, place) for entry, place in zip(group.entries, places(group), strict=True) if place.rank]
    if not shared:
        return f"{group.entries[0].row.head} (no row can be ranked)" if group.entries else NOTHING
    first = [entry.row for entry, place in shared if place.rank[0] == 1]
    several = len({row.backbone for row in first}) > 1
    names = [f"{row.head} on {row.backbone}" if several else row.head for row in first]
    named = "; ".join([*names[:NAMED], *["..."] * (len(names) > NAMED)])
    return named + (f" ({len(names)} share rank 1)" if len(names) > 1 else "")


def trials(groups: tuple[Group, ...]) -> Trials:
    """The numbers of ok, of all and of invalid trials in some groups."""
    rows = [each.row for group in groups for each in (*group.entries, *group.invalid)]
    statuses = Counter(record.status for row in rows for record in row.records.values())
    return Trials(statuses["ok"], statuses.total(), statuses["invalid"])


def groups_json(groups: tuple[Group, ...]) -> list[dict[str, Any]]:
    """The groups with unrounded numbers, for JSON."""
    found = []
    for group in groups:
        placed = zip(group.entries, places(group), strict=True)
        about = {
            "title": _title(group),
            "corpus": group.corpus.model_dump(),
            "content": group.content,
            "epochs": group.train.epochs,
            "pretrained": group.pretrained,
            "bidirectional": group.bidirectional,
            "rows": [_row(entry, place, group) for entry, place in placed],
            "invalid": [_entry(entry, group) for entry in group.invalid],
        }
        found.append(about)
    return found


def _entry(entry: Entry, group: Group) -> dict[str, Any]:
    about = {"training": entry.training, "suites": list(entry.suites), "finished": entry.finished}
    return {**row_json(entry.row, group.timings), **about}


def _row(entry: Entry, place: Ranked, group: Group) -> dict[str, Any]:
    first, last = place.rank or (None, None)
    ranked = {"rank": first, "last_rank": last, "vs_best": difference_json(place.difference)}
    return {**_entry(entry, group), **ranked}


def _ladder_json(table: Table) -> dict[str, Any]:
    """By the headers of its table: a gain is in per cent, a worth beyond the sizes is a text."""
    names, lines = table_forms.unrounded(table)
    rows = [dict(zip(names, line, strict=True)) for line in lines]
    return {"title": table.title, "found": table.lead, "rows": rows}


def _comparable(group: Group) -> str:
    epochs = group.train.epochs
    budget = f"trained for {counted(epochs, 'epoch')}" if epochs else "not trained"
    return (
        f"These rows compare with each other and with no other table: one text ({group.name}), one counting "
        f"rule, one way of evaluating, {budget}."
    )


def _state(entry: Entry) -> str:
    """'3', or '1; 1 diverged, 1 oom'."""
    ok = sum(each.status == "ok" for each in entry.row.trials)
    return "; ".join(filter(None, (f"{ok}", entry.row.undone)))


def _context(entry: Entry) -> str:
    """'35', or '35 and state' if the state of the backbone is carried from segment to segment."""
    carried = any(entry.row.values("state_carried"))
    return f"{entry.row.spec.train.seq_len}{' and state' if carried else ''}"


def _title(group: Group) -> str:
    """'ptb, boundary sos_eos, 40 epochs, context 35', and what distinguishes the group from others of that title."""
    train, said = group.train, [group.name]
    said.append(counted(train.epochs, "epoch") if train.epochs else "not trained")
    said.append(f"context {train.seq_len}")
    said += {"stream": [], "blocks": ["blocks"], "windows": ["random windows"]}[train.batching]
    said += [f"windows by {train.eval_stride}"] if train.eval_stride is not None else []
    said += [f"the first {train.eval_batches} batches"] if train.eval_batches is not None else []
    said += ["from pretrained weights"] if group.pretrained else []
    said += ["trained in both directions"] if group.bidirectional else []
    said += [f"computed with {group.compat}"] if group.compat is not None else []
    return ", ".join([*said, *group.apart])


def _notes(group: Group) -> tuple[str, ...]:
    train, counting = group.train, f"; counting: {group.counting}" if group.counting else ""
    notes = [f"Text: {group.corpus}, sha256 {group.content[:12]}{counting}."]
    if group.labels:
        notes.append(f"Labels of suites: {'; '.join(f'{label} is {what}' for label, what in group.labels.items())}.")
    columns = f"{train.eval_batch_size} {'blocks a batch' if train.batching == 'blocks' else 'columns'}"
    notes.append(f"Evaluation: segments of {train.seq_len} tokens, {columns}.")
    if group.compat is not None:
        notes.append(f'compat {group.compat}: computed as in a published code; its "probabilities" need not sum to 1.')
    notes += on_certificates([entry.row for entry in group.entries])
    if group.invalid:
        names = "; ".join(map(_name, group.invalid))
        notes.append(
            f"Left out: {counted(len(group.invalid), 'row')} with invalid trials, whose perplexity is not computed "
            f"from probabilities (harness docs certificates): {names}."
        )
    notes += comparison_notes.of_convergence([entry.row for entry in group.entries])
    for entry, place in zip(group.entries, places(group), strict=True):
        if place.difference is not None:
            notes += comparison_notes.of_splits(_name(entry), entry.row, group.entries[0].row)
    found = [record for entry in group.entries for record in entry.row.records.values()]
    rows = [(f"{each.row.head}, {each.row.backbone}", each.row) for each in group.entries]
    notes += versions.of_rows(rows, versions.changed(found))
    return tuple(notes)


def _name(entry: Entry) -> str:
    return f"{entry.row.head} on {entry.row.backbone}"


@dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """Groups of trials, and what was left out.

    Args:
        unknown: how many trials are left out because it is not known what text they were trained on.
        ladders: the suites with a ladder of sizes.
    """

    results: Path
    groups: tuple[Group, ...]
    unknown: int
    differing: Sequence[str]
    ladders: tuple[Study, ...] = ()

    @cached_property
    def tables(self) -> dict[Group, Table]:
        """The table of each group."""
        return {group: table(group) for group in self.groups}

    def ladder_tables(self, corpora: Sequence[str] = (), *, wide: bool = False) -> tuple[Table, ...]:
        """The tables of suites with a ladder; with `corpora` of those that have one of them."""
        found = []
        for each in self.ladders:
            names = {row.spec.corpus.name for row in each.rows}
            if not corpora or not names.isdisjoint(corpora):
                found.append(each)
        return ladders.tables(found, wide=wide)

    def of_corpora(self, names: Sequence[str]) -> tuple[Group, ...]:
        """The groups of some corpora; () gives all groups.

        Raises: ExecutionError when no finished trial has one of the corpora.
        """
        known = sorted({group.corpus.name for group in self.groups})
        for name in names:
            if name not in known:
                others = f"{nearest(name, known)} (there are: {', '.join(known)})"
                raise ExecutionError(f"--corpus {name}: no finished trial has that corpus{others}")
        return tuple(group for group in self.groups if not names or group.corpus.name in names)

    def text(self, corpora: Sequence[str] = (), *, everything: bool = False) -> str:
        """The tables in markdown, of all corpora or of some: those in which a row can be ranked, or all. Raises as
        `of_corpora` does.
        """
        groups, notes = self.of_corpora(corpora), [*MEANING]
        tables = groups if everything else ranking(groups)
        if len(tables) < len(groups):
            hidden = counted(len(groups) - len(tables), "table")
            notes.append(f"Not shown: {hidden} in which no row can be ranked; harness leaderboard --all shows them.")
        if self.unknown:
            notes.append(
                f"Left out: {counted(self.unknown, 'trial')} whose text is not known: records of another plug-in or "
                "another version of the harness."
            )
        if self.differing:
            of = ", ".join(self.differing)
            notes.append(f"Left out: trials of which two suites have different results: {of}.")
        first = ["# Leaderboard\n", f"Trials: {trials(groups)}.\n"]
        shown = [contents(groups, tables), *(self.tables[group] for group in tables)]
        shown += self.ladder_tables(corpora)
        last = "\n".join(f"- {note}" for note in notes)
        return "\n".join(
            [*first, *(f"#{table_forms.markdown(each)}" for each in shown), f"## What is compared\n\n{last}\n"]
        )

    def summaries(self, corpora: Sequence[str] = (), *, everything: bool = False) -> list[Table]:
        """What a terminal shows: the contents, and a few columns of each table that `text` shows. Raises as
        `of_corpora` does.
        """
        groups = self.of_corpora(corpora)
        tables = groups if everything else ranking(groups)
        of_tables = [of_group(self.tables[group]) for group in tables]
        if len(groups) != 1 or len(tables) != 1:
            of_tables = [contents(groups, tables), *of_tables]
        return [*of_tables, *self.ladder_tables(corpora)]

    def as_json(self, corpora: Sequence[str] = ()) -> dict[str, Any]:
        """The content of `harness leaderboard --json`. Raises as `of_corpora` does."""
        groups = groups_json(self.of_corpora(corpora))
        ladders = [_ladder_json(each) for each in self.ladder_tables(corpora, wide=True)]
        return {"groups": groups, "left_out": self.unknown, "ladders": ladders}

    def page(self, links: Mapping[str, str] | None = None) -> str:
        """The groups in which a row can be ranked as a web page; all are in its contents."""
        from harness.report.page import document  # here: jinja2

        ranked = ranking(self.groups)
        known = document.Section(heading="What is known", tables=(contents(self.groups, ranked),))
        section = document.Section(
            heading="Like with like",
            tables=tuple(self.tables[group] for group in ranked),
            notes=MEANING,
            anchor="table",
        )
        about, sections = {"Trials": str(trials(self.groups))}, [known, section]
        if tables := self.ladder_tables():
            sections.insert(1, document.Section(heading=LADDERS, tables=tables))
        return document.of_tables("Leaderboard", sections, about, links)

    def write(self) -> list[Path]:
        """Write all groups as markdown below results/tables, and as a page in results/reports; returns the paths.

        Raises: StorageError.
        """
        from harness.report import outputs

        files = {
            self.results / "tables" / FILE_NAME: self.text().encode(),
            self.results / "reports" / f"{LEADERBOARD}.html": self.page().encode(),
        }
        outputs.write(files)
        return list(files)


def load(
    results: Path,
    warn: Callable[[str], None],
    suites: Path = FOLDER,
    known: Mapping[Path, Mapping[str, TrialRecord]] | None = None,
    studies: Sequence[Study] | None = None,
) -> Leaderboard:
    """Read the records of all suites.

    Args:
        suites: the folder of suite files, for the labels of their rows. Of several for a row, the last suite's counts.
        known: as `gather` takes it.
        studies: those of all suites, where they are in hand; None: those with a ladder are read.
    Raises: ExecutionError when there are no finished trials.
    """
    if studies is None:
        studies = ladders.studies(results, suites, warn)
        known = {**(known or {}), **ladders.in_hand(studies)}
    finished, unknown, differing = gather(results, warn, known)
    if not finished:
        raise ExecutionError(f"{results / 'runs'} holds no records to compare: run a suite first, or name the folder")
    names = {suite for each in finished for suite in each.suites}
    given = {name: labels(suites / f"{name}{ENDING}") for name in names}
    return Leaderboard(
        results=results,
        groups=groups(finished, given),
        unknown=unknown,
        differing=differing,
        ladders=tuple(each for each in studies if each.suite.ladder is not None),
    )
