"""One run under Ray of trials that fail in all ways but one, beside healthy ones. RELIABILITY A5, A6, A8, A11, A12, D4.

A worker that dies each time: tests/system/ray/test_tuner.py.
"""

import pytest

RAISE, NAN, ONCE, HANG = (
    "faulty: {kind: raise, at: 20}",
    "faulty: {kind: nan, at: 20}",
    "faulty: {kind: sigkill, at: 20, times: 1}",
    "faulty: {kind: hang, at: 20}",
)
OOM, OOM_ONCE = "faulty: {kind: oom, at: 20}", "faulty: {kind: oom, at: 20, times: 1}"
HEADS = ["softmax", RAISE, NAN, ONCE, HANG, OOM, OOM_ONCE]
SILENT = "timeout: {silent_minutes: 60}"  # the head that hangs moves the clock on: `_hang` in faulty_head.py


@pytest.fixture(scope="module")
def faulted(module_place):
    """(Place, the ended command)."""
    place = module_place(*HEADS, more=SILENT)
    return place, place.run("--no-tracking")


def record(faulted, line: str) -> dict:
    wanted = line.replace("faulty: {", "faulty ").replace(": ", "=").replace(",", "").rstrip("}")
    return faulted[0].by_head()[wanted]


def test_every_trial_has_a_record_and_the_command_leaves_with_1(faulted):
    place, done = faulted
    assert done.returncode == 1, done.stderr
    assert len(place.records()) == len(HEADS)
    assert record(faulted, "softmax")["status"] == "ok"


def test_worker_sigkill_is_retried_once_from_its_checkpoint_and_counted(faulted, place):
    died = record(faulted, ONCE)
    assert (died["status"], died["environment"]["retries"], died["environment"]["sessions"]) == ("ok", 1, 2)
    log = (faulted[0].runs / died["spec"]["id"] / "trial.log").read_text()
    assert log.count("goes on from its checkpoint: epoch 2, 0 steps done") == 1
    assert faulted[0].epochs(died["spec"]["id"]) == [1, 2, 3]
    other = place("faulty: {kind: none, at: 20, times: 1}")
    other.here()
    (undisturbed,) = other.records().values()
    assert died["weights_sha256"] == undisturbed["weights_sha256"]
    assert died["curve"][-1]["valid_ppl"] == undisturbed["curve"][-1]["valid_ppl"]


def test_what_raises_is_one_line_in_the_table_and_a_trace_in_its_log(faulted):
    place, done = faulted
    failed = record(faulted, RAISE)
    assert (failed["status"], failed["environment"]["retries"]) == ("error", 0)
    assert failed["message"] == "RuntimeError: planted | with `marks`"
    assert "Traceback" in (place.runs / failed["spec"]["id"] / "trial.log").read_text()
    assert "Traceback" not in done.stdout + done.stderr
    assert len((place.marks / "raise-20-1000000").read_text()) == 1


def test_hang_is_a_timeout_and_the_log_says_where_it_was(faulted):
    place, _ = faulted
    hung = record(faulted, HANG)
    assert (hung["status"], hung["environment"]["retries"]) == ("timeout", 1)
    assert hung["message"].startswith("TimedOut: no sign of life")
    assert [point["epoch"] for point in hung["curve"]] == [1]
    assert "_hang" in (place.runs / hung["spec"]["id"] / "trial.log").read_text()


def test_cuda_oom_is_retried_once_alone(faulted):
    twice, once = record(faulted, OOM), record(faulted, OOM_ONCE)
    assert (twice["status"], twice["environment"]["retries"]) == ("oom", 1)
    assert (once["status"], once["environment"]["retries"]) == ("ok", 1)
    assert len((faulted[0].marks / "oom-20-1000000").read_text()) == 2


def test_ray_prints_nothing(faulted):
    _, done = faulted
    for words in ("Configuration for experiment", "TrialWorker", "ActorDied", "WARNING", "Error:\n"):
        assert words not in done.stdout + done.stderr


def test_silent_trial_whose_loss_is_nan_is_diverged(faulted):
    assert record(faulted, NAN)["status"] == "diverged"


def test_full_budget_is_trained_by_every_ok_trial(faulted):
    ok = [each for each in faulted[0].records().values() if each["status"] == "ok"]
    assert len(ok) == 3
    assert all(len(each["curve"]) == each["spec"]["train"]["epochs"] == 3 for each in ok)


def test_missing_cells_name_every_status_in_the_table(faulted):
    table = (faulted[0].folder / "results" / "tables" / "tiny.md").read_text()
    for status in ("diverged", "error", "oom", "timeout"):
        assert f"0/1: 1 {status}" in table


def test_nothing_but_what_can_go_on_is_left(faulted):
    resumable = {each["spec"]["id"] for each in faulted[0].records().values() if each["status"] in ("oom", "timeout")}
    assert {left.split("/")[-2] for left in faulted[0].leftovers()} == resumable


def test_retry_failed_goes_on_from_the_checkpoint_of_a_timeout(faulted):
    place, _ = faulted
    hung = record(faulted, HANG)
    for mark in place.marks.iterdir():
        mark.write_text("x" * 1_000_000)  # no fault happens any more
    done = place.run("--no-tracking", "--retry-failed", "--executor", "inline", "--only", "head=faulty,kind=hang")
    assert done.returncode == 0, done.stderr
    again = place.records()[hung["spec"]["id"]]
    assert (again["status"], again["environment"]["sessions"]) == ("ok", 2)
    assert place.epochs(hung["spec"]["id"]) == [1, 2, 3]
