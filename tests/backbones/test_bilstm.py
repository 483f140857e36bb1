"""The bidirectional LSTM: both stacks, the loss of both directions, and what no position may see."""

import math
from functools import partial

import handmade
import pytest
import torch

from harness import plan
from harness.backbones.bilstm import BidirectionalLSTM
from harness.backbones.lstm import StackedLSTM
from harness.corpora.batching import Segment
from harness.corpora.corpus import Corpus
from harness.model import build
from harness.plan.specs import ComponentSpec
from harness.protocols import Hidden
from harness.registry import BACKBONES
from harness.training.clocks import Clock
from harness.training.evaluation import evaluate
from harness.training.step import SegmentLoss
from harness.trial.run import run

V, D = 11, 5
SIZES = {"d_model": D, "num_layers": 3, "dropout": 0.0}
TOKENS = torch.tensor([[3, 9, 1, 7, 5, 0], [2, 8, 4, 6, 10, 1]])  # no token twice in a row
CPU = torch.device("cpu")


def model(head="softmax", **params):
    """In float64, with parameters that are far from their starts."""
    torch.manual_seed(0)
    spec = ComponentSpec(name=head, params=params)
    counts = torch.arange(1, V + 1)
    built = build(ComponentSpec(name="bilstm", params=SIZES), spec, vocab_size=V, seed=1, token_counts=counts).double()
    for parameter in built.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return built


@pytest.mark.parametrize("more", [{}, {"d_input": 3, "init_range": 0.1}], ids=str)
def test_the_stack_from_the_left_is_the_lstm_of_the_same_seed(more):
    specs = [ComponentSpec(name=name, params={**SIZES, **more}) for name in ("bilstm", "lstm")]
    both, one = (build(spec, ComponentSpec(name="mos"), vocab_size=V, seed=7).backbone for spec in specs)
    for ours, theirs in zip(both(TOKENS).layers, one(TOKENS).layers, strict=True):
        assert torch.equal(ours, theirs)
    ours, theirs = (sum(p.numel() for p in each.layers.parameters()) for each in (both, one))
    assert sum(p.numel() for p in both.reversed_layers.parameters()) == ours == theirs


def test_the_stack_from_the_right_is_an_lstm_of_its_own_on_the_same_embedding():
    both = BidirectionalLSTM(V, **SIZES).double().eval()
    one = StackedLSTM(V, **SIZES).double().eval()
    one.embedding.load_state_dict(both.embedding.state_dict())
    one.layers.load_state_dict(both.reversed_layers.state_dict())
    for ours, theirs in zip(both.reversed_states(TOKENS).layers, one(TOKENS).layers, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    assert both.reversed_states(TOKENS).state is None


def test_the_segment_from_its_end_swaps_inputs_and_targets():
    weight, place = torch.tensor([[1.0, 1.0, 0.0]]), torch.tensor([[4, 5, 6]])
    found = Segment(torch.tensor([[10, 11, 12]]), torch.tensor([[11, 12, 13]]), weight, place).reversed()
    assert [each.tolist() for each in found[:4]] == [[[13, 12, 11]], [[12, 11, 10]], [[0.0, 1.0, 1.0]], [[5, 4, 3]]]


def nll_of_a_softmax(head, h_D, target):
    """-log softmax(W h + b)[target] as loops."""
    weight, bias = head.output.weight, head.output.bias
    scores = [sum(weight[v, d] * h_D[d] for d in range(D)).item() + bias[v].item() for v in range(V)]
    return math.log(sum(math.exp(score) for score in scores)) - scores[target]


def test_the_loss_is_the_mean_of_both_directions():
    built = model()
    left = built.backbone(TOKENS[:, :-1]).layers[-1]
    right = built.backbone.reversed_states(TOKENS[:, 1:].flip(1)).layers[-1]
    terms, T = [], TOKENS.shape[1] - 1
    for b in range(len(TOKENS)):
        for t in range(T):
            terms.append(nll_of_a_softmax(built.head, left[b, t], TOKENS[b, t + 1].item()))
            # place s of the reversed text has read x_T .. x_{T-s}, and predicts the token before it
            terms.append(nll_of_a_softmax(built.head, right[b, t], TOKENS[b, T - t - 1].item()))
    loss, state = SegmentLoss(built)(Segment(TOKENS[:, :-1], TOKENS[:, 1:]), None)
    assert loss.item() == pytest.approx(sum(terms) / len(terms), abs=1e-9)
    assert len(state) == 3  # of the stack from the left: one (h, c) for each layer


SUITE = """\
name: both
version: 1
corpora: [{{markov: {{vocab_size: 11, num_tokens: 400, branching: 3}}}}]
backbones: [{{bilstm: {{d_model: 5, num_layers: 3}}}}]
heads: [{head}]
train: {{optimizer: adam, lr: 0.01, epochs: 2, batch_size: 4, seq_len: 7}}
seeds: [1]
measure: {{exclusive: false}}
"""


@pytest.fixture
def trial(tmp_path):
    """A function: the line of a head in a suite -> the trial of it and of a bidirectional LSTM (or another)."""

    def of(head: str, backbone: str = "bilstm"):
        path = tmp_path / "both.yaml"
        path.write_text(SUITE.format(head=head).replace("bilstm", backbone))
        return plan.load(path).trials[0]

    return of


def test_from_the_right_every_token_but_the_last_is_scored_once_from_the_rest_of_its_segment(trial):
    spec = trial("softmax").train.evaluation.model_copy(update={"eval_batch_size": 2, "seq_len": 3})
    built, text_N = model().eval(), TOKENS.flatten()  # 12 tokens: 11 pairs, two columns of 6; the last pair is filler
    corpus = Corpus(vocab_size=V, train=text_N, valid=text_N, test=text_N)
    score, kept = evaluate(built.from_the_right(), corpus, "test", spec, clock=Clock(CPU))
    expected = {}
    for begin in (0, 3, 6, 9):
        end = begin + 3  # the segment reads tokens end .. begin + 1 and predicts end - 1 .. begin
        read = [min(n, 11) for n in range(end, begin, -1)]  # the token after the end is the last one again
        h_TD = built.backbone.reversed_states(text_N[read][None]).layers[-1][0]
        for t, n in enumerate(range(end - 1, begin - 1, -1)):
            if n < 11:
                expected[n] = nll_of_a_softmax(built.head, h_TD[t], text_N[n].item())
    assert sorted(expected) == list(range(11))
    assert (score.num_scored, kept.nll_N.isnan().tolist()) == (11, [False] * 11 + [True])
    assert kept.nll_N[:11].tolist() == pytest.approx([expected[n] for n in range(11)], abs=1e-6)
    assert score.nll_sum == pytest.approx(sum(expected.values()), abs=1e-9)


def ran(spec, tmp_path):
    setting = partial(handmade.task, runs=tmp_path / "runs")
    return run(setting(spec=spec))


@pytest.mark.needs("integrity")
def test_a_trial_has_the_perplexity_of_both_directions_and_one_certificate(trial, tmp_path):
    from harness.verification.measured import VerificationOptions, evaluate_again
    from harness.verification.verify import find_records

    record = ran(trial("{mfs: {num_partitions: 2, window: 1}}"), tmp_path)  # reads the states before a position
    assert record.status == "ok", record.message
    left, right = record.metrics["test_ppl"], record.metrics["test_ppl_from_the_right"]
    assert left != right
    assert all(1 < ppl < record.metrics["unigram_test_ppl"] * 1.2 for ppl in (left, right))
    (stored,) = find_records(str(tmp_path / "runs" / record.id), tmp_path)
    options = VerificationOptions(data=tmp_path, device="cpu")
    again = evaluate_again(stored.record, stored.contents, stored.best, options).record
    assert (again.status, again.metrics["test_ppl_from_the_right"]) == ("ok", pytest.approx(right, rel=1e-6))


class Peeping(BidirectionalLSTM):
    """Its stack from the right also reads the token that comes next, which it is to predict."""

    def reversed_states(self, tokens_BT):
        hidden = super().reversed_states(tokens_BT)
        return Hidden(tuple(layer + 20 * layer.roll(-1, 1) for layer in hidden.layers))  # so that it matters


@pytest.mark.needs("conformance", "integrity")
def test_what_peeps_from_the_right_does_not_conform_and_gets_no_certificate(trial, tmp_path, monkeypatch):
    from harness.conformance.backbones import BackboneCase, from_the_right
    from harness.conformance.require import Nonconforming

    monkeypatch.setitem(BACKBONES._classes, "peeping", Peeping)
    case = BackboneCase(Peeping, SIZES)
    with pytest.raises(Nonconforming, match="layer 0 at position 0 sees later inputs"):
        from_the_right(case)
    record = ran(trial("softmax", "peeping"), tmp_path)
    assert (record.status, record.not_certified) == ("invalid", "")
    assert "asked in a process of its own with other tokens after it" in record.message
