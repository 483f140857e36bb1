"""Records that are whole and sealed, and say what no trial can have measured: one warning each, and the trial counts as
not run; whatever command reads them.
"""

import json
import math
import re
from datetime import UTC, datetime, timedelta

import bundles
import handmade
import pytest

from harness.errors import RecordError
from harness.plan.specs import checksum
from harness.records import store
from harness.records.metrics import METRICS, MOST

pytestmark = pytest.mark.system

TOMORROW = (datetime.now(UTC) + timedelta(days=2)).isoformat(timespec="seconds")
SUITE = handmade.changed(("seeds: [1, 2]", f"seeds: {list(range(1, 33))}"))


def metrics(**changes):
    return lambda content: content["metrics"].update(changes)


def without(*names):
    return lambda content: [content["metrics"].pop(name) for name in names]


def where(**changes):
    return lambda content: content["environment"].update(changes)


def top(**changes):
    return lambda content: content.update(changes)


def points(change):
    return lambda content: change(content["curve"])


def train(**changes):
    return lambda content: content["spec"]["train"].update(changes)


LIES = {  # what is changed in a record -> what is said of it
    "a perplexity of 0": (metrics(test_ppl=0), "test_ppl is 0, expected 0.99999 to 1e+200"),
    "a perplexity below 0": (metrics(valid_ppl=-5), "valid_ppl is -5"),
    "a perplexity below 1": (metrics(last_test_ppl=0.99), "last_test_ppl is 0.99"),
    "a perplexity at the end of floats": (metrics(test_ppl=1e308), "test_ppl is 1e+308"),
    "no perplexity": (without("test_ppl"), "it is ok and has no test_ppl"),
    "nothing measured": (top(metrics={}), "it is ok and has no valid_ppl"),
    "no context": (without("context_tokens"), "it is ok and has no context_tokens"),
    "no state": (without("state_carried"), "it is ok and has no state_carried"),
    "parameters below 0": (metrics(params_total=-1), "params_total is -1, expected 0 to 1e+15"),
    "half a parameter": (metrics(params_head=0.5), "params_head is 0.5, expected a whole number"),
    "more in the head than in all": (metrics(params_head=781), "params_head is 781, more than params_total, 780"),
    "a best epoch after the last": (metrics(best_epoch=99.5), "best_epoch is 99.5, expected one of 2 epochs"),
    "a best epoch between two": (metrics(best_epoch=1.5), "best_epoch is 1.5, expected one of 2 epochs"),
    "a time below 0": (metrics(train_minutes=-1), "train_minutes is -1, expected 0 to 1e+15"),
    "a time at the end of floats": (metrics(train_ms_per_batch=1e308), "train_ms_per_batch is 1e+308"),
    "an unknown metric": (metrics(accuracy=1), "'accuracy' is no metric that this harness knows"),
    "a digest that is a path": (top(weights_sha256="../../best.pt"), "weights_sha256 is '../../best.pt', expected 64"),
    "a mean below its lowest term": (
        lambda content: content["certificate"].update(lowest_nll=9.0),
        "no token has an nll below 9, and test_ppl is",
    ),
    "a certificate that allows more than the head asks for": (
        lambda content: content["certificate"].update(log_epsilon=0.5),
        "its certificate allows log_epsilon 0.5, its settings have compat 0",
    ),
    "no digest": (top(weights_sha256=None), "it is ok and has no weights_sha256"),
    "a curve that is too long": (points(lambda curve: curve.append(curve[-1])), "the curve has 3 points, expected one"),
    "no curve": (points(lambda curve: curve.clear()), "the curve has 0 points, expected one for each of 2 epochs"),
    "epochs out of order": (points(lambda curve: curve.reverse()), "point 1 of the curve is of epoch 2, expected 1"),
    "an epoch below 1": (
        points(lambda curve: curve[0].update(valid_ppl=0.5)),
        "point 1 of the curve: valid_ppl is 0.5",
    ),
    "a date to come": (where(finished=TOMORROW), f"finished is {TOMORROW}, which is in the future"),
    "no date": (where(started="yesterday"), "started is 'yesterday', expected a date and time with its zone"),
    "a date without zone": (
        where(finished="2026-01-02T03:04:05"),
        "finished is '2026-01-02T03:04:05', expected a date",
    ),
    "an end before the start": (where(finished="2025-12-02T03:04:05+00:00"), "is before started"),
    "no threads": (where(threads=0), "threads is 0, expected 1"),
    "a number of no size": (where(sessions=10**400), "sessions is 10000000000000000000, expected 1"),
    "a setting of no size": (train(data_parallel=10**400, batch_size=10**400), "train.batch_size is 1000000"),
    "a text that is none": (top(contents={"corpus": "\x1b[2J", "backbone": None}), "contents has '\\x1b[2J'"),
}


def lie(content: bytes, change) -> bytes:
    """A record's file, changed and sealed again by somebody who knows how."""
    told = {key: value for key, value in json.loads(content).items() if key != "sha256"}
    change(told)
    return json.dumps({**told, "sha256": checksum(told)}).encode()


@pytest.fixture(scope="module")
def lied(tmp_path_factory):
    """A results folder of 64 ok trials, but for a lie in each of 32: its project, and the sentence on each file."""
    folder = tmp_path_factory.mktemp("lied")
    trials = bundles.planned(folder, SUITE)
    contents, expected = bundles.contents_of(folder, SUITE), {}
    lies = iter(LIES.values())
    for number, spec in enumerate(trials):
        place = bundles.keep(folder / "results", bundles.record_of(spec, contents=contents), timed=False)
        if number % 2:
            change, sentence = next(lies)
            (place / store.FILE_NAME).write_bytes(lie((place / store.FILE_NAME).read_bytes(), change))
            expected[str(place.resolve() / store.FILE_NAME)] = sentence
    assert len(expected) == len(LIES) == len(trials) / 2
    return folder, expected


def warnings(text: str, expected: dict[str, str]) -> None:
    """That there is one line of each bad record, the right one, and no other."""
    lines = [line for line in text.splitlines() if not line.startswith("warning: no plot")]
    for place, sentence in expected.items():
        (line,) = [line for line in lines if place in line]
        assert line.startswith(f"warning: {place}: ")
        assert sentence in line
        assert "; the record does not count; `harness run " in line
    assert len(lines) == len(expected)


SUITES = {  # a command, {0} its folder -> what it says of the trials that count
    "table {0}/suite.yaml": r"\| +16/32: 16 not run \|",
    **dict.fromkeys(("report {0}/suite.yaml", "plan {0}/suite.yaml", "leaderboard", "runs", "runs small"), ""),
    **{"runs small --json": "", "export {0}/records.zip": "^32 records", "sync": "^32 records of 1 suite"},
}


@pytest.mark.parametrize("command", SUITES)
def test_a_command_says_one_sentence_of_each_lie_and_takes_the_other_records(command, lied, harness):
    folder, expected = lied
    done = harness(*(part.format(folder) for part in command.split()), "--results", folder / "results")
    assert done.code == 0, done.err
    warnings(done.err, expected)
    assert re.search(SUITES[command], done.out)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The members of a sound export of one trial, and the name of its record among them."""

    from harness.exchange.copying import export_records

    folder = tmp_path_factory.mktemp("exported")
    (spec, *_) = bundles.planned(folder)
    bundles.keep(folder / "results", bundles.record_of(spec), timed=False)
    export_records(folder / "results", folder / "good.zip")
    return bundles.members(folder / "good.zip"), f"small/{spec.id}/record.json"


@pytest.mark.needs("integrity")
@pytest.mark.parametrize("name", LIES)
def test_a_file_with_a_lie_is_not_imported(name, exported, tmp_path):
    from harness.exchange.copying import import_records

    (content, path), (change, sentence) = exported, LIES[name]
    hostile = {**content, path: lie(content[path], change)}
    (tmp_path / "bad.zip").write_bytes(bundles.packed(hostile))
    with pytest.raises(RecordError, match=re.escape(f"{path}: ")) as caught:
        import_records(tmp_path / "bad.zip", tmp_path / "results")
    assert sentence in str(caught.value)
    assert not (tmp_path / "results").exists()


def test_a_command_on_one_trial_says_what_is_wrong_with_its_record(lied, harness):
    folder, expected = lied
    place, sentence = next(iter(expected.items()))
    good = next(path.name for path in (folder / "results" / "runs" / "small").iterdir() if str(path) not in place)
    for command in (("diff", place.split("/")[-2], good), ("inspect", place.split("/")[-2], "--text", "a")):
        done = harness(*command, "--results", folder / "results")
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert sentence in done.err


def test_a_trial_that_failed_may_have_measured_anything(tmp_path):
    (spec, *_) = bundles.planned(tmp_path)
    (point, _) = handmade.curve(2)
    odd = {"metrics": {"test_ppl": 0.004, "valid_ppl": 1e300}, "curve": (point,), "weights_sha256": None}
    store.save(handmade.record(spec=spec, status="diverged", **odd), tmp_path)
    assert store.load(tmp_path, spec.id).metrics["test_ppl"] == 0.004


@pytest.mark.parametrize("epochs", [0, 0.4, 1, 2.5])
def test_the_curve_of_any_number_of_epochs_counts(epochs, tmp_path):
    (spec, *_) = bundles.planned(tmp_path)
    spec = spec.model_copy(update={"train": spec.train.model_copy(update={"epochs": epochs})})
    store.save(handmade.record(spec=spec), tmp_path)
    assert len(store.load(tmp_path, spec.id).curve) == math.ceil(epochs)


def test_a_record_with_another_trials_settings_counts_for_neither(tmp_path, harness):
    one, other, *_ = bundles.planned(tmp_path)
    foreign = other.model_copy(update={"id": one.id, "head": other.head.model_copy(update={"name": "nosuch"})})
    bundles.keep(tmp_path / "results", bundles.record_of(foreign))
    for command, ends in {"table": (2, 2), "plan": (0, 1)}.items():  # without a record there is no table
        done = harness(command, tmp_path / "suite.yaml", "--results", tmp_path / "results")
        assert (done.code, done.err.count("\n")) == ends
        assert f"warning: the record of trial {one.id} does not count: it is of nosuch" in done.err


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"metrics": {"train_ms_per_batch": 1e308}}, "train_ms_per_batch is 1e+308"),
        ({"metrics": {"train_ms_per_batch": -1.0}}, "train_ms_per_batch is -1"),
        ({"metrics": {"test_ppl": 1.5}}, "'test_ppl' is no time of a batch"),
        ({"taken": "yesterday"}, "taken is 'yesterday'"),
        ({"taken": TOMORROW}, "in the future"),
        ({"rounds": -1}, "rounds is -1"),
        ({"threads": 10**400}, "threads is 1000"),
        ({"busy": -0.5}, "busy is -0.5"),
    ],
)
def test_a_timing_that_lies_is_one_warning_and_counts_for_nothing(changes, sentence, tmp_path, harness):
    from harness.records import sidecars

    (spec, *_) = bundles.planned(tmp_path)
    record = bundles.record_of(spec)
    bundles.keep(tmp_path / "results", record)
    sidecars.save_timing(bundles.timing_of(record, **changes), store.runs_folder(tmp_path / "results", "small"))
    done = harness("table", tmp_path / "suite.yaml", "--results", tmp_path / "results")
    assert (done.code, done.err.count("\n")) == (0, 1)
    assert sentence in done.err
    assert "the timing does not count" in done.err


def test_every_metric_of_the_harness_has_a_range(tmp_path):
    (spec, *_) = bundles.planned(tmp_path)
    for name in METRICS:
        store.save(handmade.record(spec=spec, metrics={name: -1.0}), tmp_path)
        with pytest.raises(RecordError, match=f"{name} is -1"):
            store.load(tmp_path, spec.id)


@pytest.mark.parametrize("extreme", [[1.0, 1.0, 1.0, 1.0], [1e200, 1e200, 1e200, 1e200], [1.0, 1e200, 1e200, 1.0]])
def test_the_ends_of_the_ranges_are_tables_too(extreme, tmp_path, harness):
    trials, contents = bundles.planned(tmp_path), bundles.contents_of(tmp_path)
    most = dict.fromkeys(("train_ms_per_batch", "eval_ms_per_batch", "peak_memory_mib", "train_minutes"), MOST)
    for spec, ppl in zip(trials, extreme, strict=True):
        perplexities = {name: ppl for name in METRICS if "ppl" in name.split("_")}
        curve = tuple(point.model_copy(update={"valid_ppl": ppl}) for point in handmade.curve(2))
        counts = {"params_total": MOST, "params_head": MOST * (ppl > 1)}
        changes = {"metrics": {**perplexities, **counts, **most}, "curve": curve}
        bundles.keep(tmp_path / "results", bundles.record_of(spec, contents=contents, **changes), scored=False)
    ids = [spec.id for spec in trials]
    for command in ("table", "report", "plan"):
        done = harness(command, tmp_path / "suite.yaml", "--results", tmp_path / "results")
        assert done.code == 0, done.err
    for command in (("leaderboard",), ("runs",), ("runs", "small"), ("sync",), ("diff", ids[0], ids[3])):
        done = harness(*command, "--results", tmp_path / "results")
        assert done.code == 0, done.err
