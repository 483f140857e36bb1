"""`harness diff`, on finished trials made by hand: every number is known before."""

import json
import math
import re
import shlex
from pathlib import Path

import handmade
import numpy as np
import pytest
import torch
from bundles import timing_of
from commands import mistakes

from harness import plan
from harness.corpora.corpus import Corpus, CorpusFacts
from harness.corpora.vocabulary import WordCodec
from harness.records import sidecars, store
from harness.records.sidecars import TokenScores
from harness.registry import CORPORA

LINE = "<eos> [red]it is a truth universally acknowledged that man wife must be x\x1b"
WORDS = LINE.split(" ")
TEXT = [1, 2, 3, 4, 5, 6, 7, 0, 3, 8, 10, 11, 12, 0, 1, 2, 3, 9]
SUITE = """\
name: pair
version: 1
corpora: [{words: {}}]
backbones: [{lstm: {d_model: 8, num_layers: 1}}]
heads: [softmax, {mos: {num_mixtures: [2, 3]}}]
train: {optimizer: adam, lr: 0.01, epochs: 2, batch_size: 4, seq_len: 7}
seeds: [1, 2]
"""
SEEDS, TOKENS = (1, 2), len(TEXT) - 1
NATS = {"softmax": 3.0, "mos2": 2.9, "mos3": 2.8}  # of every token but two
LOW, HIGH = 4, 9  # 'universally' and the first 'man': mos(2) gives them 1 nat less, and 2 more


class Words:
    """A corpus of one line again and again."""

    content, codec = "0" * 64, WordCodec(WORDS)

    def __init__(self, *, boundary: str = "eos"):
        pass

    def facts(self):
        sizes = {"train": 72, "valid": 18, "test": 18}
        return CorpusFacts(vocab_size=13, num_tokens=sizes, content=self.content, counting="words")

    def load(self, data):
        ids = torch.tensor(TEXT)
        symbols = tuple(WORDS) if self.codec else None
        return Corpus(vocab_size=13, train=ids.repeat(4), valid=ids, test=ids, symbols=symbols, codec=self.codec)


def scores(head: str, seed: int) -> TokenScores:
    """Seeds differ by 0.1 nats a token, in the same way for every head."""
    nll = np.full(len(TEXT), NATS[head] + 0.1 * seed, dtype=np.float32)
    if head == "mos2":
        nll[LOW] -= 1
        nll[HIGH] += 2
    nll[0] = np.nan
    count = np.array([4 * TEXT.count(index) for index in TEXT], dtype=np.int32)
    return TokenScores(nll=nll, count=count, offset=np.arange(-1, TOKENS, dtype=np.int32))


@pytest.fixture
def words(monkeypatch):
    CORPORA.names()
    monkeypatch.setitem(CORPORA._classes, "words", Words)
    return Words


@pytest.fixture
def finish(words, tmp_path, monkeypatch):
    """A function: a suite's text, changes of its records' environment and metrics -> ids by head and seed."""
    monkeypatch.chdir(tmp_path)

    def write(text: str = SUITE, *, kept: bool = True, environment=(), code=None, **metrics) -> dict[str, str]:
        (tmp_path / "pair.yaml").write_text(text)
        suite = plan.load(tmp_path / "pair.yaml")
        runs, ids = store.runs_folder(tmp_path / "results", suite.name), {}
        for spec in suite.trials:
            name = spec.head.name + str(spec.head.params.get("num_mixtures", ""))
            found = scores(name, spec.seed)
            measured = {"test_ppl": math.exp(np.nanmean(found.nll, dtype=np.float64)), "valid_ppl": 20.0 + spec.seed}
            record = handmade.record(
                suite=suite.name,
                spec=spec,
                metrics={**measured, "scored_test_tokens": TOKENS, "train_ms_per_batch": 5.0, **metrics},
                environment=handmade.environment(**dict(environment)),
                weights_sha256="0" * 64,
                code=code,
            )
            store.save(record, runs)
            if kept:
                sidecars.save_token_scores(
                    found, record.weights_sha256, store.folder(runs, spec.id) / sidecars.TOKEN_NLL.file
                )
            ids[f"{name} {spec.seed}"] = spec.id
        return ids

    return write


def told(harness, *arguments) -> dict:
    done = harness("diff", *arguments, "--json")
    assert done.code == 0, done.err
    (found,) = json.loads(done.out)["differences"]
    return found


def metric(found: dict, name: str) -> dict:
    return next(each for each in found["metrics"] if each["name"] == name)


def test_two_trials_differ_in_settings_metrics_and_words(harness, finish):
    ids = finish()
    found = told(harness, ids["softmax 1"], ids["mos2 2"][:8])
    assert found["trials"] == [[ids["softmax 1"], ids["mos2 2"]]]
    changes = {each["key"]: (each["a"], each["b"]) for each in found["changes"]}
    assert changes["head"] == ("softmax", "mos")
    assert changes["head.num_mixtures"] == ("-", "2")
    assert changes["seed"] == ("1", "2")
    assert not [key for key in changes if key.startswith(("train", "backbone"))]
    ppl = metric(found, "test_ppl")
    # 17 tokens at 3 + 0.1; at 2.9 + 0.2 with 1 less and 2 more
    assert (ppl["a"], ppl["b"]) == (pytest.approx(math.exp(3.1)), pytest.approx(math.exp(3.1 + 1 / 17)))
    assert ppl["change"] == pytest.approx(math.expm1(1 / 17), rel=1e-5)
    assert (ppl["n"], ppl["low"]) == (1, None)
    (better,), (worse,) = found["better"], found["worse"]
    assert (better["a"], better["b"]) == (pytest.approx(3.1), pytest.approx(2.1))
    assert (better["before"], better["target"], better["after"], better["place"], better["count"]) == (
        "[red]it is a truth ",
        "universally",
        " acknowledged that <eos> a",
        4,
        4,
    )
    assert worse["target"] == "man"
    assert worse["b"] - worse["a"] == pytest.approx(2)


def test_two_heads_pair_over_their_seeds(harness, finish):
    ids = finish()
    found = told(harness, "softmax", "mos(num_mixtures=2)", "--suite", "pair.yaml")
    assert (found["a"], found["b"], found["within"]) == ("softmax", "MoS 2", "words, lstm")
    assert found["trials"] == [[ids["softmax 1"], ids["mos2 1"]], [ids["softmax 2"], ids["mos2 2"]]]
    assert "seed" not in [each["key"] for each in found["changes"]]
    ppl = metric(found, "test_ppl")
    # under each seed 0.1 nats less for 17 tokens, and 1 nat more in all
    assert ppl["change"] == pytest.approx(math.expm1(-0.1 + 1 / 17), rel=1e-5)
    assert ppl["n"] == 2
    assert metric(found, "valid_ppl")["change"] == 0
    assert [(band["label"], band["tokens"]) for band in found["by_frequency"]] == [("1-9", 14), ("10-99", 3)]
    # one word is there three times, so twelve times in training; it is none of the two that differ
    assert found["by_frequency"][1]["mean"] == pytest.approx(-0.1)
    assert found["by_frequency"][0]["mean"] == pytest.approx(-0.1 + 1 / 14)
    assert found["by_frequency"][0]["error"] is None
    worse = found["worse"][0]
    assert (worse["a"], worse["b"]) == (pytest.approx(3.15), pytest.approx(3.05 + 2))
    assert len(told(harness, "softmax", "mos(num_mixtures=2)", "--suite", "pair.yaml", "--top", "3")["better"]) == 3


def test_the_terminal_shows_the_words_as_they_are(harness, finish):
    ids = finish()
    shown = harness("diff", ids["softmax 1"], ids["mos2 2"]).out
    assert "[red]it is a truth [universally] acknowledged that <eos> a" in shown
    assert re.search(r"truth universally acknowledged that <eos> a \[man\] must be x\\x1b <eos>", shown)
    assert "\x1b" not in shown
    assert "+6.06 %" in shown  # e^(1/17) - 1


@pytest.mark.parametrize(
    ("lacks", "reason"),
    [
        ("scores", "no comparison of single tokens: "), ("whole scores", "no comparison of single tokens: "),
        ("content", "have changed since"), ("codec", "do not stand for text"),
    ],
)  # fmt: skip
def test_where_something_is_missing_it_says_why_and_shows_no_words(
    harness, finish, words, tmp_path, monkeypatch, lacks, reason
):
    ids = finish(kept="scores" not in lacks)
    if lacks == "whole scores":
        folder = store.folder(store.runs_folder(tmp_path / "results", "pair"), ids["mos3 1"])
        (folder / sidecars.TOKEN_NLL.file).write_bytes(b"x")
    elif lacks != "scores":
        monkeypatch.setattr(words, lacks, {"content": "1" * 64, "codec": None}[lacks])
    found = told(harness, ids["softmax 1"], ids["mos3 1"])
    assert metric(found, "test_ppl")["change"] == pytest.approx(math.expm1(-0.2))
    assert (found["better"], found["worse"]) == ([], [])
    assert bool(found["by_frequency"]) == ("scores" not in lacks)
    assert any(reason in note for note in found["notes"])


def test_times_are_compared_of_one_pass_or_one_machine_only(harness, finish, tmp_path):
    ids, runs = finish(), store.runs_folder(tmp_path / "results", "pair")

    def change() -> float | None:
        found = told(harness, "softmax", "mos(num_mixtures=2)", "--suite", "pair.yaml")
        return metric(found, "train_ms_per_batch")["change"]

    assert change() == 0
    about = {"weights_sha256": "0" * 64, "passed": "first"}
    for name, ms in {"softmax 1": 4.0, "mos2 2": 6.0}.items():
        timing = timing_of(handmade.record(), **about, trial=ids[name], metrics={"train_ms_per_batch": ms})
        sidecars.save_timing(timing, runs)
    assert change() == pytest.approx(0.5)
    sidecars.save_timing(timing.model_copy(update={"pass_id": "second"}), runs)
    assert change() is None
    record = store.load(runs, ids["mos2 1"])
    elsewhere = record.environment.model_copy(update={"device": "another"})
    store.save(record.model_copy(update={"environment": elsewhere}), runs)
    found = told(harness, ids["softmax 1"], ids["mos2 1"])
    assert "train_ms_per_batch" not in [each["name"] for each in found["metrics"]]


BOUNDARY = SUITE.replace("words: {}", "words: {boundary: sos_eos}").replace("name: pair", "name: other")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"text": BOUNDARY}, "expected one corpus with one counting rule"),
        ({"scored_test_tokens": 16}, "scored 17 test tokens, {id} 16: expected the same tokens"),
        ({"unigram_test_ppl": 11.5}, "are of two texts, both called words"),
    ],
)
def test_unlike_trials_are_refused(harness, finish, changes, sentence):
    ids = finish(unigram_test_ppl=11.0)
    text = SUITE.replace("name: pair", "name: other").replace("seeds: [1, 2]", "seeds: [3]")
    other = finish(**{"text": text, "kept": False, **changes})
    done = harness("diff", ids["softmax 1"], next(iter(other.values())))
    assert done.code == 2
    assert sentence.format(id=next(iter(other.values()))) in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(("command", "sentence"), mistakes("pair"))
def test_a_users_mistake_is_one_sentence(harness, finish, command, sentence):
    ids = finish()
    done = harness(*shlex.split(command.replace("ID", ids["softmax 1"]).replace("OTHER", ids["mos2 1"])))
    assert done.code == 2
    assert sentence in done.err
    assert done.err.count("\n") == 1


def test_a_backbone_that_both_have_by_two_versions_is_a_note(harness, finish):
    ids = finish(code=handmade.code())
    runs = Path("results/runs/pair")
    record = store.load(runs, ids["mos2 1"])
    assert not [each for each in told(harness, ids["softmax 1"], ids["mos2 1"])["notes"] if "code" in each]
    store.save(record.model_copy(update={"code": handmade.code(head="a" * 64, backbone="b" * 64)}), runs)
    notes = told(harness, ids["softmax 1"], ids["mos2 1"])["notes"]
    assert [each for each in notes if "code" in each] == [
        "the code of the backbone 'lstm' is not the same: it may cause part of the difference"
    ]


def test_another_seed_budget_or_backbone_is_a_setting_that_differs(harness, finish):
    ids, text = finish(), SUITE
    for old, new in (
        *[
            ("name: pair", "name: other"),
            ("epochs: 2", "epochs: 3"),
            ("[1, 2]\n", "[3]\n"),
            ("d_model: 8", "d_model: 9"),
        ],
        ("adam, lr: 0.01", "sgd, lr: 1, schedule: {plateau: {factor: 0.5}}"),
    ):
        text = text.replace(old, new)
    found = told(harness, ids["softmax 1"], next(iter(finish(text, kept=False).values())))
    changes = {each["key"]: (each["a"], each["b"]) for each in found["changes"]}
    assert changes == {
        "backbone.d_model": ("8", "9"),
        "train.optimizer": ("adam", "sgd"),
        "train.lr": ("0.01", "1"),
        "train.epochs": ("2", "3"),
        "train.schedule": ("None", "-"),
        "seed": ("1", "3"),
        "train.schedule.plateau.factor": ("-", "0.5"),
        "train.schedule.plateau.threshold": ("-", "0"),
        "train.schedule.plateau.reference": ("-", "best"),
    }


def test_an_interval_over_seeds_is_that_of_the_logarithms(harness, finish, tmp_path):
    ids, runs = finish(kept=False), store.runs_folder(tmp_path / "results", "pair")
    for name, ppl in {"softmax 1": 100, "softmax 2": 200, "mos3 1": 90, "mos3 2": 190}.items():
        record = store.load(runs, ids[name])
        store.save(record.model_copy(update={"metrics": {**record.metrics, "test_ppl": float(ppl)}}), runs)
    ppl = metric(told(harness, "softmax", "mos(num_mixtures=3)", "--suite", "pair.yaml"), "test_ppl")
    one, other = math.log(0.9), math.log(0.95)
    mean, error = (one + other) / 2, abs(one - other) / 2  # of two: sd / sqrt(2) is half of what lies between them
    reach = error * math.tan(0.475 * math.pi)  # t_0.975 of one degree of freedom, Cauchy's
    assert (ppl["a"], ppl["b"], ppl["n"]) == (150, 140, 2)
    assert ppl["change"] == pytest.approx(math.expm1(mean))
    assert (ppl["low"], ppl["high"]) == (
        pytest.approx(math.expm1(mean - reach)),
        pytest.approx(math.expm1(mean + reach)),
    )
