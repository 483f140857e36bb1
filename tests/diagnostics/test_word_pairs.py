"""Prompts with two right next words in the tokens of a corpus, and what a model expects after them."""

import math
from dataclasses import replace

import pytest
import torch
from subjects import FIRST, LSTM, NAMES, Tokens, subject, words
from torch import nn

from harness.corpora.corpus import Corpus
from harness.diagnostics import word_pairs
from harness.diagnostics.diagnostic import NotDefined, Settings
from harness.diagnostics.prompts import prompts_of
from harness.diagnostics.word_pairs import compute
from harness.distributions import Logits
from harness.errors import CorpusError
from harness.model import LanguageModel


def written(corpus: Corpus) -> dict[str, tuple[str, ...]]:
    """Text of each prompt -> the other words of its parallelogram."""
    shown = corpus.symbols
    return {
        " ".join(shown[index] for index in each.tokens): tuple(sorted(shown[index] for index in each.others))
        for each in prompts_of(corpus, None).prompts
    }


def test_two_pairs_are_crossed_and_controlled_in_both_orders():
    found = written(words(f"<eos> {FIRST} {NAMES}"))
    crossed = {("boy", "queen"): ("girl", "king"), ("girl", "king"): ("boy", "queen")}
    control = [("boy", "girl"), ("king", "queen"), ("boy", "king"), ("girl", "queen")]
    expected = {}
    for (a, b), others in (*crossed.items(), *((pair, ()) for pair in control)):
        for first, second in ((a, b), (b, a)):
            expected[f"<eos> the {first} and the {second} came to the house and we spoke to the"] = others
    assert found == expected


@pytest.mark.parametrize(
    ("known", "begin"),
    [("The", "The boy and the girl came to the house and we spoke to the"), ("<sos> <eos>", "<eos> <sos> the boy and")],
)
def test_a_prompt_begins_as_lines_of_the_corpus(known, begin):
    (text, *_) = written(words(f"{known} {FIRST} boy girl"))
    assert text.startswith(begin)


def test_what_the_vocabulary_lacks_is_counted():
    found = prompts_of(words(f"{FIRST} {NAMES}"), None)
    assert found.templates_left_out == 7
    # people: 21 x 20 crossed and 21 + 21 x 20 controls, of which 2 and 4 can be expressed; places: 23 x 22, 23 x 23
    assert found.pairs_left_out == (21 * 20 - 2) + (21 + 21 * 20 - 4) + 23 * 22 + 23 * 23
    assert len(found.prompts) == (2 + 4) * 2


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


CORPUS = words(f"<eos> {FIRST} were there he looked at {NAMES}")  # 17 words; two templates
V, BOY, GIRL, KING, QUEEN = CORPUS.vocab_size, *map(CORPUS.symbols.index, NAMES.split())
EXACT = {"rel": 0, "abs": 1e-9}


class Known(nn.Module):
    """A head that gives the word that is named first 0.5, the other one 0.2, <eos> 0.25, and all others equal shares.

    Only after man and queen (here boy and queen) it fails: 0.1 for both, and 0.3 for each of the other two.
    """

    window = 99

    def forward(self, hidden):
        rows = []
        for row in hidden.layers[-1][..., 0].long().tolist():
            named = [token for token in row if token in (BOY, GIRL, KING, QUEEN)]
            if len(named) < 2:
                rows.append([1 / V] * V)
                continue
            given = {named[0]: 0.5, named[1]: 0.2, 0: 0.25}
            if set(named) == {BOY, QUEEN}:
                given = {BOY: 0.1, QUEEN: 0.1, GIRL: 0.3, KING: 0.3}
            rest = (1 - sum(given.values())) / (V - len(given))
            rows.append([given.get(v, rest) for v in range(V)])
        logp_BV = torch.tensor(rows, dtype=torch.float64).log()
        return Logits(logp_BV[:, None].expand(-1, hidden.layers[-1].shape[1], -1))


def known(*, carries: bool = True, head: nn.Module | None = None, **train):
    model = LanguageModel(Tokens(V, carries=carries), head or Known()).eval()
    return replace(subject(LSTM, **train), model=model, corpus=CORPUS)


@pytest.mark.parametrize("rows", [word_pairs.ROWS, 3])
def test_a_head_with_known_probabilities(rows, monkeypatch):
    monkeypatch.setattr(word_pairs, "ROWS", rows)
    found = compute(known(), Settings())
    right, failed = -(math.log(0.5) + math.log(0.2)) / 2 - math.log(2), -math.log(0.1) - math.log(2)
    one = found.control
    assert (one.prompts, one.above) == (16, None)  # 4 pairs, 2 templates, both orders
    assert (one.first, one.second, one.both) == tuple(pytest.approx(each, **EXACT) for each in (0.5, 0.2, 0.7))
    assert one.kl == pytest.approx(right, **EXACT)
    # KL of 1/2, 1/2 from 5/7, 2/7: -log(4 * 5/7 * 2/7) / 2
    assert one.kl_of_two == pytest.approx(-math.log(40 / 49) / 2, **EXACT)
    assert one.top == (0, 1, 1)  # <eos> is between the two
    half = found.crossed
    assert half.prompts == 8
    assert (half.first, half.second) == (pytest.approx(0.3, **EXACT), pytest.approx(0.15, **EXACT))
    assert half.kl == pytest.approx((right + failed) / 2, **EXACT)
    assert half.kl_of_two == pytest.approx(-math.log(40 / 49) / 4, **EXACT)
    assert (half.top, half.above) == ((0, 1, 1), 0.5)
    assert (found.templates_left_out, found.pairs_left_out) == (6, prompts_of(CORPUS, None).pairs_left_out)


def test_a_word_with_equal_probability_is_not_counted_as_more_probable():
    logp_nV = torch.tensor([[0.3, 0.3, 0.3, 0.1], [0.4, 0.3, 0.2, 0.1]], dtype=torch.float64).log()
    (prompt, *_) = prompts_of(CORPUS, None).prompts
    pair = replace(prompt, first=1, second=2, others=(0, 3))
    *_, top, _, _, above = word_pairs._measured(logp_nV, [pair, pair]).tolist()
    assert (top, above) == ([1, 0], [0, 0])


def test_a_context_that_is_too_short_leaves_templates_out():
    found = compute(known(carries=False, seq_len=13), Settings())
    assert (found.templates_left_out, found.control.prompts) == (7, 8)
    with pytest.raises(NotDefined, match="none that has at most seq_len tokens"):
        compute(known(carries=False, seq_len=12), Settings())
    with pytest.raises(NotDefined, match="the vocabulary of markov can express no template"):
        compute(subject(LSTM), Settings())


def test_a_probability_of_zero_has_no_result():
    class Never(nn.Module):
        def forward(self, hidden):
            z_BTV = torch.zeros(*hidden.layers[-1].shape[:2], V, dtype=torch.float64)
            z_BTV[..., QUEEN] = -math.inf
            return Logits(z_BTV)

    with pytest.raises(NotDefined, match="the probability 0"):
        compute(known(head=Never()), Settings())
