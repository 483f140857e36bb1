"""Comparisons, ranks, convergence and times in a table, their marks, and the notes on them."""

import math

import handmade
import numpy as np
import pytest
from bundles import timing_of
from handmade import findings

from harness.records import sidecars
from harness.records.sidecars import Timing, TokenScores
from harness.records.store import folder
from harness.report import suite_table

SUITE = handmade.suite_text(
    heads="[softmax, {mos: {num_mixtures: [2, 3]}}]", seeds="[SEEDS]", table="{baseline: softmax}"
)


def suite_with(suite_of, seeds: int):
    return suite_of(SUITE.replace("SEEDS", ", ".join(map(str, range(1, seeds + 1)))))


def built(suite, made, **more):
    """Cells by header for each line, and the notes."""
    table = suite_table.build(findings(suite, made, **more))
    lines = [dict(zip((c.header for c in table.columns), line.cells, strict=True)) for line in table.lines]
    return lines, table.notes


def of_heads(suite, record_of, *values: list[float], metric="test_ppl", **environment):
    """Records of the heads in order, a list of a metric over seeds for each."""
    wanted = [value for each in values for value in each]
    return [
        record_of(trial, environment=environment, **{metric: value})
        for trial, value in zip(suite.trials, wanted, strict=False)
    ]


def note(notes, start: str) -> str:
    (found,) = [each for each in notes if each.startswith(start)]
    return found


# comparisons


@pytest.mark.parametrize(
    ("spread", "written_out"),
    [  # with two pairs, the ends of the interval are 2 x 12.706 x spread / sqrt(2) nats apart; ln 4 = 1.386
        (0.07, True),  # 1.258
        (0.08, False),  # 1.437
    ],
)
def test_an_interval_that_says_nothing_is_not_written_out(suite_of, record_of, spread, written_out):
    suite = suite_with(suite_of, 2)
    other = [101.0 * math.exp(sign * spread / math.sqrt(2)) for sign in (-1, 1)]  # sd of the differences: spread
    lines, _ = built(suite, of_heads(suite, record_of, [100.0, 100.0], other, [100.0, 100.0]))
    cell, half = lines[1]["vs softmax"], 12.7062 * spread / math.sqrt(2)
    ends = [100 * (1.01 * math.exp(end) - 1) for end in (-half, half)]
    assert cell.interval == pytest.approx(ends, rel=1e-4)
    low, high = cell.interval
    assert cell.text == (f"+1.0 % [{low:+.1f}, {high:+.1f}]" if written_out else "+1.0 % [too wide]")


def test_comparison_of_a_forged_record_is_shown_and_raises_nothing(suite_of, record_of):
    suite = suite_with(suite_of, 1)
    lines, _ = built(suite, of_heads(suite, record_of, [1e-300], [1e300]))
    assert lines[1]["vs softmax"].text == "+inf %"


def with_scores(suite, record_of, runs, *nats: list[float]):
    """A record for each head, of one seed, whose test tokens cost these nats, 1,000 tokens each; the files too."""
    made = []
    for trial, costs in zip(suite.trials, nats, strict=False):
        nll = np.repeat(np.array(costs, dtype=np.float32), 1_000)
        of_text = {"test_ppl": math.exp(nll.astype(np.float64).mean()), "scored_test_tokens": float(len(nll))}
        record = record_of(trial, **of_text).model_copy(update={"weights_sha256": "0" * 64})
        counts = np.zeros(len(nll), dtype=np.int32)
        place = folder(runs, trial.id) / sidecars.TOKEN_NLL.file
        place.parent.mkdir(parents=True)
        sidecars.save_token_scores(TokenScores(nll=nll, count=counts, offset=counts), record.weights_sha256, place)
        made.append(record)
    return made


def test_a_single_seed_has_the_interval_over_blocks_which_ranks_nothing(suite_of, record_of, tmp_path):
    suite = suite_with(suite_of, 1)
    made = with_scores(suite, record_of, tmp_path, [4.0] * 20, [3.75] * 20, [3.75, 3.25] * 10)
    lines, notes = built(suite, made, runs=tmp_path)
    # e^-0.25 - 1 = -22.1 %, the same for every block
    assert lines[1]["vs softmax"].text == "-22.1 % [-22.1, -22.1]"
    assert lines[1]["vs softmax"].mark == ""
    # blocks of -0.25 and -0.75: the mean of 20 drawn is -0.25 - 0.5 X / 20, X binomial, from 6 to 14
    low, high = lines[2]["vs softmax"].interval
    assert (low, high) == (pytest.approx(100 * math.expm1(-0.6)), pytest.approx(100 * math.expm1(-0.4)))
    assert [(line["verdict"].text, line["test ppl"].rank) for line in lines[1:]] == [("too few seeds", "")] * 2
    assert note(notes, "One seed") == (
        "One seed: a 95 % interval over blocks of the test text, not over seeds, so that it describes these trained "
        "models and ranks nothing."
    )


# ranks

SPREAD = [0.0, 0.3, -0.3, 0.2, -0.2, 0.1]


# convergence


def test_a_table_without_a_baseline_names_the_test_of_its_ranks(suite_of, record_of):
    text = SUITE.replace("SEEDS", "1, 2, 3, 4, 5, 6").replace("baseline: softmax", "baseline: null")
    base = [100.0, 101.0, 102.0, 103.0, 104.0, 105.0]
    worse = [1.05 * ppl + off for ppl, off in zip(base, [0.1, -0.2, 0.15, -0.05, 0.2, -0.2], strict=True)]
    lines, notes = built(suite := suite_of(text), of_heads(suite, record_of, base, worse, worse[::-1]))
    assert lines[0]["test ppl"].rank == "best"
    assert note(notes, "Ranks") == "Ranks: paired t tests over seeds, corrected by Holm's method."
    assert any(each.startswith("Settings not tuned per head") for each in notes)


# times


def timing(record, train: float, **changes) -> Timing:
    metrics = {"train_ms_per_batch": train, "train_ms_per_batch_iqr": 0.5}
    return timing_of(record, **{"weights_sha256": "0" * 64, "metrics": metrics, **changes})


def test_times_of_two_passes_are_told_apart(suite_of, record_of):
    suite = suite_with(suite_of, 1)
    made = of_heads(suite, record_of, [10.0], [20.0], [30.0], metric="train_ms_per_batch")
    passes = ("pass a", "pass b", "pass a")
    timings = {record.id: timing(record, 5.0, passed=name) for record, name in zip(made, passes, strict=True)}
    _, notes = built(suite, made, timings=timings)
    assert [each.partition(":")[0] for each in notes if each.startswith("ms/batch")] == [
        "ms/batch of softmax; MoS 3",
        "ms/batch of MoS 2",
    ]


@pytest.mark.parametrize("baseline", ["softmax", "null"])
def test_exclusive_times_with_other_threads_are_marked_and_named(suite_of, record_of, baseline):
    suite = suite_of(SUITE.replace("SEEDS", "1").replace("baseline: softmax", f"baseline: {baseline}"))
    made = of_heads(suite, record_of, [10.0], [20.0], [30.0], metric="train_ms_per_batch")

    def marked(*threads: int) -> tuple[list[str], list[str]]:
        timings = {each.id: timing(each, 5.0, threads=n) for each, n in zip(made, threads, strict=True)}
        lines, notes = built(suite, made, timings=timings)
        return [line["train ms/batch"].mark for line in lines], [each for each in notes if "threads do not" in each]

    assert marked(2, 2, 2) == ([""] * 3, [])
    named = "with 1 thread: MoS 3; with 4 threads: softmax, MoS 2"
    said = f"‡ times with different numbers of threads do not compare: {named}."
    assert marked(4, 4, 1) == (["", "", "‡"], [said])


def test_times_with_other_threads_are_left_out_and_rows_of_other_threads_are_named(suite_of, record_of):
    suite, made = suite_with(suite_of, 3), []
    # softmax, MoS 2, MoS 3: seeds 1 to 3
    for trial, threads in zip(suite.trials, (1, 1, 2, 2, 2, 2, 1, 1, 1), strict=True):
        made.append(record_of(trial, environment={"threads": threads}, train_ms_per_batch=10.0 * threads))
    lines, notes = built(suite, made)
    assert [line["train ms/batch"].value for line in lines] == [10.0, 20.0, 10.0]
    said = [each for each in notes if each.startswith("ms/batch")]
    assert [line["train ms/batch"].mark for line in lines] == ["", "‡", ""]
    assert [line["train ms/batch"].ratio for line in lines] == [None, None, 1.0]
    named = "with 1 thread: softmax, MoS 3; with 2 threads: MoS 2"
    assert note(notes, "‡") == f"‡ times with different numbers of threads do not compare: {named}."
    assert said == [
        "ms/batch: of each trial while it trained, the mean over seeds.",
        "ms/batch leaves out trials of a row that were timed on another device, or with another number of threads, "
        "than most of it: softmax 1.",
    ]
