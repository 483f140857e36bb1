"""The outcome in words, of planted results: eight seeds whose noise is known."""

from dataclasses import replace

import handmade
import pytest
from bundles import timing_of

from harness.plan.controls import NO_AFFINE
from harness.report import outcome

SUITE = handmade.suite_text(
    backbones="[{lstm: {d_model: 8, num_layers: 1}}]",
    heads="[softmax, {mos: {num_mixtures: [3, 2, 5]}}, {moc: {num_mixtures: 5}}]",
    seeds="[1, 2, 3, 4, 5, 6, 7, 8]",
)
IN_EQUAL_TIME = """match:
  time: softmax
  ratios: {softmax: 1, "mos(num_mixtures=3)": 1, "mos(num_mixtures=2)": 1,
           "mos(num_mixtures=5)": 2, "moc(num_mixtures=5)": 1.25}
"""
NOISE = (0.0, 0.001, -0.001, 0.0015, -0.0015, 0.0005, -0.0005, 0.002)  # of a seed, as a part of its perplexity
LOWEST, WHERE = "Lowest mean test perplexity of 5 rows", "on markov with lstm"


@pytest.fixture
def said(suite_of, record_of):
    """A function: changes of the four mixtures in percent, None for one that failed -> the sentences."""

    def make(*changes, costs=None, noise=1.0, moc="moc: {num_mixtures: 5}", more=""):
        suite, made, timings = suite_of(SUITE.replace("moc: {num_mixtures: 5}", moc) + more), [], {}
        assert suite.control_notes == (NO_AFFINE,)  # which is said wherever a head is better
        suite = replace(suite, control_notes=())
        rows = list(dict.fromkeys(str(trial.head) for trial in suite.trials))
        for trial in suite.trials:
            row = rows.index(str(trial.head))
            change = (0.0, *changes)[row]
            if change is None:
                made.append(record_of(trial, "diverged", "no"))
                continue
            # each row has the same noise, for other seeds: pairs differ, and geometric means are what is planted
            ppl = (100.0 + change) * (1 + noise * NOISE[(trial.seed + row) % 8])
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


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(
            {"changes": (-3.0, -2.9, -2.9, -3.1), "costs": (10.0, 10.0, 20.0, 30.0, 11.0)},
            [
                "Four heads (MoS 3, MoS 2, MoS 5, MoC 5) beat softmax by 2.9 to 3.1 %; which of them is the best is "
                "not decided; MoS 3 is the cheapest of them with 1.0 times the baseline's time a batch, MoS 5 the most "
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
            {"changes": (0.5, 0.5, 0.5, 0.5), "noise": 8.0},
            [
                "No head is shown to beat softmax; the lowest one, MoS 3, is at +0.5 % [-1.0, +2.0]: more seeds "
                "are needed.",
                f"{LOWEST}: softmax, 100.20 ± 0.98 (8 seeds), {WHERE}.",
            ],
            id="undecided",
        ),
        pytest.param(
            {"changes": (None, None, None, None)},
            [
                "Nothing is decided: 8 of 40 trials are ok.",
                f"Test perplexity: softmax, 100.03 ± 0.12 (8 seeds), {WHERE}.",
            ],
            id="alone",
        ),
    ],
)
def test_the_outcome_is_in_words(given, expected, said):
    changes = given.pop("changes")
    assert said(*changes, **given) == expected
