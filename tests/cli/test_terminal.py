"""What commands show on a terminal: a summary that fits it. Pipes get markdown, and an explicit form is kept."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from harness.execution.live import Reporter
from harness.extensions import is_there
from harness.report import suite_table
from harness.report.content import Cell, Line, Table


@pytest.fixture
def terminal(monkeypatch):
    """A terminal of 80 characters, in place of standard output. `shown()` is what was printed on it."""
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=80, height=24)
    for module in ("run", "views", "board", "plan", "options"):  # the others import that of the last
        if is_there(f"harness.cli.{module}"):
            monkeypatch.setattr(f"harness.cli.{module}.console", console)
    return SimpleNamespace(console=console, shown=console.file.getvalue)


def is_markdown(text: str) -> bool:
    return any(line.startswith(("|:--", "|--")) for line in text.splitlines())


def test_the_table_of_a_suite_is_a_summary_and_its_files_are_named(finished, harness, terminal):
    harness("table", "suites/tiny.yaml")
    lines = [line.rstrip() for line in terminal.shown().splitlines()]
    assert not is_markdown(terminal.shown())
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines if line.startswith(("softmax ", "MoS "))] == ["softmax", "MoS"]
    assert lines[-1] == "table: results/tables/tiny.md, .csv, .tex"
    assert is_markdown((finished / "results/tables/tiny.md").read_text())
    before = len(terminal.shown())
    harness("table", "suites/tiny.yaml", "--only", "head=mos")
    lines = terminal.shown()[before:].splitlines()
    assert [line.split()[0] for line in lines if line.startswith(("softmax ", "MoS "))] == ["MoS"]


def test_a_form_that_is_asked_for_is_shown_on_a_terminal_too(finished, harness, terminal):
    harness("table", "suites/tiny.yaml", "--form", "md")
    assert is_markdown(terminal.shown())


@pytest.mark.needs("board")
def test_the_table_of_ground_truths_is_a_summary_whose_numbers_are_whole(terminal):
    from harness.board import ground_truths

    cells = {"target": "transformer_mos: softmax(tie_weights=False), ptb, valid ppl after epoch 3 to 6"}
    cells |= {"printed": "156.9, 142.8, 135.5, 130.0", "ours": "115.42 ± 1.06", "difference": "-1.86 %"}
    cells |= {"reproduced": "no (3 of 4)"}
    names = [column.name for column in ground_truths.COLUMNS]
    line = Line(cells=tuple(Cell(text=cells.get(name, "-")) for name in names))
    made = Table(title="Ground truths", columns=ground_truths.COLUMNS, lines=(line,))
    shown = (lambda: ground_truths.of_truths(made), lambda: suite_table.text(made))
    Reporter(terminal.console).table(*shown)
    lines = [line.rstrip() for line in terminal.shown().splitlines()]
    assert not is_markdown(terminal.shown())
    assert max(map(len, lines)) <= 80
    assert lines[1].split() == ["target", "printed", "ours", "difference", "reproduced"]
    for whole in ("115.42 ± 1.06", "-1.86 %", "156.9,", "no (3 of 4)"):
        assert any(whole in line for line in lines), whole
    log = io.StringIO()
    Reporter(Console(file=log, width=300)).table(*shown)
    assert is_markdown(log.getvalue())
