"""Text at hand: the embedded novel, and files and folders of the user's."""

import hashlib
from pathlib import Path

import pytest
import torch

import harness.corpora
from harness.corpora.corpus import SPLITS, SplitFacts
from harness.corpora.local_text import Embedded, Text

NOVEL = Path(harness.corpora.__file__).with_name("pride_and_prejudice.txt")
NOWHERE = Path("unused")


@pytest.fixture(scope="module")
def novel():
    return Embedded().load(NOWHERE)


@pytest.fixture
def lines(tmp_path):
    """Ten lines of two tokens each with <eos>: 8 train, 1 valid, 1 test."""
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"{word}\n" for word in ["a", "b", "a", "A", "c", "b", "a", "a", "b", "z"]))
    return path


def words(corpus, split) -> list[str]:
    return [corpus.symbols[index] for index in getattr(corpus, split).tolist()]


CHARACTERS = "ab c\nabab c\nabab \nabb\n"  # 22: int(17.6) = 17, int(19.8) - 17 = 2, and 3


@pytest.mark.parametrize(
    ("params", "expected", "symbols"),
    [  # z is not in training; A and c are there once
        ({}, "a $ b $ a $ A $ c $ b $ a $ a $|b $|? $", "a $ b A c ?"),
        ({"min_count": 2}, "a $ b $ a $ ? $ ? $ b $ a $ a $|b $|? $", "a $ b ?"),
        ({"lowercase": True}, "a $ b $ a $ a $ c $ b $ a $ a $|b $|? $", "a $ b c ?"),
        (
            {"boundary": "sos_eos"},
            "^ a $ ^ b $ ^ a $ ^ A $ ^ c $ ^ b $ ^ a $ ^ a $|^ b $|^ ? $",
            "^ a $ b A c ?",
        ),
    ],
)
def test_a_file_is_split_80_10_10_by_lines(params, expected, symbols, lines):
    corpus = Text(path=lines, **params).load(NOWHERE)
    marks = {"<eos>": "$", "<sos>": "^", "<unk>": "?"}
    assert "|".join(" ".join(marks.get(word, word) for word in words(corpus, name)) for name in SPLITS) == expected
    assert " ".join(marks.get(symbol, symbol) for symbol in corpus.symbols) == symbols


def test_character_level_takes_every_character_line_ends_too(tmp_path):
    (tmp_path / "text.txt").write_text(CHARACTERS)
    corpus = Text(path=tmp_path / "text.txt", level="char").load(NOWHERE)
    assert ["".join(words(corpus, name)) for name in SPLITS] == [CHARACTERS[:17], "\na", "bb\n"]
    assert corpus.symbols == ("a", "b", " ", "c", "\n", "<unk>")


def test_a_folder_has_one_file_for_each_split_and_facts_say_what_is_in_each(tmp_path):
    for name, text in {"my.train.csv": "a b\n", "my.dev.csv": "a\n", "my.test.csv": "c a c b\n"}.items():
        (tmp_path / name).write_text(text)
    source = Text(path=tmp_path)
    assert [words(source.load(NOWHERE), name) for name in SPLITS] == [
        ["a", "b", "<eos>"], ["a", "<eos>"], ["<unk>", "a", "<unk>", "b", "<eos>"],
    ]  # fmt: skip
    facts = source.facts()
    assert (facts.vocab_size, facts.num_tokens) == (4, {"train": 3, "valid": 2, "test": 5})  # a b <eos> <unk>
    found = facts.text
    assert found.of_splits["train"] == SplitFacts(tokens=3, types=3, unseen_types=0, unknown_share=0.0)
    assert found.of_splits["test"] == SplitFacts(
        tokens=5, types=4, unseen_types=1, unknown_share=2 / 5, in_train=0.0, in_valid=0.0
    )
    assert (found.number, found.characters) == (3, 14)
    assert found.splits == (
        "train: my.train.csv; valid: my.dev.csv; test: my.test.csv "
        "(.csv is read as plain text; rows are read of .jsonl and .parquet)"
    )
    assert Text(path=tmp_path, level="char").facts().num_tokens == {"train": 4, "valid": 2, "test": 8}


def test_content_is_the_hash_of_the_text_wherever_it_lies(lines, tmp_path):
    def content(place: str, **changed: str) -> str:
        (tmp_path / place).mkdir()
        for split, text in {"train": "a b\n", "valid": "b a\n", "test": "b b\n", **changed}.items():
            (tmp_path / place / f"{place}.{split}").write_text(text)
        return Text(path=tmp_path / place).facts().content

    assert Text(path=lines).facts().content == hashlib.sha256(lines.read_bytes()).hexdigest()
    same = content("one")
    assert content("two") == same
    assert len({same, *(content(f"number{len(split)}{split[0]}", **{split: "a a a\n"}) for split in SPLITS)}) == 4


def test_novel_begins_and_ends_where_the_book_does(novel):
    begin = "pride and prejudice <eos> by jane <unk> <eos> chapter <unk> <eos> it is"  # austen and 1 are rare
    assert " ".join(words(novel, "train")[:13]) == begin
    # "..., by bringing her into Derbyshire, had been the means of uniting them."
    assert words(novel, "test")[-8:] == ["been", "the", "means", "of", "<unk>", "them", ".", "<eos>"]


@pytest.mark.parametrize("characters", [500, 24_000, 10**9])
def test_the_first_characters_of_the_novel_end_with_their_paragraph(characters):
    source = Embedded(level="char", characters=characters)
    read, whole = "".join("".join(text for text in pieces) for _, pieces in source.pieces(NOWHERE)), NOVEL.read_text()
    assert whole.startswith(read)
    assert len(read) >= min(characters, len(whole))
    # the last paragraph begins before the limit; what is read ends where the next one begins
    assert read.rstrip().rfind("\n\n") < characters
    assert read == whole or read.endswith("\n\n")
    loaded = source.load(NOWHERE)
    assert {split: len(getattr(loaded, split)) for split in SPLITS} == source.facts().num_tokens
    assert sum(source.facts().num_tokens.values()) == len(read)
    assert source.facts().vocab_size == loaded.vocab_size


@pytest.mark.parametrize(
    ("text", "train"),
    [
        ("a b c d e f g h i j", "a b c d e f g h <eos>"),
        ("a b c d e\nf g h i j", "a b c d e <eos> f g h <eos>"),
    ],
)
@pytest.mark.usefixtures("cache")
def test_a_text_with_too_few_lines_is_split_at_white_space(text, train, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(text)  # 19 characters: int(15.2) and int(17.1) are the white space after h and i
    corpus = Text(path=path).load(NOWHERE)
    assert " ".join(words(corpus, "train")) == train
    assert words(corpus, "valid") == words(corpus, "test") == ["<unk>", "<eos>"]
    pieces = Text(path=path, tokenizer={"bpe": 257}).pieces(NOWHERE)
    assert {name: "".join(each) for name, each in pieces} == {"train": text[:16], "valid": "i ", "test": "j"}


@pytest.mark.parametrize("level", ["word", "char"])
def test_a_mark_of_byte_order_is_no_text_and_crlf_is_a_line_end(level, lines):
    source = Text(path=lines, level=level)
    expected, content = source.load(NOWHERE), source.facts().content
    lines.write_bytes(b"\xef\xbb\xbf" + lines.read_bytes().replace(b"\n", b"\r\n"))
    source = Text(path=lines, level=level)
    found = source.load(NOWHERE)
    assert found.symbols == expected.symbols
    assert all(torch.equal(getattr(found, name), getattr(expected, name)) for name in SPLITS)
    assert source.facts().content == content


SIZES = {"train": 16, "valid": 2, "test": 2}  # of ten lines of a character: words with <eos>, characters, bytes


@pytest.mark.parametrize(
    ("params", "by", "is_known"),
    [
        ({}, "lines", True),
        ({"level": "char"}, "characters", True),
        ({"tokenizer": {"bpe": 257}}, "lines", False),
    ],
)
@pytest.mark.usefixtures("cache")
def test_facts_say_what_was_read_of_the_text(params, by, is_known, lines):
    found = Text(path=lines, **params).facts().text
    assert (found.part, found.number, found.characters) == ("line", 10, 20)
    assert found.splits == f"split 80 / 10 / 10 by {by}"
    assert (found.of_splits is not None) == is_known
    Text(path=lines, **params).load(NOWHERE)
    of_splits = Text(path=lines, **params).facts().text.of_splits
    assert {name: each.tokens for name, each in of_splits.items()} == SIZES
