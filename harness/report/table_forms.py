"""The forms of a table: markdown, CSV, LaTeX, HTML and a DataFrame."""

import csv as csv_files
import io
import re
from collections.abc import Iterator
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

from tabulate import tabulate

from harness.printable import printable
from harness.report.content import NOTHING, Cell, Column, Table, legend

if TYPE_CHECKING:
    import pandas as pd

MAX_TEXT = 2_000
_ENTITIES = {"&": "&amp;", "<": "&lt;"}
# Characters that end a cell, or begin code, emphasis, a formula or the address of a link; _ only at the ends of a word.
_MARKS = re.compile(r"[\\|`*~$#]|(?<=\])\(|(?<![^\W_])_|_(?![^\W_])")


def one_line(text: str) -> str:
    """A text in one line: line ends and tabs as spaces, invisible characters spelled out, a very long text cut."""
    line = printable(re.sub(r"[\r\n\t]+", " ", text))
    return line if len(line) <= MAX_TEXT else f"{line[:MAX_TEXT]} ..."


def escaped(text: str) -> str:
    """One line of markdown that shows the text literally."""
    line = one_line(text)
    marked = _MARKS.sub(lambda mark: "\\" + mark[0], line)
    return re.sub("[&<]", lambda found: _ENTITIES[found[0]], marked)


FORMULA = ("=", "+", "-", "@")  # spreadsheets take a text that begins like this as a formula
_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "`": r"\textasciigrave{}",
    '"': r"\textquotedbl{}",
    "±": r"$\pm$",
    "≈": r"$\approx$",
    "≥": r"$\geq$",
    "↓": r"$\downarrow$",
    "✗": r"$\times$",
    "‡": r"\textdaggerdbl{}",
    "°": r"\textdegree{}",
    "¶": r"\textparagraph{}",
} | {character: f"\\{character}" for character in "&%$#_"}
_SPECIAL = re.compile("|".join(map(re.escape, _LATEX)))


def markdown(table: Table) -> str:
    """A title, a lead, the table, a list of notes. The best of a column is bold."""
    lines = []
    for line in table.lines:
        lines.append([_bold(escaped(cell.text), cell, "**{}**") for cell in line.cells])
    drawn = tabulate(
        lines,
        headers=[escaped(column.header) for column in table.columns],
        tablefmt="pipe",
        disable_numparse=True,
        colalign=["right" if column.numeric else "left" for column in table.columns] if lines else None,
    )
    notes = "\n".join(f"- {escaped(note)}" for note in table.notes)
    parts = [f"# {escaped(table.title)}", escaped(table.lead), drawn, notes]
    return "\n\n".join(part for part in parts if part) + "\n"


def html(table: Table) -> str:
    """Title, lead, the table and its notes as HTML, for a notebook. All text is escaped."""
    lines = []
    for line in table.lines:
        lines.append([one_line(cell.text) for cell in line.cells])
    headers = [one_line(column.header) for column in table.columns]
    drawn = tabulate(lines, headers=headers, tablefmt="html", disable_numparse=True)
    lead = [f"<p>{escape(one_line(table.lead))}</p>"] if table.lead else []
    notes = "".join(f"<li>{escape(one_line(note))}</li>" for note in table.notes)
    return "\n".join([f"<h4>{escape(one_line(table.title))}</h4>", *lead, drawn, f"<ul>{notes}</ul>"])


def csv(table: Table) -> str:
    """`frame` as CSV with one header line, without title and notes."""
    names, lines = unrounded(table)
    text = io.StringIO()
    writer = csv_files.writer(text, lineterminator="\n")  # pandas would take a second to import
    writer.writerow(names)
    for line in lines:
        shown = ["" if value is None or value != value else value for value in line]  # '' for NaN
        writer.writerow(shown)
    return text.getvalue()


def frame(table: Table) -> "pd.DataFrame":
    """The table with unrounded numbers. Spread, interval, rank and mark of cells are in columns of their own.

    No text of it is a formula for a spreadsheet.
    """
    import pandas as pd  # here: half a second, which the files do not need

    names, lines = unrounded(table)
    return pd.DataFrame(lines, columns=names, dtype=object)


def unrounded(table: Table) -> tuple[list[str], list[tuple[object, ...]]]:
    """The names of the columns of `frame`, and its lines."""
    parts = []
    for index, column in enumerate(table.columns):
        parts += _parts(column, [line.cells[index] for line in table.lines])
    return [harmless(name) for name, _ in parts], list(zip(*(values for _, values in parts), strict=True))


def latex(table: Table, *, compact: bool = False) -> str:
    """A floating table with the rules of booktabs, and below it what its marks mean. The other notes are comments. It
    needs the packages named in its first line.

    Args:
        compact: for one column of a paper: small, and as wide as the column at most.
    """
    aligned = "".join("r" if column.numeric else "l" for column in table.columns)
    width = r"\columnwidth" if compact else r"\textwidth"
    printed = legend(table)
    rows = []
    for line in table.lines:
        pairs = zip(line.cells, table.columns, strict=True)
        rows.append(_tex_row([_tex_cell(cell, column) for cell, column in pairs]))
    return "\n".join(
        [
            r"% \usepackage[T1]{fontenc} \usepackage{booktabs,adjustbox}",
            r"\begin{table}",
            *([r"\footnotesize\setlength{\tabcolsep}{3pt}"] if compact else []),
            rf"\caption{{{_tex(table.caption or table.title)}}}",
            *([rf"\label{{tab:{table.suite.replace('_', '-')}}}"] if table.suite else []),
            rf"\begin{{adjustbox}}{{max width={width}}}",
            rf"\begin{{tabular}}{{{aligned}}}",
            r"\toprule",
            *_tex_groups(table.columns),
            _tex_row([_tex(column.name) for column in table.columns]),
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{adjustbox}",
            *(rf"\par\smallskip{{\footnotesize\raggedright {_tex(note)}\par}}" for note in printed),
            *(f"% {_tex(note)}" for note in (table.lead, *table.notes) if note and note not in printed),
            r"\end{table}",
            "",
        ]
    )


def _bold(text: str, cell: Cell, form: str) -> str:
    """Bold if the cell is the best. Call it after escaping, so that the text cannot end the markup."""
    return form.format(text) if cell.rank == "best" else text


def _parts(column: Column, cells: list[Cell]) -> Iterator[tuple[str, list[object]]]:
    name = column.header
    yield name, [_raw(cell) for cell in cells]
    more = {
        column.spread: [cell.spread for cell in cells],
        "low": [cell.interval and cell.interval[0] for cell in cells],
        "high": [cell.interval and cell.interval[1] for cell in cells],
        "rank": [cell.rank or None for cell in cells],
        "ratio": [cell.ratio for cell in cells],
        "mark": [cell.mark or None for cell in cells],
    }
    for what, values in more.items():
        if any(value is not None for value in values):
            yield f"{name} {what}", values


def _raw(cell: Cell) -> object:
    if cell.value is not None:
        return cell.value
    return None if cell.text == NOTHING else harmless(cell.text.removesuffix(cell.mark))


def harmless(text: str) -> str:
    """The text, with an apostrophe before it if a spreadsheet would take it as a formula."""
    line = one_line(text).strip()
    return f"'{line}" if line.startswith(FORMULA) else line


def _tex(text: str) -> str:
    return _SPECIAL.sub(lambda found: _LATEX[found[0]], one_line(text))


def _tex_cell(cell: Cell, column: Column) -> str:
    shown = _tex(cell.text)
    if column.numeric:
        shown = re.sub(r"(?<![\w-])-(?=\d)", "$-$", shown)
    return _bold(shown, cell, r"\textbf{{{}}}")


def _tex_row(cells: list[str]) -> str:
    """A row. A bracket or star after '\\\\' would be its argument, so '{}' is put before it."""
    first = "{}" if cells and cells[0].startswith(("[", "*")) else ""  # a table may be empty
    return f"{first}{' & '.join(cells)} \\\\"


def _tex_groups(columns: tuple[Column, ...]) -> list[str]:
    """The line of groups above the header, each with a rule below it; nothing if no column has a group."""
    heads, rules, start = [], [], 1
    for group, members in groupby(columns, key=lambda column: column.group):
        width = len(list(members))
        heads.append(rf"\multicolumn{{{width}}}{{c}}{{{_tex(group)}}}")
        rules += [rf"\cmidrule(lr){{{start}-{start + width - 1}}}"] if group else []
        start += width
    return [_tex_row(heads), " ".join(rules)] if rules else []
