"""Whether the records of a submission agree with each other and with themselves. No code of the submission is executed.

Each record has been read as `harness import` reads it (harness/records/plausible.py) before.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from harness.corpora.overlap import MANY_SHARED
from harness.errors import RecordError
from harness.extensions import needed
from harness.records.metrics import METRICS
from harness.records.record import TrialRecord
from harness.records.sidecars import SIDECARS, TOKEN_NLL, TokenScores
from harness.submissions.card import FullCard, core_hours_of, hardware_of
from harness.submissions.outcomes import Check, judged

ROUNDING = 1e-9  # relative, of the same number in two places of a record
RECORDS = "records"


class Found(NamedTuple):
    """A record, and the lowest nll among the scores of its test tokens; None without scores."""

    record: TrialRecord
    lowest: float | None


def read_records(place: Path, suite: str) -> tuple[list[Found], Check]:
    """The records in a file of `harness export`, with what lies beside them, and whether all of them verify."""
    found, faults = [], []
    try:
        with needed("harness.exchange.bundle:opened", "a submission")(place) as bundle:
            for trial in bundle.trials:
                files = bundle.files(trial)
                try:
                    content = {name: files.beside(name) for name in SIDECARS}
                    found.append(Found(files.record, _lowest(content[TOKEN_NLL.file], files.record, place)))
                except RecordError as fault:
                    faults.append(str(fault))
            others = {trial.suite for trial in bundle.trials} | set(bundle.tuned)
    except RecordError as fault:
        return [], Check(RECORDS, "refused", str(fault))
    faults += [f"it has records of the suite '{each}'" for each in sorted(others - {suite})]
    return found, judged(RECORDS, faults, [], f"{len(found)} records verify, with what lies beside them")


def _lowest(content: bytes | None, record: TrialRecord, place: Path) -> float | None:
    scores: TokenScores | None = None if content is None else TOKEN_NLL.parsed(content, record, place)
    return None if scores is None else float(np.nanmin(scores.nll))


def plausibility(found: Sequence[Found], card: FullCard, others: Sequence[TrialRecord]) -> Check:
    """Each record agrees with its own learning curve, no two trials have the same weights or the same curve, and the
    card has the hardware and hours of the records.

    Args:
        others: records of the suite that the harness comes with.
    """
    records, faults = [each.record for each in found], []
    for record in records:
        best, valid = record.metrics.get("best_epoch"), record.metrics.get("valid_ppl")
        at_best = [point.valid_ppl for point in record.curve if point.epoch == best]
        if record.status == "ok" and at_best and not math.isclose(at_best[0], valid, rel_tol=ROUNDING):
            faults.append(
                f"trial {record.id}: valid_ppl is {valid:.6g}, its curve has {at_best[0]:.6g} at epoch {best:g}"
            )
    faults += _twins(records, others)
    if card.hardware != hardware_of(records) or card.core_hours != core_hours_of(records):
        faults.append("hardware or core hours of the card are not those of the records")
    return judged("plausibility", faults, [], "metrics agree with curves, and no two trials have the same")


def _twins(records: Sequence[TrialRecord], others: Sequence[TrialRecord]) -> list[str]:
    """A sentence for each trial of the table with the weights or the curve of another one. Those of the tuning may
    share them: a parameter may change nothing.
    """
    faults, seen = [], {}
    for number, record in enumerate([*others, *records]):
        curve = tuple((point.train_loss, point.valid_ppl) for point in record.curve)
        keys = {"weights": record.weights_sha256, "learning curve": curve}
        for what, key in keys.items() if not record.tuning else ():
            first = seen.setdefault((what, key), record) if key else record
            if first.id != record.id and number >= len(others):
                faults.append(f"trial {record.id} has the {what} of trial {first.id} ({first.spec})")
                break
    return faults


def certificates(found: Sequence[Found]) -> Check:
    """Each trial that is ok has a certificate, which agrees with the scores of its test tokens."""
    faults = []
    for record, lowest in found:
        certificate = record.certificate
        if record.status != "ok" or record.tuning:
            continue
        if certificate is None:
            faults.append(f"trial {record.id} has no certificate: {record.uncertified}")
        elif certificate.fault:
            faults.append(f"trial {record.id}: {certificate.fault}")
        elif lowest is None:
            faults.append(f"trial {record.id} has no scores of its test tokens")
        elif not certificate.drawn or certificate.positions != sum(map(len, certificate.drawn.values())):
            faults.append(f"trial {record.id}: the certificate was asked at other positions than it says")
        elif set(certificate.drawn) <= {"valid", "test"} and certificate.lowest_nll != lowest:
            faults.append(
                f"trial {record.id}: its certificate says that no token has an nll below {certificate.lowest_nll:g}, "
                f"and its scores have {lowest:g}"
            )
    return judged("certificates", faults, [], "of all trials of the table, and they agree with the scores of tokens")


def texts(found: Sequence[Found], others: Sequence[TrialRecord]) -> Check:
    """All trials say the same of the text that they read, and little of it stands in two splits."""
    faults, known = [], {}
    for record in [*others, *(each.record for each in found)]:
        content = None if record.contents is None else record.contents.corpus
        for name, value in record.metrics.items():
            if name in METRICS and METRICS[name].of_text:
                first = known.setdefault((str(record.spec.corpus), content, name), value)
                if not math.isclose(first, value, rel_tol=1e-6):
                    faults.append(f"trial {record.id}: {name} is {value:g}, another trial of the text has {first:g}")
    marks = set()
    for record, _ in found:
        for split in ("valid", "test"):
            share = record.metrics.get(f"{split}_in_train", 0.0)
            if share > MANY_SHARED:
                marks.add(
                    f"{100 * share:.1f} % of the tokens of {split} also stand in train, in runs as long as 13 words"
                )
    return judged("text", faults, sorted(marks), "all trials read one text")
