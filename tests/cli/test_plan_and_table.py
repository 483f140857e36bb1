"""`harness plan` and `harness table`."""

import io
import itertools
import json
import re

import handmade
import pytest
from commands import files, table_rows
from rich.console import Console
from stand_ins import placed

from harness import bundled
from harness.plan.reader import suites_in
from harness.trial import timing as clock


def rows_shown(out: str) -> list[list[str]]:
    """The lines of the table of a plan, as cells."""
    table = out[out.index("head ") :].split("\n")[2:]
    return [re.split("  +", line.strip()) for line in itertools.takewhile(lambda line: "trials, " not in line, table)]


def test_plan_is_a_line_for_each_row_with_its_name_in_tables_its_counts_and_its_trials(finished, harness):
    done = harness("plan", "suites/tiny.yaml")
    assert done.out.splitlines()[0] == "corpus: markov; backbone: lstm"
    assert [row[:4] for row in rows_shown(done.out)] == [
        ["softmax", "780", "108", "2 ok"],
        ["MoS 2", "940", "268", "2 ok"],
    ]
    assert all(float(row[4]) >= 0 for row in rows_shown(done.out))  # minutes of a trial, as recorded
    assert "4 trials, 0 to run" in done.out
    more = harness("plan", "tiny", "--set", "seeds=[1,2,3]").out
    assert [row[3] for row in rows_shown(more)] == ["2 ok, 1 missing"] * 2


@pytest.mark.system
@pytest.mark.parametrize("name", sorted(suites_in(bundled("suites"))))
def test_the_plan_of_a_committed_suite_fits_a_terminal(harness, monkeypatch, tmp_path, name):
    terminal = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=80)
    for module in ("plan", "options"):
        monkeypatch.setattr(f"harness.cli.{module}.console", terminal)
    suite = placed(bundled("suites") / f"{name}.yaml", tmp_path)
    assert harness("plan", suite, "--results", tmp_path / "results").code == 0
    lines = [line.rstrip() for line in terminal.file.getvalue().splitlines()]
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 80


def test_a_plan_shows_all_rows_that_a_terminal_has_room_for(fresh, harness, monkeypatch):
    terminal = Console(force_terminal=True, color_system=None, width=80)
    for module in ("plan", "options"):
        monkeypatch.setattr(f"harness.cli.{module}.console", terminal)

    def lines_of(rows: int) -> list[str]:
        terminal.file = io.StringIO()
        mixtures = ", ".join(map(str, range(1, rows + 1)))
        assert harness("plan", "tiny", "--set", f"heads=[softmax, {{mos: {{num_mixtures: [{mixtures}]}}}}]").code == 0
        return terminal.file.getvalue().splitlines()

    around = len(lines_of(1)) - 1  # softmax is in it
    assert len(lines_of(25 - around)) == 25
    *_, last = (line for line in lines_of(27 - around) if "MoS" in line or "more" in line)
    assert last.startswith("and 3 more rows: ")  # one line for it, too
    assert len(lines_of(40)) == 25


def test_plan_names_the_keys_of_only_and_with_keys_their_values(fresh, harness):
    assert "--only takes head, seed, dropout, id; --keys shows" in harness("plan", "tiny").out
    lines = harness("plan", "tiny", "--keys").out.splitlines()
    first = lines.index("--only takes KEY=VALUE with these keys, and id:")
    assert lines[first + 1 : first + 3] == ["  head: softmax, mos, MoS 2", "  seed: 1, 2"]
    assert lines[first + 3] == "  dropout: 0.2, 0.0"  # the default of each component
    assert lines[first + 4].startswith("  with one value: corpus: markov, backbone: lstm, ")
    two = ("--set", "backbones=[{lstm: {d_model: 8}}, {gru: {d_model: 8}}]")
    out = harness("plan", "tiny", *two).out
    assert [row[:2] for row in rows_shown(out)] == [[b, h] for b in ("lstm", "gru") for h in ("softmax", "MoS 2")]
    assert "d_model" not in out
    assert "backbone: gru = gru(d_model=8)" in harness("plan", "tiny", "--keys", *two).out.splitlines()


@pytest.fixture
def tiny_times(known_times):
    """A step of softmax takes 60 ms, one of two mixtures 150 ms; an evaluation 30 ms."""
    known_times({"softmax": 60.0, "mos": 150.0}, 30.0)


def test_plan_with_times_shows_minutes_and_the_ratio_to_the_baseline(finished, harness, tiny_times):
    before = files(finished)
    found = json.loads(harness("plan", "suites/tiny.yaml", "--time", "--json").out)
    softmax, mos = found["times"]
    # 400 tokens in 4 columns: 99 targets, 15 steps of 7. 40 tokens in 10 columns of 4: one batch, of 2 validations and
    # 2 tests
    measured = {"train_ms": 60.0, "eval_ms": 30.0, "steps": 15, "valid_batches": 1, "test_batches": 1}
    assert (softmax["time"], softmax["minutes"]) == (measured, (30 * 60 + 4 * 30) / 60_000)
    rows = [(row["head"], row["epochs"], row["ratio"]) for row in (softmax, mos)]
    assert rows == [("softmax", 2.0, 1.0), ("mos(num_mixtures=2)", 2.0, 2.5)]
    assert found["minutes_to_run"] == 0.0
    assert "times" not in json.loads(harness("plan", "suites/tiny.yaml", "--json").out)
    rows = [re.split("  +", line) for line in harness("plan", "suites/tiny.yaml", "--time").out.splitlines()]
    timed = [row[1:] for row in rows if row[1:2] in (["60.0"], ["150.0"])]
    assert timed == [["60.0", "30.0", "0.0", "1.00"], ["150.0", "30.0", "0.1", "2.50"]]
    assert files(finished) == before
    again = harness("plan", "suites/tiny.yaml", "--time", "--set", "train.epochs=200")
    # 2 * (3,000 * (60 + 150) + 2 * 202 * 30) ms, 200 validations and 2 tests, of the trials without a record
    assert "to run, one trial after the other: 21.4 min" in again.out


def test_ratios_of_a_busy_machine_are_not_printed(finished, harness, tiny_times, monkeypatch):
    monkeypatch.setattr(clock.environment.OtherWork, "cores", lambda self: 0.5)
    done = harness("plan", "suites/tiny.yaml", "--time")
    assert "match:" not in done.out
    assert done.err == "warning: other programs used 0.5 cores of this machine: times are longer than on a quiet one\n"
    monkeypatch.setattr(clock.environment.OtherWork, "cores", lambda self: 0.49)
    assert "match:" in harness("plan", "suites/tiny.yaml", "--time").out


def test_printed_ratios_give_each_head_the_time_of_the_baseline(finished, harness, tiny_times):
    before = files(finished)
    printed = harness("plan", "suites/tiny.yaml", "--time").out
    assert files(finished) == before
    match = printed[printed.index("\nmatch:") :]
    assert match.endswith('\n  ratios:\n    "softmax": 1\n    "mos(num_mixtures=2)": 2.5\n')
    with (finished / "suites" / "tiny.yaml").open("a") as suite:
        suite.write(match)
    # 2 epochs of 60 ms a step are 0.8 epochs of 150 ms a step: softmax is as before, the mixture has new trials
    done = harness("plan", "suites/tiny.yaml")
    assert "training time matched: the epochs of each head take as long as those of softmax" in done.out
    assert "4 trials, 2 to run" in done.out
    (mos,) = json.loads(harness("plan", "suites/tiny.yaml", "--time", "--only", "head=mos", "--json").out)["times"]
    assert (mos["epochs"], mos["ratio"]) == (0.8, None)  # of what was chosen, there is no softmax to divide by


@pytest.mark.needs("integrity")
def test_table_only_shows_those_rows_and_leaves_the_file_whole(finished, harness):
    place = finished / "results" / "tables" / "tiny.md"
    whole = place.read_text()
    place.unlink()
    done = harness("table", "suites/tiny.yaml", "--only", "head=mos")
    assert done.code == 0
    assert table_rows(done.out) == {"MoS 2": "2/2"}
    assert place.read_text() == whole


def test_table_in_another_shape_has_files_of_its_own(finished, harness):
    folder = finished / "results" / "tables"
    before = {path: path.read_bytes() for path in folder.iterdir()}
    done = harness("table", "suites/tiny.yaml", "--shape", "corpora")
    assert done.code == 0
    assert "MoS 2 reduction" in done.out
    assert (folder / "tiny.corpora.md").read_text() in done.out
    after = {path: path.read_bytes() for path in folder.iterdir()}
    assert before.items() <= after.items()
    assert sorted(path.name for path in after.keys() - before.keys()) == [
        *("tiny.corpora.csv", "tiny.corpora.md", "tiny.corpora.tex")
    ]


def test_a_table_without_its_text_names_the_command_that_needs_none(tmp_path, monkeypatch, harness):
    monkeypatch.chdir(tmp_path)
    suite = handmade.suite_text(name="mine", corpora="[{text: {path: gone.txt}}]")
    (tmp_path / "mine.yaml").write_text(suite)
    assert "harness runs" not in harness("table", "mine.yaml").err
    (tmp_path / "results" / "runs" / "mine" / ("0" * 12)).mkdir(parents=True)
    done = harness("table", "mine.yaml")
    assert (done.code, done.out) == (2, "")
    first, second, _ = done.err.splitlines()
    assert first == "warning: without its text, `harness runs mine` shows the records of mine"
    assert second.endswith("gone.txt: no such file or folder; a path in a suite begins at the suite's folder")
