"""--only: commas ask for all, repeats for any, and a default counts like a written value."""

import pytest
from handmade import changed

from harness.errors import SuiteError
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
        (("head=mos",), lambda t: t.head.name == "mos"),
        (("head=mos,seed=1",), lambda t: t.head.name == "mos" and t.seed == 1),
        (("head=softmax", "seed=1"), lambda t: t.head.name == "softmax" or t.seed == 1),
        (("seed=0",), lambda t: t.seed == 0),  # markov has a parameter seed too, which is 0
        (("corpus.seed=0",), lambda t: True),
        (("num_mixtures=2",), lambda t: t.head.params.get("num_mixtures") == 2),
        (("num_mixtures=10",), lambda t: t.head.name == "mos" and not t.head.params),
        (
            ("head.num_mixtures=10", "num_mixtures=2,seed=1"),
            lambda t: t.head.name == "mos" and (not t.head.params or t.seed == 1),
        ),
        (("d_model=6",), lambda t: t.backbone.params["d_model"] == 6),
        (("dropout=0.1",), lambda t: True),
        (("head.dropout=0.2",), lambda t: t.head.params.get("dropout") == 0.2),
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


@pytest.mark.parametrize("only", ["components=[15, 6]", "components={top: 4}", "components=[15,5", "components=15]"])
def test_list_or_mapping_that_no_trial_has_picks_nothing(write, layered, only):
    with pytest.raises(SuiteError, match="no trial of the suite meets this condition"):
        select(load(write(LAYERED)).trials, (only,))


def test_an_id_picks_one_trial_and_conditions_that_overlap_pick_a_trial_once(trials):
    assert select(trials, (f"id={trials[3].id}",)) == (trials[3],)
    assert select(trials, ("seed=1", "head=mos", "seed=0")) == trials
    with pytest.raises(SuiteError, match="--only id=2020-13-45: no trial of the suite meets this condition; id is "):
        select(trials, ("id=2020-13-45",))


UNKNOWN = {
    "num_mixture=2": "no trial has 'num_mixture'; did you mean 'num_mixtures'?",
    "hed=mos": "no trial has 'hed'; did you mean 'head'?",
    "train.lr=1": "no trial has 'train.lr'",
    "softmax.bias=true": "no trial has 'softmax.bias'",
    **dict.fromkeys(("", "head"), "expected key=value"),
}
NONE = {
    "head=mixtape": "head is softmax, mos",
    "head=mos,num_mixtures=3,seed=7": "num_mixtures is 10, 2",
    "head=softmax,num_mixtures=2": "each of its values occurs, but not in one trial",
    "head=[": "head is softmax, mos",
    **dict.fromkeys(("seed=7", "seed="), "seed is 0, 1"),
}


def refused(trials, *only: str) -> str:
    with pytest.raises(SuiteError) as caught:
        select(trials, only)
    (problem,) = caught.value.problems
    return problem


def test_unknown_key_is_an_error_with_the_nearest_one_and_those_there_are_with_their_values(trials):
    for only, message in UNKNOWN.items():
        assert refused(trials, "head=mos", only).startswith(f"--only {only}: {message}")
    message = refused(trials, "hed=mos")
    assert "(keys: backbone" not in message  # it has one value
    for part in ("(keys: head: softmax, mos; seed: 0, 1; ", "; d_model: 8, 6; ", "; num_mixtures: 10, 2; "):
        assert part in message
    assert message.endswith("; id; `harness plan SUITE --keys` shows all)")
    assert "vocab_size" not in message  # it has one value


@pytest.mark.parametrize("only", NONE)
def test_condition_that_picks_nothing_is_an_error_with_the_values_there_are(trials, only):
    expected = f"--only {only}: no trial of the suite meets this condition; {NONE[only]}"
    assert refused(trials, "head=mos", only) == expected


def test_every_choice_is_a_condition_and_they_name_every_trial(trials, write):
    found = choices(facts_of(trials))
    assert found["head.dropout"] == ["0.0", "0.2"]  # the backbone has a dropout, too
    assert found["dropout"] == ["0.1", "0.0", "0.2"]
    assert "head.num_mixtures" not in found
    assert "id" not in found
    assert found["corpus.seed"] == ["0"]  # 'seed' is the trial's
    for key, values in found.items():
        chosen = [select(trials, (f"{key}={value}",)) for value in values]
        if key in ("head", "seed", "d_model", "corpus"):
            assert sum(map(len, chosen)) == len(trials)
    # a key of many values is cut
    many = load(write(SUITE.replace("seeds: [0, 1]", f"seeds: {list(range(30))}"))).trials
    seeds = ", ".join(map(str, range(20)))
    assert f"seed: {seeds} and 10 more" in key_texts(choices(facts_of(many)))
