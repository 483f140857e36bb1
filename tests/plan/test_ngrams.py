"""The key `ngrams`: its trials, their ids, suites of n-grams only, and what is refused."""

import hashlib

import pytest

from harness.plan import load, select
from harness.plan.specs import COUNTED

TRAINED = """\
name: small
version: 1
corpora:
  - markov: {vocab_size: 12, num_tokens: 400, branching: 3}
backbones:
  - lstm: {d_model: 8, num_layers: 1, dropout: 0.1}
heads:
  - softmax
train: {optimizer: sgd, lr: 7, epochs: 2, batch_size: 4, seq_len: 7, clip: 0.001}
seeds: [1, 2]
"""
NGRAMS = "ngrams: [3, {order: 5, cache: true}]\n"
ONLY = f"""\
name: counted
version: 1
corpora: [ptb, wikitext2]
{NGRAMS}"""

# written out by hand and hashed outside of the harness, as in test_identity.py
CONTENT = hashlib.sha256(b"markov-1/12/400/0/3").hexdigest()
GOLDEN_JSON = (
    '{"backbone":{"name":"last_tokens","params":{}},'
    '"corpus":{"content":"%s","name":"markov","params":{"branching":3,"num_tokens":400,"vocab_size":12}},'
    '"head":%s,"schema":2,"seed":0,'
    '"train":{"batch_size":1,"epochs":0,"eval_batch_size":1,"lr":1,"optimizer":"sgd","seq_len":1000}}'
)


@pytest.mark.parametrize(
    ("index", "head"),
    [
        (0, '{"name":"kneser_ney","params":{"order":3}}'),
        (1, '{"name":"kneser_ney","params":{"cache":true}}'),  # order 5 is the head's default
    ],
)
def test_ids_are_pinned(write, index, head):
    golden = hashlib.sha256((GOLDEN_JSON % (CONTENT, head)).encode()).hexdigest()[:12]
    assert load(write(TRAINED + NGRAMS)).trials[2 + index].id == golden


def test_ngrams_change_no_other_trial_and_come_last(write):
    with_ngrams = load(write(TRAINED + NGRAMS)).trials
    assert with_ngrams[:2] == load(write(TRAINED)).trials
    assert [(str(trial.head), trial.is_ngram) for trial in with_ngrams[2:]] == [
        ("kneser_ney(order=3)", True),
        ("kneser_ney(order=5, cache=True)", True),
    ]
    assert not any(trial.is_ngram for trial in with_ngrams[:2])


def test_ids_do_not_depend_on_training_and_seeds(write):
    other = TRAINED.replace("seeds: [1, 2]", "seeds: [7]").replace("lr: 7", "lr: 2").replace("sgd", "adam")
    assert load(write(other + NGRAMS)).trials[1:] == load(write(TRAINED + NGRAMS)).trials[2:]


def test_a_suite_of_ngrams_only(write):
    suite = load(write(ONLY))
    assert [(trial.corpus.name, trial.head.params["order"]) for trial in suite.trials] == [
        ("ptb", 3),
        ("ptb", 5),
        ("wikitext2", 3),
        ("wikitext2", 5),
    ]
    assert {trial.train for trial in suite.trials} == {COUNTED}
    assert set(suite.params.values()) == {(0, 0)}
    assert set(suite.counting) == {"ptb", "wikitext2"} == set(suite.contents)


def test_only_selects_them_by_their_parameters(write):
    trials = load(write(TRAINED + NGRAMS)).trials
    assert [str(trial.head) for trial in select(trials, ("head=kneser_ney,cache=true",))] == [
        "kneser_ney(order=5, cache=True)"
    ]
    assert len(select(trials, ("head=softmax",))) == 2
