"""Matched parameters: what a search builds, and the width that it finds. The rest: tests/golden/plans/matched.yaml."""

import pytest
from handmade import MATCHED_VOCAB, matched_suite
from hypothesis import given
from hypothesis import strategies as st

from harness.plan import load, match
from harness.plan.match import closest_width

V = MATCHED_VOCAB


@pytest.fixture
def built(monkeypatch):
    """The models that a search asked for, in order."""
    asked, count = [], match.count
    monkeypatch.setattr(match, "count", lambda *model: asked.append(model) or count(*model))
    return asked


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
