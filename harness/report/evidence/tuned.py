"""Whether the rows of a suite with `tune` were tuned alike: as often, and with the choice that their records give."""

from collections.abc import Iterator, Mapping

from harness.plan.loaded_suite import Suite
from harness.plan.tuning import point_text
from harness.records.choices import of_records
from harness.records.record import TrialRecord

Doubts = dict[str, str]  # id of a trial of the table -> what is wrong with the tuning of its row


def doubts(suite: Suite, records: Mapping[str, TrialRecord]) -> Doubts:
    """What is wrong with the tuning of rows; {} if all rows were tuned alike, and without `tune`.

    - A row had fewer tuning trials than another one: a key of the space does not apply to it, and a grid over that key
      gives the other rows more attempts.
    - The point that is used is not the one that the records of the tuning trials give. While some of these records are
      missing, this is not known, and the stored choice counts.

    Args:
        records: of the tuning trials, by id.
    """
    if suite.tuning is None:
        return {}
    tuning, found = suite.tuning, {}
    most = max(len(row.candidates) for row in tuning.rows)
    for index, (row, choice) in enumerate(zip(tuning.rows, tuning.choices, strict=True)):
        attempts, now = len(row.candidates), of_records(row, records)
        reasons = []
        if attempts < most:
            reasons.append(f"{attempts} of the {most} tuning trials of another row")
        if choice is not None and now is not None and now.trial != choice.trial:
            reasons.append(f"not the best of its tuning trials, which is {point_text(now.point) or 'no point'}")
        found |= dict.fromkeys((trial.id for trial in tuning.of_table(index)), "; ".join(reasons)) if reasons else {}
    return found


def named(suite: Suite, found: Doubts, labels: list[str]) -> Iterator[str]:
    """'mos(num_mixtures=2): 4 of the 8 tuning trials of another row', for each row with a doubt.

    Args:
        labels: of the rows of the tuning.
    """
    for index, label in enumerate(labels):
        for trial in suite.tuning.of_table(index)[:1]:
            if trial.id in found:
                yield f"{label}: {found[trial.id]}"
