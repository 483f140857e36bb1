"""Records that are whole and sealed, and say what no trial can have measured: one warning each, and the trial counts as
not run; whatever command reads them.
"""

import json
import math
import re
from datetime import UTC, datetime, timedelta

import bundles
import golden
import handmade
import pytest

from harness.errors import RecordError
from harness.plan.specs import checksum
from harness.records import sidecars, store
from harness.records.metrics import METRICS, MOST

pytestmark = pytest.mark.system

TOMORROW = (datetime.now(UTC) + timedelta(days=2)).isoformat(timespec="seconds")
SUITE = handmade.changed(("seeds: [1, 2]", f"seeds: {list(range(1, 33))}"))

GOLDEN = golden.read("messages/security/lies")
LIES = GOLDEN["records"]
WORDS = {"TOMORROW": TOMORROW, "HUGE": 10**400}


def meant(value):
    """A value of the table."""
    if isinstance(value, dict):
        return {key: meant(each) for key, each in value.items()}
    return WORDS.get(value, value) if isinstance(value, str) else value


def lie(content: bytes, case) -> bytes:
    """A record's file, changed and sealed again by somebody who knows how."""
    told = {key: value for key, value in json.loads(content).items() if key != "sha256"}
    changes = dict(case.get("set", {}))
    changes |= {place: at(told, source) for place, source in case.get("copy", {}).items()}
    for place, value in changes.items():
        above, _, key = place.rpartition(".")
        parent = at(told, above)
        if isinstance(parent, list):
            parent[int(key) : int(key) + 1] = [value]
        else:
            parent[key] = meant(value)
    if "drop" in case:
        above, _, key = case["drop"].rpartition(".")
        del at(told, above)[key]
    return json.dumps({**told, "sha256": checksum(told)}).encode()


def at(content, place: str):
    for key in filter(None, place.split(".")):
        content = content[int(key) if isinstance(content, list) else key]
    return content


@pytest.fixture(scope="module")
def lied(tmp_path_factory):
    """A results folder of 64 ok trials, but for a lie in each of 32: its project, and the sentence on each file."""
    folder = tmp_path_factory.mktemp("lied")
    trials = bundles.planned(folder, SUITE)
    contents, expected = bundles.contents_of(folder, SUITE), {}
    lies = iter(LIES)
    for number, spec in enumerate(trials):
        place = bundles.keep(folder / "results", bundles.record_of(spec, contents=contents), timed=False)
        if number % 2:
            case = next(lies)
            (place / store.FILE_NAME).write_bytes(lie((place / store.FILE_NAME).read_bytes(), case))
            expected[str(place.resolve() / store.FILE_NAME)] = case["says"]
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


@pytest.mark.needs("integrity")
def test_a_file_with_a_lie_is_not_imported(tmp_path):
    from harness.exchange.copying import export_records, import_records

    (spec, *_) = bundles.planned(tmp_path)
    bundles.keep(tmp_path / "results", bundles.record_of(spec), timed=False)
    export_records(tmp_path / "results", tmp_path / "good.zip")
    content, path = bundles.members(tmp_path / "good.zip"), f"small/{spec.id}/record.json"
    for case in LIES:
        (tmp_path / "bad.zip").write_bytes(bundles.packed({**content, path: lie(content[path], case)}))
        with pytest.raises(RecordError, match=re.escape(f"{path}: ")) as caught:
            import_records(tmp_path / "bad.zip", tmp_path / "there")
        assert case["says"] in str(caught.value)
    assert not (tmp_path / "there").exists()


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


def test_a_timing_that_lies_is_one_warning_and_counts_for_nothing(tmp_path, harness):
    (spec, *_) = bundles.planned(tmp_path)
    record = bundles.record_of(spec)
    bundles.keep(tmp_path / "results", record)
    for case in GOLDEN["timings"]:
        timing = bundles.timing_of(record, **meant(case["set"]))
        sidecars.save_timing(timing, store.runs_folder(tmp_path / "results", "small"))
        done = harness("table", tmp_path / "suite.yaml", "--results", tmp_path / "results")
        assert (done.code, done.err.count("\n")) == (0, 1)
        assert case["says"] in done.err
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
