"""What a table says of its rows beside their numbers: what labels stand for, ratios of times, and further records."""

import handmade
import pytest
from bundles import timing_of

from harness.records import store
from harness.report import row_notes, study


@pytest.fixture
def noted(tmp_path):
    """A function: a suite, trials that have a record -> the notes on further records of its table."""

    def of(suite, *trials, **changes):
        for trial in trials:
            store.save(handmade.record(spec=trial, suite="small", **changes), store.runs_folder(tmp_path, "small"))
        found = study.load(suite, tmp_path, warn=pytest.fail)
        return row_notes.of_further(found.evidence)

    return of


TIMES = 'match: {time: softmax, ratios: {softmax: 1, "mos(num_mixtures=2)": RATIO}}\n'


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        # 8.7 ms / 5 ms = 1.74, and 1.74 / 3 = 0.58
        (3.0, "MoS 2: 3 is given, and 1.74 measured, so that it trained 42 % shorter than softmax"),
        (1.5, ""),  # 1.74 / 1.5 = 1.16
        (2.1, ""),  # 1.74 / 2.1 = 0.83
    ],
)
def test_ratios_are_compared_with_the_times_that_were_measured(suite_of, ratio, said):
    suite = suite_of(handmade.SMALL + TIMES.replace("RATIO", str(ratio)))
    records = [handmade.record(spec=trial, suite="small") for trial in suite.trials]
    times = {"softmax": 5.0, "mos": 8.7}
    timings = {each.id: timing_of(each, metrics={"train_ms_per_batch": times[each.spec.head.name]}) for each in records}
    _, *notes = row_notes.of_match(handmade.findings(suite, records, timings=timings))
    expected = [f"`match.ratios` differs from the measured times by more than 20 %: {said}."] if said else []
    assert notes == expected
    # of another pass, beside other work, or while training: not to be compared
    apart = {each: timing.model_copy(update={"pass_id": each}) for each, timing in timings.items()}
    busy = {each: timing.model_copy(update={"shared": True}) for each, timing in timings.items()}
    for unfit in (apart, busy, {}):
        assert len(row_notes.of_match(handmade.findings(suite, records, timings=unfit))) == 1


def test_further_seeds_and_rates_of_the_rows_are_counted(suite_of, noted):
    small, eight = handmade.SMALL, handmade.changed(("[1, 2]", "8"))
    every = suite_of(eight).trials
    slower = suite_of(small, "train.lr=0.001").trials
    longer = suite_of(small, "train.lr=0.001", "train.epochs=3").trials
    # softmax is a row of the suite, MoS 5 is not
    other = suite_of(handmade.changed(("num_mixtures: 2", "num_mixtures: 5"))).trials
    tuned = suite_of(small + "tune: {space: {train.lr: [0.01, 0.02]}}\n").tuning_trials
    planned, suite = {trial.id for trial in every}, suite_of(small)
    assert noted(suite, *suite.trials) == []
    assert noted(suite, *(trial for trial in tuned if trial.id not in planned), tuning=True) == []
    (note,) = noted(suite, *every, *slower[:3], longer[0], *other)
    # of two rows the seeds 3 to 8
    assert note == (
        "16 further records of these rows in the results folder, not in this table: 12 with seeds 3 to 8; 3 with "
        "another `train.lr`; 1 with another `train.lr` and `train.epochs`."
    )
    assert note.level == "reading"
    assert noted(suite_of(eight), *every)[0].startswith("4 further records")


@pytest.mark.parametrize(
    ("more", "level", "counts"),
    [(1, "warning", "count as parameters, and a plan does not know them"), (0, "detail", "are no parameters")],
)
def test_numbers_in_changed_buffers_count_above_a_hundredth_of_the_parameters(suite_of, more, level, counts):
    suite = suite_of(handmade.SMALL)
    parameters, of_head = suite.candidate_of(suite.trials[-1]).params
    changed = parameters // 100 + more
    records = [handmade.record(spec=trial, suite="small") for trial in suite.trials]
    assert row_notes.of_buffers(handmade.findings(suite, records).rows) == []
    buffers = {"changed_buffers": float(changed), "changed_buffers_head": 2.0}
    records[-1] = handmade.record(spec=suite.trials[-1], suite="small", metrics=buffers)
    lines = handmade.findings(suite, records).rows
    (note,) = row_notes.of_buffers(lines)
    said = f"MoS 2 keeps {changed:,} numbers in buffers that training changed; they {counts}."
    assert (note, note.level) == (said, level)
    added = (changed, 2) if more else (0, 0)
    assert (lines[-1].params_total, lines[-1].params_head) == (parameters + added[0], of_head + added[1])
