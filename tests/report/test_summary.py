"""The summary of a table that a terminal shows: its words, its marks, and that it fits 80 characters."""

import io
from pathlib import Path

import handmade
import pytest
from rich.cells import cell_len
from rich.console import Console

from harness import plan
from harness.report.columns import in_words
from harness.report.content import COARSE, Cell, Column, Line, Table
from harness.report.layouts import terminal_table
from harness.report.screen import short
from harness.report.suite_table import build
from harness.report.verdicts import Verdict

ROOT = Path(__file__).parent.parent.parent


def drawn(summary, width: int = 80) -> str:
    """The lines that a terminal of a width shows."""
    console = Console(width=width, file=io.StringIO(), force_terminal=True, color_system=None)
    console.print(short(summary, width))
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("change", "verdict", "words"),
    [
        (-1.3, Verdict("undecided", "seeds failed"), "undecided: seeds failed -1.3 %"),
        (-1.3, Verdict("better", limits=("not converged",)), "1.3 % better"),
    ],
)
def test_a_comparison_is_in_words(change, verdict, words):
    """Without an interval; with one its ends stand before the word."""
    assert in_words(Cell(text="...", value=change), verdict).text == words
    interval = Cell(text="-3.2 % [-4.0, -2.4] **", value=-3.2, interval=(-4.0, -2.4), mark="**")
    shown = in_words(interval, Verdict("better", limits=(COARSE, "not converged")))
    assert (shown.text, shown.short) == ("-3.2 % [-4.0, -2.4] better, coarse tuning", "3.2 % better, coarse tuning")


@pytest.fixture(scope="module")
def widest():
    """All heads of suites/ptb_heads.yaml on both backbones, with every mark and with trials that failed."""
    suite = plan.load(ROOT / "suites/ptb_heads.yaml")
    made = []
    for number, trial in enumerate(suite.trials):
        ppl = 1234.56 + 7 * number + trial.seed
        metrics = {"valid_ppl": ppl, "test_ppl": ppl, "train_ms_per_batch": 1234.5, "unigram_test_ppl": 1240.0}
        failed = {"status": "diverged", "message": "no", "certificate": None, "metrics": {}}
        made.append(
            handmade.record(suite="ptb_heads", spec=trial, **(failed if number % 11 == 0 else {"metrics": metrics}))
        )
    return terminal_table(build(handmade.findings(suite, made), "mixtures"))


@pytest.mark.parametrize("width", [80, 160])
def test_the_widest_table_fits_the_terminal_with_every_head(widest, width):
    shown = drawn(widest, width)
    assert max(cell_len(line) for line in shown.splitlines()) <= width
    for name in ("softmax", "PLIF", "DOC 3, poster", "Mixtape", "transformer_encoder", "lstm"):
        assert name in shown


def test_a_text_of_a_file_is_not_read_as_markup_and_moves_no_cursor():
    line = Line(cells=(Cell(text="[red]mos[/red]\x1b[2J"),))
    shown = drawn(Table(title="suite, version 1", columns=(Column(name="head", key="label"),), lines=(line,)))
    assert "[red]mos[/red]" in shown
    assert "\x1b" not in shown
