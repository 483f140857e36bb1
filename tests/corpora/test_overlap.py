"""How much of a split also stands in another one, against a count by loops; what is refused."""

import random
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from texts import lines
from tokenizers import Tokenizer, models

from harness.corpora import overlap
from harness.corpora.corpus import Corpus
from harness.corpora.local_text import Text
from harness.corpora.overlap import lines_in_train, shares, shares_in_train
from harness.corpora.published import PennTreebank, PennTreebankCharacters, WikiText2
from harness.corpora.subwords import SubwordCodec
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


@pytest.mark.parametrize("vocab_size", [2, 60])
@pytest.mark.parametrize(("run", "stride"), [(1, 1), (2, 1), (13, 1), (64, 1), (16, 16), (64, 64)])
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


TEST_IN_TRAIN = "all of the test split also stands in the train split"


def folder(place, **texts: str):
    for split, text in {"valid": lines(50, 2), **texts}.items():
        (place / f"{split}.txt").write_text(text)
    return place


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
