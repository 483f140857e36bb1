"""How much of a split also stands in another one, against a count by loops; what is refused, and what plan says."""

import gzip
import json
import random
from collections import Counter
from collections.abc import Iterable
from types import SimpleNamespace

import pytest
import torch
from texts import lines
from tokenizers import Tokenizer, models

from harness.cli.plan import _corpora
from harness.corpora import overlap
from harness.corpora.corpus import Corpus, CorpusFacts
from harness.corpora.local_text import Text
from harness.corpora.overlap import NOT_APART, NOT_NEW, RUN_OF_CHARACTERS, lines_in_train, shares, shares_in_train
from harness.corpora.published import PennTreebank, PennTreebankCharacters, WikiText2
from harness.corpora.subwords import SubwordCodec
from harness.corpora.synthetic import Markov
from harness.errors import CorpusError
from harness.report.text_notes import of_train


def by_loops(tokens: list[int], within: list[int], run: int, stride: int = 1) -> float:
    """The share, straight from its definition."""
    runs = {tuple(within[start : start + run]) for start in range(0, len(within) - run + 1, stride)}
    covered = [False] * len(tokens)
    for start in range(len(tokens) - run + 1):
        if tuple(tokens[start : start + run]) in runs:
            covered[start : start + run] = [True] * run
    return sum(covered) / len(tokens)


@pytest.mark.parametrize("vocab_size", [2, 3, 60])
@pytest.mark.parametrize(("run", "stride"), [(1, 1), (2, 1), (7, 1), (13, 1), (64, 1), (16, 16), (64, 64)])
def test_the_share_is_that_of_its_definition(run, stride, vocab_size):
    draw = random.Random(run * vocab_size)
    within = [draw.randrange(vocab_size) for _ in range(3000)]
    tokens = [draw.randrange(vocab_size) for _ in range(600)]
    tokens[100:290] = within[900:1090]
    (found,) = shares([torch.tensor(tokens)], torch.tensor(within, dtype=torch.int32), run, stride)
    assert found == by_loops(tokens, within, run, stride)
    assert found > 0


def test_runs_across_blocks_of_a_long_text_are_found():
    draw = torch.Generator().manual_seed(1)
    within, tokens = (torch.randint(50_000, (number,), generator=draw) for number in (200_000, 70_000))
    tokens[300:400] = within[65_500:65_600]  # a block has 65,536 tokens
    assert shares([tokens], within, 13) == [100 / 70_000]
    assert shares([tokens[:12]], within, 13) == [0.0]  # shorter than a run


@pytest.fixture
def few_parts(monkeypatch):
    """Ask about 64 parts of 256 tokens of a longer split."""
    monkeypatch.setattr(overlap, "MOST", 2**14)
    monkeypatch.setattr(overlap, "BLOCK", 2**8)


@pytest.mark.usefixtures("few_parts")
@pytest.mark.parametrize("start", [0, 30_000, 90_000])
def test_of_a_long_split_even_parts_are_asked_about(start):
    draw = torch.Generator().manual_seed(1)
    within, tokens = (torch.randint(50_000, (number,), generator=draw) for number in (200_000, 100_000))
    tokens[start : start + 10_000] = within[100_001:110_001]
    assert shares([tokens, within], within, 13) == [pytest.approx(0.1, abs=1 / 64), 1.0]


@pytest.mark.usefixtures("few_parts")
@pytest.mark.parametrize("params", [{}, {"level": "char"}])
def test_a_long_split_within_another_is_refused_although_its_lines_end_elsewhere(params, tmp_path):
    test, rest = (" ".join(lines(number, seed).split()) for number, seed in ((2500, 3), (400, 1)))
    with pytest.raises(CorpusError, match=TEST_IN_TRAIN):
        Text(path=folder(tmp_path, train=f"{rest} {test} {rest}\n", test=test), **params).facts()


# Planted texts

TRAIN, VALID, TEST = lines(400, 1), lines(50, 2), lines(50, 3)


def folder(place, **texts: str):
    for split, text in {"train": TRAIN, "valid": VALID, "test": TEST, **texts}.items():
        (place / f"{split}.txt").write_text(text)
    return place


def test_a_careful_text_shares_nothing(tmp_path):
    for params in ({}, {"level": "char"}):
        assert Text(path=folder(tmp_path), **params).facts().in_train == {"valid": 0.0, "test": 0.0}


def first(text: str, number: int, end: str = "\n") -> str:
    return "".join(line + end for line in text.splitlines()[:number])


def numbered(text: str) -> str:
    return "".join(f"{number} {line}\n" for number, line in enumerate(text.splitlines(), 1))


def paragraphs(text: str) -> str:
    """Four lines of a text in each line."""
    found = text.splitlines()
    return "".join(" ".join(found[start : start + 4]) + "\n" for start in range(0, len(found), 4))


def rows(documents: Iterable[str]) -> str:
    return "".join(json.dumps({"text": document}) + "\n" for document in documents)


def of_documents(size: int) -> dict[str, str]:
    """.jsonl files of documents of so many characters, of which test has 6; one of them is in train, too."""
    documents = [lines(5, 100 + seed)[:size].strip() for seed in range(300)]
    splits = {"train": [*documents[:-10], documents[-1]], "valid": documents[-10:-6], "test": documents[-6:]}
    return {f"{split}.jsonl": rows(each) for split, each in splits.items()}


CHAPTER, LICENCE = lines(20, 4), lines(6, 9)
BPE = {"tokenizer": {"bpe": 440}}  # almost every word is a token
TEST_IN_TRAIN = "all of the test split also stands in the train split"
VALID_IN_TEST = "all of the valid split also stands in the test split"
ALL_UNKNOWN = "every word of the {} split is <unk>"
NOTHING = "also in train: 0.0 % of valid, 0.0 % of test"
# what is wrong with a text -> its files, in place of those of a careful one; parameters; what is said
SAID = {
    "train contains test": ({"train.txt": TRAIN + TEST}, {}, TEST_IN_TRAIN),
    "train contains test, characters": ({"train.txt": TRAIN + TEST}, {"level": "char"}, TEST_IN_TRAIN),
    "train contains test, subwords": ({"train.txt": TRAIN + TEST}, BPE, TEST_IN_TRAIN),
    "train contains valid": (
        {"train.txt": VALID + TRAIN},
        {},
        "all of the valid split also stands in the train split",
    ),
    "test is train": ({"test.txt": TRAIN}, {}, TEST_IN_TRAIN),
    "valid is test": ({"valid.txt": TEST}, {}, "all of the test split also stands in the valid split"),
    "test within valid": ({"valid.txt": VALID + TEST}, {}, "all of the test split also stands in the valid split"),
    "valid within test": ({"test.txt": TEST + VALID}, {}, VALID_IN_TEST),
    "test within valid, with <unk>": (
        {"valid.txt": VALID + TEST.replace(" w17 ", " new "), "test.txt": TEST.replace(" w17 ", " new ")},
        {},
        "all of the test split also stands in the valid split",
    ),
    "test is train's lines in another order": (
        {"test.txt": "".join(sorted(TRAIN.splitlines(keepends=True)))},
        {},
        TEST_IN_TRAIN,
    ),
    "test is a part of train with other line ends": ({"test.txt": first(TRAIN, 60, "\r\n")}, {}, TEST_IN_TRAIN),
    "test is a part of train with blanks at its lines": ({"test.txt": first(TRAIN, 60, "  \n")}, {}, TEST_IN_TRAIN),
    "test is a part of train in other case": ({"test.txt": first(TRAIN, 60).upper()}, {}, ALL_UNKNOWN.format("test")),
    "the same, and case does not count": (
        {"test.txt": first(TRAIN, 60).upper()},
        {"lowercase": True},
        TEST_IN_TRAIN,
    ),
    "a file of the same documents twice": (
        {"mine.jsonl": rows([lines(5, seed) for seed in (*range(45), *range(15))])},
        {},
        "all of the valid split also stands in the train split",
    ),
    "min_count leaves nothing": ({}, {"min_count": 10**6}, ALL_UNKNOWN.format("valid")),
    "another language": ({"test.txt": "\u4e00 \u4e01\n" * 40}, {}, ALL_UNKNOWN.format("test")),
    "another alphabet": ({"test.txt": "\u4e00\u4e01" * 40}, {"level": "char"}, ALL_UNKNOWN.format("test")),
    # 20 of 70 lines
    "a chapter in train and test": (
        {"train.txt": TRAIN + CHAPTER, "test.txt": TEST + CHAPTER},
        {},
        "28.7 % of test, 28.4 % of test in whole lines or documents: perplexities are lower",
    ),
    # 20 of 70 lines
    "a chapter in valid and test": (
        {"valid.txt": VALID + CHAPTER, "test.txt": TEST + CHAPTER},
        {},
        f"also in train: 0.0 % of valid, 0.0 % of test; also in valid: 28.7 % of test: {NOT_APART}",
    ),
    "a chapter in valid and test, characters": (
        {"valid.txt": VALID + CHAPTER, "test.txt": TEST + CHAPTER},
        {"level": "char"},
        f"% of test: {NOT_APART}",
    ),
    # 2 of 302 lines: too few for a note
    "a line of valid in test": (
        {"valid.txt": VALID + lines(1, 4) * 2, "test.txt": lines(300, 3) + lines(1, 4) * 2},
        {},
        "also in valid: 0.7 % of test",
    ),
    # 6 of 56 lines
    "a licence in all splits": (
        {"train.txt": LICENCE + TRAIN, "valid.txt": LICENCE + VALID, "test.txt": LICENCE + TEST},
        {},
        "10.7 % of valid, 10.7 % of test, 10.6 % of valid in whole lines or documents, 10.7 % of test in whole lines",
    ),
    "every second line of test, which is shorter than a run": (
        {"train.txt": TRAIN + "".join(TEST.splitlines(keepends=True)[::2])},
        {},
        "0.0 % of test, 49.8 % of test in whole lines or documents: perplexities are lower",
    ),
    # but for the number, and the words before it that make no run with it
    "the same paragraphs with line numbers": (
        {"train.txt": numbered(paragraphs(TRAIN + TEST)), "test.txt": numbered(paragraphs(TEST))},
        {},
        "% of test: perplexities are lower",
    ),
    # 1 of 6 documents of 55 tokens, and the <eos> before it: 56 / 330
    "a document in train and test": (of_documents(999), {}, "also in train: 0.0 % of valid, 17.0 % of test, "),
    "a document in train and test, characters": (
        of_documents(999),
        {"level": "char"},
        "% of test in whole lines or doc",
    ),
    "a document in train and test, subwords": (
        of_documents(999),
        BPE,
        "% of test in whole lines or documents: perplex",
    ),
    # 1 of 6 documents that are shorter than a run
    "a short document in train and test": (of_documents(21), {}, "also in train: 0.0 % of valid, 0.0 % of test, 1"),
    "a short document in train and test, subwords": (of_documents(15), BPE, "0.0 % of valid, 0.0 % of test, 1"),
    "many words of test are unknown": (
        {"test.txt": TEST.replace(" w1", " new")},
        {},
        "% of the test tokens are <unk>, one token for all unknown words",
    ),
    "a packed file": ({"test.txt": gzip.compress(TEST.encode())}, {}, "cannot be read as UTF-8 text"),
    # nothing but its size is said of a test text that is too short to measure anything
    "a test text of five tokens": ({"test.txt": "w1 w2 w3 w4\n"}, {}, "test 5; "),
    # what the documents name as not found
    "short lines with numbers": ({"train.txt": numbered(TRAIN + TEST), "test.txt": numbered(TEST)}, {}, NOTHING),
}


def said_of(source: Text, place) -> tuple[str, CorpusFacts | None]:
    """What a plan says of a text, with its facts; or why it is refused."""
    try:
        source.fetch(place)  # tokenises
        facts = source.facts()
    except CorpusError as refused:
        return str(refused), None
    (said,) = _corpora(SimpleNamespace(corpora={"mine": facts}))
    return said, facts


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("name", SAID)
def test_what_is_said_of_a_text(name, tmp_path):
    files, params, expected = SAID[name]
    if not any(file.endswith(".jsonl") for file in files):
        files = {"train.txt": TRAIN, "valid.txt": VALID, "test.txt": TEST, **files}
    for file, text in files.items():
        (tmp_path / file).write_bytes(text if isinstance(text, bytes) else text.encode())
    said, facts = said_of(Text(path=tmp_path, **params), tmp_path)
    assert expected in said
    notes = [] if facts is None else of_train(SimpleNamespace(corpora={"mine": facts}), [])
    assert len(notes) == (NOT_NEW in said) + (NOT_APART in said)


@pytest.mark.usefixtures("cache")
def test_a_tokenised_text_is_refused_as_it_is_fetched(tmp_path):
    source = Text(path=folder(tmp_path, train=TRAIN + TEST), tokenizer={"bpe": 300})
    assert source.facts().in_train == {}  # not tokenised yet
    with pytest.raises(CorpusError, match="all of the test split also stands in the train split"):
        source.fetch(tmp_path)


@pytest.mark.parametrize(("params", "width"), [({}, 1), ({"level": "char"}, RUN_OF_CHARACTERS)])
def test_a_chapter_in_train_and_test_is_its_share_of_the_tokens(params, width, tmp_path):
    chapter = lines(20, 4)
    corpus = Text(path=folder(tmp_path, train=TRAIN + chapter, test=TEST + chapter), **params).load(tmp_path)
    assert shares_in_train(corpus)["valid"] == 0.0
    # 20 of 70 lines; of characters the ends of the chapter may be missed
    assert shares_in_train(corpus)["test"] == pytest.approx(20 / 70, abs=2 * width / len(corpus.test))


def test_long_lines_count_by_their_characters_and_short_ones_do_not():
    long, new, short = "twenty characters or more", "another line, which is new", "* * * * *"
    texts = {"train": f"{long}\n{short}\n", "valid": f"{long}\n{new}\n{short}\n", "test": f"{short}\nname\n"}
    assert lines_in_train(texts) == {"valid": len(long) / len(long + new + short), "test": 0.0}


def names(number: int, seed: int) -> list[str]:
    """Different ones, of 8 letters."""
    return [format(each, "08x") for each in random.Random(seed).sample(range(2**32), number)]


@pytest.mark.parametrize("copied", [0, 60, 300])
def test_of_a_list_without_repetitions_each_name_that_train_has_counts(copied, tmp_path):
    listed = names(4000, 1)
    train, test = listed[:3400], [*listed[3700 + copied :], *listed[:copied]]
    shared = lines_in_train({"train": train, "valid": listed[3400:3700], "test": test})
    assert shared == {"valid": 0.0, "test": copied / 300}
    texts = {name: "".join(f"{each}\n" for each in split) for name, split in (("train", train), ("test", test))}
    source = Text(path=folder(tmp_path, valid="\n".join(listed[3400:3700]), **texts), level="char")
    if copied == 300:
        with pytest.raises(CorpusError, match=TEST_IN_TRAIN):
            source.facts()
    else:
        notes = of_train(SimpleNamespace(corpora={"mine": source.facts()}), [])
        assert len(notes) == (copied > 0)


def test_long_lines_that_were_copied_into_a_list_of_short_ones_count_by_their_length():
    """40 lines of 7 words among 2,500 answers of a word, which train has as often as chance gives."""
    rng, copied = random.Random(5), [f"the {n:04} copied line of words" for n in range(40)]
    answers = [f"answer{n}" for n in range(300)]
    train = [*rng.choices(answers, k=20_000), *copied]
    test = [*rng.choices(answers, k=2_500), *copied]
    texts = {"train": train, "valid": rng.choices(answers, k=2_500), "test": test}
    share = sum(map(len, copied)) / sum(map(len, test))
    assert 0.01 < share < 0.1
    assert lines_in_train({name: "\n".join(each) for name, each in texts.items()})["test"] == pytest.approx(share)


def test_of_a_list_with_repetitions_no_more_counts_than_chance_gives():
    draw, known = random.Random(1), names(2000, 1)
    weights = [1 / rank for rank in range(1, 2001)]  # as names of people and words are
    texts = {split: draw.choices(known, weights, k=size) for split, size in (("train", 9000), ("valid", 999))}
    assert sum(name in texts["train"] for name in texts["valid"]) > 0.9 * 999
    rare = names(9000, 2)
    texts["train"] += rare
    texts["test"] = draw.sample(rare, 900)  # all of them stand in train, where half of the lines stand once
    twice = sum(number for number in Counter(texts["train"]).values() if number > 1) / 18_000
    error = (twice * (1 - twice) * (1 / 18_000 + 1 / 900)) ** 0.5
    assert lines_in_train(texts)["test"] == pytest.approx(1 - twice - 4 * error)
    texts["test"] = texts["valid"]
    texts["train"] = texts["train"][:9000]
    assert lines_in_train(texts) == {"valid": 0.0, "test": 0.0}


def test_tokens_without_text_are_not_compared(tmp_path):
    corpus = Markov(vocab_size=4, num_tokens=4000, branching=2).load(tmp_path)
    assert shares_in_train(corpus) == {}


@pytest.mark.parametrize(("length", "share"), [(19, 0.0), (20, 0.2)])
def test_a_run_of_subwords_has_twenty(length, share):
    """13 may be the name of a speaker between two lines of a play."""
    train, test = torch.arange(1000), torch.arange(2000, 2100)
    test[40 : 40 + length] = train[:length]
    codec = SubwordCodec(Tokenizer(models.BPE()))
    corpus = Corpus(vocab_size=2100, train=train, valid=test[:30], test=test, codec=codec)
    assert shares_in_train(corpus) == {"valid": 0.0, "test": share}


@pytest.mark.parametrize("corpus", [PennTreebank, WikiText2, PennTreebankCharacters])
def test_known_shares_of_published_corpora(corpus, real_data):
    found = corpus().load(real_data)
    for split, known in corpus.IN_TRAIN.items():
        assert shares_in_train(found)[split] == pytest.approx(known, abs=5e-5)
