"""Evaluation: exact sums, counting rules, unigram, and that batching and segmenting change nothing they should not."""

import math
from itertools import pairwise

import pytest
import torch
from torch import nn

from harness.corpora.corpus import Corpus, TextSize
from harness.distributions import Logits
from harness.errors import ExecutionError
from harness.model import LanguageModel
from harness.plan.specs import TrainSpec
from harness.protocols import Hidden
from harness.training.clocks import Clock
from harness.training.evaluation import Score, evaluate, references, text_scores, unigram_ppl


class Bigram(nn.Module):
    """A backbone and a head in one pair of tables: the logits of the next token depend on this one only."""

    def __init__(self, vocab_size):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, vocab_size)

    def forward(self, tokens, state=None):
        return Hidden((self.embedding(tokens),))


class Identity(nn.Module):
    def forward(self, hidden):
        return Logits(hidden.layers[-1])


def eval_spec(**changes):
    settings = {"optimizer": "sgd", "lr": 1.0, "epochs": 1, "batch_size": 2, "seq_len": 4, "eval_batch_size": 3}
    return TrainSpec(**{**settings, **changes}).evaluation


def bigram(vocab_size=5):
    torch.manual_seed(0)
    return LanguageModel(Bigram(vocab_size), Identity())


def score(model, tokens, spec, uncounted_id=None):
    return evaluate(model, tokens, spec, uncounted_id=uncounted_id, clock=Clock(torch.device("cpu")))[0]


@pytest.mark.parametrize("eval_batch_size", [1, 3, 7, 50])
@pytest.mark.parametrize("seq_len", [1, 4, 100])
def test_every_token_but_the_first_is_scored_once_whatever_the_batching(eval_batch_size, seq_len):
    model, tokens = bigram(), torch.randint(5, (23,), generator=torch.Generator().manual_seed(1))
    table = model.backbone.embedding.weight.double().log_softmax(-1)
    expected = -sum(table[a, b].item() for a, b in pairwise(tokens.tolist()))
    found = score(model, tokens, eval_spec(eval_batch_size=eval_batch_size, seq_len=seq_len))
    assert found.num_scored == 22
    assert found.nll_sum == pytest.approx(expected, abs=1e-5)


def test_standard_counting_divides_by_all_but_the_boundary_token():
    tokens = torch.tensor([0, 3, 4, 0, 2, 4, 0, 1])  # <sos> is 0: scored twice as a target
    found = score(bigram(), tokens, eval_spec(), uncounted_id=0)
    assert (found.num_scored, found.num_counted) == (7, 5)
    # PROTOCOLS.md section 0, trap 1: exp(ln ppl * tokens_with / tokens_standard)
    assert found.ppl_standard == pytest.approx(math.exp(math.log(found.ppl) * 7 / 5))


def test_the_sum_is_taken_in_float64():
    # Two words, one of logit 0 and one of -2^24: the nll of the second is 2^24, and a float32 sum of it and of many
    # nlls of ln 2 would swallow the latter whole (the spacing of float32 at 2^24 is 2).
    model = bigram(3)
    with torch.no_grad():
        model.backbone.embedding.weight.copy_(torch.tensor([[0.0, -(2.0**24), -1e30], [0, 0, -1e30], [0, 0, -1e30]]))
    tokens = torch.tensor([0] + [1] * 101)
    expected = 2**24 + 100 * math.log(2)
    assert score(model, tokens, eval_spec(eval_batch_size=1)).nll_sum == pytest.approx(expected, abs=1e-3)


def test_unigram_perplexity_by_hand():
    # counts 3, 1, 0 of 4; plus one: 4/7, 2/7, 1/7; scored test tokens 0, 2: exp(-(ln 4/7 + ln 1/7) / 2) = 7 / 2
    corpus = Corpus(
        vocab_size=3,
        train=torch.tensor([0, 0, 1, 0]),
        valid=torch.tensor([0, 0]),
        test=torch.tensor([1, 0, 2]),
    )
    assert unigram_ppl(corpus, eval_spec()) == pytest.approx(3.5)


# windows by a stride, blocks, the first batches: against loops over a model whose logits depend on all its context


class Average(nn.Module):
    """A causal backbone: the state of a place is the mean of all embeddings up to it, its own counted double."""

    def __init__(self, vocab_size):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, vocab_size)

    def forward(self, tokens, state=None):
        vectors = self.embedding(tokens)
        counts = torch.arange(1, tokens.shape[1] + 1, dtype=vectors.dtype)
        return Hidden((vectors + vectors.cumsum(1) / counts[:, None],))


class Sum(Average):
    """The same with the sum of all vectors so far as its state, which it carries."""

    def forward(self, tokens, state=None):
        vectors = self.embedding(tokens).cumsum(1) + (0 if state is None else state)
        return Hidden((vectors,), vectors[:, -1:])


def causal(kind=Average):
    torch.manual_seed(0)
    return LanguageModel(kind(5), Identity()).double()


TEXT = torch.randint(5, (23,), generator=torch.Generator().manual_seed(1)).tolist()


def nll(model, context: list[int], target: int) -> float:
    """Of one token after a context, by the formula: the only position that is looked at is the last."""
    with torch.no_grad():
        logits = model.backbone(torch.tensor([context])).layers[-1][0, -1]
    return (logits.logsumexp(-1) - logits[target]).item()


@pytest.mark.parametrize("eval_batch_size", [1, 3])
@pytest.mark.parametrize(("seq_len", "stride"), [(6, 1), (6, 2), (6, 4), (6, 6), (50, 7)])
def test_windows_by_a_stride_equal_a_loop_over_windows(seq_len, stride, eval_batch_size):
    model, expected, begin, done = causal(), 0.0, 0, 0
    while done < 22:
        end = min(begin + seq_len, 22)
        expected += sum(nll(model, TEXT[begin : at + 1], TEXT[at + 1]) for at in range(done, end))
        begin, done = begin + stride, end
    spec = eval_spec(seq_len=seq_len, eval_stride=stride, eval_batch_size=eval_batch_size)
    found = score(model, torch.tensor(TEXT), spec)
    assert found.num_scored == 22
    assert found.nll_sum == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("kind", [Average, Sum])
@pytest.mark.parametrize("eval_batch_size", [1, 3, 10])
def test_blocks_equal_a_loop_over_blocks_without_carried_state(kind, eval_batch_size):
    model, expected = causal(kind), []
    for begin in range(0, 23, 5):  # the last has 3 tokens
        block = TEXT[begin : begin + 5]
        expected += [nll(model, block[:at], block[at]) for at in range(1, len(block))]
    assert len(expected) == 4 * 4 + 2
    spec = eval_spec(seq_len=5, batching="blocks", eval_batch_size=eval_batch_size)
    found = score(model, torch.tensor(TEXT), spec)
    assert found.num_scored == 18
    assert found.nll_sum == pytest.approx(sum(expected), rel=1e-9)


def test_eval_batches_score_the_first_ones_only():
    model, expected = causal(), 0.0
    for begin in range(0, 20, 5):
        expected += sum(nll(model, TEXT[begin:at], TEXT[at]) for at in range(begin + 1, begin + 5))
    spec = eval_spec(seq_len=5, batching="blocks", eval_batch_size=2, eval_batches=2)
    found = score(model, torch.tensor(TEXT), spec)
    assert found.num_scored == 16
    assert found.nll_sum == pytest.approx(expected, rel=1e-9)
    more = spec.model_copy(update={"eval_batches": 100})
    assert score(model, torch.tensor(TEXT), more).num_scored == 18


def test_standard_counting_is_of_the_tokens_that_are_scored():
    # blocks of 3 of [0 3 | 4 | 0 2 4 | 0 1]: targets 3 4, 2 4, 1; the boundary tokens 0 are a block's first each time
    tokens = torch.tensor([0, 3, 4, 0, 2, 4, 0, 1])
    found = score(bigram(), tokens, eval_spec(seq_len=3, batching="blocks"), uncounted_id=0)
    assert (found.num_scored, found.num_counted) == (5, 5)
    found = score(bigram(), tokens, eval_spec(seq_len=4, batching="blocks"), uncounted_id=0)
    assert (found.num_scored, found.num_counted) == (6, 4)  # 3 4 0, 4 0 1


def test_a_memory_map_scores_as_the_same_tokens_in_memory():
    tokens = torch.tensor(TEXT)
    for changes in ({}, {"eval_stride": 2}, {"batching": "blocks"}):
        spec = eval_spec(**changes)
        assert score(causal(), tokens.int(), spec) == score(causal(), tokens, spec)


def test_a_stride_is_refused_where_the_backbone_carries_state():
    with pytest.raises(
        ExecutionError, match=r"^train\.eval_stride is for backbones without state: .* leave eval_stride out$"
    ):
        score(causal(Sum), torch.tensor(TEXT), eval_spec(eval_stride=2))


# text


def of_text(**sizes) -> Corpus:
    size = TextSize(**{"words": 4, "characters": 20, "bytes": 25, **sizes})
    tokens = torch.tensor([0, 1])
    return Corpus(vocab_size=2, train=tokens, valid=tokens, test=tokens, test_size=size)


def test_the_summed_loss_is_divided_by_words_bytes_and_characters():
    found = text_scores(Score(nll_sum=10.0, num_scored=7, num_counted=7), of_text(), eval_spec())
    assert found == pytest.approx(
        {
            "test_ppl_word": math.exp(10 / 4),
            "test_ppl_byte": math.exp(10 / 25),
            "test_bits_per_character": 10 / 20 / math.log(2),
        }
    )


@pytest.mark.parametrize("changes", [{"batching": "blocks"}, {"eval_batches": 1}])
def test_a_text_is_not_counted_where_parts_of_it_are_not_scored(changes):
    found = Score(nll_sum=10.0, num_scored=7, num_counted=7)
    assert text_scores(found, of_text(), eval_spec(**changes)) == {}
    assert text_scores(found, of_text(), eval_spec(eval_stride=2)) != {}


def test_unigram_perplexity_is_of_the_tokens_that_are_scored():
    # as above: 4/7, 2/7, 1/7; blocks of 2 score the second of 1 0 and of 2 1: exp(-(ln 4/7 + ln 2/7) / 2) = 7 / 8^0.5
    train, test = torch.tensor([0, 0, 1, 0]), torch.tensor([1, 0, 2, 1])
    corpus = Corpus(vocab_size=3, train=train, valid=train, test=test)
    assert unigram_ppl(corpus, eval_spec(seq_len=2, batching="blocks")) == pytest.approx(7 / math.sqrt(8))
    assert unigram_ppl(corpus, eval_spec(seq_len=2, batching="blocks", eval_batch_size=1, eval_batches=1)) == (
        pytest.approx(7 / 4)
    )


def test_without_a_training_split_there_is_no_unigram():
    tokens = torch.tensor([0, 1])
    empty = Corpus(vocab_size=2, train=tokens[:0], valid=tokens, test=tokens)
    assert references(empty, eval_spec()) == {}


@pytest.mark.parametrize(
    ("changes", "offsets", "unscored"),
    [
        ({"eval_batch_size": 2, "seq_len": 4}, [0, 1, 2, 3, 0, 1, 0, 1, 2, 3, 0], {0}),  # columns of 6 and 5 targets
        ({"eval_batch_size": 2, "seq_len": 4, "eval_batches": 1}, [0, 1, 2, 3, 0, 1, 2, 3], {0, 5, 6, 11}),
        ({"seq_len": 4, "eval_stride": 2}, [0, 1, 2, 3, 2, 3, 2, 3, 2, 3, 2], {0}),
        ({"seq_len": 4, "batching": "blocks"}, [0, 1, 2] * 3, {0, 4, 8}),
    ],
)
def test_each_token_is_kept_at_its_place_with_its_offset(changes, offsets, unscored):
    model, tokens = bigram(), torch.randint(5, (12,), generator=torch.Generator().manual_seed(1))
    table = model.backbone.embedding.weight.double().log_softmax(-1)
    found, kept = evaluate(model, tokens, eval_spec(**changes), uncounted_id=None, clock=Clock(torch.device("cpu")))
    scored = [place for place in range(12) if place not in unscored]
    assert (~kept.nll_N.isnan()).nonzero().flatten().tolist() == scored
    expected = torch.tensor([-table[tokens[place - 1], tokens[place]].item() for place in scored])
    torch.testing.assert_close(kept.nll_N[scored], expected)
    assert kept.offset_N[scored].tolist() == offsets
    assert set(kept.offset_N[sorted(unscored)].tolist()) == {-1}
    assert found.num_scored == len(scored)
