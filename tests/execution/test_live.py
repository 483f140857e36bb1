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


def test_a_log_has_a_line_a_minute_within_an_epoch(suite, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("harness.execution.live.time.monotonic", lambda: now[0])
    trial, output = suite.trials[0], io.StringIO()
    view = view_of([trial], Console(file=output, width=200))
    view(Event(kind="started", spec=trial))
    for step, seconds in ((3, 59.0), (6, 61.0), (9, 100.0), (12, 122.0)):
        now[0] = 1000.0 + seconds
        view(Event(kind="progress", spec=trial, progress=progress(1, step)))
    # steps 6 and 12 of 15, the first after a minute, the next a minute later
    assert [line.split("  ")[-2] for line in output.getvalue().splitlines()[1:]] == ["1/2 (40 %)", "1/2 (80 %)"]


@pytest.mark.parametrize("status", ["error", "lost"])
@pytest.mark.parametrize("terminal", [False, True])
def test_a_failed_or_lost_trial_is_shown_with_the_reason(suite, record_of, status, terminal):
    trial = suite.trials[0]
    for message in ("RuntimeError: no", "FileNotFoundError: no file [/tmp/x] here", "odd [red]words"):
        end = {"message": message} if status == "lost" else {"record": record_of(trial, status, message)}
        events = [Event(kind="started", spec=trial), Event(kind="finished", spec=trial, **end)]
        text = shown(suite.trials, events, force_terminal=terminal, width=300)
        assert f"{status}: {message}" in text
        assert "1 of 6" in text


def mixed(suite, record_of) -> list[Event]:
    """Two trials of six have ended, one badly, two are under way, one of them starts."""
    first, second, third, fourth = suite.trials[:4]
    metrics = {**record_of(first).metrics, "train_minutes": 2.5}
    return [
        *(Event(kind="started", spec=trial) for trial in (first, second, third, fourth)),
        Event(kind="progress", spec=second, progress=progress(2, 3, valid_ppl=9.75)),
        Event(kind="finished", spec=first, record=record_of(first, metrics=metrics)),
        Event(kind="finished", spec=fourth, record=record_of(fourth, "diverged", "Diverged: [red]loss[/red] is nan")),
    ]


@pytest.fixture
def now() -> list[float]:
    """The time that a terminal's bars go by."""
    return [1000.0]


@pytest.fixture
def drawn(now):
    """A function: trials, events as (seconds, event), a width -> the lines that a terminal shows after them."""

    def one(specs, events, width: int = 80) -> list[str]:
        console = Console(
            file=io.StringIO(), force_terminal=True, width=width, color_system=None, get_time=lambda: now[0]
        )
        view = view_of(specs, console)
        for seconds, event in events:
            now[0] = 1000.0 + seconds
            view(event)
        console.file = io.StringIO()
        console.print(view._bars.get_renderable())
        return console.file.getvalue().splitlines()

    return one


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_has_a_line_for_all_trials_and_one_for_each_that_runs(suite, record_of, drawn, width):
    total, second, third = drawn(suite.trials, [(0.0, event) for event in mixed(suite, record_of)], width)
    assert max(map(len, (total, second, third))) <= width
    assert total.startswith("2 of 6 trials ")
    assert "1 ok, 1 diverged; 2 running" in total
    assert f"seed={suite.trials[1].seed}" in second
    assert "2/2 (20 %)  valid 9.75  2.5 ms/batch" in second
    assert "starting" in third


def test_two_backbones_of_one_class_are_two_lines_that_differ(suite, drawn):
    first = suite.trials[0]
    wide = first.backbone.model_copy(update={"params": {**first.backbone.params, "d_model": 9}})
    specs = [first, first.model_copy(update={"id": "0" * 12, "backbone": wide})]
    _, one, two = drawn(specs, [(0.0, Event(kind="started", spec=spec)) for spec in specs])
    assert "d_model 8" in one
    assert "d_model 9" in two


def test_the_time_that_a_resumed_trial_needs_is_that_of_what_it_does_here(suite, drawn):
    """From 6 to 12 of 15 steps in 20 seconds: the 18 steps that are left of two epochs need 60 seconds."""
    trial = suite.trials[0]
    events = [(0.0, Event(kind="started", spec=trial))]
    events += [
        (seconds, Event(kind="progress", spec=trial, progress=progress(1, step)))
        for seconds, step in ((5.0, 3), (5.0, 6), (25.0, 12))
    ]
    assert drawn([trial], events)[1].endswith(" 0:01:00")


def test_the_totals_at_the_end_count_all_devices_of_a_trial(suite, record_of, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("harness.execution.live.time.monotonic", lambda: now[0])
    view = view_of(suite.trials, Console(file=io.StringIO(), width=200))
    for event in mixed(suite, record_of):
        view(event)
    train = suite.trials[4].train.model_copy(update={"data_parallel": 4})
    wide = suite.trials[4].model_copy(update={"train": train})
    metrics = {**record_of(wide).metrics, "train_minutes": 2.5}
    view(Event(kind="finished", spec=wide, record=record_of(wide, metrics=metrics)))
    now[0] += 3725.0
    assert view.totals() == (
        "3 of 6 trials: 2 ok, 1 diverged; wall time 1:02:05; device time 0:12:30 (training, summed over these trials)"
    )


def test_a_trial_that_starts_again_is_shown_and_counted_once(suite, record_of, drawn):
    trial = suite.trials[0]
    events = [Event(kind="started", spec=trial)] * 2
    events += [Event(kind="finished", spec=trial, record=record_of(trial, "oom")), Event(kind="started", spec=trial)]
    total, running = drawn([trial], [(0.0, event) for event in events])
    assert total.startswith("0 of 1 trial")
    assert f"seed={trial.seed}" in running


def test_parts_of_epochs_are_shown_as_the_suite_says_them(suite):
    trial = suite.trials[2]
    half = progress(2, 6, epochs=1.4, steps=6, valid_ppl=9.75)  # 0.4 of 15 steps
    events = [Event(kind="started", spec=trial), Event(kind="progress", spec=trial, progress=half)]
    assert "1.4/1.4 (100 %)  2.5 ms/batch  valid 9.75" in shown([trial], events)


def test_a_terminal_shows_the_reading_of_a_text(suite):
    console = Console(file=io.StringIO(), force_terminal=True, width=80, height=40, color_system=None)
    with view_of(suite.trials, console) as view:
        found = []
        for _ in followed(iter("ab"), "my.txt", 2, len):
            console.file = io.StringIO()
            console.print(view._bars.get_renderable())
            found.append("reading my.txt" in console.file.getvalue())
        console.file = io.StringIO()
        console.print(view._bars.get_renderable())
    assert found == [True, False]  # half of it, and all
    assert "reading" not in console.file.getvalue()


def test_a_log_has_a_line_a_minute_while_a_text_is_read(suite, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("harness.execution.live.time.monotonic", lambda: now[0])
    output = io.StringIO()
    with view_of(suite.trials, Console(file=output, width=200)):
        for _, seconds in zip(followed(iter("abcdefgh"), "my.txt", 8, len), (0, 2, 5, 30, 62, 70, 90, 99), strict=True):
            now[0] = 1000.0 + seconds
    # a part is reported when the next one is asked for: d after 5 seconds, f after 62 + 3
    assert [line.split()[-2:] for line in output.getvalue().splitlines()] == [["50", "%"], ["87", "%"]]
    list(followed(iter("abc"), "other.txt", 3, len))  # after the run nobody is shown
    assert "other" not in output.getvalue()
