"""What is done with a submission in the process that imports its source.

The process writes what it found as JSON. Nobody has to believe it where the source is hostile: `confined` has more.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from harness import plan
from harness.code import hashes
from harness.errors import CorpusError, HarnessError, RecordError
from harness.extensions import needed
from harness.plan.suite import Row, Suite
from harness.printable import counted
from harness.records import choices, store
from harness.records.contents import without_folders
from harness.records.record import UNKNOWN, TrialRecord
from harness.submissions import hidden_text, likeness
from harness.submissions.confined import Job
from harness.submissions.outcomes import Check, judged
from harness.trial.task import Task

PLAN, CODE, CONFORMANCE, AGAIN, HIDDEN = "plan", "code", "harness check", "trained again", "hidden text"
ENDED = ("ok", "diverged")  # statuses of a trial that count as its result


def planned_rows(suite: Suite) -> list[Row]:
    """The rows of the head that was appended to a suite's list. Raises RecordError for a grid of heads."""
    last = max(row.head.place[1] for row in suite.rows if row.head.place[:1] == ("heads",))
    rows = [row for row in suite.rows if row.head.place[:2] == ("heads", last)]
    if len({row.head.written for row in rows}) > 1:
        raise RecordError("the head is a grid of several; submit one at a time")
    return rows


def planned_trials(rows: Sequence[Row], records: choices.Records) -> tuple[dict[str, None], list[str]]:
    """The ids of the trials that a suite plans for some rows, and a sentence for each thing that its records lack."""
    ids, lacking = {}, []
    for row in rows:
        of = ", ".join(filter(None, (row.label, row.backbone.label)))
        if row.tune is not None:
            choice = choices.of_records(row, records.tuning)
            if choice is None:
                asked = row.next({trial: choices.perplexity(each) for trial, each in records.tuning.items()})
                lacking.append(f"{of}: its tuning lacks {counted(len(asked), 'trial')}")
                ids |= dict.fromkeys(trial.id for trial in row.possible_trials)
                continue
            if row.choice is None or row.choice.trial != choice.trial:
                lacking.append(f"{of}: the table is not of the point that its tuning trials give")
            ids |= dict.fromkeys(choice.valid_ppl)
        elif not row.trials:
            lacking.append(f"{of}: its learning rate follows from other trials, which are missing")
        if missing := [str(trial.seed) for trial in row.trials if trial.id not in records.table]:
            lacking.append(f"{of}: the table lacks its trials of seed {', '.join(missing)}")
        ids |= dict.fromkeys(trial.id for trial in row.trials)
    return ids, lacking


def examine(job: Job) -> list[Check]:
    """The plan, the code, the likeness to heads of the harness, and `harness check`."""
    try:
        suite = plan.load(job.suite, (f"heads+={job.head}",))
        rows = planned_rows(suite)
        results = Path(job.folder) / "results"
        imports = needed("harness.exchange.copying:import_records", "a submission")
        imports(Path(job.folder) / "records.zip", results)
        warnings: list[str] = []
        records = choices.read(suite, results, warnings.append)
    except HarnessError as fault:
        return [Check(PLAN, "refused", str(fault).replace("\n", "; "))]
    runs = store.runs_folder(results, suite.name)
    ids = [place.parent.name for place in runs.glob(f"*/{store.FILE_NAME}")]
    found, damaged = store.load_all(runs, ids)
    rows = planned_rows(records.suite)
    checks = [_plan(records, rows, found, [*warnings, *damaged]), _code(job, found)]
    (params,) = {row.head.written: row.head.spec.params for row in rows}.values()
    if job.own_source:
        specs = [row.head.spec for row in suite.rows]
        others = [(spec.name, spec.params) for spec in specs if spec.name != job.head_name]
        checks.append(likeness.compared(job.head_name, params, others))
    else:
        checks.append(Check(likeness.NAME, "ok", "it is a head of the harness"))
    return [*checks, _conformance(job, params)]


def _plan(records: choices.Records, rows: Sequence[Row], found: Mapping[str, TrialRecord], faults: list[str]) -> Check:
    """Whether the records are those that the suite plans for the head: all of them, and no others."""
    expected, lacking = planned_trials(rows, records)
    faults, marks = [*faults, *lacking], []
    for row in rows:
        params = (
            {} if row.chosen is None else dict(zip(("params_total", "params_head"), row.chosen.params, strict=True))
        )
        for trial in row.trials:
            metrics = records.table[trial.id].metrics if trial.id in records.table else {}
            faults += [
                f"trial {trial.id}: {name} is {metrics[name]:,.0f}, the plan has {value:,}"
                for name, value in params.items()
                if name in metrics and metrics[name] != value
            ]
    for trial, record in found.items():
        if trial not in expected:
            faults.append(_besides(record, rows))
        elif record.status not in ENDED:
            faults.append(f"trial {trial} has the status '{record.status}' ({record.message})")
        elif record.status != "ok" and not record.tuning:
            marks.append(f"trial {trial} diverged")
    return judged(PLAN, faults, marks, f"{len(found)} trials are those that the suite plans, and all of them")


def _besides(record: TrialRecord, rows: Sequence[Row]) -> str:
    """Why a record is of no trial of the plan."""
    settings = without_folders(record).spec.model_dump_json(exclude={"id"})
    for row in rows:
        if settings in {trial.model_dump_json(exclude={"id"}) for trial in row.possible_trials}:
            return f"trial {record.id} read another text or other weights than the suite names"
    tuning = " in its tuning" if record.tuning else ""
    return f"trial {record.id} is not planned by the suite{tuning} ({record.spec}, lr {record.spec.train.lr:g})"


def _code(job: Job, found: Mapping[str, TrialRecord]) -> Check:
    """Whether the trials were made by the code of a version that is known to give the same numbers as the present."""
    faults, marks = {}, {}
    for record in found.values():
        for kind in hashes.KINDS:
            name = getattr(record.spec, kind).name
            was = UNKNOWN if record.code is None else getattr(record.code, kind)
            now = hashes.of(kind, name)
            if UNKNOWN in (was, now) or not hashes.alike(kind, name, was, now):
                where = "head.py" if job.own_source and kind == "head" else hashes.place(kind, name)
                faults[f"{kind} {name}: made by other code than {where} ({was[:8]}, expected {now[:8]})"] = None
        for each in record.environment.read:
            marks[f"read while it was trained: {each}"] = None
    return judged(CODE, list(faults), list(marks), "head, backbone and corpus are those of this version")


def _conformance(job: Job, params: dict) -> Check:
    try:
        _, outcomes = needed("harness.conformance:conformance", "the check of a head")(job.head_name, params)
    except HarnessError as fault:
        return Check(CONFORMANCE, "refused", str(fault))
    failed = [str(each) for each in outcomes if not each.ok]
    return judged(CONFORMANCE, failed, [], f"{len(outcomes)} of {len(outcomes)} checks succeed")


def train(job: Job) -> list[Check]:
    """Train one trial again, and compare it with its record."""
    options_of = needed("harness.verification.measured:VerificationOptions", "a second training")
    find = needed("harness.verification.verify:find_records", "a second training")
    verify = needed("harness.verification.verify:verify_record", "a second training")
    hidden: list[Check] = []

    def look(task: Task, best: Path) -> None:
        try:
            found = hidden_text.perplexity(task, best)
        except CorpusError as fault:  # of the text alone, which is no fault of the training
            hidden.append(Check(HIDDEN, "not checked", str(fault)))
            return
        if found is not None:
            times = found / given.record.metrics["test_ppl"]
            said = f"perplexity {found:.4g} on a text that no suite reads, {times:.3f} times that of the test split"
            hidden.append(Check(HIDDEN, "ok", said))

    options = options_of(data=Path(job.data), device="cpu", minutes=job.minutes, look=look)
    place = Path(job.folder) / "records.zip"
    (given,) = find(str(place), Path(job.folder), (f"id={job.trial}",))
    verdict = verify(given, options, retrain=True, on_event=lambda event: None)
    outcome = "ok" if verdict.outcome in ("identical", "plausible") else "refused"
    if outcome == "ok" and "equal bits were expected" in verdict.sentence:
        outcome = "marked"
    where = f"; differences: {', '.join(verdict.differs)}" if verdict.differs else ""
    said = f"trial {job.trial} ({verdict.trial}): {verdict.outcome} {verdict.sentence}{where}"
    return [Check(AGAIN, outcome, said, verdict.outcome), *hidden]


JOBS = {"examine": examine, "train": train}


def main(place: str) -> None:
    """Do the job in a file, and write what was found beside it."""
    job = Job(**json.loads(Path(place).read_text(encoding="utf-8")))
    found = [asdict(each) for each in JOBS[job.kind](job)]
    Path(place).with_name("report.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
