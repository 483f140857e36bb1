"""How long models are trained: a number of tokens, and the training time of another head."""

import json

import pytest
from handmade import SMALL

from harness.plan import load

TIMED = SMALL.replace("epochs: 2", "epochs: 6")
CORPUS = "markov(vocab_size=12, num_tokens=400, branching=3)"
BACKBONE = "lstm(d_model=8, num_layers=1, dropout=0.1)"
HEADS = {"softmax": "softmax", "mos": "mos(num_mixtures=2)"}


def timed(text: str = TIMED, **by_head) -> str:
    """A suite in which the step of each head takes so many times as long as that of softmax."""
    return f"{text}match: {{time: softmax, ratios: {json.dumps({HEADS[head]: by_head[head] for head in by_head})}}}\n"


@pytest.mark.parametrize(
    ("train", "epochs"),
    [
        # 400 tokens in 4 columns of 100: 4 * 99 = 396 targets an epoch
        ("tokens: 396", 1.0),
        ("tokens: 990", 2.5),
        ("tokens: 100", 0.252525),  # 100 / 396
        # blocks of 7: 57, in 14 batches of 4, each block with 6 targets: 14 * 4 * 6 = 336
        ("tokens: 840, batching: blocks", 2.5),
    ],
)
def test_a_number_of_tokens_becomes_epochs(write, train, epochs):
    found = load(write(SMALL.replace("epochs: 2", train)))
    assert {trial.train.epochs for trial in found.trials} == {epochs}
    batching = ", batching: blocks" * ("blocks" in train)
    same = load(write(SMALL.replace("epochs: 2", f"epochs: {epochs}{batching}")))
    assert [trial.id for trial in found.trials] == [trial.id for trial in same.trials]


def test_a_schedule_with_a_horizon_is_scaled_to_the_epochs_of_each_head(write):
    text = TIMED.replace("epochs: 6", "epochs: 10, schedule: {step: {after: 6, factor: 0.5}}")
    schedules = {trial.head.name: trial.train.schedule.step for trial in load(write(timed(text, mos=2.0))).trials}
    assert (schedules["softmax"].after, schedules["softmax"].factor) == (6, 0.5)
    # 10 epochs have 4 decays, 5 have 2 of them after the third: 0.5^4 = 0.25^2
    assert (schedules["mos"].after, schedules["mos"].factor) == (3, 0.25)


def test_each_head_gets_the_epochs_of_the_named_heads_time(write):
    found = load(write(timed(mos=2.4)))
    assert {(trial.head.name, trial.train.epochs) for trial in found.trials} == {("softmax", 6.0), ("mos", 2.5)}
    ids, whole = [trial.id for trial in found.trials], load(write(TIMED))
    assert ids[:2] == [trial.id for trial in whole.trials][:2]
    told = load(write(timed(mos=2.4).replace("ratios:", 'measured: "a processor, 1 thread", ratios:')))
    assert [trial.id for trial in told.trials] == ids


def test_ratios_may_differ_between_backbones(write):
    text = TIMED.replace("d_model: 8", "d_model: [8, 16]")
    names = [f"mos(num_mixtures=2) on lstm(d_model={d}, num_layers=1, dropout=0.1) and {CORPUS}" for d in (8, 16)]
    match = {"time": "softmax", "ratios": dict(zip(names, (2.0, 3.0), strict=True))}
    found = load(write(f"{text}match: {json.dumps(match)}\n"))
    epochs = {(t.head.name, t.backbone.params["d_model"]): t.train.epochs for t in found.trials}
    assert epochs == {("softmax", 8): 6.0, ("softmax", 16): 6.0, ("mos", 8): 3.0, ("mos", 16): 2.0}
