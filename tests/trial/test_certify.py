"""Certificates of trials: what is honest has one whatever its shape, and what cheats has not."""

from functools import partial
from pathlib import Path

import handmade
import pytest
import torch
from commands import EVERY_BACKBONE, EVERY_HEAD

from harness import plan
from harness.distributions import Logits
from harness.model import build
from harness.plan.specs import ComponentSpec
from harness.records import sidecars, store
from harness.records.record import LATER_CHANGE, MEAN_GAP, NLL_GAP, SUM_ERROR
from harness.training.clocks import Clock
from harness.training.evaluation import TokenNll, evaluate
from harness.trial import certify as certifying
from harness.trial import stages
from harness.trial.certify import certify, log_epsilon, segments_to_sample
from harness.trial.run import run
from harness.trial.setup import load_planned

LSTM = "lstm: {d_model: 8, num_layers: 1}"
TRANSFORMER = "transformer_encoder: {d_model: 8, num_layers: 1, num_heads: 2, d_ff: 8}"
CPU = torch.device("cpu")


def suite(tmp_path, heads, backbones=(f"{{{LSTM}}}",), tokens=400, **changes):
    train = {"optimizer": "adam", "lr": 0.01, "epochs": 1, "batch_size": 4, "seq_len": 7, **changes}
    path = tmp_path / "suite.yaml"
    path.write_text(
        f"name: suite\nversion: 1\ncorpora: [{{markov: {{vocab_size: 12, num_tokens: {tokens}, branching: 3}}}}]\n"
        f"backbones: [{', '.join(backbones)}]\nheads: [{', '.join(heads)}]\n"
        f"train: {{{', '.join(f'{name}: {value}' for name, value in train.items())}}}\nseeds: [1]\n"
    )
    return plan.load(path)


def ran(spec, tmp_path):
    setting = partial(handmade.task, runs=tmp_path / "runs")
    return run(setting(spec=spec))


def built(tmp_path, *arguments, **more):
    """An untrained model, what evaluation gives each token of its test split, and the trial and its corpus."""
    read = suite(tmp_path, *arguments, **more)
    spec = read.trials[0]
    corpus = load_planned(spec, Path("no data"), read.contents)
    model = build(spec.backbone, spec.head, vocab_size=12, seed=1, token_counts=corpus.token_counts)
    return model, scored(model, corpus, spec), spec, corpus


def scored(model, corpus, spec):
    kept = TokenNll(len(corpus.test), CPU, segments_to_sample(corpus.test, spec.train.evaluation))
    evaluate(model, corpus.test, spec.train.evaluation, uncounted_id=None, clock=Clock(CPU), keep=kept)
    return kept


def certified(model, kept, spec, corpus):
    return certify([(model, kept)], spec, corpus, beat=lambda: None)


@pytest.mark.parametrize("head", [*EVERY_HEAD, "{mfs: {num_partitions: 3, window: 9}}"])
def test_every_head_is_certified_on_every_backbone_with_room_to_spare(head, tmp_path):
    for spec in suite(tmp_path, [head], EVERY_BACKBONE).trials:
        record = ran(spec, tmp_path)
        assert record.status == "ok", record.message
        found = record.certificate
        assert found.positions >= 30
        assert found.sum_error < SUM_ERROR / 10
        assert found.nll_gap < NLL_GAP / 10
        assert found.mean_gap < MEAN_GAP / 10
        assert found.later_change < LATER_CHANGE / 10
        assert found.lowest_nll > 0


def test_a_head_that_computes_what_a_published_code_does_is_certified_for_that(tmp_path):
    (spec,) = suite(tmp_path, ["{mos: {num_mixtures: 2, compat: {log_epsilon: 1.0e-2}}}"]).trials
    record = ran(spec, tmp_path)
    assert record.status == "ok", record.message
    assert record.certificate.sum_error == pytest.approx(12 * 0.01, rel=1e-3)  # V epsilon
    assert (record.certificate.log_epsilon, record.certificate.vocab_size) == (0.01, 12)


@pytest.mark.guards("record-counts-when-read")
def test_a_perplexity_below_one_is_invalid_and_its_record_counts_though_the_certificate_allows_it(tmp_path):
    (spec,) = suite(tmp_path, ["{mos: {num_mixtures: 2, compat: {log_epsilon: 0.99}}}"]).trials
    record = ran(spec, tmp_path)  # each word's probability is above 0.99, and 1/12 of the rest on average
    assert record.certificate.fault is None
    assert (record.status, record.message[:12]) == ("invalid", "valid_ppl is")
    assert store.load(tmp_path / "runs", spec.id) == record


def test_only_a_head_that_says_so_adds_an_epsilon():
    assert log_epsilon(ComponentSpec(name="mos", params={"num_mixtures": 2})) == 0
    assert log_epsilon(ComponentSpec(name="mixtape")) == 0  # has no such parameter


@pytest.mark.parametrize("backbone", [LSTM, TRANSFORMER])
@pytest.mark.parametrize(
    "train",
    [
        {},
        {"eval_batches": 1},
        {"eval_batch_size": 1},
        {"eval_batch_size": 50},
        {"batching": "blocks"},
        {"epochs": 0},
        {"seq_len": 1},
        {"eval_stride": 2},
    ],
)
def test_a_trial_is_certified_however_it_is_evaluated(backbone, train, tmp_path):
    if "eval_stride" in train and backbone is LSTM:
        pytest.skip("refused: windows are for backbones without state")
    (spec,) = suite(tmp_path, ["{mos: {num_mixtures: 2}}"], [f"{{{backbone}}}"], **train).trials
    record = ran(spec, tmp_path)
    assert record.status == "ok", record.message
    assert record.certificate.fault is None


def test_a_test_split_of_a_few_tokens_is_certified(tmp_path):
    (spec,) = suite(tmp_path, ["softmax"], batch_size=1, tokens=30).trials
    record = ran(spec, tmp_path)
    assert record.status == "ok", record.message
    assert record.certificate.positions == record.metrics["scored_test_tokens"]


@pytest.mark.guards("certificate-decides", "probabilities-sum")
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("scaled", "do not sum to 1"),
        ("shifted", "below 0, as if its probability were above 1"),
        ("sigmoid", "do not sum to 1"),
        ("constant", "is not -log_probs of its target: the gap is 1 "),
        ("unnormalised", "they are off by 1.77 "),
        ("beside_log_probs", "is not -log_probs of its target"),
        ("among_targets", "depends on the tokens after it"),
        ("later_states", "depends on the tokens after it"),
        ("honest_alone", "is not -log_probs of its target: the gap is 0.7 "),
        ("honest_once_asked", "is not -log_probs of its target: the gap is 0.7 "),
    ],
)
def test_a_head_that_cheats_is_invalid_and_keeps_its_metrics(kind, said, tmp_path, cheating):
    (spec,) = suite(tmp_path, [f"{{cheating: {{kind: {kind}}}}}"]).trials
    record = ran(spec, tmp_path)
    assert record.status == "invalid"
    assert said in record.message
    assert record.message == record.certificate.fault
    assert record.metrics["test_ppl"] > 0


def test_the_same_head_is_certified_where_it_does_not_cheat(tmp_path, cheating):
    (spec,) = suite(tmp_path, ["cheating"]).trials
    assert ran(spec, tmp_path).status == "ok"


@pytest.mark.guards("later-tokens")
@pytest.mark.parametrize("head", ["softmax", "{mos: {num_mixtures: 2}}"])
def test_a_backbone_that_looks_ahead_is_invalid_under_an_honest_head(head, tmp_path, cheating):
    (spec,) = suite(tmp_path, [head], ["{looking_ahead: {d_model: 8, num_layers: 1}}"]).trials
    record = ran(spec, tmp_path)
    assert record.status == "invalid"
    assert "depends on the tokens after it" in record.message


def test_what_stays_in_one_row_may_not_depend_on_what_changes_in_others(tmp_path, monkeypatch):
    model, _, spec, corpus = built(tmp_path, ["softmax"])
    forward = type(model.backbone).forward

    def mixing(self, tokens_BT, state=None):
        hidden = forward(self, tokens_BT, state)
        return hidden._replace(layers=tuple(layer + layer.mean(0, keepdim=True) for layer in hidden.layers))

    monkeypatch.setattr(type(model.backbone), "forward", mixing)
    found = certified(model, scored(model, corpus, spec), spec, corpus)
    assert "depends on the tokens after it" in found.fault


@pytest.mark.guards("certificate-of-evaluation")
@pytest.mark.parametrize(("share", "caught"), [(0.0, False), (0.001, True)])
def test_a_small_lie_on_every_token_is_caught_by_the_mean(share, caught, tmp_path):
    model, kept, spec, corpus = built(tmp_path, ["softmax"])
    kept.nll_N *= 1 - share
    found = certified(model, kept, spec, corpus)
    assert found.nll_gap < NLL_GAP * 1.001
    assert (found.mean_gap > MEAN_GAP) == caught
    assert (found.fault is not None) == caught


@pytest.mark.guards("nll-not-negative")
def test_no_nll_of_the_whole_split_is_below_zero_sampled_or_not(tmp_path):
    model, kept, spec, corpus = built(tmp_path, ["softmax"], tokens=40_000)
    sampled = torch.cat([each.segment.place.flatten() for each in kept.sampled])
    (alone,) = (place for place in [len(corpus.test) // 3] if place not in sampled)
    kept.nll_N[alone] = -1.0
    assert "the nll of a test token is -1" in certified(model, kept, spec, corpus).fault
    kept.nll_N[alone] = float("nan")
    assert certified(model, kept, spec, corpus).fault == "the nll of a test token is not a finite number"


def test_log_probabilities_that_are_no_numbers_are_a_fault(tmp_path, monkeypatch):
    model, kept, spec, corpus = built(tmp_path, ["mixtape"])
    monkeypatch.setattr(Logits, "log_probs", lambda self: self.z_BTV * float("nan"))
    assert "no finite number" in certified(model, kept, spec, corpus).fault


def test_log_probabilities_of_another_vocabulary_are_an_error(tmp_path, monkeypatch):
    model, kept, spec, corpus = built(tmp_path, ["mixtape"])
    monkeypatch.setattr(Logits, "log_probs", lambda self: torch.nn.functional.pad(self.z_BTV, (0, 1)))
    with pytest.raises(ValueError, match=r"has shape \(\d+, 1, 13\), expected \(\d+, 1, 12\)"):
        certified(model, kept, spec, corpus)


def test_a_segment_is_computed_again_from_the_state_it_had(tmp_path):
    # a state that is not small: of an untrained LSTM it is nearly nothing
    model, _, spec, corpus = built(tmp_path, ["softmax"], eval_batch_size=2)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(1))
    kept = scored(model, corpus, spec)
    assert certified(model, kept, spec, corpus).fault is None
    kept.sampled = [each._replace(state=None) for each in kept.sampled]
    assert "is not -log_probs" in certified(model, kept, spec, corpus).fault


@pytest.mark.guards("state-as-it-was")
def test_a_state_that_later_calls_change_in_place_is_kept_as_it_was(tmp_path, monkeypatch):
    model, _, spec, corpus = built(tmp_path, ["softmax"], eval_batch_size=2)
    forward = type(model.backbone).forward

    def in_place(self, tokens_BT, state=None):
        hidden = forward(self, tokens_BT, state)
        if state is None:
            return hidden
        for old, new in zip(state[0], hidden.state[0], strict=True):
            old.copy_(new)
        return hidden._replace(state=state)

    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(1))
    monkeypatch.setattr(type(model.backbone), "forward", in_place)
    kept = scored(model, corpus, spec)
    monkeypatch.undo()
    assert certified(model, kept, spec, corpus).fault is None


def test_a_trial_has_the_same_bits_without_its_certificate(tmp_path, monkeypatch):
    (spec,) = suite(tmp_path, ["{mos: {num_mixtures: 2, dropout: 0.1}}"]).trials
    after = []
    monkeypatch.setattr(stages, "references", lambda *given: after.append(torch.get_rng_state()) or {})
    whole = ran(spec, tmp_path / "with")
    monkeypatch.setattr(stages, "certify", lambda *given, **more: handmade.certificate())
    bare = ran(spec, tmp_path / "without")
    assert whole.weights_sha256 == bare.weights_sha256
    for name in ("test_ppl", "valid_ppl", "last_test_ppl"):
        assert whole.metrics[name] == bare.metrics[name]
    nats = [
        sidecars.TOKEN_NLL.load(tmp_path / name / "runs", each).nll
        for name, each in (("with", whole), ("without", bare))
    ]
    assert torch.equal(*(torch.tensor(each).nan_to_num() for each in nats))
    assert torch.equal(*after)


def test_certifying_twice_finds_the_same_and_draws_nothing(tmp_path):
    model, kept, spec, corpus = built(tmp_path, ["softmax"])
    state = torch.get_rng_state()
    first, second = (certified(model, kept, spec, corpus).model_dump(exclude={"seconds"}) for _ in range(2))
    assert first == second
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("backbone", [LSTM, TRANSFORMER])
@pytest.mark.parametrize("train", [{}, {"batching": "blocks"}, {"eval_stride": 2}, {"eval_batch_size": 1}])
def test_few_tokens_are_computed_again_where_the_model_is_large(backbone, train, tmp_path, monkeypatch):
    if "eval_stride" in train and backbone is LSTM:
        pytest.skip("refused: windows are for backbones without state")
    train = {"eval_batch_size": 4, "seq_len": 30, **train}
    model, kept, spec, corpus = built(tmp_path, ["softmax"], [f"{{{backbone}}}"], 4000, **train)
    monkeypatch.setattr(certifying, "FEWEST", 40)
    monkeypatch.setattr(certifying, "OPERATIONS", 0)
    monkeypatch.setattr(certifying, "SHARE", 10**9)
    seen = []
    model.backbone.register_forward_pre_hook(lambda module, given: seen.append(given[0].numel()))
    found = certified(model, kept, spec, corpus)
    assert found.fault is None
    # of four segments ten tokens each, but for windows, whose last tokens alone are scored: once as they are, once
    # with other tokens behind a position
    assert len(seen) == 8
    assert sum(seen) <= (8 * 30 if "eval_stride" in train else 2 * 40)


def test_what_is_computed_again_is_a_share_of_the_trials_work(tmp_path, monkeypatch):
    model, kept, spec, corpus = built(tmp_path, ["softmax"], tokens=200_000)
    monkeypatch.setattr(certifying, "OPERATIONS", 0)
    seen = []
    model.backbone.register_forward_pre_hook(lambda module, given: seen.append(given[0].numel()))
    certified(model, kept, spec, corpus)
    work = 3 * len(corpus.train) + len(corpus.test)
    assert sum(seen) <= 2 * max(work / 200, 4 * 10 * 7)


@pytest.mark.guards("log-probs-at-once")
def test_few_log_probabilities_are_held_at_once(tmp_path, monkeypatch):
    model, kept, spec, corpus = built(tmp_path, ["mixtape"], tokens=4000)
    monkeypatch.setattr(certifying, "LOG_PROBS", 60)
    sizes, log_probs = [], Logits.log_probs

    def measured(self):
        sizes.append(self.z_BTV.numel())
        return log_probs(self)

    kept_sizes = certified(model, kept, spec, corpus).positions
    monkeypatch.setattr(Logits, "nll", lambda self, targets: -log_probs(self).gather(-1, targets[..., None])[..., 0])
    monkeypatch.setattr(Logits, "log_probs", measured)
    assert certified(model, kept, spec, corpus).positions == kept_sizes
    assert max(sizes) == 60  # five words' positions of twelve words
    assert sum(sizes) == kept_sizes * 12


@pytest.mark.parametrize(("number", "expected"), [(1, 1), (3, 3), (4, 4), (90, 4)])
def test_segments_are_sampled_from_each_quarter_of_the_split(number, expected):
    spec = handmade.record().spec.train.evaluation.model_copy(update={"eval_batch_size": 1, "seq_len": 5})
    tokens = torch.zeros(5 * number + 1, dtype=torch.int64)
    chosen = segments_to_sample(tokens, spec)
    assert chosen == segments_to_sample(tokens, spec)
    assert sorted(segment * expected // number for segment in chosen) == list(range(expected))
