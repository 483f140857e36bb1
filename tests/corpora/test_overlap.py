"""How much of a split also stands in another one, against a count by loops; what is refused, and what plan says."""

import random

import pytest
import torch
from texts import lines

from harness.corpora.local_text import Text
from harness.corpora.overlap import RUN_OF_CHARACTERS, lines_in_train, shares, shares_in_train
from harness.corpora.published import PennTreebank, PennTreebankCharacters, WikiText2
from harness.corpora.synthetic import Markov
from harness.errors import CorpusError


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


# Planted texts

TRAIN, VALID, TEST = lines(400, 1), lines(50, 2), lines(50, 3)


def folder(place, **texts: str):
    for split, text in {"train": TRAIN, "valid": VALID, "test": TEST, **texts}.items():
        (place / f"{split}.txt").write_text(text)
    return place


def test_a_careful_text_shares_nothing(tmp_path):
    for params in ({}, {"level": "char"}):
        assert Text(path=folder(tmp_path), **params).facts().in_train == {"valid": 0.0, "test": 0.0}


REFUSED = {
    "train contains test": ({"train": TRAIN + TEST}, {}, "all of the test split also stands in the train split"),
    "train contains valid": ({"train": VALID + TRAIN}, {}, "all of the valid split also stands in the train split"),
    "test is train": ({"test": TRAIN}, {}, "all of the test split also stands in the train split"),
    "valid is test": ({"valid": TEST}, {}, "all of the test split also stands in the valid split"),
    "test within valid": ({"valid": VALID + TEST}, {}, "all of the test split also stands in the valid split"),
    "valid within test": ({"test": TEST + VALID}, {}, "all of the valid split also stands in the test split"),
    "characters": ({"train": TRAIN + TEST}, {"level": "char"}, "all of the test split also stands in the train split"),
    "only <unk>": ({}, {"min_count": 10**6}, "every word of the valid split is <unk>"),
    "train's lines in another order": (
        {"test": "".join(sorted(TRAIN.splitlines(keepends=True)))},
        {},
        "all of the test split also stands in the train split",
    ),
    "another language": ({"test": "\u4e00 \u4e01\n" * 40}, {}, "every word of the test split is <unk>"),
    "another alphabet": ({"test": "\u4e00\u4e01" * 40}, {"level": "char"}, "every word of the test split is <unk>"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_equal_or_contained_splits_are_refused(name, tmp_path):
    texts, params, message = REFUSED[name]
    with pytest.raises(CorpusError, match=message):
        Text(path=folder(tmp_path, **texts), **params).facts()


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


def test_tokens_without_text_are_not_compared(tmp_path):
    corpus = Markov(vocab_size=4, num_tokens=4000, branching=2).load(tmp_path)
    assert shares_in_train(corpus) == {}


@pytest.mark.parametrize("corpus", [PennTreebank, WikiText2, PennTreebankCharacters])
def test_known_shares_of_published_corpora(corpus, real_data):
    found = corpus().load(real_data)
    for split, known in corpus.IN_TRAIN.items():
        assert shares_in_train(found)[split] == pytest.approx(known, abs=5e-5)
