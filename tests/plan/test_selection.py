"""--only: commas ask for all, repeats for any, and a default counts like a written value."""

import pytest
from handmade import changed

from harness.plan import load, select
from harness.plan.selection import choices, facts_of, key_texts

SUITE = changed(
    *[
        ("d_model: 8", "d_model: [8, 6]"),
        ("  - mos: {num_mixtures: 2}", "  - mos\n  - mos: {num_mixtures: 2, dropout: 0.2}"),
    ],
    ("[1, 2]", "[0, 1]"),
    ("table: {baseline: softmax}\n", ""),
)


@pytest.fixture
def trials(write):
    """2 backbones x 3 heads x 2 seeds."""
    return load(write(SUITE)).trials


@pytest.mark.parametrize(
    ("only", "picks"),
    [
        ((), lambda t: True),
        (("head=mos,seed=1",), lambda t: t.head.name == "mos" and t.seed == 1),
        (("head=softmax", "seed=1"), lambda t: t.head.name == "softmax" or t.seed == 1),
        (("seed=0",), lambda t: t.seed == 0),  # markov has a parameter seed too, which is 0
        (("corpus.seed=0",), lambda t: True),
        (("num_mixtures=10",), lambda t: t.head.name == "mos" and not t.head.params),
        (
            ("head.num_mixtures=10", "num_mixtures=2,seed=1"),
            lambda t: t.head.name == "mos" and (not t.head.params or t.seed == 1),
        ),
        (("head.dropout=2e-1",), lambda t: t.head.params.get("dropout") == 0.2),
        (("head.dropout=0",), lambda t: t.head.name == "mos" and not t.head.params),
        (("backbone.dropout=0.1,corpus=markov,backbone=lstm",), lambda t: True),
        (("projection=false",), lambda t: t.head.name == "softmax"),
        (("activation=tanh",), lambda t: t.head.name == "mos"),
    ],
)
def test_condition_picks_the_trials_that_meet_it_in_the_suites_order(trials, only, picks):
    expected = [trial.id for trial in trials if picks(trial)]
    assert expected
    assert [trial.id for trial in select(trials, only)] == expected


LAYERED = SUITE.replace("  - softmax\n", "  - layered: {components: [[15, 5], [20]]}\n").replace(
    "  - mos\n", "  - layered: {components: [{top: 3}, {top: 2, second: 1}]}\n"
)


@pytest.mark.parametrize(
    ("only", "picks"),
    [
        *[("components=[15, 5]", [(15, 5)]), ("components=[15,5],seed=1", [(15, 5)])],
        *[("seed=1,head.components=[20],head=layered", [(20,)]), ("components={top: 3}", [{"top": 3}])],
        ("components={second: 1, top: 2},seed=0", [{"top": 2, "second": 1}]),
        ("widths=[1, 2]", [(15, 5), (20,), {"top": 3}, {"top": 2, "second": 1}]),
    ],
)
def test_lists_and_mappings_are_values_too(write, layered, only, picks):
    found = [trial.head.params["components"] for trial in select(load(write(LAYERED)).trials, (only,))]
    assert found
    assert [value for index, value in enumerate(found) if value not in found[:index]] == picks


def test_an_id_picks_one_trial_and_conditions_that_overlap_pick_a_trial_once(trials):
    assert select(trials, (f"id={trials[3].id}",)) == (trials[3],)
    assert select(trials, ("seed=1", "head=mos", "seed=0")) == trials


def test_every_choice_is_a_condition_and_they_name_every_trial(trials, write):
    found = choices(facts_of(trials))
    assert found["head.dropout"] == ["0.0", "0.2"]  # the backbone has a dropout, too
    assert found["dropout"] == ["0.1", "0.0", "0.2"]
    assert "head.num_mixtures" not in found
    assert found["corpus.seed"] == ["0"]  # 'seed' is the trial's
    for key, values in found.items():
        chosen = [select(trials, (f"{key}={value}",)) for value in values]
        if key in ("head", "seed", "d_model", "corpus"):
            assert sum(map(len, chosen)) == len(trials)
    # a key of many values is cut
    many = load(write(SUITE.replace("seeds: [0, 1]", f"seeds: {list(range(30))}"))).trials
    seeds = ", ".join(map(str, range(20)))
    assert f"seed: {seeds} and 10 more" in key_texts(choices(facts_of(many)))
