"""What is shown while trials run: plain lines for a log, a table in a terminal."""

import io
import itertools
import re

import pytest
from rich.console import Console

from harness.corpora.progress import followed
from harness.execution.executors import Event
from harness.execution.live import COLUMNS, MAX_ROWS, VARYING, LiveView, elided
from harness.plan.names import names_of
from harness.records.record import CurvePoint
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


@pytest.fixture(autouse=True)
def _clock(monkeypatch):
    """A millisecond passes between two looks at the clock, however slow the machine is."""
    ticks = itertools.count(1000.0, 0.001)
    monkeypatch.setattr("harness.execution.live.time.monotonic", lambda: next(ticks))


def drawn(specs, events, width: int, height: int = 40) -> list[str]:
    """The lines of what a terminal of that size shows after the events."""
    console = Console(file=io.StringIO(), force_terminal=True, width=width, height=height, color_system=None)
    view = view_of(specs, console)
    for event in events:
        view(event)
    console.print(view._shown())
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [30, 60, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal_and_each_trial_has_one(suite, record_of, width):
    lines = drawn(suite.trials, mixed(suite, record_of), 120, height=6)
    assert len(lines) <= 6  # a low terminal shows what it has room for
    assert suite.trials[1].id in "\n".join(lines)  # one that is under way
    lines = drawn(suite.trials, mixed(suite, record_of), width)
    assert max(map(len, lines)) <= width
    states = ["ok", "diver", "━", "start"]
    assert all(state in line for state, line in zip(states, lines[-4:], strict=True))
    about = " ".join(" ".join(lines).split())
    for told in ("2 of 6 trials: 1 ok, 1 diverged", "2 running", "2 waiting", "wall 0:00:0", "device 0:00:0", "ETA 0:"):
        assert told in about


@pytest.mark.parametrize(
    ("width", "gone"),
    [
        (30, {"trial", "seed", "epoch", "valid ppl", "ms/batch"}),
        (60, {"trial", "ms/batch"}),
        (80, {"ms/batch"}),
        (120, set()),
        (200, set()),
    ],
)
def test_a_column_is_whole_or_gives_way(suite, record_of, width, gone):
    *_, header, one, two, three, four = drawn(suite.trials, mixed(suite, record_of), width)
    assert header.split() == " ".join(name for name in COLUMNS if name not in {*VARYING, *gone}).split()
    if width == 200:  # room for what each trial is at
        rows = {line.split()[0]: line for line in (one, two, three, four)}
        first, second, third, fourth = (rows[trial.id] for trial in suite.trials[:4])
        assert "9.50" in first
        assert "2/2 (20 %)" in second
        assert "9.75" in second
        assert "starting" in third
        assert "diverged: Diverged: [red]loss[/red] is nan" in fourth


@pytest.mark.parametrize("width", [80, 200])
def test_two_backbones_of_one_class_are_two_lines_that_differ(suite, width):
    first = suite.trials[0]
    wide = first.backbone.model_copy(update={"params": {**first.backbone.params, "d_model": 9}})
    specs = [first, first.model_copy(update={"id": "0" * 12, "backbone": wide})]
    *_, header, one, two = drawn(specs, [Event(kind="started", spec=spec) for spec in specs], width)
    assert "backbone" in header
    assert "d_model 8" in one
    assert "d_model 9" in two


@pytest.mark.parametrize("width", [40, 80, 119])
def test_long_names_of_two_backbones_leave_times_and_states_whole(suite, record_of, width):
    specs = [suite.trials[0].model_copy(update={"id": str(number)}) for number in range(4)]
    names = {"head": "a head with a very long name, rank {}", "backbone": "transformer_encoder {}", "corpus": "markov"}
    console = Console(force_terminal=True, width=width, height=40, color_system=None)
    view = LiveView(specs, console, lambda kind, spec: names[kind].format(spec.id))
    for spec in specs:
        view(Event(kind="started", spec=spec))
    events = [Event(kind="progress", spec=spec, progress=progress(1, 3)) for spec in specs]
    events += [Event(kind="finished", spec=specs[0], record=record_of(specs[0], "diverged", "Diverged: loss is nan"))]
    headers = set()
    for event in events:
        view(event)
        console.file = io.StringIO()
        console.print(view._shown())
        header, *rows = console.file.getvalue().splitlines()[-1 - len(specs) :]
        headers.add(header.rstrip())
    assert len(headers) == 1  # the layout stays
    assert "…" not in header
    assert {"head", "backbone", "ETA", "state"} <= set(header.split())
    assert [name in header for name in ("seed", "epoch", "valid ppl")] == [width > 40, width > 40, width > 80]
    at = header.index("ETA")
    assert [row[at:].split()[0][:8] for row in rows] == ["diverged", *["0:00:00"] * 3]
    assert [re.search(r"a.*…\S* (\d)", row)[1] for row in rows] == list("0123")  # the ends of names


@pytest.mark.parametrize(
    ("text", "most", "short"), [("softmax", 7, "softmax"), ("affine softmax, rank 16", 15, "affine …rank 16")]
)
def test_a_long_name_loses_its_middle(text, most, short):
    assert elided(text, most) == short
    assert len(short) <= most


def test_a_bar_is_as_long_as_what_is_done(suite):
    trial, lengths = suite.trials[0], []
    for report in (progress(1, 3), progress(2, 9), progress(2, 15)):  # 10, 80 and 100 % of two epochs of 15 steps
        events = [Event(kind="started", spec=trial), Event(kind="progress", spec=trial, progress=report)]
        lengths.append(drawn([trial], events, 200)[-1].count("━"))
    assert lengths == [1, 8, 10]


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


@pytest.mark.parametrize("running", [0, 5, MAX_ROWS])
def test_the_table_has_a_bounded_number_of_rows(suite, record_of, running):
    specs = [suite.trials[0].model_copy(update={"id": f"{number:012d}"}) for number in range(50)]
    ended, busy = specs[running:], specs[:running]
    events = [Event(kind="started", spec=spec) for spec in specs]
    events += [Event(kind="finished", spec=spec, record=record_of(spec)) for spec in ended]
    text = shown(specs, events, force_terminal=True, width=200, height=100, color_system=None)
    last = text[text.rindex(f"{50 - running} of 50 trials") :]
    rows = [line.split()[0] for line in last.splitlines() if re.match(r"\d{12} ", line)]
    assert len(rows) == MAX_ROWS
    assert rows == [spec.id for spec in [*ended[len(ended) - (MAX_ROWS - running) :], *busy]]


def test_a_trial_that_starts_again_is_shown_and_counted_once(suite, record_of):
    trial = suite.trials[0]
    events = [Event(kind="started", spec=trial)] * 2
    events += [Event(kind="finished", spec=trial, record=record_of(trial, "oom")), Event(kind="started", spec=trial)]
    text = shown([trial], events, force_terminal=True, width=200, color_system=None)
    last = text[text.rindex("0 of 1 trial") :]
    assert last.count(trial.id) == 1


def test_parts_of_epochs_are_shown_as_the_suite_says_them(suite, record_of):
    trial = suite.trials[2]
    half = progress(2, 6, epochs=1.4, steps=6, valid_ppl=9.75)  # 0.4 of 15 steps
    curve = [CurvePoint(epoch=epoch, train_loss=1, valid_ppl=9, lr=1, seconds=1) for epoch in (1, 1.4)]
    record = record_of(trial).model_copy(update={"curve": tuple(curve)})
    events = [Event(kind="started", spec=trial), Event(kind="progress", spec=trial, progress=half)]
    assert "1.4/1.4 (100 %)  2.5 ms/batch  valid 9.75" in shown([trial], events)
    ended = [*events, Event(kind="finished", spec=trial, record=record)]
    text = shown([trial], ended, force_terminal=True, width=200, color_system=None)
    assert re.search(r" 1\.4 +9\.50 .* ok ", text[text.rindex("1 of 1 trial") :])


def test_the_reading_of_a_text_is_shown_when_it_takes_more_than_a_few_seconds(suite, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("harness.execution.live.time.monotonic", lambda: now[0])
    console = Console(file=io.StringIO(), force_terminal=True, width=80, height=40, color_system=None)
    with view_of(suite.trials, console) as view:
        text = followed(iter("abcd"), "my.txt", 4, len)
        found = []
        for _, seconds in zip(text, (0.0, 2.9, 3.1, 9.0), strict=True):
            now[0] = 1000.0 + seconds
            lines = [str(line) for line in view._shown().renderables]
            found.append([line for line in lines if line.startswith("reading")])
    assert found == [[], [], ["reading my.txt  ━━━━━━━     75 %"], []]  # nothing when all is read


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
