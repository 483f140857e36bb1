"""How much lower a row may be between the values that were tried, and what tables then say of it."""

import math
from dataclasses import replace
from types import SimpleNamespace

import handmade
import numpy as np
import pytest

from harness.plan.suite_file import TableSpec
from harness.plan.tuning import Axis
from harness.report import verdicts
from harness.report.ranks import ranks
from harness.report.tuning_doubts import Tuned, doubts_of, of_curve, of_row

SUITE = handmade.suite_text(
    heads="[softmax, {mos: {num_mixtures: 2}}]",
    train="{optimizer: sgd, lr: 1.0, epochs: 2, batch_size: 4, seq_len: 7}",
    seeds="[1, 2]",
    tune="{epochs: 1, seed: 9, space: SPACE}",
    table="{baseline: softmax}",
)
E_TO = [math.exp(power) for power in range(5)]
GRID = f"{{train.lr: {E_TO}}}"  # the logarithms are 0, 1, 2, 3, 4

ALL_TUNED = SimpleNamespace(rows_without_point=0, untuned_controls=())  # evidence without token scores


@pytest.mark.parametrize(
    ("places", "gap"),
    [
        # at equal distances an eighth of the larger rise
        ([(0.0, 8.0), (1.0, 0.0), (2.0, 0.0)], 1.0),
        ([(0.0, 2.0), (1.0, 0.0), (2.0, 4.0)], 0.5),
        ([(2.0, 4.0), (0.0, 4.0), (1.0, 0.0)], 0.5),  # also where both are alike
        # distances 1 and 2: (y0 - y1) 4 / 12 and (y2 - y1) / 24
        ([(0.0, 3.0), (1.0, 0.0), (3.0, 6.0)], 1.0),
        ([(0.0, 0.0), (1.0, 0.0), (3.0, 6.0)], 0.25),
        # further points change nothing
        ([(-9.0, None), (0.0, 8.0), (1.0, 0.0), (2.0, 0.0), (3.0, 0.5)], 1.0),
        ([(0.0, 0.0), (1.0, 0.0), (2.0, 0.0)], 0.0),
        ([(1.0, 0.0), (2.0, 3.0)], math.inf),
        ([(0.0, 3.0), (1.0, 0.0)], math.inf),
        ([(1.0, 0.0)], math.inf),
        ([(0.0, None), (1.0, 0.0), (2.0, 1.0)], math.inf),
        ([(0.0, 1.0), (1.0, 0.0), (2.0, None)], math.inf),
    ],
)
def test_gaps_by_hand(places, gap):
    assert of_curve(places, 1.0) == pytest.approx(gap, abs=1e-12)


def test_no_parabola_with_this_lowest_point_goes_lower():
    generator = np.random.default_rng(3)
    x0, x1, x2 = np.sort(generator.uniform(-1, 1, (20_000, 3)), axis=1).T
    lowest = x1 + generator.uniform(-1, 1, 20_000) * 0.5 * np.where(generator.random(20_000) < 0.5, x1 - x0, x2 - x1)
    values = [(x - lowest) ** 2 for x in (x0, x1, x2)]
    inside = (values[1] <= values[0]) & (values[1] <= values[2])
    found = [
        of_curve(list(zip(xs, ys, strict=True)), xs[1])
        for xs, ys in zip(np.stack([x0, x1, x2], 1)[inside], np.stack(values, 1)[inside], strict=True)
    ]
    assert inside.sum() > 5_000
    shares = values[1][inside] / np.array(found)  # the minimum is 0
    assert 0.95 < shares.max() <= 1 + 1e-9


FACTORS = f"{{train.groups.head.lr: [{', '.join(f'x{value!r}' for value in E_TO)}]}}"
BOTH = f"{{head.dropout: [0.1, 0.2, 0.3], train.lr: {E_TO[:3]}}}"


@pytest.mark.parametrize(
    ("space", "logs", "uniform", "gap"),
    [
        (GRID, [3.0, 2.0, 1.0, 1.0, 4.0], None, 1 / 8),  # over the logarithm of the value
        # of values without a logarithm, and of a uniform range, over the value
        ("{head.dropout: [0, 0.25, 0.5]}", [2.0, 1.0, 1.0], None, 1 / 8),
        ("{head.dropout: [0.125, 0.25, 0.375]}", [2.0, 1.0, 1.0], [0.125, 0.375], 1 / 8),
        # below 0 there is nothing: the parabola through (-0.2, 3), (0, 1), (0.2, 3), moved by at most 0.1
        ("{head.dropout: [0, 0.2, 0.6]}", [1.0, 3.0, 9.0], None, 2 / 8),
        ("{head.dropout: [0, 0.2, 0.6]}", [9.0, 3.0, 1.0], None, math.inf),
        ("{head.dropout: [0.1, 0.2, 0.6]}", [1.0, 3.0, 9.0], None, math.inf),
        ("{head.dropout: [0, 0.2, 0.6]}", [1.0, None, 9.0], None, math.inf),
        # neighbours have the same other settings, and gaps are added
        (BOTH, [5.0, 2.0, 9.0, 2.0, 1.0, 1.0, 9.0, 1.0, 5.0], [0.1, 0.3], 1 / 8 + 1 / 8),
        # lists in no order have no gap, but for the learning rate
        ("{train.clip: [1, 2]}", [2.0, 1.0], None, 0),
        ("{train.lr: [1, 2]}", [2.0, 1.0], None, math.inf),
        (FACTORS, [3.0, 2.0, 1.0, 1.0, 4.0], None, 1 / 8),  # factors of a rate are in an order
        ("{train.groups.head.lr: [x0.1, x1]}", [2.0, 1.0], None, math.inf),
    ],
)
def test_gaps_of_a_row(suite_of, space, logs, uniform, gap):
    suite = suite_of(SUITE.replace("SPACE", space))
    row = suite.tuned_rows[1]
    choice = handmade.choice(row, [None if y is None else math.exp(y) for y in logs])
    axes = dict(suite.tune.space)
    if uniform is not None:
        axes["head.dropout"] = Axis.model_validate({"uniform": uniform})
    assert of_row(row, choice, axes) == pytest.approx(gap)


def test_of_two_ranges_nothing_is_known(suite_of):
    space = "{train.lr: {log_uniform: [1, 9]}, head.dropout: {uniform: [0, 0.5]}}"
    suite = suite_of(SUITE.replace("SPACE", space).replace("epochs: 1, seed", "trials: 8, epochs: 1, seed"))
    row = suite.tuned_rows[1]
    choice = handmade.choice(row, [5.0, 4.0, 3.0, 6.0, 7.0, 8.0, 9.0, 10.0])
    assert of_row(row, choice, suite.tune.space) == math.inf


@pytest.fixture
def suite(suite_of):
    """Softmax with a gap of 1/8, the mixture without a known one."""
    made = suite_of(SUITE.replace("SPACE", GRID))
    logs = [3.0, 2.0, 1.0, 1.0, 4.0], [1.0, 2.0, 3.0, 4.0, 5.0]
    return handmade.chosen(made, *(list(map(math.exp, of_row)) for of_row in logs))


def test_every_trial_of_a_row_has_its_gap_and_records_count_before_a_stored_choice(suite, record_of, suite_of):
    first = suite.tuned_rows[0]
    assert doubts_of(suite, {})[first].gap == pytest.approx(1 / 8)

    def with_records(*logs: float) -> float:
        trials = first.tuning_trials
        records = [record_of(trial, valid_ppl=math.exp(y)) for trial, y in zip(trials, logs, strict=True)]
        return doubts_of(suite, {each.id: each for each in records})[first].gap

    assert with_records(3.0, 3.0, 1.0, 2.0, 4.0) == pytest.approx(2 / 8)
    assert with_records(3.0, 1.0, 2.0, 2.0, 4.0) == math.inf  # another point is the best one
    assert doubts_of(suite_of(SUITE.replace("tune: {epochs: 1, seed: 9, space: SPACE}\n", "")), {}) == {}


BASE = [100.0, 101.0, 102.0, 103.0, 104.0, 105.0]


def lower(share: float) -> list[float]:
    """Lower than BASE by a share, with a small spread."""
    return [value * (1 - share) * (1 + (-1) ** index * 1e-3) for index, value in enumerate(BASE)]


@pytest.mark.parametrize(
    ("share", "row_gap", "base_gap", "verdict"),
    [
        (0.05, 0.0, 0.0, "better"),
        (0.05, math.inf, 0.03, "better"),
        (0.05, 0.0, 0.06, "better, coarse tuning"),
        (0.05, 0.0, math.inf, "better, coarse tuning"),
        (-0.05, 0.03, math.inf, "worse"),
        (-0.05, 0.06, 0.0, "worse, coarse tuning"),
        (0.0, 0.005, 0.005, "equivalent"),
        (0.0, 0.02, 0.0, "undecided: coarse tuning"),
        (0.0, 0.0, 0.02, "undecided: coarse tuning"),
    ],
)
def test_a_difference_counts_beyond_what_tuning_leaves_open(table_of, share, row_gap, base_gap, verdict):
    lines = table_of(2, 6)(BASE, lower(share))
    lines = [replace(lines[0], tuning=Tuned(gap=base_gap)), replace(lines[1], tuning=Tuned(gap=row_gap))]
    found = verdicts.compare(lines, TableSpec(baseline="softmax"), ALL_TUNED)[lines[1]]
    assert found.verdict == verdict
    assert bool(found.stars) is (verdict in ("better", "worse"))
    assert found.at_settings.different == found.difference.p_t
    assert (found.p_holm, found.beyond.different) == (found.difference.p_settled,) * 2


def test_a_gap_ends_at_a_perplexity_of_1(table_of):
    # perplexities 1.002 and 1.004: at most 0.2 % lower, so they are equivalent whatever the rates
    lines = [
        replace(row, tuning=Tuned(gap=math.inf))
        for row in table_of(2, 6)([1.002] * 5 + [1.0021], [1.004] * 5 + [1.0041])
    ]
    assert verdicts.compare(lines, TableSpec(baseline="softmax"), ALL_TUNED)[lines[1]].verdict == "equivalent"


def test_a_row_that_tuning_may_lower_prevents_a_best_row(table_of):
    lines = table_of(3, 6)(BASE, lower(0.05), lower(-0.05))
    assert list(ranks(lines, "paired", 0.01).values()) == ["behind", "best", "behind"]
    unknown = replace(lines[1], tuning=Tuned(gap=math.inf))
    assert ranks([lines[0], unknown, lines[2]], "paired", 0.01)[unknown] == "best"
    three = [*lines[:2], replace(lines[2], tuning=Tuned(gap=0.2))]
    assert handmade.by_place(three, ranks(three, "paired", 0.01)) == {0: "behind", 1: "tie", 2: "tie"}
