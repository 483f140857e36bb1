"""The details of a row of the page: its settings, measurements, environment, and how it is trained and verified."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.code.hashes import SHOWN
from harness.machine.files import read_end
from harness.plan.parameters import changed_paths, parameters, resolved
from harness.plan.specs import TrainSpec, TrialSpec, value_text
from harness.printable import counted
from harness.records.metrics import METRICS
from harness.records.record import Fingerprints, TrialRecord
from harness.records.sidecars import Timing
from harness.records.store import folder
from harness.report import retraining
from harness.report.evidence import Evidence
from harness.report.row_facts import REGISTRIES, RowFacts
from harness.trial.log import LOG_NAME

LOG_BYTES, LOG_LINES = 4096, 30  # the shown end of a failed trial's log
MOST_LOGS = 100  # shown in a page

Values = tuple[str, str, list[float | None]]  # a metric, what it is, and its value of each record


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowDetails:
    """All that is known of a row.

    Args:
        command, verifying: the commands that run the row again, and that verify one of its trials; '' for none.
        parts: its settings without the seed: kind and name of a part, and name, text and whether it is the default of
            each of its settings.
        records: of its trials, in the order of the seeds.
        environment: a fact, and its text of each record, or a single one if all agree.
        passes: how they were measured, in sentences.
    """

    row: RowFacts
    command: str
    verifying: str
    parts: list[tuple[str, str, list[tuple[str, str, bool]]]]
    records: list[TrialRecord]
    metrics: list[Values]
    environment: list[tuple[str, list[str]]]
    timed: list[Values]
    passes: list[str]


def row_details(evidence: Evidence) -> list[RowDetails]:
    """The details of each row of the suite, in order."""
    commands = retraining.of_rows(evidence.suite, evidence.rows)
    return [_details_of(row, command, evidence) for row, command in zip(evidence.rows, commands, strict=True)]


def failures(evidence: Evidence, lines: Iterable[RowFacts]) -> list[tuple[TrialRecord, str, str]]:
    """The trials of some rows that failed, in the order of the suite: the record, the command that runs it again, and
    the end of its log, '' if it has none.
    """
    shown = {trial for line in lines for trial in line.ids}
    found = [record for record in evidence.finished if record.id in shown and record.status != "ok"]
    return [
        (
            record,
            retraining.of_trials(evidence.suite, [record.id], None, "--retry-failed"),
            _log_end(folder(evidence.runs, record.id) / LOG_NAME) if number < MOST_LOGS else "",
        )
        for number, record in enumerate(found)
    ]


def _details_of(line: RowFacts, command: str, evidence: Evidence) -> RowDetails:
    found = list(line.records.values())
    times = [evidence.timings[record.id].metrics if record.id in evidence.timings else {} for record in found]
    return RowDetails(
        row=line,
        command=command,
        verifying=retraining.verifying(line),
        parts=_parts(line.spec),
        records=found,
        metrics=_values([record.metrics for record in found], METRICS),
        environment=_environment(found),
        timed=_values(times, dict.fromkeys(name for each in times for name in each)),
        passes=_passes(found, evidence.timings),
    )


def _values(found: Sequence[Mapping[str, float]], names: Iterable[str]) -> list[Values]:
    values, measured = [], {name for each in found for name in each}
    for name in (name for name in names if name in measured):
        direction = METRICS[name].direction
        better = "" if direction == "none" else f" {direction.capitalize()} is better."
        values.append((name, METRICS[name].description + better, [each.get(name) for each in found]))
    return values


def _passes(found: Sequence[TrialRecord], timings: Mapping[str, Timing]) -> list[str]:
    """'Timed alone, 2 seeds (1, 2): 5 rounds, 90 training batches, ...': a sentence for all seeds of which it holds."""
    seeds: dict[str, list[str]] = {}
    for record in found:
        if (timing := timings.get(record.id)) is not None:
            batches = counted(timing.batches, "training batch", "training batches")
            how = f"{counted(timing.rounds, 'round')}, {batches}, {timing.device}, "
            how += f"{counted(timing.threads, 'thread')}, {timing.taken}" + (
                ", while other work ran" if timing.shared else ""
            )
            seeds.setdefault(how, []).append(str(record.spec.seed))
    return [f"Timed alone, {counted(len(those), 'seed')} ({', '.join(those)}): {how}." for how, those in seeds.items()]


def _parts(trial: TrialSpec) -> list[tuple[str, str, list[tuple[str, str, bool]]]]:
    found = []
    for kind, registry in REGISTRIES.items():
        spec = getattr(trial, kind)
        known = parameters(registry.get(spec.name))
        settings = [
            (
                name,
                _text(changed_paths(known[name], value, lambda path: Path(path).name)),  # the name of a file only
                value_text(value) == value_text(known[name].default),
            )
            for name, value in resolved(registry.get(spec.name), spec.params).items()
        ]
        found.append((kind, spec.name, settings))
    train = {name: value for name, value in trial.train.model_dump().items() if value != {}}
    defaults = {name: field.default for name, field in TrainSpec.model_fields.items()}
    return [*found, ("train", "", [(name, _text(value), value == defaults[name]) for name, value in train.items()])]


def _text(value: object) -> str:
    if hasattr(value, "model_dump"):
        return value_text(value.model_dump())
    return f"{value:.6g}" if isinstance(value, float) else value_text(value)


def _environment(found: Sequence[TrialRecord]) -> list[tuple[str, list[str]]]:
    facts = {}
    for name in {name: None for record in found for name in record.environment.model_dump()}:
        facts[name] = [_text(getattr(record.environment, name)) for record in found]
    for name in Fingerprints.model_fields if any(record.code is not None for record in found) else ():
        texts = ["" if record.code is None else _text(getattr(record.code, name))[:SHOWN] for record in found]
        facts[f"code: {name}"] = texts
    return [(name, texts[:1] if len(set(texts)) == 1 else texts) for name, texts in facts.items()]


def _log_end(place: Path) -> str:
    """The last lines of a log; '' if it cannot be read."""
    try:
        text = read_end(place, LOG_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-LOG_LINES:])
