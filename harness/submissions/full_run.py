"""Compares the trials of a submission with a full run of them in another results folder."""

import math
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.errors import RecordError
from harness.records import store
from harness.records.replicates import Seeds, result
from harness.submissions.archive import unpacked
from harness.submissions.consistency import read_records
from harness.submissions.outcomes import Check, judged

FULL_RUN = "full run"
FAR = 4  # standard errors by which a mean difference is no chance


def compared(place: Path, results: Path) -> Check:
    """Whether each trial of the table was trained in `results`, too, with a result that rounding and the spread of
    seeds explain. Raises RecordError when the file is no submission, or `results` has none of its trials.
    """
    with tempfile.TemporaryDirectory(prefix="harness-submission-") as folder:
        submission = unpacked(place, Path(folder))
        found, _ = read_records(submission.records, submission.card.suite)
    sent = [each.record for each in found if not each.record.tuning]
    runs = store.runs_folder(results, submission.card.suite)
    here, damaged = store.load_all(runs, [record.id for record in sent])
    if not here:
        raise RecordError(f"{runs} has none of the {len(sent)} trials of {place}; train them there first")
    seeds, faults, equal = Seeds(sent), list(damaged), 0
    for record in sent:
        if record.id not in here:
            faults.append(f"trial {record.id} was not trained in {runs}")
            continue
        if here[record.id].environment.started == record.environment.started:
            faults.append(f"trial {record.id} in {runs} is a copy of the submission's")
        relation = seeds.relation(record, here[record.id])
        equal += relation == "equal"
        if relation in ("different", "unknown"):
            faults.append(f"trial {record.id}: {result(here[record.id])} here, {result(record)} in the submission")
    pairs = [(record, here[record.id]) for record in sent if record.id in here]
    ok = [(its.metrics, ours.metrics) for its, ours in pairs if its.status == ours.status == "ok"]
    ratios = [math.log(ours["test_ppl"] / its["test_ppl"]) for its, ours in ok]
    faults += _all_lower(ratios)
    verdict = "different" if faults else "identical" if equal == len(sent) else "plausible"
    check = judged(FULL_RUN, faults, [], f"{len(sent)} trials were trained again, {equal} of them to the same bits")
    return replace(check, verdict=verdict)


def _all_lower(ratios: Sequence[float]) -> list[str]:
    """A sentence if the submission's perplexities are lower by more than chance, each within what one trial may differ.

    Args:
        ratios: log(perplexity here / perplexity in the submission) of each trial.
    """
    if len(ratios) < 3:
        return []
    mean, error = statistics.fmean(ratios), statistics.stdev(ratios) / math.sqrt(len(ratios))
    if mean <= FAR * error:
        return []
    return [f"perplexities here are on average {100 * math.expm1(mean):.2g} % higher than in the submission"]
