"""Heads fitted to target distributions: bounds by hand, the convex optimum against a grid, and what heads reach."""

import math

import numpy as np
import pytest
import rounding
import torch
from scipy.optimize import linprog

from harness.errors import ExecutionError
from harness.experiments import fitting
from harness.experiments.expressiveness import lowest_kl
from harness.experiments.fitting import best_kl, token_counts
from harness.experiments.problems import PROBLEMS, Problem, entropy, king_and_woman, many_words, rare_word
from harness.plan.specs import ComponentSpec

MATRIX = torch.tensor([[1.0], [0.0], [-1.0]], dtype=torch.float64)  # three words of width 1


def row(name, **params):
    return ComponentSpec(name=name, params=params)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(fitting, "STARTS", 3)
    monkeypatch.setattr(fitting, "MORE_STEPS", 150)


def on_a_grid(weight_VD, target_V, states):
    """The lowest KL over some states, by loops over the definition."""
    found = math.inf
    for h in states:
        e = [math.exp(float(sum(w * x for w, x in zip(row, h, strict=True)))) for row in weight_VD]
        p = [value / sum(e) for value in e]
        found = min(found, sum(t * math.log(t / q) for t, q in zip(target_V, p, strict=True) if t > 0))
    return found


def test_entropy_by_hand():
    assert entropy(torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]], dtype=torch.float64)) == pytest.approx(
        math.log(2) / 2, rel=0, abs=rounding.bound(6)
    )


def test_the_optimum_of_three_words_on_a_line():
    # logits h, 0, -h. For t = (1/4, 1/2, 1/4) the derivative (p_1 - p_3) - (t_1 - t_3) is 0 at h = 0 only: p = 1/3 each
    target = torch.tensor([[0.25, 0.5, 0.25]], dtype=torch.float64)
    expected = 0.5 * math.log(3 / 4) + 0.5 * math.log(3 / 2)
    assert lowest_kl(MATRIX, target) == pytest.approx(expected, abs=1e-12)
    # for t = (1, 0, 0) the infimum 0 is at infinity; within [-1, 1] it is at h = 1
    first = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)
    assert lowest_kl(MATRIX, first) == pytest.approx(0, abs=1e-8)
    bounded = math.log(1 + math.exp(-1) + math.exp(-2))
    assert lowest_kl(MATRIX, first, bound=1.0) == pytest.approx(bounded, abs=1e-10)


@pytest.mark.parametrize("bound", [None, 1.0])
def test_the_optimum_is_that_of_a_grid(bound):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(6, 2, generator=generator, dtype=torch.float64)
    target = torch.rand(1, 6, generator=generator, dtype=torch.float64)
    target /= target.sum()
    edge = 4 if bound is None else 1
    line = np.linspace(-edge, edge, 161)
    best = on_a_grid(weight.tolist(), target[0].tolist(), [(x, y) for x in line for y in line])
    found = lowest_kl(weight, target, bound=bound)
    assert best - 1e-3 < found <= best + 1e-12


def test_the_optimum_is_a_mean_over_contexts():
    target = torch.tensor([[0.25, 0.5, 0.25], [1 / 3, 1 / 3, 1 / 3]], dtype=torch.float64)
    alone = [lowest_kl(MATRIX, target[[n]]) for n in range(2)]
    assert alone[1] == pytest.approx(0, abs=1e-12)
    assert lowest_kl(MATRIX, target) == pytest.approx(sum(alone) / 2, abs=1e-12)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_king_and_woman_cannot_be_had_by_one_softmax(seed):
    problem = king_and_woman(seed)
    king, woman = problem.target[0].nonzero()[:, 0]
    pairs = [(a, b) for a in range(100) for b in range(a) if not {a, b} & {int(king), int(woman)}]
    sums = torch.stack([problem.weight[a] + problem.weight[b] for a, b in pairs])
    same = (sums - problem.weight[king] - problem.weight[woman]).abs().amax(1) < 1e-12
    assert int(same.sum()) == 1  # queen and man
    assert lowest_kl(problem.weight, problem.target) >= math.log(2) - 1e-9


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_rare_word_is_inside_the_hull_of_others(seed):
    problem = rare_word(seed)
    (word,) = problem.target[0].nonzero()[0]
    others = torch.cat([problem.weight[:word], problem.weight[word + 1 :]])
    equal = torch.cat([others.T, torch.ones(1, 99, dtype=torch.float64)]).numpy()
    shares = linprog(np.zeros(99), A_eq=equal, b_eq=[*problem.weight[word].tolist(), 1.0])
    assert shares.status == 0
    assert lowest_kl(problem.weight, problem.target) >= math.log(5) - 1e-9


@pytest.mark.parametrize("modes", [2, 8, 16])
def test_many_words_are_k_in_each_context(modes):
    problem = many_words(1, modes=modes)
    assert problem.target.shape == (10, 100)
    assert (problem.target > 0).sum(1).tolist() == [modes] * 10
    assert problem.target.sum(1).tolist() == [1] * 10  # 1 / k is a power of two, so the sums are exact


def test_the_words_of_few_modes_are_among_those_of_many():
    few, many = (many_words(1, modes=modes) for modes in (4, 16))
    assert torch.equal(few.weight, many.weight)
    assert bool((many.target[few.target > 0] > 0).all())


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_softmax_reaches_the_convex_optimum_and_no_less(name, quick):
    problem = PROBLEMS[name](1)
    best = lowest_kl(problem.weight, problem.target)
    assert name == "2 words" or best > 0.1  # in 16 dimensions two words of 100 can be made the most probable
    assert best - 1e-8 <= best_kl(row("softmax"), problem, 1) < best + 1e-4


@pytest.mark.system
def test_a_mixture_of_contexts_is_one_softmax_of_bounded_states(quick):
    problem = king_and_woman(2)
    bounded = lowest_kl(problem.weight, problem.target, bound=1.0)
    assert bounded - 1e-8 <= best_kl(row("moc", num_mixtures=2), problem, 2) < bounded + 1e-3


@pytest.mark.parametrize(
    "head", [row("mos", num_mixtures=2, activation="none"), row("mfs", num_input_layers=1, window=0)]
)
def test_mixtures_reach_king_and_woman(head, quick):
    assert best_kl(head, king_and_woman(1), 1) < 1e-3


@pytest.mark.system
def test_a_mixture_shares_the_bound_of_the_rare_word_and_partitions_do_not(quick):
    problem = rare_word(1)
    best = lowest_kl(problem.weight, problem.target)
    assert best_kl(row("mos", num_mixtures=2, activation="none"), problem, 1) >= best - 1e-8
    assert best_kl(row("mfs", num_mixtures=1, num_input_layers=1, window=0), problem, 1) < 1e-3


def test_a_mixture_is_not_stuck_in_a_component_that_cannot_have_the_word():
    """Seed 3: from initial states of scale 1 the gate leaves the component with partitions, and KL stays at 3.79."""
    assert best_kl(row("mfs", num_input_layers=1, window=0), rare_word(3), 3) < 1e-3


@pytest.mark.system
@pytest.mark.parametrize("problem", [king_and_woman(1), rare_word(1)], ids=["king and woman", "rare word"])
def test_mixtape_has_the_words_with_own_gates_only(problem, quick):
    """Words with the shared gate have one mixed facet: the bounds log 2 and log 5 of one softmax hold for it."""
    bound = math.log(2) if (problem.target > 0).sum() == 2 else math.log(5)
    assert best_kl(row("mixtape"), problem, 1, words="frequent") < 1e-3
    assert best_kl(row("mixtape"), problem, 1, words="rare") >= bound - 1e-9


def test_counts_by_hand():
    # word 2 has the target probability 1 + 1/2, word 4 has 1/2, word 0 belongs to the problem; then 1 and 3
    target = torch.tensor([[0, 0, 1, 0, 0], [0, 0, 0.5, 0, 0.5]], dtype=torch.float64)
    problem = Problem(weight=torch.zeros(5, 2), target=target, words=torch.tensor([0, 2, 4]))
    assert token_counts(problem, "frequent").tolist() == [3, 2, 5, 1, 4]
    assert token_counts(problem, "rare").tolist() == [3, 5, 1, 4, 2]


def test_a_head_with_a_window_has_states_of_its_own_for_earlier_positions():
    spec, problem = row("mfs", num_partitions=2, window=2), king_and_woman(1)
    made = fitting._Fit(fitting._head(spec, problem, "frequent"), problem, 0.1)
    assert [state.shape for state in made.layers] == [(1, 3, 16)] * 3
    made._loss()
    for state in made.layers:  # each position of each layer is read at the last position
        assert state.grad.abs().amax((0, 2)).min() > 0
    without = fitting._Fit(fitting._head(row("softmax"), problem, "frequent"), problem, 0.1)
    assert [state.shape for state in without.layers] == [(1, 1, 16)] * 3


def test_the_same_seed_gives_the_same_number(quick):
    first, second = (best_kl(row("sigsoftmax"), king_and_woman(1), 1) for _ in range(2))
    assert first == second


def test_a_head_without_one_output_matrix_is_refused():
    """An adaptive softmax cuts its matrix into clusters."""
    with pytest.raises(ExecutionError, match=r"head adaptive: expected one parameter of shape \(100, 16\)"):
        best_kl(row("adaptive"), king_and_woman(1), 1)
