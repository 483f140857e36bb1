"""Rows against their baseline and against the best of their group; and how often that errs on planted data."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from harness.records.token_nll import TokenScores
from harness.report.evidence.comparisons import compare, ties
from harness.report.evidence.statistics import block_interval
from harness.report.evidence.table_rows import rows

SUITE = """\
name: suite
version: 1
corpora: [{markov: {vocab_size: 12, num_tokens: 400, branching: 3}}]
backbones: [{lstm: {d_model: 8, num_layers: 1}}]
heads: [softmax, {mos: {num_mixtures: [2, 5, 10]}}]
train: {optimizer: sgd, lr: 0.5, epochs: 2, batch_size: 4, seq_len: 7}
seeds: [1, 2, 3, 4, 5, 6, 7, 8]
"""
SEEDS, HEADS = 8, 4
SD = 0.005  # of a paired difference, half a per cent


@pytest.fixture
def table(suite_of, record_of):
    """A function: test perplexities by head in the order of the suite, of seeds 1, 2 ..., None: not run -> rows."""
    suite, made = suite_of(SUITE), {}

    def build(*ppl_by_head):
        found = {}
        for number, values in enumerate(ppl_by_head):
            for trial, ppl in zip(suite.trials[SEEDS * number :], values, strict=False):
                if ppl is not None:
                    if trial.id not in made:
                        made[trial.id] = record_of(trial)
                    found[trial.id] = made[trial.id].model_copy(update={"metrics": {"test_ppl": ppl}})
        return rows(suite, found)

    return build


@pytest.fixture
def evidence():
    """Token scores by trial id; none to begin with."""
    kept = {}
    told = []
    return SimpleNamespace(kept=kept, token_scores=kept.get, told=told, warn=told.append)


def scores(nll) -> TokenScores:
    ones = np.ones(len(nll), dtype=np.int32)
    return TokenScores(nll=np.asarray(nll, dtype=np.float32), count=ones, offset=ones)


def test_a_head_is_compared_over_shared_seeds_by_logarithms(table, evidence):
    lines = table([100, 200, 300, None], [90, None, 330, 50])
    assert lines[0].head == "softmax"
    found = compare(lines, "softmax", evidence)[1]
    assert (found.row, found.baseline, found.seeds) == (lines[1], lines[0], (1, 3))
    assert found.paired.mean == pytest.approx((math.log(0.9) + math.log(1.1)) / 2)
    assert found.p_holm == found.paired.p_t
    assert found.interval is None


def test_what_cannot_be_compared_is_not_there(table, evidence):
    lines = table([100, 200, None], [None, None, 90], [90])
    assert list(compare(lines, "softmax", evidence)) == [2]  # not the baseline, not a row without a seed of its
    assert compare(lines, "mixtape", evidence) == {}


def with_invalid(line):
    """The row, its last trial invalid."""
    found = dict(line.records)
    seed, last = found.popitem()
    return replace(line, records={**found, seed: last.model_copy(update={"status": "invalid"})})


def test_an_invalid_row_is_neither_ranked_nor_compared_nor_a_baseline(table, evidence):
    lines = table([100, 101, 102], [90, 91, 92], [1, 1, 1])
    assert set(compare(lines, "softmax", evidence)) == {1, 2}
    assert ties(lines, evidence)[2] == "best"
    cheated = [*lines[:2], with_invalid(lines[2]), *lines[3:]]
    assert set(compare(cheated, "softmax", evidence)) == {1}
    assert ties(cheated, evidence) == {1: "best"}
    assert compare([with_invalid(lines[0]), *lines[1:]], "softmax", evidence) == {}


def test_holm_is_over_all_comparisons_of_the_table(table, evidence):
    base = np.array([100.0, 101, 102, 103, 104, 105])
    shifts = np.array([0.01, 0.012, 0.008, 0.011, 0.009, 0.01])
    lines = table(base, base * np.exp(-shifts), base * np.exp(0.3 * shifts - 0.003), base * np.exp(-2 * shifts))
    found = compare(lines, "softmax", evidence)
    raw = [found[i].paired.p_t for i in (1, 2, 3)]
    assert raw[0] == pytest.approx(raw[2])  # t does not depend on the unit
    assert found[1].p_holm == pytest.approx(3 * raw[0])
    assert found[2].p_holm == pytest.approx(raw[1])  # the largest
    assert (found[1].stars, found[2].stars) == ("***", "")


def test_a_single_shared_seed_has_an_interval_over_tokens(table, evidence):
    lines = table([100, None], [90, 90])
    rng = np.random.default_rng(1)
    ours, theirs = rng.normal(5, 1, (2, 5_000)).astype(np.float32)
    theirs[7] = math.nan
    both = np.arange(5_000) != 7
    evidence.kept |= {lines[1].records[1].id: scores(ours), lines[0].records[1].id: scores(theirs)}
    found = compare(lines, "softmax", evidence)[1]
    expected = block_interval(ours[both].astype(np.float64) - theirs[both].astype(np.float64))
    assert found.interval == expected
    assert (found.paired.n, found.p_holm, found.stars) == (1, None, "")
    del evidence.kept[lines[0].records[1].id]
    assert compare(lines, "softmax", evidence)[1].interval is None


def test_several_shared_seeds_have_no_interval_over_tokens(table, evidence):
    lines = table([100, 101], [90, 92])
    evidence.kept |= {record.id: scores(np.ones(2_000)) for row in lines for record in row.records.values()}
    assert compare(lines, "softmax", evidence)[1].interval is None


def test_the_first_of_several_rows_of_its_head_is_the_baseline(suite_of, record_of, evidence):
    suite = suite_of(SUITE.replace("heads: [softmax,", "heads: [softmax, {softmax: {projection: true}},"))
    found = {trial.id: record_of(trial, test_ppl=100.0 + trial.seed) for trial in suite.trials}
    lines = rows(suite, found)
    compared = compare(lines, "softmax", evidence)
    assert sorted(compared) == [1, 2, 3, 4]
    assert all(each.baseline is lines[0] for each in compared.values())


def test_forged_perplexities_without_a_logarithm_are_left_out(table, evidence):
    found = compare(table([100, -5, 100], [90, 90, 0]), "softmax", evidence)
    assert found[1].seeds == (1,)
    assert ties(table([-1, -1], [0, 0]), evidence) == {}


def test_the_best_and_what_cannot_be_told_from_it(table, evidence):
    base = np.array([100.0, 101, 102, 103])
    near, far = base * [1.01, 0.99, 1.012, 1.0], base * [1.05, 1.06, 1.05, 1.04]
    assert ties(table(far, base, near), evidence) == {1: "best", 2: "tie"}
    assert ties(table(base), evidence) == {}  # nothing to rank it among


def test_without_anything_to_test_with_nothing_is_ranked(table, evidence):
    assert ties(table([100], [50]), evidence) == {}
    assert ties(table([100, 100], [None, None, 50]), evidence) == {}


def test_what_there_is_nothing_to_test_with_is_a_tie_among_others(table, evidence):
    untested, worse, best = [None, None, 50], [100, 101, 102], [40, 41, None]
    assert ties(table(untested, worse, best), evidence) == {0: "tie", 2: "best"}


def test_the_best_is_that_over_the_seeds_that_all_have(table, evidence):
    whole, part = [90, 91, 92, 150], [95, 97, 98]  # over its own seeds the second is ahead: 96.7 and 105.8
    assert ties(table(whole, part), evidence) == {0: "best"}


def test_scores_of_another_text_are_told_of_and_give_no_interval(table, evidence):
    lines = table([100], [90])
    ids = [line.records[1].id for line in lines[:2]]
    evidence.kept |= {ids[0]: scores(np.ones(20_000)), ids[1]: scores(np.ones(19_999))}
    assert compare(lines, "softmax", evidence)[1].interval is None
    assert ties(lines, evidence) == {}
    assert all(ids[0] in sentence and "two test splits" in sentence for sentence in evidence.told)


def test_one_seed_is_told_apart_by_the_interval_over_tokens(table, evidence):
    lines = table([100], [90], [91])
    rng = np.random.default_rng(2)
    noise = rng.normal(0, 0.1, (2, 20_000))
    ids = [line.records[1].id for line in lines[:3]]
    evidence.kept |= {ids[0]: scores(1.1 + noise[0]), ids[1]: scores(np.ones(20_000)), ids[2]: scores(1.0 + noise[1])}
    assert ties(lines, evidence) == {1: "best", 2: "tie"}


def test_devices_are_not_ranked_together(table, evidence):
    def on(row, *devices):
        moved = {
            seed: record.model_copy(update={"environment": record.environment.model_copy(update={"device": device})})
            for (seed, record), device in zip(row.records.items(), devices, strict=True)
        }
        return replace(row, records=moved)

    one, two, three, four = table([100, 100], [90, 90], [80, 80], [70, 70])
    assert ties([one, two, three, four], evidence) == {3: "best"}  # equal differences tell the others apart
    assert ties([one, on(two, "gpu", "gpu"), three, on(four, "gpu", "gpu")], evidence) == {2: "best", 3: "best"}
    assert ties([one, two, three, on(four, "gpu", "gpu")], evidence) == {2: "best"}
    assert ties([one, two, three, on(four, "gpu", "a processor")], evidence) == {2: "best"}
    mixed = [on(three, "gpu", "a processor"), on(four, "gpu", "a processor")]
    assert ties([one, two, *mixed], evidence) == {1: "best"}


def simulated(table, evidence, effects, number: int, seed: int) -> list[dict]:
    """Comparisons of so many tables: log perplexities of each seed and head with noise of their own, so that all heads
    of a table are compared with the same noise of the baseline; sd of a paired difference SD.
    """
    rng = np.random.default_rng(seed)
    level = 4.6 + rng.normal(0, 0.02, (number, 1, SEEDS))
    noise = rng.normal(0, SD / math.sqrt(2), (number, HEADS, SEEDS))
    ppl = np.exp(level + noise + np.asarray(effects)[:, None])
    return [compare(table(*values.tolist()), "softmax", evidence) for values in ppl]


def test_equal_heads_are_told_apart_as_seldom_as_promised(table, evidence):
    tables = simulated(table, evidence, [0.0] * HEADS, number=1_000, seed=7)
    for p in ("p_t", "p_sign_flip"):
        assert 0.03 <= np.mean([getattr(found[1].paired, p) < 0.05 for found in tables]) <= 0.07
    assert all(len(found) == HEADS - 1 for found in tables)
    assert np.mean([any(row.stars for row in found.values()) for found in tables]) <= 0.07
    uncorrected = [any(row.paired.p_t < 0.05 for row in found.values()) for found in tables]
    assert np.mean(uncorrected) > 0.09  # what Holm is there for


def test_a_planted_effect_of_one_per_cent_is_found(table, evidence):
    effects = [0.0, math.log(0.99), 0.0, 0.0]
    tables = simulated(table, evidence, effects, number=500, seed=8)
    for p in ("p_t", "p_sign_flip"):
        assert np.mean([getattr(found[1].paired, p) < 0.05 for found in tables]) > 0.95
    assert np.mean([bool(found[1].stars) for found in tables]) > 0.95  # among three comparisons, too
    held = [row.paired.low <= effects[i] <= row.paired.high for found in tables for i, row in found.items()]
    assert 0.93 <= np.mean(held) <= 0.97  # intervals of 95 %
    assert np.mean([found[1].paired.sd ** 2 for found in tables]) == pytest.approx(SD**2, rel=0.05)
