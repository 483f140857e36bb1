"""What the trials of a suite may use: tokens, the time of another head, GPUs with their workers; and n-grams."""

import hashlib
import json

import pytest
from handmade import SMALL, changed

from harness.plan import load, select

TIMED = SMALL.replace("epochs: 2", "epochs: 6")
CORPUS = "markov(vocab_size=12, num_tokens=400, branching=3)"
HEADS = {"softmax": "softmax", "mos": "mos(num_mixtures=2)"}


def timed(text: str = TIMED, **by_head) -> str:
    """A suite in which the step of each head takes so many times as long as that of softmax."""
    return f"{text}match: {{time: softmax, ratios: {json.dumps({HEADS[head]: by_head[head] for head in by_head})}}}\n"


@pytest.mark.parametrize(
    ("train", "epochs"),
    [
        # 400 tokens in 4 columns of 100: 4 * 99 = 396 targets an epoch
        ("tokens: 100", 0.252525),  # 100 / 396
        # blocks of 7: 57, in 14 batches of 4, each block with 6 targets: 14 * 4 * 6 = 336
        ("tokens: 840, batching: blocks", 2.5),
    ],
)
def test_a_number_of_tokens_becomes_epochs(write, train, epochs):
    found = load(write(SMALL.replace("epochs: 2", train)))
    assert {trial.train.epochs for trial in found.trials} == {epochs}


def test_a_schedule_with_a_horizon_is_scaled_to_the_epochs_of_each_head(write):
    text = TIMED.replace("epochs: 6", "epochs: 10, schedule: {step: {after: 6, factor: 0.5}}")
    schedules = {trial.head.name: trial.train.schedule.step for trial in load(write(timed(text, mos=2.0))).trials}
    assert (schedules["softmax"].after, schedules["softmax"].factor) == (6, 0.5)
    # 10 epochs have 4 decays, 5 have 2 of them after the third: 0.5^4 = 0.25^2
    assert (schedules["mos"].after, schedules["mos"].factor) == (3, 0.25)


def test_each_head_gets_the_epochs_of_the_named_heads_time_on_its_backbone(write):
    names = [f"mos(num_mixtures=2) on lstm(d_model={d}, num_layers=1, dropout=0.1) and {CORPUS}" for d in (8, 16)]
    match = {"time": "softmax", "ratios": dict(zip(names, (2.0, 3.0), strict=True))}
    text = TIMED.replace("d_model: 8", "d_model: [8, 16]")
    epochs = [trial.train.epochs for trial in load(write(f"{text}match: {json.dumps(match)}\n")).trials[::2]]
    assert epochs == [6.0, 3.0, 6.0, 2.0]
    found = load(write(timed(mos=2.4)))
    assert {(trial.head.name, trial.train.epochs) for trial in found.trials} == {("softmax", 6.0), ("mos", 2.5)}
    ids, whole = [trial.id for trial in found.trials], load(write(TIMED))
    assert ids[:2] == [trial.id for trial in whole.trials][:2]
    told = load(write(timed(mos=2.4).replace("ratios:", 'measured: "a processor, 1 thread", ratios:')))
    assert [trial.id for trial in told.trials] == ids


@pytest.fixture
def suite_of(write):
    """A function: what is replaced in SMALL, and values of the command line -> the suite."""
    return lambda *replacements, overrides=(): load(write(changed(*replacements)), overrides)


GPUS = ("seeds: [1, 2]", "seeds: [1, 2]\nresources: {{gpus: {}}}")


@pytest.mark.needs("gpu")
@pytest.mark.parametrize(
    ("gpus", "said", "workers"),
    [
        *[("4.0", "", 4), ("2", ", data_parallel: 2", 2), ("0.5", "", 1)],  # one for each GPU
        ("0", ", data_parallel: 2", 2),  # on the CPU
    ],
)
def test_gpus_of_a_trial_imply_its_workers(suite_of, gpus, said, workers):
    loaded = suite_of((GPUS[0], GPUS[1].format(gpus)), ("seq_len: 7", f"seq_len: 7{said}"))
    assert {trial.train.data_parallel for trial in loaded.trials} == {workers}
    plain = suite_of(("seq_len: 7", f"seq_len: 7, data_parallel: {workers}"))
    assert [trial.id for trial in loaded.trials] == [trial.id for trial in plain.trials]
    assert loaded.overrides == ()


@pytest.mark.needs("gpu")
def test_gpus_set_by_hand_that_change_the_trials_are_told_in_the_tables_name(suite_of):
    file = suite_of()
    four = suite_of(overrides=("resources.gpus=4",))
    assert four.overrides == (("train.data_parallel", "4", "1"),)
    assert four.trials[0].id != file.trials[0].id
    one = suite_of((GPUS[0], GPUS[1].format(4)), overrides=("resources.gpus=1",))
    assert one.overrides == (("train.data_parallel", "1", "4"),)
    assert one.trials[0].id == file.trials[0].id


TRAINED = changed(("  - mos: {num_mixtures: 2}\n", ""))
NGRAMS = "ngrams: [3, {order: 5, cache: true}]\n"

# written out by hand and hashed outside of the harness, as in test_identity.py
CONTENT = hashlib.sha256(b"markov-1/12/400/0/3").hexdigest()
GOLDEN_JSON = (
    '{"backbone":{"name":"last_tokens","params":{}},'
    '"corpus":{"content":"%s","name":"markov","params":{"branching":3,"num_tokens":400,"vocab_size":12}},'
    '"head":{"name":"kneser_ney","params":%s},"schema":2,"seed":0,'
    '"train":{"batch_size":1,"epochs":0,"eval_batch_size":1,"lr":1,"optimizer":"sgd","seq_len":1000}}'
)


@pytest.mark.parametrize(("index", "params"), [(0, '{"order":3}'), (1, '{"cache":true}')])  # order 5 is the default
def test_ids_are_pinned(write, index, params):
    golden = hashlib.sha256((GOLDEN_JSON % (CONTENT, params)).encode()).hexdigest()[:12]
    assert load(write(TRAINED + NGRAMS)).trials[2 + index].id == golden


def test_ngrams_change_no_other_trial_come_last_can_be_selected_and_do_not_depend_on_training(write):
    with_ngrams = load(write(TRAINED + NGRAMS)).trials
    assert with_ngrams[:2] == load(write(TRAINED)).trials
    assert [(str(trial.head), trial.is_ngram) for trial in with_ngrams[2:]] == [
        ("kneser_ney(order=3)", True),
        ("kneser_ney(order=5, cache=True)", True),
    ]
    assert [str(trial.head) for trial in select(with_ngrams, ("head=kneser_ney,cache=true",))] == [
        "kneser_ney(order=5, cache=True)"
    ]
    other = TRAINED.replace("seeds: [1, 2]", "seeds: [7]").replace("lr: 0.01", "lr: 2").replace("adam", "sgd")
    assert load(write(other + NGRAMS)).trials[1:] == with_ngrams[2:]
    ngrams_only = load(write(f"name: counted\nversion: 1\ncorpora: [ptb, wikitext2]\n{NGRAMS}"))
    found = [f"{trial.corpus.name} {trial.head.params['order']}" for trial in ngrams_only.trials]
    assert found == ["ptb 3", "ptb 5", "wikitext2 3", "wikitext2 5"]
    assert {row.params for row in ngrams_only.rows} == {(0, 0)}
