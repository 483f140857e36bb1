"""The key `ngrams`: its trials, their ids, suites of n-grams only, and what is refused."""

import hashlib

import pytest
from handmade import changed

from harness.plan import load, select
from harness.plan.specs import COUNTED

TRAINED = changed(("  - mos: {num_mixtures: 2}\n", ""))
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
    assert not any(trial.is_ngram for trial in with_ngrams[:2])
    assert [str(trial.head) for trial in select(with_ngrams, ("head=kneser_ney,cache=true",))] == [
        "kneser_ney(order=5, cache=True)"
    ]
    assert len(select(with_ngrams, ("head=softmax",))) == 2
    other = TRAINED.replace("seeds: [1, 2]", "seeds: [7]").replace("lr: 0.01", "lr: 2").replace("adam", "sgd")
    assert load(write(other + NGRAMS)).trials[1:] == with_ngrams[2:]


def test_a_suite_of_ngrams_only(write):
    suite = load(write(ONLY))
    found = [f"{trial.corpus.name} {trial.head.params['order']}" for trial in suite.trials]
    assert found == ["ptb 3", "ptb 5", "wikitext2 3", "wikitext2 5"]
    assert {trial.train for trial in suite.trials} == {COUNTED}
    assert set(suite.params.values()) == {(0, 0)}
    assert set(suite.counting) == {"ptb", "wikitext2"} == set(suite.contents)
