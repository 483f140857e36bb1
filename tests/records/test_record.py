"""Records: saved whole or not at all, believed only when they verify; and the rules of their certificates."""

import hashlib
import json
import math
import shutil

import handmade
import pytest
from pydantic import ValidationError

from harness.errors import RecordError
from harness.plan.specs import ComponentSpec, TrainSpec, TrialSpec
from harness.plan.suite_file import DynamicSpec
from harness.records import plausible, store
from harness.records.record import LATER_CHANGE, LOWEST_NLL, MEAN_GAP, NLL_GAP, SUM_ERROR, CurvePoint, TrialRecord
from harness.records.replicates import Seeds

TRAIN = TrainSpec(optimizer="adam", lr=0.01, epochs=2, batch_size=4, seq_len=7, betas=(0.8, 0.99))


def trial(trial_id: str = "0123456789ab", seed: int = 1) -> TrialSpec:
    return TrialSpec(
        id=trial_id,
        corpus=ComponentSpec(name="ptb"),
        backbone=ComponentSpec(name="lstm", params={"d_model": 8, "dropout": 0.1}),
        head=ComponentSpec(name="mos", params={"num_mixtures": 2, "tie_weights": True}),
        train=TRAIN,
        seed=seed,
    )


def record(spec: TrialSpec | None = None, status: str = "ok", **changes) -> TrialRecord:
    environment = handmade.environment(shared=True, commit="abc+")
    values = {
        "suite": "tiny",
        "spec": spec or trial(),
        "status": status,
        "metrics": handmade.measured(TRAIN, valid_ppl=93.25, test_ppl=86.89, train_minutes=1e-07),
        "curve": tuple(
            CurvePoint(epoch=epoch, train_loss=0.1 + 0.2, valid_ppl=93.25, lr=0.01, seconds=1e13) for epoch in (1, 2)
        ),
        "environment": environment,
        "message": 'a "quoted" line with | and \u00e9',
        "weights_sha256": "ab" * 32,
        "certificate": handmade.certificate() if status == "ok" else None,
    }
    return TrialRecord(**{**values, **changes})


FAILED = {"status": "diverged", "metrics": {}, "curve": (), "weights_sha256": None}


@pytest.mark.parametrize("changes", [{}, FAILED], ids=["ok", "failed"])
def test_a_saved_record_is_loaded_equal(changes, tmp_path):
    saved = record(**changes)
    assert store.load(tmp_path, saved.id) is None
    store.set_aside(tmp_path, saved.id)  # there is nothing yet
    assert list(tmp_path.iterdir()) == []
    assert store.save(saved, tmp_path) == tmp_path / "0123456789ab" / "record.json"
    assert store.load(tmp_path, saved.id) == saved


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"test_ppl": 86.89', '"test_ppl": 86.88'),
        ('"seed": 1', '"seed": 2'),
        ('"status": "ok"', '"status": "oom"'),
        ('"sha256": "', '"sha256": "0'),
        ('"load_average": 0.25', '"load_average": NaN'),
    ],
)
def test_an_edited_record_is_refused_with_its_path(tmp_path, before, after):
    place = store.save(record(), tmp_path)
    text = place.read_text()
    assert text.count(before) == 1
    place.write_text(text.replace(before, after))
    with pytest.raises(RecordError, match=r"checksum does not fit|no valid record") as caught:
        store.load(tmp_path, "0123456789ab")
    assert str(place) in str(caught.value)


@pytest.mark.parametrize("content", [0.0, 0.02, 0.5, 0.999, "[]", "7", "{}", "null", '{"sha256": 1}', "\xff\xfe"])
def test_what_is_torn_or_no_record_is_refused_with_its_path(tmp_path, content):
    place = store.save(record(), tmp_path)
    whole = place.read_bytes()
    place.write_bytes(content.encode("latin-1") if isinstance(content, str) else whole[: int(content * len(whole))])
    with pytest.raises(RecordError, match=r"no valid record|checksum") as caught:
        store.load(tmp_path, "0123456789ab")
    assert str(place) in str(caught.value)


def test_a_record_of_another_schema_is_refused(tmp_path):
    place = store.save(record(schema_version=2), tmp_path)
    with pytest.raises(RecordError, match="schema 2, expected 1") as caught:
        store.load(tmp_path, "0123456789ab")
    assert str(place) in str(caught.value)


def test_a_record_in_the_folder_of_another_trial_is_refused(tmp_path):
    store.save(record(), tmp_path)
    shutil.copytree(tmp_path / "0123456789ab", tmp_path / "ba9876543210")
    with pytest.raises(RecordError, match=r"ba9876543210/record\.json: holds the record of trial 0123456789ab"):
        store.load(tmp_path, "ba9876543210")


def test_load_all_collects_the_good_and_names_the_bad(tmp_path):
    good, bad = record(trial("a" * 12)), record(trial("b" * 12))
    store.save(good, tmp_path)
    store.save(bad, tmp_path).write_text("{")
    found, warnings = store.load_all(tmp_path, ["a" * 12, "b" * 12, "c" * 12])
    assert found == {"a" * 12: good}
    assert len(warnings) == 1
    assert str(tmp_path / ("b" * 12) / "record.json") in warnings[0]


def test_a_record_that_says_ok_against_its_certificate_is_invalid_with_one_warning(tmp_path):
    forged = record(certificate=handmade.certificate(nll_gap=0.7))
    place = store.save(forged, tmp_path)
    found, warnings = store.load_all(tmp_path, [forged.id])
    assert found[forged.id].status == "invalid"
    assert found[forged.id].metrics == forged.metrics
    (warning,) = warnings
    assert warning.startswith(f"{place}: the record says ok, and its certificate says otherwise: the nll")
    assert store.load(tmp_path, forged.id) == found[forged.id]


def test_a_record_whose_certificate_holds_or_failed_in_its_trial_is_as_it_was_written(tmp_path):
    fault = handmade.certificate(nll_gap=0.7)
    for spec, status, certificate in (
        (trial("a" * 12), "ok", handmade.certificate()),
        (trial("b" * 12), "invalid", fault),
    ):
        saved = record(spec, status=status, certificate=certificate)
        store.save(saved, tmp_path)
        assert store.load_all(tmp_path, [spec.id]) == ({spec.id: saved}, [])


def test_a_record_set_aside_counts_no_more_and_is_kept(tmp_path):
    place = store.save(record(), tmp_path)
    content = place.read_bytes()
    store.set_aside(tmp_path, "0123456789ab")
    assert store.load(tmp_path, "0123456789ab") is None
    assert place.with_name("record.previous.json").read_bytes() == content


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_not_finite_are_refused(value):
    with pytest.raises(ValidationError, match="finite"):
        record(metrics={"test_ppl": value})
    with pytest.raises(ValidationError, match="finite"):
        CurvePoint(epoch=1, train_loss=value, valid_ppl=1.0, lr=0.1, seconds=1.0)


def test_unknown_fields_and_statuses_are_refused():
    with pytest.raises(ValidationError, match="Extra inputs"):
        record(perplexity=1.0)
    with pytest.raises(ValidationError, match="status"):
        record(status="finished")


def test_a_record_from_before_precisions_and_routes_is_loaded(tmp_path):
    # as written by the harness at commit ab49265, before these fields: the checksum is over what the file holds
    place = store.save(record(), tmp_path)
    content = json.loads(place.read_text())
    for name in ("matmul_route", "cuda_graph"):
        del content["environment"][name]
    for name in ("precision", "cuda_graph"):
        del content["spec"]["train"][name]
    del content["sha256"]
    text = json.dumps(_whole(content), sort_keys=True, separators=(",", ":"))
    content["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    place.write_text(json.dumps(content))
    found = store.load(tmp_path, "0123456789ab")
    assert found == record()
    assert (found.environment.matmul_route, found.environment.cuda_graph) == (None, False)
    assert (found.spec.train.precision, found.spec.train.cuda_graph) == ("fp32", "auto")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"certificate": None}, "it was trained before there were certificates"),
        ({"certificate": None, "not_certified": "its process ended"}, "its process ended"),
        ({"certificate": None, "status": "diverged"}, ""),
        ({"certificate": handmade.certificate(later_change=1e-7)}, ""),  # rounding, in certificates without `drawn`
    ],
)
def test_a_record_says_why_it_is_ok_without_a_certificate(tmp_path, changes, reason):
    store.save(record(**changes), tmp_path)
    found = store.load(tmp_path, "0123456789ab")
    assert found == record(**changes)
    assert found.uncertified == reason


def _whole(value):
    """Whole floats as integers."""
    if isinstance(value, dict):
        return {key: _whole(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_whole(child) for child in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@pytest.mark.parametrize(
    ("decay", "ppl", "agree"),
    [(0.02, 8.0, True), (0.02, 7.0, False), (0.05, 7.0, True)],
    ids=["equal", "another result", "other settings"],
)
def test_dynamic_evaluation_contradicts_under_equal_settings_only(decay, ppl, agree):
    first, second = (
        record(metrics={"test_ppl": 9.0, "dynamic_test_ppl": ppl, **DynamicSpec(decay=decay).as_metrics()})
        for ppl, decay in ((8.0, 0.02), (ppl, decay))
    )
    assert (Seeds().relation(first, second) == "equal") == agree


@pytest.mark.parametrize(
    ("ppl", "train", "believed"),
    [
        (5.72, {}, True),
        (5.69, {}, True),  # 1000 log(5.71 / 5.69) = 3.5 nats: a text as likely as this is luck
        (5.62, {}, False),  # 15.9 nats: less than 1 / 10^6
        (1.21, {}, False),
        (1.21, {"eval_batches": 2}, True),  # the source's is of the whole split
        (1.21, {"batching": "windows"}, False),  # which is evaluated as a stream
    ],
)
@pytest.mark.parametrize("name", ["test_ppl", "last_test_ppl"])
def test_no_model_is_much_better_than_the_process_that_made_the_text(name, ppl, train, believed):
    made = handmade.record(metrics={"test_ppl": 5.72, name: ppl, "source_test_ppl": 5.71, "scored_test_tokens": 1000})
    spec = made.spec.model_copy(update={"train": made.spec.train.model_copy(update=train)})
    wrong = plausible.fault(made.model_copy(update={"spec": spec}))
    assert (wrong == "") == believed, wrong
    assert believed or "the process that made the text has 5.71" in wrong


LIMITS = {"sum_error": SUM_ERROR, "later_change": LATER_CHANGE, "nll_gap": NLL_GAP, "mean_gap": MEAN_GAP}
SAID = {
    "sum_error": "do not sum to 1",
    "later_change": "depends on the tokens after it",
    "nll_gap": "counted for a token is not -log_probs of its target",
    "mean_gap": "counted for a token is, on average, not -log_probs of its target",
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_size_may_be_at_its_limit_and_not_above_it(name):
    assert handmade.certificate().fault is None
    assert handmade.certificate(**{name: LIMITS[name]}).fault is None
    fault = handmade.certificate(**{name: 1.01 * LIMITS[name]}).fault
    assert SAID[name] in fault
    assert f"{1.01 * LIMITS[name]:.4g} (allowed: {LIMITS[name]:.4g})" in fault
    fault = handmade.certificate(**{name: None}).fault
    assert SAID[name] in fault
    assert fault.endswith("no finite number")


def test_no_nll_is_below_zero_by_more_than_rounding():
    assert handmade.certificate(lowest_nll=LOWEST_NLL).fault is None
    assert "is -2e-05: below 0" in handmade.certificate(lowest_nll=-2e-5).fault
    assert handmade.certificate(lowest_nll=None).fault == "the nll of a test token is not a finite number"


def test_a_head_that_adds_epsilon_to_every_word_may_sum_to_that_much_more():
    # V epsilon = 0.5; -log(1 + 0.01) = -0.00995 is the nll of a word that the head is sure of
    sure = {"vocab_size": 50, "log_epsilon": 0.01, "lowest_nll": -math.log1p(0.01)}
    assert handmade.certificate(**sure, sum_error=0.5).fault is None
    assert "(allowed: 0.5001)" in handmade.certificate(**sure, sum_error=0.502).fault
    assert "below 0" in handmade.certificate(**{**sure, "lowest_nll": -0.0101}).fault


@pytest.mark.parametrize(
    "changes",
    [
        {"positions": 0},
        {"sum_error": -1.0},
        {"nll_gap": math.inf},
        {"later_change": math.nan},
        {"lowest_nll": -math.inf},
        {"log_epsilon": 1.0},
        {"vocab_size": 0},
    ],
)
def test_what_no_check_can_have_found_is_no_certificate(changes):
    with pytest.raises(ValidationError):
        handmade.certificate(**changes)
