"""The table of a suite: built from its findings, as text in several forms, and written to files."""

import hashlib
import re
from dataclasses import replace
from pathlib import Path

from harness.plan.overrides import APPENDS
from harness.plan.suite import Suite
from harness.plan.suite_file import Form, Shape
from harness.report import layouts, outputs, row_notes, table_forms
from harness.report.content import Table
from harness.report.findings import Findings
from harness.report.notes import conditions, notes_of

FORMS = {"md": (".md", table_forms.markdown), "csv": (".csv", table_forms.csv), "latex": (".tex", table_forms.latex)}
WIDE = ("csv",)  # forms that always have all columns
MAX_LABEL = 100


def build(findings: Findings, shape: Shape | None = None) -> Table:
    """Build the table of a suite. The same arguments give the same table.

    Args:
        shape: how rows are laid out; None: as the suite says.
    """
    suite = findings.evidence.suite
    columns, lines, notes = layouts.lay_out(findings, shape or suite.table.shape)
    return Table(
        title=title(suite),
        columns=tuple(columns),
        lines=tuple(lines),
        notes=tuple(notes_of(findings, notes)),
        caption=suite.table.caption,
        suite=suite.name,
        labels=row_notes.of_labels(findings),
        conditions=conditions(findings),
    )


def of_trials(table: Table, ids: set[str]) -> Table:
    """The table with only the lines of some trials. The lines do not change."""
    return replace(table, lines=tuple(line for line in table.lines if ids.intersection(line.trials)))


def text(table: Table, form: Form = "md") -> str:
    """A table as text in a form."""
    _, drawn = FORMS[form]
    return drawn(table)


def files_of(table: Table, name: str, results: Path) -> dict[Path, bytes]:
    """The files of a table with all columns, in every form below results/tables, markdown first."""
    return {results / "tables" / f"{name}{ending}": form(table).encode() for ending, form in FORMS.values()}


def stem(suite: Suite, shape: Shape | None = None) -> str:
    """The name of a table's files without their endings.

    'ptb_mixtures'; 'ptb_mixtures.seeds=6' for a suite with overrides, so that it is not taken for the full one;
    'ptb_mixtures.corpora' for another shape than the suite's own.
    """
    changes = [f"{key.removeprefix('train.')}={re.sub(r'[][ ]', '', value)}" for key, value, _ in suite.overrides]
    label = ".".join(re.sub(r"[^A-Za-z0-9_=.,-]+", "_", each) for each in changes)
    exact = all(re.fullmatch(r"[A-Za-z0-9_=.,-]+", each) for each in changes)
    if not exact or len(label) > MAX_LABEL:
        label = f"{label[:MAX_LABEL]}-{hashlib.sha256(repr(changes).encode()).hexdigest()[:8]}"
    other = shape is not None and shape != suite.table.shape
    return ".".join([suite.name, *([label] if changes else []), *([shape] if other else [])])


def write(suite: Suite, table: Table, results: Path, shape: Shape | None = None) -> list[Path]:
    """Write a table in every form below results/tables; returns the paths, markdown first. Unchanged files are kept.
    CSV has all columns, the others those of the default form.

    Args:
        shape: that of the table; None: that of the suite.
    Raises: StorageError.
    """
    contents = [form(layouts.select(table, wide=name in WIDE)).encode() for name, (_, form) in FORMS.items()]
    places = [results / "tables" / f"{stem(suite, shape)}{ending}" for ending, _ in FORMS.values()]
    outputs.write(dict(zip(places, contents, strict=True)))
    return places


def title(suite: Suite) -> str:
    """The title of a table: the suite, its version, and what was changed in it."""
    changes = []
    for key, value, before in suite.overrides:
        number = before is not None and re.fullmatch(
            r"[0-9]{1,19}(\.[0-9]{1,19})?", before
        )  # the value in the file may be anything
        fewer = key == "train.epochs" and number and _epochs(suite) < float(before)
        instead = f" instead of {before}" if before is not None else ""
        if key.endswith(APPENDS):
            changes.append(f"ADDED to {key.removesuffix(APPENDS)}: {value}")
            continue
        changes.append(f"{'SHORTENED' if fewer else 'CHANGED'}: {key} = {value}{instead}")
    return "; ".join([f"{suite.name}, version {suite.version}", *changes])


def _epochs(suite: Suite) -> float:
    """The most training epochs of a trial of the table; of a tuned suite they are known before a point is chosen."""
    if suite.tune is None:
        return suite.trials[0].train.epochs
    return max(each.trials[0].train.epochs for each in suite.tuned_rows[0].candidates)
