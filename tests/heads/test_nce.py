"""NCE: the noise distribution and its alias table, the loss by hand, one draw a batch, exact evaluation, parameters."""

import math

import pytest
import rounding
import small_heads
import torch
from small_heads import V, states
from torch import nn

from harness.heads.nce import UnigramNoise
from harness.protocols import Hidden


def make(**given):
    return small_heads.make("nce", **{"dtype": None, **given})


ZIPF = [10**9 // rank for rank in range(1, 2001)]
COUNT_VECTORS = {
    "a single word": [7],
    "full columns": [1, 2, 3, 2],  # heights 1/2, 1, 3/2, 1
    "equal counts, no power of two": [1] * 7,
    "columns that become full": [1, 3, 1, 3],
    "many words that never occur": [1, 2] + [0] * 1000,
    "Zipf": ZIPF,
    "Zipf, the rarest first": ZIPF[::-1],
    "very skewed, with ties": [10**12, 1, 10**6, 2, 0, 7, 7, 10**3],
    "ascending from a word that never occurs": list(range(40)),
}


def unigram(counts):
    """Relative frequencies, floored at 1e-10, renormalised."""
    floored = [max(each / sum(counts), 1e-10) for each in counts]
    return [each / math.fsum(floored) for each in floored]


@pytest.mark.parametrize("counts", COUNT_VECTORS.values(), ids=COUNT_VECTORS.keys())
def test_the_alias_table_draws_each_word_with_exactly_its_probability(counts):
    noise = UnigramNoise(torch.tensor(counts))
    # one of V columns, then its word with probability keep, else its alias
    drawn = (noise.keep / len(counts)).index_add(0, noise.alias, (1 - noise.keep) / len(counts))
    expected = torch.tensor(unigram(counts), dtype=torch.float64)
    tolerance = rounding.bound(len(counts) + 25)  # sums over the words, and logarithms of down to -23
    torch.testing.assert_close(drawn, expected, rtol=0, atol=tolerance)
    torch.testing.assert_close(noise.log_q, expected.log(), rtol=0, atol=tolerance)
    assert 0 <= noise.keep.min() <= noise.keep.max() <= 1
    has_alias = noise.alias != torch.arange(len(counts))
    assert torch.equal(noise.keep < 1, has_alias)  # a full column has none, and one without is full


def test_samples_have_the_frequencies_of_the_counts():
    counts, num = [50, 1, 0, 30, 19], 200_000
    torch.manual_seed(0)
    words = UnigramNoise(torch.tensor(counts)).sample(num)
    assert words.shape == (num,)
    for word, q in enumerate(unigram(counts)):  # binomial
        frequency = (words == word).double().mean().item()
        assert frequency == pytest.approx(q, rel=0, abs=5 * math.sqrt(q * (1 - q) / num))


def test_a_column_keeps_its_word_below_its_height_by_draws_of_the_tables_type_and_device(monkeypatch):
    # heights 1/2 and 3/2: keep (1/2, 1); the first column's alias is the second word
    noise, settings = UnigramNoise(torch.tensor([1, 3])).double(), []

    def draw(value):
        def drawn(num, *, dtype, device):
            settings.append((dtype, device))
            return torch.full((num,), value, dtype=dtype, device=device)

        def column(limit, shape, *, device):
            settings.append((limit, device))
            return torch.zeros(shape, dtype=torch.int64, device=device)

        monkeypatch.setattr(torch, "rand", drawn)
        monkeypatch.setattr(torch, "randint", column)
        return noise.sample(1).item()

    assert [draw(0.0), draw(0.4999999), draw(0.5), draw(0.9)] == [0, 0, 1, 1]
    assert set(settings) == {(torch.float64, noise.keep.device), (2, noise.alias.device)}


def test_from_bfloat16_logits_the_rest_is_computed_in_float32():
    # a score of 0 against log q + log k + lnZ = log(1/V) + log 8 + 20 for each of 8 noise words and the target
    head = make(num_noise=8, log_normaliser=20.0, counts=torch.ones(V, dtype=torch.int64), bias=False).bfloat16()
    nn.init.zeros_(head.output.weight)
    head.noise.log_q = head.noise.log_q.double().fill_(-math.log(V))
    distribution = head(Hidden((states().layers[0].bfloat16(),)))
    assert distribution.training_loss(torch.zeros(2, 3, dtype=torch.int64)).dtype == torch.float32
    even = math.log(8 / V) + 20
    expected = math.log1p(math.exp(even)) + 8 * math.log1p(math.exp(-even))
    found = distribution.contrast(torch.zeros(6, dtype=torch.int64), torch.arange(8))
    assert found.tolist() == pytest.approx([expected] * 6, abs=1e-5)  # bfloat16 keeps 19.68 to 0.06


def test_noise_is_drawn_anew_for_every_batch():
    head, targets = make().double(), torch.zeros(2, 3, dtype=torch.int64)
    assert head(states()).training_loss(targets) != head(states()).training_loss(targets)


def test_a_split_without_tokens_is_refused():
    with pytest.raises(ValueError, match="the training split has no tokens"):
        make(counts=torch.zeros(V, dtype=torch.int64))
    assert make(vocab_size=2, counts=torch.tensor([0, 1])).noise is not None
