"""A study: what the records of a suite say, read and computed once. Tables, plots and pages are views of it.

study = load(suite, Path("results"), warn=print)
study                    # in a notebook: its table
study.plot("forest")
study.frame()            # one line a trial, as a pandas DataFrame
print(study.table())
"""

import hashlib
import shlex
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import RecordError
from harness.extensions import provided
from harness.plan.reader import results_option, shown
from harness.plan.selection import chosen_trials
from harness.plan.suite import Suite
from harness.plan.suite_file import Form, Shape
from harness.printable import counted
from harness.records import choices
from harness.records.metrics import METRICS
from harness.records.record import TrialRecord
from harness.report import layouts, outcome, outputs, suite_table, table_forms
from harness.report.content import Table
from harness.report.evidence import Evidence, gather
from harness.report.findings import Findings, find
from harness.report.row_facts import REGISTRIES, RowFacts, TrialFacts

if TYPE_CHECKING:
    import pandas as pd

    from harness.report.figures.drawn import Plot
    from harness.report.page.document import Section

_IDENTITY = ("id", "corpus", "backbone", "head", "seed", "status")


@dataclass(frozen=True, kw_only=True, repr=False)
class Study:
    """The records of a suite, and what follows from them.

    Rows and comparisons are computed at first use and kept.

    Args:
        results: the results folder; tables, plots and pages are written below it.
    """

    evidence: Evidence
    results: Path

    def __repr__(self) -> str:
        """'<Study embedded_mixtures, version 3: 10 rows, 80 ok of 80 trials>'."""
        rows = counted(len(self.rows), "row")
        return f"<Study {self.suite.name}, version {self.suite.version}: {rows}, {self.evidence.trials} trials>"

    def _repr_html_(self) -> str:
        return table_forms.html(layouts.select(self.build()))

    @property
    def suite(self) -> Suite:
        return self.evidence.suite

    @property
    def records(self) -> dict[str, TrialRecord]:
        """Trial id -> its record, for the trials that have a valid one."""
        return self.evidence.records

    @property
    def rows(self) -> list[RowFacts]:
        """Trials that differ only in their seed, together, in the order of the suite file."""
        return self.evidence.rows

    @cached_property
    def findings(self) -> Findings:
        """The comparisons of the rows: with the baseline, and with the best."""
        return find(self.evidence)

    def frame(self) -> "pd.DataFrame":
        """All planned trials as a DataFrame, one line each, in the order of the suite.

        Columns: id; corpus, backbone and head, with the labels of the table; seed; status: that of the record, or
        'interrupted' (a checkpoint but no record) or 'missing'; of a suite with a ladder the number of the size, from
        1; every metric of harness.records.metrics; every
        parameter of the components as 'corpus.<name>', 'backbone.<name>' and 'head.<name>'; settings of training that
        were tuned as 'train.<name>'. A value that a trial does not have is NaN.
        """
        import pandas as pd  # here: it takes a second to import

        facts = {trial.id: (trial, row) for row in self.rows for trial in row.trials}
        lines = [_line(*facts[trial.id]) for trial in self.suite.trials]
        parameters = dict.fromkeys(name for line in lines for name in line if "." in name)
        of_ladder = [] if self.suite.ladder is None else ["size"]
        return pd.DataFrame(lines, columns=[*_IDENTITY, *of_ladder, *METRICS, *parameters])

    def table(
        self,
        form: Form = "md",
        shape: Shape | None = None,
        only: Sequence[str] = (),
        columns: Sequence[str] = (),
        *,
        wide: bool = False,
        compact: bool = False,
    ) -> str:
        """The table of the suite as text.

        Args:
            shape: how rows are laid out; None: as the suite says.
            only: conditions as of `--only`: only rows of trials that meet one of them.
            columns: the names of the columns, in order, without those that say what a row is; (): those of the default
                form.
        Raises: SuiteError where a condition is not valid; RecordError where the table has no such column.
        """
        wide = wide or (form in suite_table.WIDE and not compact)
        chosen = layouts.select(self.build(shape, only), columns, wide=wide, compact=compact)
        if compact and form == "latex":
            return table_forms.latex(chosen, compact=True)
        return suite_table.text(chosen, form)

    def summary(self, only: Sequence[str] = (), *, compact: bool = False) -> Table:
        """The few columns of the table that a terminal shows."""
        return layouts.terminal_table(self.build("mixtures", only), compact=compact)

    def found(self) -> str:
        """What the suite found, in one line without a full stop at its end."""
        return outcome.in_a_line(self.findings)

    def write_table(self, shape: Shape | None = None) -> list[Path]:
        """Write the table in all forms below results/tables; returns the paths, markdown first.

        Args:
            shape: how rows are laid out; None: as the suite says.
        Raises: RecordError where no row is tuned yet, or no trial has a record; StorageError.
        """
        if not self.rows:
            raise RecordError(f"no row of the suite is tuned yet; `{self._run()}` does it")
        if not self.records:
            raise self._no_record()
        return suite_table.write(self.suite, self.build(shape), self.results, shape)

    def write_report(self, only: Sequence[str] = (), *, titled: bool = True) -> list[Path]:
        """Write the plots below results/plots, and the web page in results/reports; returns the paths, the page first.

        A plot that would show nothing is not made, and a warning says why. PDFs are made by `write_figure`.

        Args:
            only: conditions as of `--only`: a report of these trials, in files with a name of their own.
        Raises: RecordError where none of the trials has a record; StorageError; SuiteError where a condition is not
            valid.
        """
        from harness.report.figures import plots  # here: matplotlib and jinja2 take a second to import
        from harness.report.page import document

        chosen = self._chosen(only)
        if not chosen & self.records.keys():
            raise self._no_record()
        table, name = self.build(None, only), self._stem(only)
        if only:
            table = replace(table, title=f"{table.title}; ONLY {' or '.join(only)}")
        page, folder = self.results / "reports" / f"{name}.html", self.results / "plots" / name
        drawn = plots.draw(self.findings, table.title, chosen)
        sections, of_diagnostics = self.diagnosed(chosen)
        for_files = drawn if titled else plots.draw(self.findings, table.title, chosen, titled=False)
        files, gone = plots.files_of(for_files, folder, pdf=False)
        content = {page: document.render(self.findings, table, [*drawn, *of_diagnostics], sections).encode(), **files}
        outputs.write(content, gone=gone)
        if boxes := plots.boxes_in([*drawn, *of_diagnostics]):
            self.evidence.warn(boxes)
        return list(content)

    def diagnosed(self, only: Container[str] | None = None) -> "tuple[list[Section], list[Plot]]":
        """The section of the page on what trained heads can express, and its plots; both are empty without results.

        Args:
            only: the ids of some trials; None: of all.
        """
        for_page = provided("harness.diagnostics.diagnosed:for_page", lambda evidence, only: ([], []))
        return for_page(self.evidence, only)

    def write_figure(self, kind: str, only: Sequence[str] = (), *, width: float) -> list[Path]:
        """Write one kind of plot for a paper: PDF files with embedded fonts and without titles, one for each corpus and
        backbone, below results/plots/<suite>/paper. Returns their paths.

        Args:
            kind: 'forest', for example.
            width: in inches.
        Raises: RecordError where there is no such plot, or it would show nothing; StorageError; SuiteError where a
            condition is not valid.
        """
        from harness.report.figures import plots

        made = self._plots(kind, only, titled=False, width=width)
        if boxes := plots.boxes_in(made):
            self.evidence.warn(boxes)
        folder = self.results / "plots" / self._stem(only) / "paper"
        files = {folder / f"{plot.name}.{round(width, 2):g}in.pdf": plot.pdf() for plot in made}
        outputs.write(files)
        return list(files)

    def plot(self, kind: str, only: Sequence[str] = ()) -> "Plot":
        """A plot, which a notebook shows.

        Args:
            kind: 'forest', for example.
            only: conditions as of `--only`: of several corpora or backbones they choose one.
        Raises: RecordError where there is no such plot, it would show nothing, or there are several of the kind.
        """
        made = self._plots(kind, only)
        if len(made) > 1:
            titles = "; ".join(plot.title for plot in made)
            raise RecordError(f"there are {len(made)} plots '{kind}' ({titles}); choose one by only=['backbone=...']")
        return made[0]

    def _plots(self, kind: str, only: Sequence[str], **how: Any) -> "list[Plot]":
        """The plots of a kind. Raises RecordError without any."""
        from harness.report.figures import plots

        drawn = plots.draw(self.findings, suite_table.title(self.suite), self._chosen(only), kind=kind, **how)
        made = [plot for plot in drawn if not isinstance(plot, plots.LeftOut)]
        if not made:
            raise RecordError(f"no plot '{kind}': {drawn[0].reason}")
        return made

    def _chosen(self, only: Sequence[str]) -> set[str]:
        return {trial.id for trial in chosen_trials(self.suite, tuple(only))}

    def _stem(self, only: Sequence[str]) -> str:
        name = suite_table.stem(self.suite)
        return f"{name}.only-{hashlib.sha256(repr(sorted(only)).encode()).hexdigest()[:8]}" if only else name

    def _no_record(self) -> RecordError:
        return RecordError(f"{self.evidence.runs} has no record of these trials; `{self._run()}` makes them")

    def _run(self) -> str:
        return shlex.join(["harness", "run", shown(self.suite.path), *results_option(self.results)])

    def build(self, shape: Shape | None = None, only: Sequence[str] = ()) -> Table:
        """The table of the rows that meet some conditions as data, with their outcome in words.

        Args:
            shape: how rows are laid out; None: as the suite says.
        """
        chosen = self._chosen(only)
        rows = [row for row in self.rows if chosen.intersection(row.ids)]
        table = suite_table.of_trials(suite_table.build(self.findings, shape), chosen)
        lead = " ".join(outcome.sentences(self.findings, rows))
        return replace(table, lead=lead, notes=tuple(note for note in table.notes if note not in lead))


def _line(trial: TrialFacts, row: RowFacts) -> dict[str, object]:
    """A trial as a line of `Study.frame`."""
    record, size = trial.record, row.planned.size
    line = {"id": trial.id, "corpus": row.corpus, "backbone": row.backbone, "head": row.head}
    if size is not None:
        line["size"] = size
    line |= {"seed": trial.seed, "status": trial.status if record is None else record.status}
    if record is not None:
        line |= record.metrics
    for kind in REGISTRIES:
        line |= {f"{kind}.{name}": value for name, value in row.params_of(kind).items()}
    return line | row.tuned


def load(
    suite: Suite, results: Path, *, warn: Callable[[str], None], verified: Mapping[str, TrialRecord] | None = None
) -> Study:
    """Read the records, timings and printed numbers of a suite, and the points that its tuning has chosen.

    Args:
        verified: records of the suite's folder that are in hand, by id: they are not read again.
    Raises: SuiteError where the suite names a printed table that is not known.
    """
    return Study(evidence=gather(choices.read(suite, results, warn, verified), warn), results=results)
