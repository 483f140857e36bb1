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


def test_comparison_below_six_seeds_has_no_star_however_small_p(suite_of, record_of):
    five = suite_with(suite_of, 5)
    base, change = [100.0] * 6, [100.0 * (1 - 0.2 + 0.001 * n) for n in range(6)]
    lines, notes = built(five, of_heads(five, record_of, base[:5], change[:5], change[:5]))
    assert lines[1]["p (Holm)"].value < 1e-5
    assert (lines[1]["vs softmax"].mark, "*" in lines[1]["vs softmax"].text) == ("", False)
    assert lines[1]["verdict"].text == "too few seeds"
    assert note(notes, "Too few seeds") == "Too few seeds to rank: 5. Bold, stars and verdicts need 6 or more."
    six = suite_with(suite_of, 6)
    lines, notes = built(six, of_heads(six, record_of, base, change, change))
    assert (lines[1]["vs softmax"].mark, lines[1]["vs softmax"].text[-4:]) == ("***", " ***")
    assert [line["verdict"].text for line in lines] == ["-", "better", "better"]
    assert not any(each.startswith("Too few seeds") for each in notes)


def test_a_verdict_is_by_the_declared_test_and_margin_which_a_note_names(suite_of, record_of):
    text = SUITE.replace("SEEDS", "1, 2, 3, 4, 5, 6").replace("softmax}", "softmax, test: welch, margin: 0.1}")
    base = [100.0, 101.0, 102.0, 103.0, 104.0, 105.0]
    change = [1.06 * ppl for ppl in base]
    lines, notes = built(suite := suite_of(text), of_heads(suite, record_of, base, change, change))
    assert lines[1]["verdict"].text == "equivalent"
    assert lines[1]["vs softmax"].mark == "***"  # there is a difference, and it is smaller than the margin
    assert lines[1]["correlation"].text == "+1.00"
    assert "p (signs)" not in lines[1]
    assert note(notes, "Comparisons").startswith(
        "Comparisons: Welch's t tests over seeds, corrected by Holm's method; smallest difference of interest 10 %. "
        "The change against the baseline (vs) is the geometric mean of the ratios of perplexity"
    )
    assert note(notes, "Seeds still needed").startswith(
        "Seeds still needed to detect a difference of 10 % with 80 % power"
    )


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


def test_seeds_still_needed_are_a_range_from_five_seeds_on(suite_of, record_of):
    four, five = suite_with(suite_of, 4), suite_with(suite_of, 5)
    base, other = [100.0] * 5, [100.0, 101.0, 100.0, 101.0, 100.0]
    _, notes = built(four, of_heads(four, record_of, base[:4], other[:4]))
    assert not any(each.startswith("Seeds still needed") for each in notes)
    _, notes = built(five, of_heads(five, record_of, base, other))
    # sd ln 1.01 sqrt(0.3) = 0.5477 of the effect; chi-square with 4 degrees of freedom 11.1433 and 0.48442: the sd is
    # 0.3282 to 1.5739 of the effect, as in G*Power's d = 3.047 and 0.6354: 4 seeds in the first case, and
    # ((1.960 + 0.842) 1.5739)^2 = 19.4, two more for t: 22 in the second
    assert note(notes, "Seeds still needed").endswith("MoS 2 0 to 17.")


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
    assert lines[1]["vs softmax"].text == "-22.1 % [-22.1, -22.1] §"
    assert lines[1]["vs softmax"].mark == "§"
    # blocks of -0.25 and -0.75: the mean of 20 drawn is -0.25 - 0.5 X / 20, X binomial, from 6 to 14
    low, high = lines[2]["vs softmax"].interval
    assert (low, high) == (pytest.approx(100 * math.expm1(-0.6)), pytest.approx(100 * math.expm1(-0.4)))
    assert [(line["verdict"].text, line["test ppl"].rank) for line in lines[1:]] == [("too few seeds", "")] * 2
    assert note(notes, "§") == (
        "§ one seed: a 95 % interval over blocks of the test text, not over seeds. It describes these trained "
        "models and ranks nothing."
    )


def test_fewer_than_20_blocks_have_no_interval(suite_of, record_of, tmp_path):
    suite = suite_with(suite_of, 1)
    made = with_scores(suite, record_of, tmp_path, [4.0] * 19, [3.75] * 19)
    lines, notes = built(suite, made, runs=tmp_path)
    assert (lines[1]["vs softmax"].text, lines[1]["vs softmax"].interval) == ("-22.1 %", None)
    assert not any(each.startswith("§") for each in notes)


# ranks

SPREAD = [0.0, 0.3, -0.3, 0.2, -0.2, 0.1]


def test_the_best_has_no_mark_and_the_others_are_behind(suite_of, record_of):
    suite = suite_with(suite_of, 6)
    values = [[middle + way * x for x in SPREAD] for middle, way in ((100, 0), (80, 1), (90, -1))]
    lines, _ = built(suite, of_heads(suite, record_of, *values))
    assert [line["test ppl"].rank for line in lines] == ["behind", "best", "behind"]
    assert not any("≈" in line["test ppl"].text for line in lines)


def test_what_is_not_distinguishable_from_the_lowest_is_a_tie_and_both_are_marked(suite_of, record_of):
    suite = suite_with(suite_of, 6)
    values = [[middle + way * x for x in SPREAD] for middle, way in ((100, 0), (80, 1), (80.05, -1))]
    lines, _ = built(suite, of_heads(suite, record_of, *values))
    assert [line["test ppl"].rank for line in lines] == ["behind", "tie", "tie"]
    assert [line["test ppl"].text.endswith(" ≈") for line in lines] == [False, True, True]


def test_nothing_is_best_where_each_row_was_measured_on_a_device_of_its_own(suite_of, record_of):
    suite = suite_with(suite_of, 1)
    made = [
        record_of(trial, environment={"device": f"device {n}"}, test_ppl=100.0 - n)
        for n, trial in enumerate(suite.trials)
    ]
    lines, _ = built(suite, made)
    assert {line["test ppl"].rank for line in lines} == {""}


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
