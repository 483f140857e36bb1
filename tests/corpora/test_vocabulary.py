"""Vocabularies, counting rules, characters and codecs, on texts of a line or two."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.corpora.corpus import SPLITS, Corpus
from harness.corpora.local_text import Embedded
from harness.corpora.synthetic import Markov
from harness.corpora.vocabulary import (
    UNK,
    ByteCodec,
    CharacterCodec,
    WordCodec,
    character_corpus,
    difference,
    encode,
    encode_splits,
    line_end,
    line_tokens,
    size_within,
    text_size,
    vocabulary,
)
from harness.errors import CorpusError


@pytest.mark.parametrize(
    ("text", "rule", "expected"),
    [
        ("b a b c a", {}, "b a c"),  # in order of first appearance
        ("c b a b c b", {"min_count": 2}, "c b"),
        *[("a b", {"unknown": True}, "a b <unk>"), ("a <unk> b", {"unknown": True}, "a <unk> b")],
    ],
)
def test_symbols_of_a_text(text, rule, expected):
    assert vocabulary(text.split(), **rule) == tuple(expected.split())


def test_splits_are_encoded_with_the_training_vocabulary():
    splits = {"train": ["a", "b", "<sos>", "a"], "valid": ["b", "a"], "test": ["a", "a", "b"]}
    corpus = encode_splits(splits, ("a", "b", "<sos>"), "here")
    assert [getattr(corpus, name).tolist() for name in SPLITS] == [[0, 1, 2, 0], [1, 0], [0, 0, 1]]
    assert (corpus.vocab_size, corpus.uncounted_id, corpus.token_counts.tolist()) == (3, 2, [2, 1, 1])
    with pytest.raises(CorpusError, match=r"^here, test split: 'c' is not in the training split's vocabulary$"):
        encode_splits({**splits, "test": ["a", "c"]}, corpus.symbols, "here")


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_split_of_fewer_than_two_tokens_is_refused(split):
    texts = {"train": "aa", "valid": "aa", "test": "aa", split: "a"}
    said = f"^here: the {split} split has 1 tokens; at least 2 are needed: give a longer text$"
    with pytest.raises(CorpusError, match=said):
        encode_splits({name: list(text) for name, text in texts.items()}, ("a",), "here")
    with pytest.raises(CorpusError, match=said):
        character_corpus(texts, where="here")


def test_the_end_of_a_line_is_a_word_of_corpora_with_lines_only():
    lines = [["a", "b"], ["a"]]
    tokens = line_tokens(lines, "sos_eos")
    symbols = vocabulary(tokens)
    corpus = encode_splits(dict.fromkeys(("train", "valid", "test"), tokens), symbols, where="here")
    assert symbols[line_end(corpus)] == "<eos>"
    assert line_end(replace(corpus, symbols=None)) is None
    assert line_end(replace(corpus, symbols=("a", "b", "<sos>", "c"))) is None


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


WORDS = WordCodec(("the", "<eos>", "cat", "<unk>"))
SOS = WordCodec(("<sos>", "the", "<eos>"), boundary="sos_eos")
SPELLED = CharacterCodec(("a", "_", "<eos>"), spelled={" ": "_", "\n": "<eos>"})
BYTES = ByteCodec(bytes([0x61, 0xA9, 0xC3]))


@pytest.mark.parametrize(
    ("codec", "text", "ids", "back"),
    [
        (WORDS, "the  cat\n\nthe", [0, 2, 1, 1, 0], "the cat\n\nthe"),  # an unfinished line has no <eos>
        (WORDS, "the dog\n", [0, 3, 1], "the <unk>\n"),
        (SOS, "the\nthe", [0, 1, 2, 0, 1], "the\nthe"),
        (SOS, "the\n", [0, 1, 2], "the\n"),
        (SPELLED, "a a\n", [0, 1, 0, 2], "a a\n"),
        (BYTES, "a\u00e9", [0, 2, 1], "a\u00e9"),  # UTF-8: c3 a9
    ],
)
def test_a_text_becomes_ids_and_comes_back(codec, text, ids, back):
    assert (codec.encode(text), codec.decode(ids)) == (ids, back)


def test_what_cannot_be_said_is_named_and_half_a_character_is_a_replacement_character():
    for codec, what in ((SOS, "word 'dog'"), (SPELLED, "character 'd'")):
        with pytest.raises(CorpusError, match=f"^the {what} is not in the corpus' vocabulary$"):
            codec.encode("dog")
    assert BYTES.decode([0, 2]) == "a\ufffd"


def test_the_bytes_of_tokens_are_those_of_their_text_and_marks_have_none():
    assert WordCodec(("<eos>", "h\u00e9", "<sos>")).token_bytes() == [b"", b"h\xc3\xa9", b""]
    assert SPELLED.token_bytes() == [b"a", b" ", b"\n"]
    assert BYTES.token_bytes() == [b"a", b"\xa9", b"\xc3"]
    corpus = character_corpus(dict.fromkeys(SPLITS, "\u6f22a"), where="here")
    assert corpus.token_bytes == (b"\xe6\xbc\xa2", b"a", b"")  # the last one is <unk>
    assert Markov(vocab_size=5, num_tokens=40, branching=2).load(Path()).token_bytes is None


def test_codec_of_the_novel_reads_text_as_the_corpus_does(tmp_path):
    corpus = Embedded().load(tmp_path)
    ids = corpus.codec.encode('"It is a TRUTH,\n')
    assert [corpus.symbols[index] for index in ids] == ['"', "it", "is", "a", "truth", ",", "<eos>"]


def test_splits_are_moved_to_a_device_but_for_memory_maps():
    tokens, mapped = torch.arange(5), torch.arange(5, dtype=torch.int32)
    moved = Corpus(vocab_size=5, train=mapped, valid=tokens, test=tokens).to(torch.device("meta"))
    assert (moved.valid.device.type, moved.test.device.type, moved.vocab_size) == ("meta", "meta", 5)
    assert moved.train is mapped
