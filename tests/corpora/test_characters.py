"""Characters to ids, against a loop; what of a text is over by the end of its first bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.corpora.corpus import SPLITS, TextSize
from harness.corpora.local_text import Embedded
from harness.corpora.vocabulary import UNK, character_corpus, difference, encode, size_within, text_size, vocabulary
from harness.errors import CorpusError

TEXT = st.text(st.sampled_from("ab \né你\U0001f600"), min_size=2)


@given(TEXT, TEXT, TEXT, st.integers(1, 3))
def test_ids_are_those_of_a_loop_over_characters(train, valid, test, min_count):
    texts = dict(zip(SPLITS, (train, valid, test), strict=True))
    corpus = character_corpus(texts, min_count=min_count, where="here")
    symbols = vocabulary(list(train), min_count=min_count, unknown=True)
    ids = {symbol: index for index, symbol in enumerate(symbols)}
    assert corpus.symbols == symbols
    assert symbols[-1] == UNK
    for name in SPLITS:
        assert getattr(corpus, name).tolist() == encode(list(texts[name]), ids, "here").tolist()


def test_a_split_of_one_character_is_refused():
    with pytest.raises(CorpusError, match=r"^here: the valid split has 1 tokens; at least 2 are needed$"):
        character_corpus({"train": "ab", "valid": "a", "test": "ab"}, where="here")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a cat", TextSize(words=1, characters=4, bytes=4)),  # the first character ends the word "a"
        ("cat", TextSize(words=1, characters=2, bytes=2)),
        ("\u4f60 a", TextSize(words=1, characters=2, bytes=2)),  # three bytes in UTF-8
        (" a\n", TextSize(words=1, characters=2, bytes=2)),
    ],
)
def test_size_of_the_test_split_leaves_its_first_character_out(text, expected):
    assert character_corpus({"train": "ab", "valid": "ab", "test": text}, where="here").test_size == expected


@given(st.text(st.sampled_from("ab \n\u00e9\u4f60"), min_size=1), st.integers(0, 40))
def test_words_and_characters_count_where_their_last_byte_is(text, num_bytes):
    content = text.encode()
    num_bytes = min(num_bytes, len(content))
    ends, at = [], 0  # of each character in bytes
    for character in text:
        at += len(character.encode())
        ends.append(at)
    last = [end for i, end in enumerate(ends) if not text[i].isspace() and (text + " ")[i + 1].isspace()]
    found = size_within(text, content[:num_bytes])
    assert found.characters == sum(end <= num_bytes for end in ends)
    assert found.words == sum(end <= num_bytes for end in last)
    assert found.bytes == num_bytes
    left = difference(text_size(text), found)
    assert (left.words, left.bytes) == (len(last) - found.words, len(content) - num_bytes)


def test_the_novel_in_characters_is_the_printed_text(tmp_path):
    corpus = Embedded(level="char").load(tmp_path)
    printed = corpus.codec.decode([*corpus.train.tolist(), *corpus.valid.tolist(), *corpus.test.tolist()])
    assert len(printed) == 684_584  # shared/data/PROVENANCE.md: bytes, of pure ASCII
    assert "It is a truth universally acknowledged" in printed
    assert Embedded(level="char").facts().vocab_size == corpus.vocab_size == len(corpus.symbols)
    assert corpus.test_size.characters == len(corpus.test) - 1
