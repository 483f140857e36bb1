"""The corpus of English novels: how a book becomes text, and what the splits hold."""

import csv
import hashlib

import pytest

from harness.corpora import english_novels
from harness.corpora.corpus import SPLITS
from harness.corpora.english_novels import BOOKS, HIDDEN, EnglishNovels, plain


def test_a_book_loses_its_header_the_marks_of_headings_and_superfluous_blanks():
    markdown = (
        "# Title: T\r\n\r\n## Author: A\r\n\r\n-------\r\n\r\n## I:  ONE\r\n\r\n\r\n_So_  it\xa0begins. \r\n ends\r\n"
    )
    assert plain(markdown) == "I: ONE\n\n_So_ it begins.\nends\n"


def test_no_author_is_in_two_splits():
    authors = [{book.split("/")[0] for book in books} for books in (*BOOKS.values(), HIDDEN)]
    assert len(set.union(*authors)) == sum(map(len, authors))


@pytest.fixture(scope="module")
def books(real_data):
    """title -> the text of a book, made from the same source by other code (shared/data/PROVENANCE.md)."""
    found = {}
    folder = real_data / "books-pd"
    with (folder / "manifest.tsv").open(newline="") as file:
        for line in csv.DictReader(file, delimiter="\t"):
            begin = int(line["offset"])
            content = (folder / f"{line['split']}.txt").read_bytes()[begin : begin + int(line["bytes"])]
            found[line["path_in_source"].removesuffix(".md")] = content.decode()
    return found


@pytest.mark.parametrize("level", ["word", "char"])
def test_the_counts_are_those_of_the_books(level, books, monkeypatch, tmp_path):
    corpus = EnglishNovels(level=level)
    monkeypatch.setattr(corpus, "_books", lambda split, data: [books[book] for book in BOOKS[split]])
    found = corpus.untokenized(tmp_path)
    assert (found.vocab_size, {name: len(getattr(found, name)) for name in SPLITS}) == corpus.sizes()


def test_a_tokenizer_reads_the_printed_text_with_an_end_after_each_book(books, monkeypatch, tmp_path):
    corpus = EnglishNovels(tokenizer={"bpe": 300})
    monkeypatch.setattr(corpus, "_books", lambda split, data: [books[book] for book in BOOKS[split]])
    read = {name: "".join(each) for name, each in corpus.pieces(tmp_path)}
    first, second = BOOKS["test"]
    assert read["test"] == f"{books[first]}<|endoftext|>{books[second]}"
    assert read["train"].count("<|endoftext|>") == len(BOOKS["train"]) - 1


def test_tokens_are_counted_once_the_text_is_tokenised(books, monkeypatch, tmp_path):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    corpus = EnglishNovels(tokenizer={"bpe": 300})
    monkeypatch.setattr(corpus, "_books", lambda split, data: [books["Bram Stoker/Dracula"][:20_000]])
    assert corpus.count_tokens() is None  # a plan reads no file of a published corpus
    found = corpus.load(tmp_path)
    assert corpus.count_tokens() == {name: len(getattr(found, name)) for name in SPLITS}


@pytest.mark.parametrize(
    ("params", "ids"),
    [
        ({"level": "word"}, ["a", "farm", "<unk>", ".", "<eos>"]),
        ({"level": "char"}, ["A", " ", "f", "a", "r", "m", " ", "<unk>", ".", "\n"]),
    ],
)
def test_the_hidden_text_has_the_tokens_of_the_training_text(params, ids, monkeypatch, tmp_path):
    monkeypatch.setattr(EnglishNovels, "_books", lambda self, split, data: ["A farm in a farm.\n" * 30])
    content = b"# Title\n-------\nA farm \xc3\xa9.\n"
    (tmp_path / "english_novels").mkdir()
    (tmp_path / "english_novels" / "The Story of an African Farm.md").write_bytes(content)
    monkeypatch.setitem(english_novels.HIDDEN, next(iter(HIDDEN)), hashlib.sha256(content).hexdigest())
    corpus = EnglishNovels(**params)
    symbols = corpus.load(tmp_path).symbols
    assert [symbols[index] for index in corpus.hidden(tmp_path)] == ids
