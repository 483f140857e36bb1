"""`harness runs` at the width of a terminal: the columns that matter are whole, the others are there with room."""

import io

import pytest
from rich.console import Console

from harness.cli import records as views
from harness.report.history import SuiteHistory, TrialHistory

HEAD = "mos(num_mixtures=15, tie_weights=False)"  # 39 characters
MATTER = ("trial", "head", "corpus", "seed", "status", "test ppl", "minutes")


def trial(number: int, **changes) -> TrialHistory:
    about = {
        "id": f"{number:012d}",
        "head": HEAD,
        "backbone": f"lstm(d_model=200, num_layers={number})",
        "corpus": "embedded",
        "seed": number,
        "status": "ok",
        "test_ppl": 100.0 + number,
        "minutes": 41.33,
        "device": "AMD EPYC",
        "finished": "2026-11-22T05:03:00+02:00",
        "token_scores": number != 2,
        "bytes": 3900 * number,
    }
    return TrialHistory(**{**about, **changes})


def suite(name: str, devices: tuple[str, ...]) -> SuiteHistory:
    return SuiteHistory(
        suite=name,
        records={"ok": 142},
        interrupted=0,
        device_minutes=191.0,
        wall_minutes=117.0,
        finished="2026-11-22T05:03:00+02:00",
        devices=devices,
        bytes=4_700_000,
    )


def lines(parts, width: int | None) -> list[str]:
    """What a terminal of so many characters shows; None: a pipe."""
    console = Console(file=io.StringIO(), width=width or 160, force_terminal=width is not None, color_system=None)
    console.print(*parts, sep="\n")
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.fixture
def rows() -> list[TrialHistory]:
    return [trial(1), trial(2, status="diverged", test_ppl=None), trial(3, tuning=True)]


def test_at_80_characters_the_columns_that_matter_are_whole(rows):
    shown = lines(views.table_of_trials(rows, 80), 80)
    (header,) = [line for line in shown if line.startswith("trial")]
    assert header.split("  ")[0] == "trial"
    assert [name for name in MATTER if name in header] == list(MATTER)
    assert max(map(len, shown)) <= 80
    ends = (["1", "ok", "101.00", "41.33"], ["2", "diverged", "-", "41.33"], ["3", "ok, tuning", "103.00", "41.33"])
    for row, cells in zip(rows, ends, strict=True):
        (line,) = [line for line in shown if line.startswith(row.id)]
        assert [cell.strip() for cell in line.split("  ") if cell][2:] == ["embedded", *cells]


def test_what_is_the_same_is_said_once_and_what_has_no_room_is_named(rows):
    shown = lines(views.table_of_trials(rows, 80), 80)
    # two hours less than in the record's zone
    assert shown[0] == "finished (UTC): 2026-11-22 03:03; device: AMD EPYC"
    assert shown[-1] == "no room for: backbone, disk, token scores (a wider window and --json show them)"


@pytest.mark.parametrize("width", [None, 300])
def test_a_pipe_and_a_wide_window_have_all_columns(rows, width):
    shown = lines(views.table_of_trials(rows, width), width)
    (header,) = [line for line in shown if line.startswith("trial")]
    assert all(name in header for name in (*MATTER, "backbone", "disk", "token scores"))
    assert not any("no room" in line for line in shown)
    assert any("no token scores" in line for line in shown)


def test_the_list_of_suites_fits_80_characters_with_whole_names():
    names = ("ground_truth_pytorch", "embedded_mixtures")
    shown = lines(views.table_of_suites([suite(name, (f"a processor of {name}",)) for name in names], 80), 80)
    assert max(map(len, shown)) <= 80
    for name in names:
        (line,) = [line for line in shown if line.startswith(name)]
        assert all(cell in line for cell in ("142 ok", "3 h 11 min", "1 h 57 min"))
    assert any(line.startswith("no room for: ") and "devices" in line for line in shown)
