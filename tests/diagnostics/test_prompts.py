"""Prompts with two right next words: which pairs, in which words, and what is left out."""

from itertools import product

import pytest
import torch
from subjects import FIRST, NAMES, words

from harness.corpora.corpus import Corpus
from harness.diagnostics import prompts
from harness.diagnostics.prompts import PEOPLE, PLACES, TEMPLATES, A, B, prompts_of
from harness.errors import CorpusError


def written(corpus: Corpus) -> dict[str, tuple[str, ...]]:
    """Text of each prompt -> the other words of its parallelogram."""
    shown = corpus.symbols
    return {
        " ".join(shown[index] for index in each.tokens): tuple(sorted(shown[index] for index in each.others))
        for each in prompts_of(corpus, None).prompts
    }


def test_the_lists_are_those_of_the_questions():
    """506 questions in each section: 23 pairs, each with each other one. He, she and his, her are left out."""
    people, places = (tuple(tuple(pair.split()) for pair in section.split(", ")) for section in (PEOPLE, PLACES))
    assert (len(people) + 2, len(places)) == (23, 23)
    assert 23 * 22 == 506
    for pairs in (people, places):
        assert len({word for pair in pairs for word in pair}) == 2 * len(pairs)


def test_every_template_has_both_words_and_ends_before_the_next_one():
    for template in sum(TEMPLATES.values(), ()):
        given = template.split()
        assert (given.count(A), given.count(B)) == (1, 1)
        assert given[-1] not in (A, B)


def test_two_pairs_are_crossed_and_controlled_in_both_orders():
    found = written(words(f"<eos> {FIRST} {NAMES}"))
    crossed = {("boy", "queen"): ("girl", "king"), ("girl", "king"): ("boy", "queen")}
    control = [("boy", "girl"), ("king", "queen"), ("boy", "king"), ("girl", "queen")]
    expected = {}
    for (a, b), others in (*crossed.items(), *((pair, ()) for pair in control)):
        for first, second in ((a, b), (b, a)):
            expected[f"<eos> the {first} and the {second} came to the house and we spoke to the"] = others
    assert found == expected


def test_a_word_in_capitals_is_taken_as_it_is_where_the_vocabulary_has_it():
    (text, *_) = written(words(f"The {FIRST} boy girl"))
    assert text == "The boy and the girl came to the house and we spoke to the"


def test_lines_begin_as_in_the_corpus():
    (text, *_) = written(words(f"<sos> <eos> {FIRST} boy girl"))
    assert text.startswith("<eos> <sos> the boy and")


def test_what_the_vocabulary_lacks_is_counted():
    found = prompts_of(words(f"{FIRST} {NAMES}"), None)
    assert found.templates_left_out == 7
    # people: 21 x 20 crossed and 21 + 21 x 20 controls, of which 2 and 4 can be expressed; places: 23 x 22, 23 x 23
    assert found.pairs_left_out == (21 * 20 - 2) + (21 + 21 * 20 - 4) + 23 * 22 + 23 * 23
    assert len(found.prompts) == (2 + 4) * 2


def test_a_prompt_that_is_too_long_is_left_out():
    corpus = words(f"<eos> {FIRST} were there he looked at {NAMES}")
    assert {len(each.tokens) for each in prompts_of(corpus, 14).prompts} == {13}
    assert prompts_of(corpus, 14).templates_left_out == 7
    assert prompts_of(corpus, 15).templates_left_out == 6
    assert prompts_of(corpus, 12).prompts == ()


def test_of_many_pairs_evenly_spaced_ones_are_taken(monkeypatch):
    corpus = words(f"{FIRST} {PEOPLE.replace(',', '')}")
    every = {each.others for each in prompts_of(corpus, None).prompts if each.others}
    assert len(every) == prompts.MOST_PAIRS < 420
    monkeypatch.setattr(prompts, "MOST_PAIRS", 3)
    firsts = [each.first for each in prompts_of(corpus, None).prompts if each.others][::2]
    listed = [word for pair in PEOPLE.split(", ") for word in pair.split()]
    pairs = [(i, j) for i, j in product(range(21), repeat=2) if i < j]
    # places 0, 140 and 280 of 420, two for each two pairs; the even ones begin with the first word of the first pair
    assert [corpus.symbols[index] for index in firsts] == [listed[2 * pairs[place // 2][0]] for place in (0, 140, 280)]


class Pieces:
    """Tokens of whole words with a space before them; stepfather and boy have two, and there are no countries."""

    def __init__(self):
        self.known: list[str] = []

    def encode(self, text):
        if text[1:].istitle() and text != " The":
            raise CorpusError(f"no {text!r}")
        parts = [" step", text[5:]] if text.startswith(" step") else [" b", "oy"] if text == " boy" else [text]
        self.known += [part for part in parts if part not in self.known]
        return [self.known.index(part) for part in parts]

    def decode(self, ids):
        return "".join(self.known[index] for index in ids)


def test_other_tokens_need_one_for_each_word_of_a_pair():
    ids, codec = torch.arange(9), Pieces()
    found = prompts_of(Corpus(vocab_size=99, train=ids, valid=ids, test=ids, codec=codec), None)
    texts = {codec.decode(each.tokens) for each in found.prompts}
    assert " The brother and the sister came to the house and we spoke to the" in texts
    assert not any("step" in text or " boy " in text for text in texts)
    assert found.templates_left_out == 5  # those that begin with We, There, I, They and He


@pytest.mark.parametrize("symbols", [None, ("a", "b", "c")])
def test_tokens_without_words_give_no_prompt(symbols):
    ids = torch.arange(3)
    found = prompts_of(Corpus(vocab_size=3, train=ids, valid=ids, test=ids, symbols=symbols), None)
    assert (found.prompts, found.templates_left_out) == ((), 8)
