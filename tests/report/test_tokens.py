"""Where a trial's words cost less than another's, on scores written by hand, and their contexts: the text as it is."""

import math

import numpy as np
import pytest
import torch

from harness.corpora.corpus import Corpus
from harness.corpora.vocabulary import ByteCodec, CharacterCodec, WordCodec
from harness.errors import RecordError
from harness.records.sidecars import TokenScores
from harness.report.statistics import BLOCK
from harness.report.tokens import by_frequency, by_position, contexts, differences

NAN = math.nan


def scores(nll, count=None, offset=None) -> TokenScores:
    ones = [1] * len(nll)
    return TokenScores(
        nll=np.array(nll, dtype=np.float32),
        count=np.array(ones if count is None else count, dtype=np.int32),
        offset=np.array(ones if offset is None else offset, dtype=np.int32),
    )


def told(bands) -> list[tuple[str, int, float]]:
    return [(band.label, band.tokens, pytest.approx(band.mean)) for band in bands]


def test_bands_of_frequency_are_powers_of_ten():
    count = [0, 1, 9, 10, 99, 1000, 9999]
    a, b = scores([1.0] * 7, count), scores([2.0, 1, 2, 0, 1, 3, 4], count)
    expected = [("0", 1, 1.0), ("1-9", 2, 0.5), ("10-99", 2, -0.5), ("1000-9999", 2, 2.5)]
    assert told(by_frequency(a, b)) == expected


def test_bands_of_position_double():
    offset = [0, 1, 2, 3, 4, 7, 8, 16]
    a, b = scores([0.0] * 8, offset=offset), scores([1.0, 2, 3, 5, 6, 8, 9, 10], offset=offset)
    expected = [("0", 1, 1.0), ("1", 1, 2.0), ("2-3", 2, 4.0), ("4-7", 2, 7.0), ("8-15", 1, 9.0), ("16-31", 1, 10.0)]
    assert told(by_position(a, b)) == expected


def test_bands_hold_every_token_that_both_scored_and_no_other():
    count = [0, 5, 50, 500]
    a, b = scores([NAN, 1, 1, 1], count), scores([1, 2, NAN, 4], count)
    assert told(by_frequency(a, b)) == [("1-9", 1, 1.0), ("100-999", 1, 3.0)]
    assert differences(a, b).place.tolist() == [1, 3]


def test_the_error_is_of_blocks_that_weigh_by_their_tokens_in_the_band():
    # one band's tokens: 0 0 in the first block, 3 in the second; m = 1, rests -2 and 2: 2 / 1 (4 + 4) / 3^2
    count = np.zeros(BLOCK + 1, dtype=np.int32)
    count[[0, 1, BLOCK]] = 5
    nll = np.zeros(BLOCK + 1)
    nll[BLOCK] = 3
    seldom = by_frequency(scores(np.zeros(BLOCK + 1), count), scores(nll, count))[1]
    assert (seldom.tokens, seldom.mean, seldom.error) == (3, 1, pytest.approx(math.sqrt(2 * 8 / 9)))


@pytest.mark.parametrize("count", [[1, 2, 3], [1, 3]])
def test_another_test_split_is_refused(count):
    with pytest.raises(RecordError, match="two test splits"):
        differences(scores([1.0, 1], [1, 2]), scores([1.0] * len(count), count))


def corpus_of(codec, ids: list[int], symbols=None, vocab_size: int = 100) -> Corpus:
    tokens = torch.tensor(ids)
    return Corpus(vocab_size=vocab_size, train=tokens, valid=tokens, test=tokens, symbols=symbols, codec=codec)


def scores_in(corpus: Corpus, nll) -> TokenScores:
    counts = corpus.token_counts[corpus.test].numpy().astype(np.int32)
    return TokenScores(nll=np.array(nll, dtype=np.float32), count=counts, offset=np.zeros(len(nll), dtype=np.int32))


def at(corpus: Corpus, place: int) -> tuple[str, str, str]:
    """The context of a place, by planting a difference there."""
    nll = np.zeros(len(corpus.test))
    nll[place] = -1
    ((found,), worse) = contexts(corpus, scores_in(corpus, 0 * nll), scores_in(corpus, nll), top=3)
    assert (found.place, found.a, found.b, worse) == (place, 0, -1, ())
    return found.before, found.target, found.after


def test_a_word_stands_between_eight_and_four():
    names = ("<eos>", *(f"w{number}" for number in range(1, 21)))
    corpus = corpus_of(WordCodec(names), [*range(1, 16), 0, *range(16, 21)], names)
    before, after = "w4 w5 w6 w7 w8 w9 w10 w11 ", " w13 w14 w15 <eos>"
    assert at(corpus, 11) == (before, "w12", after)
    assert at(corpus, 0) == ("", "w1", " w2 w3 w4 w5")
    assert at(corpus, 20) == ("w13 w14 w15 <eos> w16 w17 w18 w19 ", "w20", "")


def test_a_character_stands_where_it_is_in_its_word():
    text = "one two three four five six seven eight nine ten eleven"
    letters = sorted(set(text))
    codec = CharacterCodec(letters)
    corpus = corpus_of(codec, codec.encode(text), tuple(letters))
    place = text.index("nine") + 1
    assert at(corpus, place) == ("two three four five six seven eight n", "i", "ne ten eleven")
    assert at(corpus, place - 2) == ("one two three four five six seven eight", " ", "nine ten eleven")


def test_a_byte_that_completes_a_letter_shows_the_letter():
    content = "né é".encode()
    values = bytes(sorted(set(content)))
    codec = ByteCodec(values)
    corpus = corpus_of(codec, [values.index(byte) for byte in content])
    assert at(corpus, 0)[:2] == ("", "n")
    assert at(corpus, 2)[1] == "\N{REPLACEMENT CHARACTER}"  # its second byte, alone no letter


def test_the_tokens_that_differ_most_come_first_each_way():
    names = tuple("abcdef")
    corpus = corpus_of(WordCodec(names), [0, 1, 2, 3, 4, 5], names)
    a, b = scores_in(corpus, [1, 1, 1, 1, 1, np.nan]), scores_in(corpus, [0.5, 3, 1, 0, 2, 9])
    better, worse = contexts(corpus, a, b, top=2)
    assert [each.target for each in better] == ["d", "a"]
    assert [each.target for each in worse] == ["b", "e"]  # not f: a did not score it; nor c: it is equal
    assert [len(each) for each in contexts(corpus, a, b, top=5)] == [2, 2]
    assert contexts(corpus, a, b, top=0) == ((), ())


@pytest.mark.parametrize("ids", [[0, 1, 2], [0, 1, 1, 1]])
def test_scores_of_another_text_are_refused(ids):
    names = tuple("abcdef")
    one, other = corpus_of(WordCodec(names), [0, 1, 2, 3], names), corpus_of(WordCodec(names), ids, names)
    kept = scores_in(one, [1.0] * 4)
    with pytest.raises(RecordError, match="not of this corpus"):
        contexts(other, kept, kept, top=1)
