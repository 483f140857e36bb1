"""Comparisons, ties and times in a table, their marks, and the notes on them."""

import math

import numpy as np
import pytest
from handmade import findings

from harness.records import token_nll
from harness.records.store import folder
from harness.records.timings import Timing
from harness.records.token_nll import TokenScores
from harness.report.table import suite_table

SUITE = """\
name: suite
version: 1
corpora: [{markov: {vocab_size: 12, num_tokens: 400, branching: 3}}]
backbones: [{lstm: {d_model: 8, num_layers: 1}}]
heads: [softmax, {mos: {num_mixtures: [2, 3]}}]
train: {optimizer: sgd, lr: 0.5, epochs: 2, batch_size: 4, seq_len: 7}
seeds: [SEEDS]
table: {baseline: softmax}
"""


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
    change = [100.0 * (1 - 0.2 + 0.001 * n) for n in range(6)]
    lines, _ = built(five, of_heads(five, record_of, [100.0] * 5, change[:5]))
    assert lines[1]["p (Holm)"].value < 1e-5
    assert (lines[1]["vs softmax"].mark, "*" in lines[1]["vs softmax"].text) == ("", False)
    six = suite_with(suite_of, 6)
    lines, _ = built(six, of_heads(six, record_of, [100.0] * 6, change))
    assert (lines[1]["vs softmax"].mark, lines[1]["vs softmax"].text[-4:]) == ("***", " ***")


def test_a_worse_head_has_a_plus(suite_of, record_of):
    suite = suite_with(suite_of, 1)
    lines, _ = built(suite, of_heads(suite, record_of, [100.0], [112.5]))
    assert (lines[1]["vs softmax"].text, lines[1]["vs softmax"].value) == ("+12.5 %", pytest.approx(12.5))


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
        place = folder(runs, trial.id) / token_nll.FILE_NAME
        place.parent.mkdir(parents=True)
        token_nll.save(TokenScores(nll=nll, count=counts, offset=counts), record.weights_sha256, place)
        made.append(record)
    return made


def test_a_single_seed_has_the_interval_over_blocks_and_says_so(suite_of, record_of, tmp_path):
    suite = suite_with(suite_of, 1)
    made = with_scores(suite, record_of, tmp_path, [4.0] * 3, [3.75] * 3, [4.0, 3.5, 3.75])
    lines, notes = built(suite, made, runs=tmp_path)
    # e^-0.25 - 1 = -22.1 %, the same for every block; blocks of 0, -0.5 and -0.25: means from 0 to -0.5, e^-0.5 = 0.607
    assert lines[1]["vs softmax"].text == "-22.1 % [-22.1, -22.1] §"
    assert lines[1]["vs softmax"].mark == "§"
    low, high = lines[2]["vs softmax"].interval
    assert (low, high) == (pytest.approx(100 * math.expm1(-0.5)), pytest.approx(0.0, abs=1e-6))
    assert note(notes, "§") == "§ one seed: a 95 % interval over blocks of the test text, not over seeds."


# ties


def test_the_best_alone_is_bold_and_no_tie_is_spoken_of(suite_of, record_of):
    suite = suite_with(suite_of, 3)
    lines, _ = built(suite, of_heads(suite, record_of, [100.0] * 3, [80.0, 80.1, 80.2], [90.0, 90.1, 90.2]))
    assert [line["test ppl"].rank for line in lines] == ["", "best", ""]
    assert not any("≈" in line["test ppl"].text for line in lines)


def test_what_is_not_told_apart_from_the_best_is_a_tie_and_both_carry_the_sign(suite_of, record_of):
    suite = suite_with(suite_of, 3)
    lines, _ = built(suite, of_heads(suite, record_of, [100.0] * 3, [80.0, 81.0, 82.0], [82.0, 81.0, 80.5]))
    assert [line["test ppl"].rank for line in lines] == ["", "best", "tie"]
    assert [line["test ppl"].text.endswith(" ≈") for line in lines] == [False, True, True]


def test_nothing_is_best_where_each_row_was_measured_on_a_device_of_its_own(suite_of, record_of):
    suite = suite_with(suite_of, 1)
    made = [
        record_of(trial, environment={"device": f"device {n}"}, test_ppl=100.0 - n)
        for n, trial in enumerate(suite.trials)
    ]
    lines, _ = built(suite, made)
    assert {line["test ppl"].rank for line in lines} == {""}


# times


def timing(record, train: float, **changes) -> Timing:
    values = {
        "metrics": {"train_ms_per_batch": train, "train_ms_per_batch_iqr": 0.5},
        "batches": 40,
        "rounds": 5,
        "pass_id": "pass a",
        "device": "a processor",
        "threads": 2,
        "torch": "2.13.0",
        "commit": "abc",
        "taken": "2026-01-02T05:00:00+00:00",
        "busy": None,
        "shared": False,
    }
    return Timing(trial=record.id, weights_sha256="0" * 64, **{**values, **changes})


def test_times_of_an_exclusive_pass_stand_before_those_of_trials_with_its_conditions(suite_of, record_of):
    suite = suite_with(suite_of, 1)
    made = of_heads(suite, record_of, [10.0], [20.0], [30.0], metric="train_ms_per_batch", shared=True)
    timings = {
        made[0].id: timing(made[0], 5.0, busy=0.25, batches=38),
        made[1].id: timing(made[1], 7.0, busy=0.125, taken="2026-01-02T04:59:00+00:00"),
    }
    lines, notes = built(suite, made, timings=timings)
    assert [line["train ms/batch"].text for line in lines] == ["5.0 ± 0.5", "7.0 ± 0.5", "30.0 ‡"]
    assert [line["train ms/batch"].mark for line in lines] == ["", "", "‡"]
    assert note(notes, "ms/batch of softmax") == (
        "ms/batch of softmax; mos(num_mixtures=2): median ± interquartile range, one model at a time after training, 5 "
        "rounds, 38 to 40 training batches a model, on a processor, 2 thread(s), torch 2.13.0, harness at abc, "
        "2026-01-02T04:59:00+00:00; other work used 0.2 cores."
    )
    assert note(notes, "ms/batch of mos(num_mixtures=3)").endswith(
        ": of each trial while it trained, the mean over seeds."
    )
    assert note(notes, "‡")


def test_times_of_two_passes_are_told_apart(suite_of, record_of):
    suite = suite_with(suite_of, 1)
    made = of_heads(suite, record_of, [10.0], [20.0], [30.0], metric="train_ms_per_batch")
    passes = ("pass a", "pass b", "pass a")
    timings = {record.id: timing(record, 5.0, pass_id=name) for record, name in zip(made, passes, strict=True)}
    _, notes = built(suite, made, timings=timings)
    assert [each.partition(":")[0] for each in notes if each.startswith("ms/batch")] == [
        "ms/batch of softmax; mos(num_mixtures=3)",
        "ms/batch of mos(num_mixtures=2)",
    ]


def test_a_pass_that_was_disturbed_gives_no_times(suite_of, record_of):
    suite = suite_with(suite_of, 1)
    made = of_heads(suite, record_of, [10.0], metric="train_ms_per_batch")
    lines, notes = built(suite, made, timings={made[0].id: timing(made[0], 5.0, shared=True, busy=1.5)})
    assert lines[0]["train ms/batch"].text == "10.0 ‡"
    assert note(notes, "ms/batch") == (
        "ms/batch: of each trial while it trained, the mean over seeds. In the exclusive pass, other work used 1.5 "
        "cores."
    )
    assert note(notes, "‡")
