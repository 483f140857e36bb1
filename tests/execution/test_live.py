"""What is shown while trials run: plain lines for a log, a table in a terminal."""

import io

import pytest
from rich.console import Console

from harness.execution.events import Event
from harness.execution.live import MAX_ROWS, LiveView
from harness.records import CurvePoint
from harness.trial.progress import Progress


def progress(epoch: int, step: int, **changes) -> Progress:
    values = {"epochs": 2, "steps": 15, "valid_ppl": None, "ms_per_batch": 2.5, **changes}
    return Progress(epoch=epoch, step=step, **values)


def shown(specs, events, **console) -> str:
    """Everything that a view prints."""
    output = io.StringIO()
    with LiveView(specs, Console(file=output, **console)) as view:
        for event in events:
            view(event)
    return output.getvalue()


def test_a_log_has_a_line_for_start_epochs_and_end(suite, record_of):
    trial = suite.trials[2]
    events = [
        Event(kind="started", spec=trial),
        Event(kind="progress", spec=trial, progress=progress(1, 1)),  # within the first minute: no line
        Event(kind="progress", spec=trial, progress=progress(1, 15)),
        Event(kind="progress", spec=trial, progress=progress(2, 15, valid_ppl=9.75)),
        Event(kind="finished", spec=trial, record=record_of(trial)),
    ]
    who = f"{trial.id}  mos(num_mixtures=2, dropout=0.1) lstm markov seed=1"
    assert shown(suite.trials, events, width=40).splitlines() == [
        f"start   {who}",
        f"epoch   {who}  1/2 (100 %)  2.5 ms/batch",
        f"epoch   {who}  2/2 (100 %)  2.5 ms/batch  valid 9.75",
        f"end     {who}  ok  valid 9.50  test 9.25  (1 of 6)",
    ]


def test_a_log_has_a_line_a_minute_within_an_epoch(suite, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("harness.execution.live.time.monotonic", lambda: now[0])
    trial, output = suite.trials[0], io.StringIO()
    view = LiveView([trial], Console(file=output, width=200))
    view(Event(kind="started", spec=trial))
    for step, seconds in ((3, 59.0), (6, 61.0), (9, 100.0), (12, 122.0)):
        now[0] = 1000.0 + seconds
        view(Event(kind="progress", spec=trial, progress=progress(1, step)))
    # steps 6 and 12 of 15, the first after a minute, the next a minute later
    assert [line.split("  ")[-2] for line in output.getvalue().splitlines()[1:]] == ["1/2 (40 %)", "1/2 (80 %)"]


@pytest.mark.parametrize("message", ["RuntimeError: no", "FileNotFoundError: no file [/tmp/x] here", "odd [red]words"])
@pytest.mark.parametrize("terminal", [False, True])
def test_a_failed_trial_is_shown_with_its_message(suite, record_of, message, terminal):
    trial = suite.trials[0]
    events = [
        Event(kind="started", spec=trial),
        Event(kind="finished", spec=trial, record=record_of(trial, "error", message)),
    ]
    assert f"error: {message}" in shown(suite.trials, events, force_terminal=terminal, width=300)


@pytest.mark.parametrize("terminal", [False, True])
def test_a_lost_trial_is_shown_with_the_reason(suite, terminal):
    trial = suite.trials[0]
    events = [
        Event(kind="started", spec=trial),
        Event(kind="finished", spec=trial, message="the worker died (ActorDiedError)"),
    ]
    text = shown(suite.trials, events, force_terminal=terminal, width=300)
    assert "lost: the worker died (ActorDiedError)" in text
    assert "1 of 6" in text


def test_a_terminal_of_60_columns_shows_the_table(suite, record_of):
    first, second, third, fourth = suite.trials[:4]
    events = [
        *(Event(kind="started", spec=trial) for trial in (first, second, third, fourth)),
        Event(kind="progress", spec=second, progress=progress(1, 3)),
        Event(kind="progress", spec=third, progress=progress(2, 3, valid_ppl=9.75)),
        Event(kind="finished", spec=first, record=record_of(first)),
        Event(kind="finished", spec=fourth, record=record_of(fourth, "diverged", "Diverged: loss is nan")),
    ]
    text = shown(suite.trials, events, force_terminal=True, width=60)
    assert "2 of 6 trials: 1 ok, 1 diverged" in text
    assert "start   " not in text


def test_a_wide_terminal_shows_what_each_trial_is_at(suite, record_of):
    first, second, third = suite.trials[:3]
    events = [
        *(Event(kind="started", spec=trial) for trial in (first, second, third)),
        Event(kind="progress", spec=second, progress=progress(2, 3, valid_ppl=9.75)),
        Event(kind="finished", spec=first, record=record_of(first)),
    ]
    text = shown(suite.trials, events, force_terminal=True, width=200, color_system=None)
    rows = {line.split()[1]: line for line in text.splitlines() if line.startswith("│")}
    assert "ok" in rows[first.id]
    assert "9.50" in rows[first.id]
    assert "2/2 (20 %)" in rows[second.id]
    assert "9.75" in rows[second.id]
    assert "starting" in rows[third.id]


@pytest.mark.parametrize("running", [0, 5, MAX_ROWS])
def test_the_table_has_a_bounded_number_of_rows(suite, record_of, running):
    specs = [suite.trials[0].model_copy(update={"id": f"{number:012d}"}) for number in range(50)]
    ended, busy = specs[running:], specs[:running]
    events = [Event(kind="started", spec=spec) for spec in specs]
    events += [Event(kind="finished", spec=spec, record=record_of(spec)) for spec in ended]
    text = shown(specs, events, force_terminal=True, width=200, height=100, color_system=None)
    last = text[text.rindex(f"{50 - running} of 50 trials") :]
    rows = [line.split()[1] for line in last.splitlines() if line.startswith("│")]
    assert len(rows) == MAX_ROWS
    assert rows == [spec.id for spec in [*ended[len(ended) - (MAX_ROWS - running) :], *busy]]


def test_a_trial_that_starts_again_is_shown_once(suite):
    trial = suite.trials[0]
    events = [Event(kind="started", spec=trial)] * 2
    text = shown([trial], events, force_terminal=True, width=200, color_system=None)
    last = text[text.rindex("0 of 1 trials") :]
    assert last.count(trial.id) == 1


def test_parts_of_epochs_are_shown_as_the_suite_says_them(suite, record_of):
    trial = suite.trials[2]
    half = progress(2, 6, epochs=1.4, steps=6, valid_ppl=9.75)  # 0.4 of 15 steps
    curve = [CurvePoint(epoch=epoch, train_loss=1, valid_ppl=9, lr=1, seconds=1) for epoch in (1, 1.4)]
    record = record_of(trial).model_copy(update={"curve": tuple(curve)})
    events = [Event(kind="started", spec=trial), Event(kind="progress", spec=trial, progress=half)]
    assert "2/1.4 (100 %)  2.5 ms/batch  valid 9.75" in shown([trial], events)
    ended = [*events, Event(kind="finished", spec=trial, record=record)]
    text = shown([trial], ended, force_terminal=True, width=200, color_system=None)
    assert "│ 1.4 " in text[text.rindex("1 of 1 trials") :]


def test_the_time_that_is_left_counts_a_part_of_an_epoch_as_its_part(suite, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("harness.execution.live.time.monotonic", lambda: now[0])
    view = LiveView([suite.trials[0]], Console(file=io.StringIO(), width=200))

    def left(seconds: float, epoch: int, step: int, steps: int) -> str:
        now[0] = 1000.0 + seconds
        given = progress(epoch, step, epochs=1.5, steps=steps, ms_per_batch=60_000.0)
        view(Event(kind="progress", spec=suite.trials[0], progress=given))
        return view._running_cells(suite.trials[0].id)[-1]

    view(Event(kind="started", spec=suite.trials[0]))
    assert left(0, 1, 10, 20) == "0:20:00"  # half an epoch done; another whole one is 20 steps of a minute
    assert left(600, 1, 20, 20) == "0:10:00"  # half an epoch in ten minutes, half a one is left
    assert left(900, 2, 5, 10) == "0:05:00"  # its first half in five
