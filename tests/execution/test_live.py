"""What is shown while trials run: plain lines for a log, bars in a terminal."""

import io

import pytest
from rich.console import Console

from harness.corpora.progress import followed
from harness.execution.executors import Event
from harness.execution.live import LiveView
from harness.plan.names import names_of
from harness.registry import BACKBONES, CORPORA, HEADS
from harness.training.loop import Progress


def progress(epoch: int, step: int, **changes) -> Progress:
    values = {"epochs": 2, "steps": 15, "valid_ppl": None, "ms_per_batch": 2.5, **changes}
    return Progress(epoch=epoch, step=step, **values)


def view_of(specs, console) -> LiveView:
    """A view with the names that a table of these trials has."""
    kinds = {"head": HEADS, "backbone": BACKBONES, "corpus": CORPORA}
    names = {kind: names_of((getattr(spec, kind) for spec in specs), kinds[kind]) for kind in kinds}
    return LiveView(specs, console, lambda kind, spec: names[kind][str(getattr(spec, kind))])


def shown(specs, events, **console) -> str:
    """Everything that a view prints."""
    output = io.StringIO()
    with view_of(specs, Console(file=output, **console)) as view:
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
    who = f"{trial.id}  MoS 2 lstm markov seed=1"
    assert shown(suite.trials, events, width=40).splitlines() == [
        f"start   {who}",
        f"epoch   {who}  1/2 (100 %)  2.5 ms/batch",
        f"epoch   {who}  2/2 (100 %)  2.5 ms/batch  valid 9.75",
        f"end     {who}  ok  valid 9.50  test 9.25  (1 of 6)",
    ]


@pytest.fixture
def now(monkeypatch) -> list[float]:
    """The time that logs go by."""
    now = [1000.0]
    monkeypatch.setattr("harness.execution.live.time.monotonic", lambda: now[0])
    return now


def test_a_log_has_a_line_a_minute_within_an_epoch_of_1_4(suite, now):
    trial, output = suite.trials[0], io.StringIO()
    view = view_of([trial], Console(file=output, width=200))
    view(Event(kind="started", spec=trial))
    for step, seconds in ((3, 59.0), (6, 61.0), (9, 100.0), (12, 122.0)):
        now[0] = 1000.0 + seconds
        view(Event(kind="progress", spec=trial, progress=progress(1, step, epochs=1.4)))
    view(Event(kind="progress", spec=trial, progress=progress(2, 6, epochs=1.4, steps=6)))  # 0.4 of 15 steps
    # steps 6 and 12 of 15, the first after a minute, the next a minute later; and the end
    found = [line.split("  ")[-2] for line in output.getvalue().splitlines()[1:]]
    assert found == ["1/1.4 (40 %)", "1/1.4 (80 %)", "1.4/1.4 (100 %)"]


def test_a_log_has_a_line_a_minute_while_a_text_is_read(suite, now):
    output = io.StringIO()
    with view_of(suite.trials, Console(file=output, width=200)):
        for _, seconds in zip(followed(iter("abcdefgh"), "my.txt", 8, len), (0, 2, 5, 30, 62, 70, 90, 99), strict=True):
            now[0] = 1000.0 + seconds
    # a part is reported when the next one is asked for: d after 5 seconds, f after 62 + 3
    assert output.getvalue().splitlines() == ["reading my.txt  50 %", "reading my.txt  88 %"]
    list(followed(iter("abc"), "other.txt", 3, len))  # after the run nobody is shown
    assert "other" not in output.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_failed_and_lost_trials_are_shown_with_the_reason_and_the_totals_count_all_devices(
    suite, record_of, now, terminal
):
    first, second, third = suite.trials[:3]
    train = third.train.model_copy(update={"data_parallel": 4})
    wide = third.model_copy(update={"train": train})
    metrics = {**record_of(wide).metrics, "train_minutes": 2.5}
    output = io.StringIO()
    view = view_of(suite.trials, Console(file=output, width=300, force_terminal=terminal, color_system=None))
    view(
        Event(kind="finished", spec=first, record=record_of(first, "error", "FileNotFoundError: no file [/tmp/x] here"))
    )
    view(Event(kind="finished", spec=second, message="odd [red]words"))
    view(Event(kind="started", spec=second))  # tried again, alone
    view(Event(kind="finished", spec=second, message="odd [red]words"))
    view(Event(kind="finished", spec=wide, record=record_of(wide, metrics=metrics)))
    now[0] += 3725.0
    assert "error: FileNotFoundError: no file [/tmp/x] here  (1 of 6)" in output.getvalue()
    assert "lost: odd [red]words  (2 of 6)" in output.getvalue()
    assert view.totals() == (
        "3 of 6 trials: 1 error, 1 lost, 1 ok; wall time 1:02:05; device time 0:10:00 "
        "(training, summed over these trials)"
    )


def test_a_terminal_has_a_line_for_all_trials_and_for_each_that_runs_or_text_that_is_read(suite):
    """Of a trial that goes on at step 6 of 15, six steps took 20 seconds: 18 steps of two epochs need a minute."""
    now = [0.0]
    console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None, get_time=lambda: now[0])
    first = suite.trials[0]
    larger = first.backbone.model_copy(update={"params": {**first.backbone.params, "d_model": 9}})
    other = first.model_copy(update={"id": "0" * 12, "backbone": larger})
    view = view_of([first, other], console)  # not started, so that it draws when it is asked to

    def drawn() -> list[str]:
        console.file = io.StringIO()
        console.print(view._bars.get_renderable())
        return console.file.getvalue().splitlines()

    view.read("my.txt", 1, 2)
    view(Event(kind="started", spec=first))
    view(Event(kind="started", spec=other))
    for now[0], step in ((5.0, 6), (25.0, 12)):
        view(Event(kind="progress", spec=first, progress=progress(1, step, valid_ppl=9.75)))
    total, text, one, two = drawn()
    view.read("my.txt", 2, 2)
    assert not any("reading" in line for line in drawn())
    assert max(map(len, (total, text, one, two))) <= 80
    assert total.startswith("0 of 2 trials ")
    assert text.startswith("reading my.txt")
    assert "d_model 8" in one
    assert "1/2 (80 %)  2.5 ms/batch  valid 9.75" in one
    assert one.endswith(" 0:01:00")
    assert "d_model 9" in two
    assert "starting" in two
