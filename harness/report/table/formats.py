"""A table as text: markdown to read, CSV to calculate with, LaTeX to print."""

import re
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from tabulate import tabulate

from harness.report.markdown import escaped, one_line
from harness.report.table.content import NOTHING, Cell, Column, Table

if TYPE_CHECKING:
    import pandas as pd

FORMULA = ("=", "+", "-", "@")  # a text that begins so is a formula to a spreadsheet
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
    "†": r"\textdagger{}",
    "‡": r"\textdaggerdbl{}",
    "§": r"\textsection{}",
    "°": r"\textdegree{}",
    "¶": r"\textparagraph{}",
} | {sign: f"\\{sign}" for sign in "&%$#_"}
_SPECIAL = re.compile("|".join(map(re.escape, _LATEX)))


def markdown(table: Table) -> str:
    """A title, a table of one header line, a list of notes. The best of a column, and what ties with it, is bold."""
    lines = [[_bold(escaped(cell.text), cell, "**{}**") for cell in line.cells] for line in table.lines]
    drawn = tabulate(
        lines,
        headers=[escaped(column.header) for column in table.columns],
        tablefmt="pipe",
        disable_numparse=True,
        colalign=["right" if column.numeric else "left" for column in table.columns] if lines else None,
    )
    notes = "\n".join(f"- {escaped(note)}" for note in table.notes)
    return f"# {escaped(table.title)}\n\n{drawn}\n\n{notes}\n"


def csv(table: Table) -> str:
    """`frame` as CSV, one header line; neither title nor notes."""
    return frame(table).to_csv(index=False, lineterminator="\n")


def frame(table: Table) -> "pd.DataFrame":
    """The table's numbers, unrounded; beside a column what its cells have more: spread, low and high of the interval,
    rank, mark. No text of it is a formula.
    """
    import pandas as pd  # here: half a second, which a table as markdown need not wait for

    parts = [part for index, column in enumerate(table.columns) for part in _parts(column, _cells(table, index))]
    lines = zip(*(values for _, values in parts), strict=True)
    return pd.DataFrame(lines, columns=[_harmless(name) for name, _ in parts], dtype=object)


def latex(table: Table) -> str:
    """A floating table in the manner of booktabs, its notes below it; for a document that loads the packages named."""
    aligned = "".join("r" if column.numeric else "l" for column in table.columns)
    return "\n".join(
        [
            r"% \usepackage[T1]{fontenc} \usepackage{booktabs,adjustbox}",
            r"\begin{table}",
            rf"\caption{{{_tex(table.title)}}}",
            r"\begin{adjustbox}{max width=\textwidth}",
            rf"\begin{{tabular}}{{{aligned}}}",
            r"\toprule",
            *_tex_groups(table.columns),
            _tex_row([_tex(column.name) for column in table.columns]),
            r"\midrule",
            *(
                _tex_row([_tex_cell(*pair) for pair in zip(line.cells, table.columns, strict=True)])
                for line in table.lines
            ),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{adjustbox}",
            *([r"\begin{itemize}\footnotesize"] if table.notes else []),
            *(rf"\item{{}} {_tex(note)}" for note in table.notes),
            *([r"\end{itemize}"] if table.notes else []),
            r"\end{table}",
            "",
        ]
    )


def _bold(text: str, cell: Cell, form: str) -> str:
    """After escaping: what the cell says cannot end it."""
    return form.format(text) if cell.rank else text


def _cells(table: Table, index: int) -> list[Cell]:
    return [line.cells[index] for line in table.lines]


def _parts(column: Column, cells: list[Cell]) -> Iterator[tuple[str, list[object]]]:
    """The columns that a column becomes in CSV: names, and a value for each line."""
    name = column.header
    yield name, [_raw(cell) for cell in cells]
    more = {
        column.spread: [cell.spread for cell in cells],
        "low": [cell.interval and cell.interval[0] for cell in cells],
        "high": [cell.interval and cell.interval[1] for cell in cells],
        "rank": [cell.rank or None for cell in cells],
        "mark": [cell.mark or None for cell in cells],
    }
    yield from ((f"{name} {what}", values) for what, values in more.items() if any(v is not None for v in values))


def _raw(cell: Cell) -> object:
    if cell.value is not None:
        return cell.value
    return None if cell.text == NOTHING else _harmless(cell.text.removesuffix(cell.mark))


def _harmless(text: str) -> str:
    """The text, after an apostrophe where a spreadsheet would calculate it."""
    line = one_line(text).strip()
    return f"'{line}" if line.startswith(FORMULA) else line


def _tex(text: str) -> str:
    """One line of LaTeX that shows the text."""
    return _SPECIAL.sub(lambda sign: _LATEX[sign[0]], one_line(text))


def _tex_cell(cell: Cell, column: Column) -> str:
    shown = _tex(cell.text)
    if column.numeric:
        shown = re.sub(r"(?<![\w-])-(?=\d)", "$-$", shown)
    return _bold(shown, cell, r"\textbf{{{}}}")


def _tex_row(cells: list[str]) -> str:
    """What follows '\\\\' may not begin with a bracket or a star, which would be its argument."""
    first = "{}" if cells[0].startswith(("[", "*")) else ""
    return f"{first}{' & '.join(cells)} \\\\"


def _tex_groups(columns: tuple[Column, ...]) -> list[str]:
    """The line of groups above the header, each with a rule below it; nothing where no column has one."""
    heads, rules, start = [], [], 1
    for group, members in groupby(columns, key=lambda column: column.group):
        width = len(list(members))
        heads.append(rf"\multicolumn{{{width}}}{{c}}{{{_tex(group)}}}")
        rules += [rf"\cmidrule(lr){{{start}-{start + width - 1}}}"] if group else []
        start += width
    return [_tex_row(heads), " ".join(rules)] if rules else []
