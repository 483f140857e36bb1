"""Text at hand: the embedded novel, and files and folders of the user's."""

import hashlib
import os
from pathlib import Path

import pytest
import torch

import harness.corpora
from harness.corpora.corpus import SPLITS, SplitFacts
from harness.corpora.local_text import Embedded, Text
from harness.errors import CorpusError

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
    assert sum(len(getattr(loaded, split)) for split in SPLITS) == len(read)


def test_less_than_one_character_is_refused():
    with pytest.raises(ValueError, match="characters must be at least 1, got 0"):
        Embedded(characters=0)


def test_novel_is_the_same_every_time(novel):
    again = Embedded()
    assert all(torch.equal(getattr(novel, name), getattr(again.load(NOWHERE), name)) for name in SPLITS)
    assert again.facts() == Embedded().facts()
    assert again.facts().num_tokens == {name: len(getattr(novel, name)) for name in SPLITS}
    assert again.facts().vocab_size == novel.vocab_size


def test_file_is_split_80_10_10_by_lines(lines):
    corpus = Text(path=lines).load(NOWHERE)
    train = "a <eos> b <eos> a <eos> A <eos> c <eos> b <eos> a <eos> a <eos>"
    assert " ".join(words(corpus, "train")) == train
    assert words(corpus, "valid") == ["b", "<eos>"]
    assert words(corpus, "test") == ["<unk>", "<eos>"]  # z is not in training
    assert corpus.symbols == ("a", "<eos>", "b", "A", "c", "<unk>")


def test_sos_boundary_opens_every_line(lines):
    corpus = Text(path=lines, boundary="sos_eos").load(NOWHERE)
    assert words(corpus, "valid") == ["<sos>", "b", "<eos>"]
    assert corpus.symbols[corpus.uncounted_id] == "<sos>"


def test_min_count_turns_rare_words_into_unk(lines):
    corpus = Text(path=lines, min_count=2).load(NOWHERE)
    assert corpus.symbols == ("a", "<eos>", "b", "<unk>")  # A and c are there once
    assert words(corpus, "train")[6:10] == ["<unk>", "<eos>", "<unk>", "<eos>"]


def test_lowercase_joins_capital_and_small_letters(lines):
    assert Text(path=lines, lowercase=True).load(NOWHERE).symbols == ("a", "<eos>", "b", "c", "<unk>")


def test_character_level_takes_every_character_line_ends_too(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("ab c\nabab c\nabab \nabb\n")  # 22 characters: int(17.6) = 17, int(19.8) - 17 = 2, and 3
    corpus = Text(path=path, level="char").load(NOWHERE)
    assert "".join(words(corpus, "train")) == "ab c\nabab c\nabab "
    assert words(corpus, "valid") == ["\n", "a"]
    assert words(corpus, "test") == ["b", "b", "\n"]
    assert corpus.symbols == ("a", "b", " ", "c", "\n", "<unk>")


def test_folder_has_one_file_for_each_split(tmp_path):
    for name, text in {"my.train.txt": "a b\nc\n", "my.valid.txt": "b\n", "my.test.txt": "c d\n"}.items():
        (tmp_path / name).write_text(text)
    source = Text(path=tmp_path)
    corpus = source.load(NOWHERE)
    assert words(corpus, "train") == ["a", "b", "<eos>", "c", "<eos>"]
    assert words(corpus, "valid") == ["b", "<eos>"]
    assert words(corpus, "test") == ["c", "<unk>", "<eos>"]
    assert source.facts().num_tokens == {"train": 5, "valid": 2, "test": 3}
    assert source.facts().vocab_size == 5  # a b <eos> c <unk>


def test_folder_at_character_level_keeps_the_files_apart(tmp_path):
    for split in SPLITS:
        (tmp_path / f"{split}.txt").write_text({"train": "ab\n", "valid": "ba\n", "test": "aa\n"}[split])
    assert Text(path=tmp_path, level="char").facts().num_tokens == {"train": 3, "valid": 3, "test": 3}


LATIN = "caf\u00e9\n".encode("latin-1") * 20
AMBIGUOUS = dict.fromkeys(("a.train.txt", "b.train.txt", "valid.txt", "test.txt"), b"a b c\n")


@pytest.mark.parametrize(
    ("files", "read", "message"),
    [
        ({}, "no.txt", r"no\.txt: no such file or folder; a path in a suite begins at the suite's folder$"),
        ({}, ".", "'train' or 'training' in its name, found none, nor another text; folders in it are not read$"),
        (AMBIGUOUS, ".", r"'training' in its name, found a\.train\.txt, b\.train\.txt; join them, or give \.jsonl"),
        # 6 bytes a line with its end; the fourth of the third line is not UTF-8
        (
            {"text.txt": b"abcde\n" * 2 + LATIN},
            "text.txt",
            r"byte offset 15, line 3\); .* iconv -f ISO-8859-1 -t UTF-8 ",
        ),
        ({"text.txt": "a b\n".encode("utf-16")}, "text.txt", r"byte offset 0, line 1\); .* iconv -f UTF-16 -t UTF-8 "),
        ({"text.txt": b""}, "text.txt", r"text\.txt: is empty, expected a text$"),
        ({"a.txt": b"", "b.txt": b""}, ".", "all 2 files are empty, expected a text$"),
        (
            {"text.txt": b"\xef\xbb\xbf"},
            "text.txt",
            "too few words to split them 80 / 10 / 10; give a longer text",
        ),
        (
            {"text.txt": b"abcdefghij" * 9},
            "text.txt",
            "has no white space, so it is one word; set `level: char` or a tok",
        ),
        ({"text.json": b'[{"text": "a b c"}]'}, "text.json", "is no text; write its documents as .jsonl, an object in"),
        # cut after the first white space from character int(0.8 * 6) = 4 on, which is the last one
        ({"text.txt": b"a b c\n"}, "text.txt", "too few words to split them"),
    ],
    ids=range(11),
)
def test_what_is_no_corpus_is_a_sentence(tmp_path, files, read, message):
    os.mkfifo(tmp_path / "train")  # no file of a split
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=message):
        Text(path=tmp_path / read).facts()


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


def test_facts_say_what_is_in_each_split(tmp_path):
    for name, text in {"train": "a b\n", "dev": "a\n", "test": "c a c b\n"}.items():
        (tmp_path / f"{name}.csv").write_text(text)
    found = Text(path=tmp_path).facts().text
    assert found.of_splits["train"] == SplitFacts(tokens=3, types=3, unseen_types=0, unknown_share=0.0)
    assert found.of_splits["test"] == SplitFacts(
        tokens=5, types=4, unseen_types=1, unknown_share=2 / 5, in_train=0.0, in_valid=0.0
    )  # <unk>, a, <unk>, b, <eos>
    assert (found.number, found.characters) == (3, 14)
    assert found.splits == (
        "train: train.csv; valid: dev.csv; test: test.csv "
        "(.csv is read as plain text; rows are read of .jsonl and .parquet)"
    )


def test_content_is_the_hash_of_the_text_wherever_it_lies(lines, tmp_path):
    other = tmp_path / "elsewhere" / "named.txt"
    other.parent.mkdir()
    other.write_bytes(lines.read_bytes())
    content = Text(path=lines).facts().content
    assert content == Text(path=other).facts().content == hashlib.sha256(lines.read_bytes()).hexdigest()
    other.write_bytes(lines.read_bytes() + b"y\n")
    assert Text(path=other).facts().content != content


def test_content_of_a_folder_changes_with_any_of_its_files_and_not_with_its_place(tmp_path):
    def content(place: str, **texts: str) -> str:
        folder = tmp_path / place
        folder.mkdir()
        for split in SPLITS:
            (folder / f"{place}.{split}").write_text(
                texts.get(split, {"train": "a b\n", "valid": "b a\n"}.get(split, "b b\n"))
            )
        return Text(path=folder).facts().content

    same = content("one")
    assert content("two") == same
    changed = {content(f"number{index}", **{split: "a a a\n"}) for index, split in enumerate(SPLITS)}
    assert len(changed | {same}) == 4


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"min_count": 0}, "min_count must be at least 1, got 0"),
        ({"level": "char", "boundary": "sos_eos"}, "boundary: character level has no line boundaries"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        Text(path=NOWHERE, **params)
