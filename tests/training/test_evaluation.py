"""Evaluation: sums, counting rules, unigram, batching and segmenting; calibration; against loops over tokens."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from small import Bare, Bigram, Identity, bigram, spec

from harness.corpora.corpus import Corpus, TextSize
from harness.errors import ExecutionError
from harness.model import LanguageModel
from harness.protocols import Hidden
from harness.records.metrics import METRICS
from harness.training.clocks import Clock
from harness.training.evaluation import (
    Score,
    TokenNll,
    calibration,
    evaluate,
    known_scores,
    references,
    text_scores,
    unigram_ppl,
)


class Average(Bigram):
    """A causal one: the state of a place is the mean of all embeddings up to it, its own counted double."""

    def forward(self, tokens, state=None):
        vectors = self.embedding(tokens)
        counts = torch.arange(1, tokens.shape[1] + 1, dtype=vectors.dtype)
        return Hidden((vectors + vectors.cumsum(1) / counts[:, None],))


class Sum(Bigram):
    """The same with the sum of all vectors so far as its state, which it carries."""

    def forward(self, tokens, state=None):
        vectors = self.embedding(tokens).cumsum(1) + (0 if state is None else state)
        return Hidden((vectors,), vectors[:, -1:])


TEXT = torch.randint(5, (23,), generator=torch.Generator().manual_seed(1)).tolist()


def eval_spec(**changes):
    return spec(**{"batch_size": 2, "seq_len": 4, "eval_batch_size": 3, **changes}).evaluation


def random_bigram():
    return bigram(torch.randn(5, 5, generator=torch.Generator().manual_seed(0)))


def corpus_of(tokens_N):
    """A corpus whose splits are all this text."""
    return Corpus(vocab_size=5, train=tokens_N, valid=tokens_N, test=tokens_N)


def evaluated(model, tokens, uncounted_id=None, **settings):
    """The score of a text, and the loss of each of its tokens."""
    clock = Clock(torch.device("cpu"))
    corpus = replace(corpus_of(torch.as_tensor(tokens)), uncounted_id=uncounted_id)
    return evaluate(model, corpus, "test", eval_spec(**settings), clock=clock)


def score(model, tokens, **more):
    return evaluated(model, tokens, **more)[0]


@pytest.mark.parametrize(("eval_batch_size", "seq_len"), [(1, 4), (3, 1), (7, 4), (50, 100)])
def test_every_token_but_the_first_is_scored_once_whatever_the_batching(eval_batch_size, seq_len):
    model = random_bigram()
    table = model.backbone.embedding.weight.double().log_softmax(-1)
    expected = -sum(table[a, b].item() for a, b in pairwise(TEXT))
    found = score(model, TEXT, eval_batch_size=eval_batch_size, seq_len=seq_len)
    assert found.num_scored == 22
    assert found.nll_sum == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("settings", "scored", "counted"),
    [
        ({}, 7, 5),
        ({"seq_len": 3, "batching": "blocks"}, 5, 5),  # [0 3 4 | 0 2 4 | 0 1]: targets 3 4, 2 4, 1
        ({"seq_len": 4, "batching": "blocks"}, 6, 4),  # [0 3 4 0 | 2 4 0 1]: 3 4 0, 4 0 1
    ],
)
def test_standard_counting_divides_by_all_scored_but_the_boundary_token(settings, scored, counted):
    tokens = [0, 3, 4, 0, 2, 4, 0, 1]  # <sos> is 0
    found = score(random_bigram(), tokens, uncounted_id=0, **settings)
    assert (found.num_scored, found.num_counted) == (scored, counted)
    # PROTOCOLS.md section 0, trap 1: exp(ln ppl * tokens_with / tokens_standard)
    assert found.ppl_standard == pytest.approx(math.exp(math.log(found.ppl) * scored / counted))


def test_the_sum_is_taken_in_float64():
    # Two words, one of logit 0 and one of -2^24: the nll of the second is 2^24, and a float32 sum of it and of many
    # nlls of ln 2 would swallow the latter whole (the spacing of float32 at 2^24 is 2).
    model = bigram(torch.tensor([[0.0, -(2.0**24), -1e30], [0, 0, -1e30], [0, 0, -1e30]]))
    expected = 2**24 + 100 * math.log(2)
    assert score(model, [0] + [1] * 101, eval_batch_size=1).nll_sum == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(
    ("test", "settings", "expected"),
    [
        ([1, 0, 2], {}, 7 / 2),  # scored: 0, 2: exp(-(ln 4/7 + ln 1/7) / 2)
        ([1, 0, 2, 1], {"seq_len": 2, "batching": "blocks"}, 7 / math.sqrt(8)),  # 0, 1: exp(-(ln 4/7 + ln 2/7) / 2)
        ([1, 0, 2, 1], {"seq_len": 2, "batching": "blocks", "eval_batch_size": 1, "eval_batches": 1}, 7 / 4),  # 0
    ],
)
def test_unigram_perplexity_of_the_scored_tokens_by_hand(test, settings, expected):
    train = torch.tensor([0, 0, 1, 0])  # counts 3, 1, 0 of 4; plus one: 4/7, 2/7, 1/7
    corpus = Corpus(vocab_size=3, train=train, valid=train, test=torch.tensor(test))
    assert unigram_ppl(corpus, eval_spec(**settings)) == pytest.approx(expected)
    untrained = Corpus(vocab_size=3, train=train[:0], valid=train, test=torch.tensor(test))
    assert "unigram_test_ppl" not in references(untrained, eval_spec(**settings))


def test_what_is_in_each_split_by_hand():
    symbols = ("<unk>", "a", "b", "c")
    splits = {"train": [0, 1, 1, 2], "valid": [0, 0, 3], "test": [1, 3, 3, 0, 2]}
    tensors = {name: torch.tensor(ids) for name, ids in splits.items()}
    half = {"test": 0.5}
    corpus = Corpus(vocab_size=4, symbols=symbols, unknown_id=0, lines_in_train=half, **tensors)
    found = references(corpus, eval_spec())
    del found["unigram_test_ppl"]
    assert found == {
        **{"train_tokens": 4, "train_types": 3, "train_unknown_share": 1 / 4},
        **{"valid_tokens": 3, "valid_types": 2, "valid_unseen_types": 1, "valid_unknown_share": 2 / 3},
        **{"test_tokens": 5, "test_types": 4, "test_unseen_types": 1, "test_lines_in_train": 0.5},
    }
    assert set(found) <= set(METRICS)


def causal(kind=Average):
    torch.manual_seed(0)
    return LanguageModel(kind(5), Identity()).double()


def nll(model, context: list[int], target: int) -> float:
    """Of one token after a context, by the formula: the only position that is looked at is the last."""
    with torch.no_grad():
        logits = model.backbone(torch.tensor([context])).layers[-1][0, -1]
    return (logits.logsumexp(-1) - logits[target]).item()


@pytest.mark.parametrize(
    ("seq_len", "stride", "eval_batch_size"), [(6, 1, 1), (6, 2, 3), (6, 4, 3), (6, 6, 3), (50, 7, 1)]
)
def test_windows_by_a_stride_equal_a_loop_over_windows(seq_len, stride, eval_batch_size):
    model, expected, begin, done = causal(), 0.0, 0, 0
    while done < 22:
        end = min(begin + seq_len, 22)
        expected += sum(nll(model, TEXT[begin : at + 1], TEXT[at + 1]) for at in range(done, end))
        begin, done = begin + stride, end
    found = score(model, TEXT, seq_len=seq_len, eval_stride=stride, eval_batch_size=eval_batch_size)
    assert found.num_scored == 22
    assert found.nll_sum == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("kind", "rows", "batches"),
    [(Average, 1, None), (Sum, 3, None), (Average, 10, None), (Sum, 2, 2), (Average, 2, 100)],
)
def test_blocks_equal_a_loop_over_all_or_the_first_blocks_without_carried_state(kind, rows, batches):
    model, expected = causal(kind), []
    for begin in range(0, 23, 5)[: None if batches is None else rows * batches]:  # the last block has 3 tokens
        block = TEXT[begin : begin + 5]
        expected += [nll(model, block[:at], block[at]) for at in range(1, len(block))]
    assert len(expected) == (16 if batches == 2 else 4 * 4 + 2)
    found = score(model, TEXT, seq_len=5, batching="blocks", eval_batch_size=rows, eval_batches=batches)
    assert found.num_scored == len(expected)
    assert found.nll_sum == pytest.approx(sum(expected), rel=1e-9)


def test_a_stride_is_refused_where_the_backbone_carries_state():
    with pytest.raises(
        ExecutionError, match=r"^train\.eval_stride is for backbones without state: .* eval_stride out$"
    ):
        score(causal(Sum), TEXT, eval_stride=2)


def test_the_summed_loss_is_divided_by_words_bytes_and_characters_of_a_text_that_is_all_scored():
    ids, score = torch.tensor([0, 1]), Score(nll_sum=10.0, num_scored=7, num_counted=7)
    size, tokens = TextSize(words=4, characters=20, bytes=25), TokenNll(2, torch.device("cpu"))
    corpus = Corpus(vocab_size=2, train=ids, valid=ids, test=ids, test_size=size)
    expected = {
        "test_ppl_word": math.exp(10 / 4),
        "test_ppl_byte": math.exp(10 / 25),
        "test_bits_per_character": 10 / 20 / math.log(2),
        "test_bits_per_byte": 10 / 25 / math.log(2),
    }
    for settings in ({}, {"eval_stride": 2}):
        assert text_scores(score, tokens, corpus, eval_spec(**settings)) == pytest.approx(expected)
    for settings in ({"batching": "blocks"}, {"eval_batches": 1}):
        assert text_scores(score, tokens, corpus, eval_spec(**settings)) == {}


LENGTHS = [5, 1, 0, 3, 2, 2, 1, 4, 0, 1, 1, 7]  # bytes of the first twelve tokens


@pytest.mark.parametrize(
    ("changes", "scored", "offsets"),
    [
        ({"eval_batch_size": 2}, [*range(1, 12)], [0, 1, 2, 3, 0, 1, 0, 1, 2, 3, 0]),  # columns of 6 and 5 targets
        ({"eval_batch_size": 2, "eval_batches": 1}, [1, 2, 3, 4, 7, 8, 9, 10], [0, 1, 2, 3, 0, 1, 2, 3]),
        ({"eval_stride": 2}, [*range(1, 12)], [0, 1, 2, 3, 2, 3, 2, 3, 2, 3, 2]),
        ({"batching": "blocks"}, [1, 2, 3, 5, 6, 7, 9, 10, 11], [0, 1, 2] * 3),
    ],
)
def test_each_scored_token_is_kept_at_its_place_and_its_words_and_bytes_count(changes, scored, offsets):
    model, text = random_bigram(), TEXT[:12]
    table, corpus = model.backbone.embedding.weight.double().log_softmax(-1), corpus_of(torch.tensor(text))
    nll = {place: -table[text[place - 1], text[place]].item() for place in scored}
    found, kept = evaluated(model, text, **changes)
    assert (~kept.nll_N.isnan()).nonzero().flatten().tolist() == scored
    assert (kept.offset_N != -1).nonzero().flatten().tolist() == scored
    assert kept.nll_N[scored].tolist() == pytest.approx(list(nll.values()))
    assert kept.offset_N[scored].tolist() == offsets
    assert found.num_scored == len(scored)
    # the perplexity on known words leaves out the targets that are unknown; there is no token 9
    for unknown_id in (4, 9):
        known = [each for place, each in nll.items() if text[place] != unknown_id]
        expected = {"test_unknown_share": 1 - len(known) / len(scored)}
        if len(known) < len(scored):
            expected["test_ppl_known"] = math.exp(sum(known) / len(known))
        assert known_scores(kept, replace(corpus, unknown_id=unknown_id)) == pytest.approx(expected)
    assert known_scores(kept, corpus) == {}
    # where not all is scored, the size of the whole text does not count
    size = TextSize(words=1, characters=1, bytes=1) if len(scored) < 11 else None
    sized = replace(corpus, test_size=size, test_bytes=torch.tensor(LENGTHS, dtype=torch.int32))
    bits = found.nll_sum / sum(LENGTHS[place] for place in scored) / math.log(2)
    assert text_scores(found, kept, sized, eval_spec(**changes)) == pytest.approx({"test_bits_per_byte": bits})
    # a token that stands for any text has none of its own
    for unknown_id in range(5):
        is_scored = unknown_id in {text[place] for place in scored}
        with_unknown = replace(sized, unknown_id=unknown_id)
        assert (text_scores(found, kept, with_unknown, eval_spec(**changes)) == {}) == is_scored


def model_of(probabilities, head=None):
    return bigram(torch.tensor(probabilities, dtype=torch.float64).log(), head)


def by_loop(probabilities, pairs):
    bins = [[] for _ in range(15)]
    entropies = []
    for before, target in pairs:
        p = probabilities[before]
        confidence = max(p)
        place = max(b for b in range(15) if confidence > b / 15)
        bins[place].append((confidence, p.index(confidence) == target))
        entropies.append(-sum(x * math.log(x) for x in p))
    total = sum(map(len, bins))
    error = sum(abs(sum(right for _, right in b) - sum(c for c, _ in b)) for b in bins) / total
    return error, sum(entropies) / total


def random_table():
    generator = torch.Generator().manual_seed(0)
    return (3 * torch.randn(5, 5, generator=generator, dtype=torch.float64)).softmax(-1).tolist()


@pytest.mark.parametrize("settings", [{}, {"seq_len": 7, "eval_batch_size": 1}, {"batching": "blocks"}], ids=str)
def test_the_error_and_the_entropy_equal_a_loop_over_the_scored_tokens(settings):
    tokens = torch.randint(5, (60,), generator=torch.Generator().manual_seed(1))
    pairs = list(zip(tokens[:-1].tolist(), tokens[1:].tolist(), strict=True))
    if settings.get("batching") == "blocks":
        pairs = [pair for i, pair in enumerate(pairs, start=1) if i % 4]  # the first token of a block is no target
    error, entropy = by_loop(random_table(), pairs)
    found = calibration(model_of(random_table()), corpus_of(tokens), eval_spec(**settings))
    assert found == {
        "test_calibration_error": pytest.approx(error, abs=1e-6),
        "test_entropy": pytest.approx(entropy, abs=1e-6),
    }


@pytest.mark.parametrize(("p", "same_bin"), [(0.39, True), (0.41, False)])
def test_a_bin_is_a_fifteenth_wide(p, same_bin):
    # rows with confidence p and 0.36, one right and one wrong; 6/15 = 0.4 divides the bins
    table = [[p, *[(1 - p) / 4] * 4], [0.36, *[0.16] * 4], *[[0.2] * 5] * 3]
    spec, corpus = eval_spec(eval_batch_size=1, eval_batches=1), corpus_of(torch.tensor([0, 0, 1, 2]))
    found = calibration(model_of(table), corpus, spec)
    # the tokens' contexts are 0, 0, 1: confidences p, p, 0.36; right, wrong, wrong
    expected = abs(1 - 2 * p - 0.36) / 3 if same_bin else (abs(1 - 2 * p) + 0.36) / 3
    assert found["test_calibration_error"] == pytest.approx(expected, abs=1e-6)


def test_a_distribution_without_statistics_is_a_sentence():
    with pytest.raises(ExecutionError, match=r"measure\.calibration: head returns a Plain, which has no method"):
        calibration(model_of(random_table(), Bare()), corpus_of(torch.zeros(25, dtype=torch.long)), eval_spec())
