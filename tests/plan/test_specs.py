"""The plan's types: what they refuse, and that they come back from their own JSON."""

from typing import get_args

import pytest

from harness.kernels import products
from harness.plan.specs import DECIDES_NO_RESULT, ComponentSpec, EvalSpec, Precision, TrainSpec, TrialSpec
from harness.records import record

SIZES = {"batch_size": 4, "seq_len": 7}
SGD = {"optimizer": "sgd", "lr": 7, "epochs": 2, **SIZES, "momentum": 0.9, "clip": 0.25}
SGD["schedule"] = {"plateau": {"factor": 0.5}}


WAYS = {  # of a schedule: what it is, how it is written
    "plateau, lr times 0.5": {"plateau": {"factor": 0.5}},
    "plateau, lr times 0.5, unless perplexity improves by 1 on the previous epoch": {
        "plateau": {"factor": 0.5, "threshold": 1.0, "reference": "previous"}
    },
    "plateau, lr times 0.5, unless perplexity improves by 1": {"plateau": {"factor": 0.5, "threshold": 1.0}},
    "plateau, lr times 0.5, unless the loss is below that of the previous epoch": {
        "plateau": {"factor": 0.5, "reference": "previous"}
    },
    "lr times 0.5 after epoch 4 and every later one": {"step": {"after": 4, "factor": 0.5}},
    "warm-up of 100 steps": {"warmup": {"steps": 100}},
    "warm-up of 100 steps, cosine decay to 0": {"warmup": {"steps": 100, "decay": "cosine"}},
}


@pytest.mark.parametrize("text", WAYS)
def test_every_way_of_a_schedule_survives_json_and_says_what_it_is(text):
    spec = TrainSpec(**{**SGD, "schedule": WAYS[text]})
    assert TrainSpec.model_validate_json(spec.model_dump_json()) == spec
    assert spec.model_dump()["schedule"].keys() == WAYS[text].keys()
    assert str(spec.schedule.way) == text


def test_trial_spec_survives_its_own_json():
    head = ComponentSpec(name="mos", params={"num_mixtures": 2, "dropout": 0.1, "tie_weights": False})
    other = ComponentSpec(name="other")
    adam = {"optimizer": "adamw", "lr": 1e-3, "epochs": 0, "betas": (0.8, 0.9), "eps": 1e-6, "weight_decay": 0.01}
    for train in (TrainSpec(**SGD), TrainSpec(**adam, **SIZES)):
        spec = TrialSpec(id="0" * 12, corpus=other, backbone=other, head=head, train=train, seed=2**63 - 1)
        assert TrialSpec.model_validate_json(spec.model_dump_json()) == spec


def test_evaluation_has_settings_of_train_that_are_part_of_the_id_and_no_other_changes_it():
    train = TrainSpec(**SGD, eval_batch_size=3, eval_stride=2, eval_batches=5)
    expected = {"seq_len": 7, "batching": "stream", "eval_batch_size": 3, "eval_stride": 2, "eval_batches": 5}
    assert train.evaluation.model_dump() == expected
    assert EvalSpec.model_fields.keys() <= TrainSpec.model_fields.keys() - DECIDES_NO_RESULT
    other = TrainSpec(optimizer="adam", lr=0.1, epochs=3, batch_size=8, seq_len=7, clip=1.0, precision="bf16")
    assert TrainSpec(**SGD).evaluation == other.evaluation


def test_the_precisions_and_routes_that_plan_and_records_write_out_again_are_those_of_the_kernels():
    assert get_args(Precision) == get_args(products.Precision)
    assert get_args(record.Route) == get_args(products.Route)
