"""`harness run --dry-run`: one batch of every row, and nothing that stays."""

import re
import weakref

import pytest
import torch
from commands import files
from torch import nn
from torch.nn import functional

from harness import plan
from harness.distributions import Logits, Mixture
from harness.errors import CorpusError
from harness.execution import timed
from harness.model import build
from harness.registry import CORPORA, HEADS
from harness.trial import setup

pytestmark = pytest.mark.system

SUITE = """\
name: tried
corpora: [markov: {vocab_size: 12, num_tokens: 4000, branching: 3}]
backbones: [lstm: {d_model: 8, num_layers: 1, dropout: 0}]
heads: [softmax, {mos: {num_mixtures: 2}}]
seeds: [1, 2]
train: {lr: 0.5, epochs: 2, batch_size: 4, seq_len: 7}
"""
LINE = re.compile(r"ok    [0-9a-f]{12}  (.+): loss ([0-9.]+) -> ([0-9.]+), peak memory [0-9,]+ MiB, [0-9.]+ ms a step")


@pytest.fixture
def tried(tmp_path, monkeypatch, harness):
    """Writes the suite to suites/tried.yaml of an empty folder and makes a dry run of it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "suites").mkdir()

    def of(text: str, *arguments: str):
        (tmp_path / "suites" / "tried.yaml").write_text(text)
        before = files(tmp_path)
        done = harness("run", "tried", "--dry-run", "--device", "cpu", *arguments)
        assert files(tmp_path) == before
        return done

    return of


class Broken(nn.Module):
    """A head whose forward pass fails."""

    def __init__(self, dims, embedding):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dims.vocab_size, dims.layer_dims[-1]))

    def forward(self, hidden):
        raise RuntimeError("shapes (3, 4) and (5, 6) do not fit")


class NotFinite(Broken):
    """A head that gives no probabilities after its first update."""

    def forward(self, hidden):
        return Mixture(hidden.layers[-1].unsqueeze(2) * 1e30, None, self.weight * 1e30 + 1)


class Hooking(Broken):
    """A head that puts a hook on the embedding when it is called, and wants to know that it is trained."""

    def __init__(self, dims, embedding):
        super().__init__(dims, embedding)
        self.given = [embedding]

    def forward(self, hidden):
        if self.training and self.given:
            self.given.pop().register_forward_hook(lambda module, given, found: found)
        return Logits(hidden.layers[-1] @ self.weight.T)


class Trained(Broken):
    """A head that is given gradients only in training."""

    def forward(self, hidden):
        if hidden.layers[-1].requires_grad and not self.training:
            raise RuntimeError("a step in evaluation mode")
        return Logits(hidden.layers[-1] @ self.weight.T)


FAULTY = {"broken": Broken, "not_finite": NotFinite, "hooking": Hooking, "trained": Trained}


@pytest.fixture
def faulty(monkeypatch):
    HEADS.names()  # discover before the table is changed
    for name, head in FAULTY.items():
        monkeypatch.setitem(HEADS._classes, name, head)


def by_hand(tmp_path) -> tuple[float, float]:
    """The loss of softmax before and after one step of SGD, computed with torch alone."""
    path = tmp_path / "hand.yaml"
    path.write_text(SUITE)
    spec = plan.load(path).trials[0]
    corpus = CORPORA.get("markov")(**spec.corpus.params).load(tmp_path)
    model = build(spec.backbone, spec.head, vocab_size=12, seed=1, token_counts=corpus.token_counts)
    weight, bias = model.head.output.weight, model.head.output.bias

    def loss(inputs, targets):
        logits = model.backbone(inputs).layers[-1] @ weight.T + bias
        return functional.cross_entropy(logits.reshape(-1, 12), targets.reshape(-1))

    def batch(tokens, rows):
        columns = tokens[: len(tokens) // rows * rows].reshape(rows, -1).long()
        return columns[:, :7], columns[:, 1:8]

    valid = batch(corpus.valid, 10)
    before = loss(*valid).item()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    loss(*batch(corpus.train, 4)).backward()
    optimizer.step()
    return before, loss(*valid).item()


def test_the_losses_are_those_of_one_step_by_hand(tried, tmp_path):
    done = tried(SUITE, "--only", "head=softmax")
    assert done.code == 0
    ((label, before, after),) = LINE.findall(done.out)
    assert label == "softmax lstm markov seed=1"
    assert (float(before), float(after)) == pytest.approx(by_hand(tmp_path), abs=0.0006)  # three decimals are shown
    assert before != after


def test_every_row_is_one_line_whatever_its_seeds(tried):
    more = SUITE.replace("num_layers: 1", "num_layers: [1, 2]").replace("train:", "ngrams: [2]\ntrain:")
    done = tried(more.replace("vocab_size: 12, num_tokens: 4000", "vocab_size: 500, num_tokens: 20000"))
    assert done.code == 0
    labels = [label for label, *_ in LINE.findall(done.out)]
    assert labels == [f"{head} lstm markov seed=1" for head in ("softmax", "mos(num_mixtures=2)")] * 2
    ngram = r"^ok    \w+  kneser_ney\(order=2\) last_tokens markov seed=\d+: loss [0-9.]+, not trained$"
    assert re.search(ngram, done.out, re.M)
    last = "dry run of 5 rows on cpu: 5 ok, 0 failed; nothing was written to the results folder"
    assert done.out.splitlines()[-1] == last


def test_a_row_that_fails_is_a_sentence_and_the_others_are_tried(tried, faulty):
    done = tried(SUITE.replace("[softmax,", "[broken, not_finite, softmax,"))
    assert done.code == 1
    broken, infinite = done.err.splitlines()
    assert broken[18:] == "  broken lstm markov seed=1: RuntimeError: shapes (3, 4) and (5, 6) do not fit"
    assert re.match(r"FAIL  \w+  not_finite lstm markov seed=1: (training|the validation) loss", infinite)
    labels = [label for label, *_ in LINE.findall(done.out)]
    assert labels == ["softmax lstm markov seed=1", "mos(num_mixtures=2) lstm markov seed=1"]
    assert "4 rows on cpu: 2 ok, 2 failed" in done.out


def test_a_head_whose_probabilities_do_not_sum_to_1_fails(tried, careless):
    mos = "{mos: {num_mixtures: 2, compat: {log_epsilon: 1.0e-3}}}"  # allowed: 12 words 0.001 more
    done = tried(SUITE.replace("[softmax,", f"[normalises_rows, softmax, {mos},"))
    assert done.code == 1
    (line,) = done.err.splitlines()
    said = "the probabilities that head normalises_rows gives to all words do not sum to 1: at a position of the text"
    assert line[18:].startswith(f"  normalises_rows lstm markov seed=1: {said} they are off by ")
    assert len(LINE.findall(done.out)) == 3


def test_what_a_trial_would_refuse_is_refused(tried):
    done = tried(SUITE, "--set", "train.precision=tf32")
    assert (done.code, done.err.count("train.precision is tf32, which only a GPU has")) == (1, 2)


def test_settings_and_conditions_count(tried):
    done = tried(SUITE, "--set", "backbones.0.lstm.d_model=[6, 10]", "--only", "head=mos,d_model=10")
    (label, *_) = (label for label, *_ in LINE.findall(done.out))
    assert label == "mos(num_mixtures=2) lstm markov seed=1"
    assert "dry run of 1 row on cpu: 1 ok" in done.out
    wrong = tried(SUITE, "--only", "head=moc")
    assert (wrong.code, "no trial of the suite meets this condition" in wrong.err) == (2, True)
    parallel = tried(SUITE, "--set", "train.data_parallel=2")  # tried as one worker
    assert (parallel.code, len(LINE.findall(parallel.out))) == (0, 2), parallel.err


def test_a_corpus_that_cannot_be_read_fails_its_rows_only(tried, monkeypatch):
    def lost(self, data):
        raise CorpusError("no such text")

    monkeypatch.setattr(CORPORA.get("embedded"), "load", lost)
    done = tried(SUITE.replace("corpora: [", "corpora: [embedded, "))
    assert done.code == 1
    assert done.err == "FAIL  embedded, 2 rows: no such text\n"
    assert len(LINE.findall(done.out)) == 2


def test_the_points_of_a_tuned_suite_are_rows_unless_only_their_learning_rate_differs(tmp_path):
    path = tmp_path / "tuned.yaml"
    space = "{train.lr: [0.1, 1], head.dropout: [0, 0.2], train.momentum: [0, 0.9]}"
    path.write_text(f"{SUITE}tune: {{epochs: 1, seed: 9, space: {space}}}\n")
    suite = plan.load(path)
    assert len(suite.tuning_trials) == 4 + 8
    found = [(row.head.name, row.head.params.get("dropout"), row.train.momentum) for row in timed.rows_of(suite, ())]
    of_mos = [("mos", dropout, momentum) for dropout in (0, 0.2) for momentum in (0.0, 0.9)]
    assert found == [("softmax", None, 0.0), ("softmax", None, 0.9), *of_mos]
    assert len(timed.rows_of(suite, ("head.dropout=0.2",))) == 2


def test_the_memory_of_a_row_is_given_back_before_the_next_is_built(tried, faulty, monkeypatch):
    alive = []

    def watched(*about, **more):
        assert [model for model in alive if model() is not None] == []
        model = build(*about, **more)
        alive.append(weakref.ref(model))
        return model

    monkeypatch.setattr(setup, "build", watched)
    done = tried(SUITE.replace("[softmax,", "[softmax, broken, moc,"), "--set", "train.optimizer=adam")
    assert len(alive) == 4
    assert (done.out.count("ok    "), done.err.count("FAIL")) == (3, 1), done.err


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("registers_late", "head.late.weight was made after the model was built"),
        ("hooking", "head hooking has put a hook on the backbone's embedding"),
    ],
)
def test_what_a_head_does_when_it_is_called_fails_its_row(tried, faulty, careless, head, said):
    done = tried(SUITE.replace("softmax", head))
    assert done.code == 1
    assert said in done.err
    assert "1 ok, 1 failed" in done.out


def test_all_steps_are_steps_of_training(tried, faulty):
    assert tried(SUITE.replace("softmax", "trained")).code == 0
