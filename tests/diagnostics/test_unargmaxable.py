"""Words that a softmax can put first: by hand, against the convex hull of the others, and in the model of a trial."""

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from subjects import LSTM, V, head_of, subject

from harness.diagnostics import unargmaxable
from harness.diagnostics.diagnostic import NotDefined, Settings
from harness.diagnostics.unargmaxable import compute, decide


def random(V, E, seed):
    generator = torch.Generator().manual_seed(seed)
    weight, bias, states = (
        torch.randn(size, generator=generator, dtype=torch.float64) for size in ((V, E), (V,), (20, E))
    )
    return weight, bias, [states]


def in_hull(weight, bias, word):
    """Whether l >= 0 with sum l = 1, sum l w = w_x and sum l b >= b_x exist, over the other words."""
    others = [each for each in range(len(weight)) if each != word]
    equal = np.vstack([weight[others].T, np.ones(len(others))])
    done = linprog(
        np.zeros(len(others)), A_eq=equal, b_eq=[*weight[word], 1], A_ub=-bias[others][None], b_ub=[-bias[word]]
    )
    return done.status == 0


@pytest.mark.parametrize(
    ("weight", "bias", "never"),
    [
        ([[1.0], [0.0], [-1.0]], [0.0, 0.0, 0.0], [1]),  # the middle word has at best a tie
        ([[1.0], [0.0], [-1.0]], [0.0, 0.1, 0.0], []),  # it is first at h = 0
        ([[1.0], [0.0], [-1.0]], [0.0, -5.0, 0.0], [1]),
        ([[1.0], [0.0], [-1.0]], [50.0, 60.0, -40.0], []),  # h = -100 puts the last word first
        ([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]], [0.0, 0.0, 0.0], [0, 1]),  # equal words
        ([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]], [0.5, 0.0, 0.0], [1]),  # the same row and a smaller bias
    ],
)
def test_three_words_by_hand(weight, bias, never):
    weight, bias = (torch.tensor(each, dtype=torch.float64) for each in (weight, bias))
    found = decide(weight, bias, [5 * weight[:1]])
    assert (found["never"], found["undecided"]) == (never, [])
    assert not set(never) & set(found["in_contexts"])


@pytest.mark.parametrize("at_once", [unargmaxable.ROWS_AT_ONCE, 7])
@pytest.mark.parametrize(("V", "E", "seed"), [(12, 1, 0), (30, 2, 1), (40, 3, 2), (60, 4, 3), (150, 6, 4)])
def test_the_words_that_are_never_first_are_those_in_the_hull_of_others(V, E, seed, at_once, monkeypatch):
    monkeypatch.setattr(unargmaxable, "ROWS_AT_ONCE", at_once)
    weight, bias, states = random(V, E, seed)
    found = decide(weight, bias, states)
    expected = [word for word in range(V) if in_hull(weight.numpy(), bias.numpy(), word)]
    assert 0 < len(expected) < V
    assert (found["never"], found["undecided"]) == (expected, [])
    logits = states[0] @ weight.T + bias
    assert found["in_contexts"] == sorted(set(logits.argmax(1).tolist()))
    every = [*found["in_contexts"], *found["along_rows"], *found["by_program"], *found["never"]]
    assert sorted(every) == list(range(V))


@pytest.mark.parametrize("short", ["each program", "all programs"])
def test_words_whose_programs_have_no_time_are_undecided(short, monkeypatch):
    weight, bias, states = random(60, 4, 3)
    known = decide(weight, bias, states)
    assert known["never"]
    monkeypatch.setattr(unargmaxable, "SECONDS", 0.0 if short == "each program" else unargmaxable.SECONDS)
    found = decide(weight, bias, states, **({"seconds": 0} if short == "all programs" else {}))
    assert (found["by_program"], found["never"]) == ([], [])
    assert found["undecided"] == sorted([*known["by_program"], *known["never"]])
    assert (found["in_contexts"], found["along_rows"]) == (known["in_contexts"], known["along_rows"])


SETTINGS = Settings(contexts=40)


def test_a_word_between_others_is_named():
    of = subject(LSTM)
    output = of.model.head.output
    with torch.no_grad():
        output.weight.copy_(torch.eye(V, 8))  # words 8 to 11 have rows of zeros, and only 11 has a bias
        output.weight[7] = output.weight[:4].mean(0)  # 1/4 four times: exact in float32
        output.bias.zero_()
        output.bias[11] = 1.0
    found = compute(of, SETTINGS)
    # 0 to 6 are first in their own direction, 11 at h = 0; word 7 has at best a tie with 0 to 3
    assert (found.vocabulary, found.never, found.undecided) == (V, 4, 0)
    assert found.in_contexts + found.along_rows + found.by_program == 8
    counts = of.corpus.token_counts
    assert found.never_in_training == int(counts[7:11].sum())
    assert sorted(found.words, key=int) == ["7", "8", "9", "10"]
    assert [int(counts[int(word)]) for word in found.words] == sorted(counts[7:11].tolist(), reverse=True)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{mos: {num_mixtures: 2}}", "several softmaxes or facets"),
        ("{mfs: {num_mixtures: 1, num_input_layers: 1, window: 0}}", "several softmaxes or facets"),
        ("{multimax: {}}", "no output matrix by which all its words are scored"),  # its map of the logits may decrease
        ("{adaptive: {cutoffs: [[3, 6]], div_value: 2.0}}", "no output matrix by which all its words are scored"),
    ],
)
def test_other_heads_are_not_defined(line, why):
    with pytest.raises(NotDefined, match=why):
        compute(subject(LSTM, head=head_of(line)), SETTINGS)
