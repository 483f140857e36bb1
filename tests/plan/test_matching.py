"""Matched parameters: the width that is found, and what stays as it is."""

import pytest
from handmade import MATCHED_VOCAB, matched_suite
from hypothesis import given
from hypothesis import strategies as st

from harness.plan import load, match
from harness.plan.match import closest_width

V = MATCHED_VOCAB


def lstm_softmax(d: int) -> int:
    """Embedding V d; one LSTM layer, four gates of d (d + d) weights and 2 d biases; output V d + V."""
    return V * d + 8 * d * d + 8 * d + V * d + V


def lstm_mos(d: int, k: int) -> int:
    """The same with K facets of d d + d and a prior of K d."""
    return lstm_softmax(d) + k * (d * d + d) + k * d


def nearest_of(total, target: int) -> int:
    """The width of the nearest total, by trying them all."""
    return min(range(1, 400), key=lambda width: abs(total(width) - target))


def widths(suite) -> dict[str, int]:
    """str(head) -> d_model of its backbone."""
    return {str(trial.head): trial.backbone.params["d_model"] for trial in suite.trials}


@pytest.fixture
def built(monkeypatch):
    """The models that a search asked for, in order."""
    asked, count = [], match.count
    monkeypatch.setattr(match, "count", lambda *model: asked.append(model) or count(*model))
    return asked


def test_reference_head_keeps_its_trials_and_the_others_are_those_whose_width_is_written_by_hand(write):
    plain, matched = load(write(matched_suite(match=""))), load(write(matched_suite()))
    assert [trial.id for trial in matched.trials[:2]] == [trial.id for trial in plain.trials[:2]]
    assert matched.trials[0].backbone.params["d_model"] == 250
    assert not {trial.id for trial in matched.trials[2:]} & {trial.id for trial in plain.trials[2:]}
    width = widths(matched)["mos(num_mixtures=2)"]
    by_hand = load(write(matched_suite(("d_model: 250", f"d_model: {width}"), ("[2, 15]", "2"), match="")))
    assert matched.trials[2:4] == by_hand.trials[2:4]
    asked = load(write(matched_suite(match="")), ("match.params=softmax", "match.vary=d_model"))
    assert asked.trials == matched.trials
    assert [key for key, _, _ in asked.overrides] == ["match.params", "match.vary"]


def test_widths_that_cannot_be_built_are_passed_over(write):
    transformer = "transformer_encoder: {d_model: 800, num_layers: 1, num_heads: 4, d_ff: 100}"
    suite = load(write(matched_suite(("lstm: {d_model: 250, num_layers: 1, dropout: 0.1}", transformer))))

    def total(d: int, k: int = 0) -> int:
        # embedding and output; attention 4 d d + 4 d; feed-forward 2 d 100 + 100 + d; two norms 4 d; mixture
        mixture = k * (d * d + d) + k * d
        return 2 * V * d + V + 4 * d * d + 4 * d + 200 * d + 100 + d + 4 * d + mixture

    assert suite.candidate_of(suite.trials[0]).params[0] == total(800)
    expected = min(range(4, 1600, 4), key=lambda d: abs(total(d, 15) - total(800)))
    assert expected % 4 == 0
    assert widths(suite)["mos(num_mixtures=15)"] == expected


@pytest.mark.usefixtures("wide_heads")
def test_head_with_a_width_of_its_own_keeps_the_backbone(write, built):
    text = matched_suite(("mos: {num_mixtures: [2, 15]}", "own"), match="match: {params: softmax, vary: d_latent}\n")
    suite = load(write(text))
    own = suite.trials[-1]
    # softmax V 250 + V = 1255000 against d_latent (250 + V): 1255000 / 5250 = 239.05
    assert own.head.params == {"d_latent": 239}
    assert own.backbone == suite.trials[0].backbone
    assert built[0][2].params == {"d_latent": 250}  # from an unset width the search starts at the embeddings'


PROJECTED = [("  - softmax\n", "  - softmax\n  - softmax: {projection: true}\n")]


def lstm_projected(d: int) -> int:
    """softmax over tanh of a projection, d d + d more."""
    return lstm_softmax(d) + d * d + d


REFERENCES = {
    "softmax": lstm_softmax(250),
    "softmax(projection=True)": lstm_projected(250),
    "'mos(num_mixtures=15)'": lstm_mos(250, 15),  # a point of a grid
}


@pytest.mark.parametrize("params", REFERENCES)
def test_width_is_the_one_with_the_nearest_total_to_that_of_the_head_that_the_plan_prints_so(write, params):
    suite = load(write(matched_suite(*PROJECTED, match=f"match: {{params: {params}, vary: d_model}}\n")))
    totals = {
        "softmax": lstm_softmax,
        "softmax(projection=True)": lstm_projected,
        "mos(num_mixtures=2)": lambda d: lstm_mos(d, 2),
        "mos(num_mixtures=15)": lambda d: lstm_mos(d, 15),
    }
    expected = {head: nearest_of(total, REFERENCES[params]) for head, total in totals.items()}
    assert widths(suite) == expected
    for trial in suite.trials:
        total, head = suite.candidate_of(trial).params
        d = expected[str(trial.head)]
        assert total == totals[str(trial.head)](d)
        assert head == total - V * d - 8 * d * d - 8 * d


def test_every_corpus_and_backbone_has_a_target_of_its_own_and_each_model_is_solved_once(write, built):
    layers = ("d_model: 250, num_layers: 1", "num_layers: [1, 2]"), (f"vocab_size: {V}", f"vocab_size: [{V}, 6000]")
    suite = load(write(matched_suite(*layers)))
    totals = {}
    for trial in suite.trials:
        key = trial.corpus.params["vocab_size"], trial.backbone.params["num_layers"]
        totals.setdefault(key, []).append(suite.candidate_of(trial).params[0])
    assert len(totals) == 4
    for found in totals.values():
        assert all(abs(total - found[0]) <= 0.005 * found[0] for total in found)
    of_all = len(built)
    assert of_all < 8 * 40
    # more seeds, and each text in two lengths
    load(write(matched_suite(*layers, ("seeds: [1, 2]", "seeds: [1, 2, 3]"), ("tokens: 4000", "tokens: [4000, 5000]"))))
    assert len(built) == 2 * of_all


def test_target_out_of_reach_is_refused_after_tens_of_builds(problems, built):
    assert len(problems(matched_suite(match="match: {params: 1e18, vary: d_model}\n"))) == 3
    assert len(built) == 3 * 18  # 250, 251, which shows that every width can be built, and the halves of 65536


# the search for a width


@given(
    target=st.integers(1, 10**6),
    start=st.integers(1, 300),
    step=st.sampled_from([1, 2, 4, 7, 32]),
    slope=st.integers(0, 500),
)
def test_search_finds_what_trying_all_widths_finds(target, start, step, slope):
    def total(width: int) -> int | None:
        return width * width + slope * width + 17 if width % step == 0 else None

    found = closest_width(total, target, start)
    assert found % step == 0
    nearest = min(abs(total(width) - target) for width in range(step, 1100, step))
    assert abs(total(found) - target) == nearest


def test_search_ends_below_a_largest_width_where_it_does_not_count_and_where_none_can_be_built():
    # as of a rank that the model's width bounds
    assert closest_width(lambda width: 10 * width if width <= 300 else None, 10_000, 200) == 300
    assert closest_width(lambda width: 5_000, 5_000, 8) == 8
    assert closest_width(lambda width: None, 5_000, 8) is None
    assert closest_width(lambda width: width if width <= 100 else None, 81, 250) == 81
