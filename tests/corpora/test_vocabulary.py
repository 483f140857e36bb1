"""Vocabularies and counting rules, on texts of a line or two."""

from dataclasses import replace

import pytest

from harness.corpora.vocabulary import encode, encode_splits, line_end, line_tokens, vocabulary
from harness.errors import CorpusError

LINES = [["the", "cat"], [], ["sat"]]


@pytest.mark.parametrize(
    ("boundary", "expected"),
    [("eos", "the cat <eos> <eos> sat <eos>"), ("sos_eos", "<sos> the cat <eos> <sos> <eos> <sos> sat <eos>")],
)
def test_every_line_is_ended_blank_ones_too_and_opened_where_it_is_asked_for(boundary, expected):
    assert line_tokens(LINES, boundary) == expected.split()


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


def test_unknown_symbol_becomes_unk_and_is_named_where_there_is_none():
    assert encode(["a", "z", "b"], {"a": 0, "b": 1, "<unk>": 2}, "here").tolist() == [0, 2, 1]
    with pytest.raises(CorpusError, match=r"^here: 'z' is not in the training split's vocabulary$"):
        encode(["a", "z", "y"], {"a": 0}, "here")


def test_splits_are_encoded_with_the_training_vocabulary():
    splits = {"train": ["a", "b", "<sos>", "a"], "valid": ["b", "a"], "test": ["a", "a", "b"]}
    corpus = encode_splits(splits, ("a", "b", "<sos>"), "here")
    assert corpus.train.tolist() == [0, 1, 2, 0]
    assert corpus.valid.tolist() == [1, 0]
    assert corpus.test.tolist() == [0, 0, 1]
    assert (corpus.vocab_size, corpus.symbols, corpus.uncounted_id) == (3, ("a", "b", "<sos>"), 2)
    assert corpus.token_counts.tolist() == [2, 1, 1]
    assert encode_splits({name: ["a", "a"] for name in splits}, ("a",), "here").uncounted_id is None


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_split_of_fewer_than_two_tokens_is_refused(split):
    splits = {"train": ["a", "a"], "valid": ["a", "a"], "test": ["a", "a"], split: ["a"]}
    with pytest.raises(CorpusError, match=f"^here: the {split} split has 1 tokens; at least 2 are needed$"):
        encode_splits(splits, ("a",), "here")


def test_the_end_of_a_line_is_a_word_of_corpora_with_lines_only():
    lines = [["a", "b"], ["a"]]
    tokens = line_tokens(lines, "sos_eos")
    symbols = vocabulary(tokens)
    corpus = encode_splits(dict.fromkeys(("train", "valid", "test"), tokens), symbols, where="here")
    assert symbols[line_end(corpus)] == "<eos>"
    assert line_end(replace(corpus, symbols=None)) is None
    assert line_end(replace(corpus, symbols=("a", "b", "<sos>", "c"))) is None
