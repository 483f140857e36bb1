"""The outcome in words, of planted results: eight seeds whose noise is known."""

import math
import statistics
from dataclasses import replace

import handmade
import pytest
from bundles import timing_of
from scipy.stats import t

from harness.plan.controls import NO_AFFINE
from harness.report import layouts, outcome, suite_table

SUITE = handmade.suite_text(
    backbones="[BACKBONES]",
    heads="[softmax, {mos: {num_mixtures: [3, 2, 5]}}, {moc: {num_mixtures: 5}}]",
    seeds="[SEEDS]",
)
LSTM, ENCODER = "{lstm: {d_model: 8, num_layers: 1}}", "{transformer_encoder: {d_model: 8, num_heads: 2, d_ff: 8}}"
IN_EQUAL_TIME = """match:
  time: softmax
  ratios: {softmax: 1, "mos(num_mixtures=3)": 1, "mos(num_mixtures=2)": 1,
           "mos(num_mixtures=5)": 2, "moc(num_mixtures=5)": 1.25}
"""
NOISE = (0.0, 0.001, -0.001, 0.0015, -0.0015, 0.0005, -0.0005, 0.002)  # of a seed, as a part of its perplexity
EQUAL = "Three heads ({}) are equivalent to softmax, within 1 %."
LOWEST, WHERE = "Lowest mean test perplexity of 5 rows", "on markov with lstm"


def interval(change, row, baseline=0, noise=1.0):
    """Of the change of a row of eight seeds, in percent: by the t distribution of the differences of log perplexity."""
    at = [[1 + noise * NOISE[(seed + each) % 8] for seed in range(1, 9)] for each in (row, baseline)]
    pairs = [math.log((1 + change / 100) * ours / theirs) for ours, theirs in zip(*at, strict=True)]
    half = t.ppf(0.975, 7) * statistics.stdev(pairs) / math.sqrt(8)
    low, high = sorted(abs(100 * math.expm1(statistics.fmean(pairs) + end)) for end in (-half, half))
    return f"[{low:.1f}, {high:.1f}]"


def without_control_notes(suite):
    """The suite as if it had an affine softmax: what it lacks is said wherever a head is better. A mixture with K = 1
    is one.
    """
    has_one = any(trial.head.params.get("num_mixtures") == 1 for trial in suite.trials)
    assert suite.control_notes == (() if has_one else (NO_AFFINE,))
    return replace(suite, control_notes=())


@pytest.fixture
def said(suite_of, record_of):
    """A function: changes of the four mixtures in percent, None for one that failed -> the sentences."""

    def make(*changes, seeds=8, backbones=LSTM, costs=None, noise=1.0, moc="moc: {num_mixtures: 5}", more=""):
        text = (
            SUITE.replace("moc: {num_mixtures: 5}", moc)
            .replace("BACKBONES", backbones)
            .replace("SEEDS", ", ".join(map(str, range(1, seeds + 1))))
            + more
        )
        suite, made, timings = without_control_notes(suite_of(text)), [], {}
        rows = list(dict.fromkeys((str(trial.backbone), str(trial.head)) for trial in suite.trials))
        for trial in suite.trials:
            row = rows.index((str(trial.backbone), str(trial.head)))
            change = (0.0, *changes)[row]
            if change is None:
                made.append(record_of(trial, "diverged", "no"))
                continue
            # each row has the same noise, for other seeds: pairs differ, and geometric means are what is planted
            ppl = (100.0 + change) * (1 + noise * NOISE[(trial.seed + row) % seeds])
            made.append(record_of(trial, test_ppl=ppl, valid_ppl=ppl))
            if costs is not None and trial.seed == 1:
                timings[trial.id] = timing(trial, costs[row])
        findings = handmade.findings(suite, made, timings=timings)
        return outcome.sentences(findings, findings.rows)

    return make


def timing(trial, ms):
    """A time of one exclusive pass."""
    metrics = {"train_ms_per_batch": ms, "train_ms_per_batch_iqr": 0.1}
    return timing_of(handmade.record(suite="suite", spec=trial), metrics=metrics, device="a device")


BEAT = "Four heads (MoS 3, MoS 2, MoS 5, MoC 5) beat softmax by 2.9 to 3.1 %; which of them is the best is not decided"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({"changes": (-3.0, -2.9, -3.1, -3.0)}, [f"{BEAT}."], id="ties"),
        pytest.param(
            {"changes": (-3.0, -2.9, -3.1, -3.0), "costs": (10.0, 14.0, 20.0, 30.0, 11.0)},
            [
                f"{BEAT}; MoC 5 is the cheapest of them with 1.1 times the baseline's time a batch, MoS 5 the most "
                "expensive with 3.0 times."
            ],
            id="cheapest",
        ),
        pytest.param(
            {"changes": (-3.0, -2.9, -2.9, -3.1), "costs": (10.0, 10.0, 20.0, 30.0, 11.0)},
            [
                f"{BEAT}; MoS 3 is the cheapest of them with 1.0 times the baseline's time a batch, MoS 5 the most "
                "expensive with 3.0 times; MoC 5, which has the lowest mean, takes 1.1 times."
            ],
            id="lowest",
        ),
        pytest.param(
            {"changes": (-3.0, -6.0, 2.0, 3.0)},
            [
                "MoS 3 and MoS 2 beat softmax by 3.0 to 6.0 %; MoS 2 is the best of them.",
                "MoS 5 and MoC 5 are worse than softmax by 2.0 to 3.0 %.",
            ],
            id="best",
        ),
        pytest.param(
            {"changes": (0.0, 0.0, -4.0, 0.0), "costs": (10.0, 14.0, 20.0, 46.0, 11.0)},
            [
                f"MoS 5 beats softmax by 4.0 % {interval(-4.0, 3)}; it takes 4.6 times the baseline's time a batch.",
                EQUAL.format("MoS 3, MoS 2, MoC 5"),
            ],
            id="one",
        ),
        pytest.param(
            {"changes": (0.5, 0.5, 20.0, 0.5), "noise": 8.0},
            [
                "No head is shown to beat softmax.",
                f"MoS 5 is worse than softmax by 20.0 % {interval(20.0, 3, noise=8.0)}.",
                "Three heads are undecided.",
            ],
            id="worse",
        ),
        pytest.param(
            {"changes": (0.0, 0.0, 4.0, 0.0), "costs": (10.0, 14.0, 20.0, 46.0, 10.0)},
            [
                "No head is shown to beat softmax.",
                f"MoS 5 is worse than softmax by 4.0 % {interval(4.0, 3)}.",
                EQUAL.format("MoS 3, MoS 2, MoC 5"),
                "Batches take 1.0 to 4.6 times the baseline's time.",
            ],
            id="worse, with costs",
        ),
        pytest.param(  # 0.95 of the unigram's 1,100 is 1,045: the noise leaves three seeds of MoC 5 below
            {"changes": (0.0, 0.0, 1000.0, 945.0)},
            [
                "No head is shown to beat softmax.",
                "MoS 5 and MoC 5 are worse than softmax by 945.0 to 1000.0 % at 2 epochs (13 of 16 seeds collapsed).",
                "MoS 3 and MoS 2 are equivalent to softmax, within 1 %.",
            ],
            id="collapsed",
        ),
        pytest.param(  # of 2 epochs
            {"changes": (0.0, 0.0, 1000.0, 945.0), "more": IN_EQUAL_TIME},
            [
                "No head is shown to beat softmax.",
                "MoS 5 and MoC 5 are worse than softmax by 945.0 to 1000.0 % at 1 to 1.6 epochs (13 of 16 seeds "
                "collapsed).",
                "MoS 3 and MoS 2 are equivalent to softmax, within 1 %.",
            ],
            id="collapsed, in equal time",
        ),
        pytest.param(
            {"changes": (0.0, 0.0, -4.0, -4.0), "moc": "moc: {num_mixtures: 5, label: 'MoC, five'}"},
            [
                "MoS 5 and MoC, five, beat softmax by 4.0 %; which of them is the best is not decided.",
                "MoS 3 and MoS 2 are equivalent to softmax, within 1 %.",
            ],
            id="a name with a comma",
        ),
        pytest.param(
            {"changes": (11.0, 11.0, 11.0, 11.0), "moc": "mos: {num_mixtures: 1}"},
            [
                "No head is shown to beat softmax (the strongest control).",
                "Three heads are worse than softmax (the strongest control) by 11.0 %.",
                "MoS 1, which mixes nothing, is behind it by 11.0 % [10.9, 11.1], too.",
            ],
            id="worse without mixing, too",
        ),
        pytest.param(
            {"changes": (0.5, 0.5, 0.5, 0.5), "noise": 8.0},
            [
                "No head is shown to beat softmax; the lowest one, MoS 3, is at +0.5 % [-1.0, +2.0]: more seeds "
                "are needed.",
                f"{LOWEST}: softmax, 100.20 ± 0.98 (8 seeds), {WHERE}.",
            ],
            id="undecided",
        ),
        pytest.param(
            {"changes": (-9.0, 0.0, 0.0, 0.0), "seeds": 2},
            [
                "Nothing is decided: 2 seeds, 6 are needed.",
                f"{LOWEST}, none of which can be ranked: MoS 3, 91.05 ± 0.06 (2 seeds), {WHERE}.",
            ],
            id="few seeds",
        ),
        pytest.param(
            {"changes": (-3.0, -3.0, -3.0, None)},
            [
                "Three heads (MoS 3, MoS 2, MoS 5) beat softmax by 3.0 %; which of them is the best is not decided.",
                "One head is not compared.",
            ],
            id="failed",
        ),
        pytest.param(
            {"changes": (None, None, None, None)},
            [
                "Nothing is decided: 8 of 40 trials are ok.",
                f"Test perplexity: softmax, 100.03 ± 0.12 (8 seeds), {WHERE}.",
            ],
            id="alone",
        ),
        pytest.param(
            {"changes": (-3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 4.0), "backbones": f"{LSTM}, {ENCODER}"},
            [
                f"On markov with lstm: MoS 3 beats softmax by 3.0 % {interval(-3.0, 1)}. "
                f"{EQUAL.format('MoS 2, MoS 5, MoC 5')}",
                "On markov with transformer_encoder: no head is shown to beat softmax. "
                f"MoC 5 is worse than softmax by 4.0 % {interval(4.0, 9, 5)}. "
                f"{EQUAL.format('MoS 3, MoS 2, MoS 5')}",
            ],
            id="backbones",
        ),
        pytest.param(
            {"changes": (0.5, 0.5, 0.5, 0.5, 0.0, 0.5, 0.5, 0.5, 0.5), "backbones": f"{LSTM}, {ENCODER}", "seeds": 4},
            [
                "On markov with lstm: nothing is decided: 4 seeds, 6 are needed.",
                "On markov with transformer_encoder: nothing is decided: 4 seeds, 6 are needed.",
                *(
                    f"{LOWEST}, none of which can be ranked: softmax, 100.04 ± 0.11 (4 seeds), on markov with {each}."
                    for each in ("lstm", "transformer_encoder")
                ),
            ],
            id="backbones, few seeds",
        ),
    ],
)
def test_the_outcome_is_in_words(given, expected, said):
    changes = given.pop("changes")
    assert said(*changes, **given) == expected


def test_of_some_rows_only_these_are_said(suite_of, record_of):
    suite = suite_of(SUITE.replace("BACKBONES", LSTM).replace("SEEDS", "1, 2, 3, 4, 5, 6"))
    changes = dict(zip(dict.fromkeys(str(trial.head) for trial in suite.trials), (0, -3, 0, 0, 0), strict=True))
    made = [
        record_of(trial, test_ppl=ppl, valid_ppl=ppl)
        for trial in suite.trials
        for ppl in [(100.0 + changes[str(trial.head)]) * (1 + NOISE[trial.seed])]
    ]
    findings = handmade.findings(suite, made)
    lines = findings.rows
    assert outcome.sentences(findings, lines[1:2]) == ["MoS 3 beats softmax by 3.0 % [3.0, 3.0].", f"{NO_AFFINE}."]
    assert outcome.sentences(findings, lines[:1]) == [f"Test perplexity: softmax, 100.00 ± 0.12 (6 seeds), {WHERE}."]


def test_what_makes_a_suite_doubtful_is_said_first(suite_of, record_of):
    text = handmade.suite_text(table="{baseline: softmax, doubt: 'the rates were swapped until 2026-11-01.'}")
    suite = suite_of(text)
    findings = handmade.findings(suite, [record_of(trial, test_ppl=100.0) for trial in suite.trials])
    doubt = "These numbers are in doubt: the rates were swapped until 2026-11-01."
    assert outcome.sentences(findings, findings.rows)[0] == doubt
    assert outcome.in_a_line(findings).startswith(doubt)
    trusted = outcome.summary(findings, findings.rows)["Can it be trusted?"]
    assert (f"! {doubt}", "") in trusted
    assert doubt in suite_table.text(layouts.select(suite_table.build(findings)))
    nothing = handmade.findings(suite, [])
    assert outcome.in_a_line(nothing) == f"{doubt} no trial with a perplexity is finished"
