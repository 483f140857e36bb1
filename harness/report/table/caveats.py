"""The notes under a table that warn: marks, records that are not like the others, trials that failed."""

from collections.abc import Iterable

from harness.plan.specs import value_text
from harness.records.record import TrialRecord
from harness.report.evidence import versions
from harness.report.evidence.findings import BLOCKS_MARK, COMPAT_MARK, EARLIER_MARK, UNCERTIFIED_MARK, Findings
from harness.report.evidence.table_rows import Row
from harness.report.table import comparison_notes
from harness.report.table.content import Note
from harness.report.table.time_notes import row_name

SHOWN = 5  # of the trials without scores of tokens
ONE_SEED = (
    f"{BLOCKS_MARK} one seed: a 95 % interval over blocks of the test text, not over seeds. It describes these trained "
    "models and ranks nothing."
)
LAST_EPOCH = "ours - printed: of the weights after the last epoch, which the paper tested."
UNCERTIFIED = (
    f"{UNCERTIFIED_MARK} not certified: trained before the harness checked that a perplexity is computed from "
    "probabilities (harness docs certificates). harness run SUITE --force trains them again."
)
EARLIER = (
    f"{EARLIER_MARK} certified by earlier rules, in the process that had trained: a head that remembers the text could "
    "pass (harness docs certificates)."
)
INVALID = (
    "invalid: the certificate of a trial failed, so its perplexity is not computed from probabilities "
    "(harness docs certificates). A row with such a trial has no means, no rank and no comparisons."
)


def notes(findings: Findings, records: list[TrialRecord]) -> list[str]:
    """What limits the numbers of a table.

    Args:
        records: of the suite's trials, in their order.
    """
    lines, compared = findings.lines, findings.compared.values()
    found = [_compat(line) for line in lines if line.compat is not None]
    if any(each.interval is not None and each.interval.low is not None for each in compared):
        found.append(Note(ONE_SEED, comparison_notes.COLUMNS))
    if any(cell.weights == "last" for cell in findings.evidence.printed.cells):
        found.append(Note(LAST_EPOCH, ("ours - printed",)))
    found += [f"{each}." for record in records for each in record.environment.switched_off]
    found += _code(findings, records)
    found += [_sessions(record) for record in records if record.environment.changed]
    found += _unscored(findings)
    failed = [f"{each.spec} ({each.id}): {each.status}: {each.message}" for each in records if each.status != "ok"]
    found += [Note(text, level="reading") for text in failed]
    found += on_certificates(lines)
    found += _seeds(records)
    found += [Note(INVALID, level="warning")] if any(line.invalid for line in lines) else []
    return list(dict.fromkeys(found))


def on_certificates(rows: Iterable[Row]) -> list[str]:
    """What the certificates of rows do not say."""
    rows = list(rows)
    records = [row.records[seed] for row in rows for seed in row.ok_seeds]
    found = [UNCERTIFIED] if any(each.uncertified for each in records) else []
    found += [
        f"{UNCERTIFIED_MARK} {each.spec} ({each.id}): not certified, so its row has no rank: {each.not_certified}."
        for each in records
        if each.not_certified
    ]
    return [*found, *([EARLIER] if any(row.certified_earlier for row in rows) else [])]


def _seeds(records: list[TrialRecord]) -> list[str]:
    """Whether the seeds leave some out: then somebody chose them."""
    seeds = sorted({each.spec.seed for each in records if not each.tuning})
    if not seeds or seeds[-1] - seeds[0] < len(seeds):  # guard: chosen-seeds
        return []
    text = f"The seeds are {', '.join(map(str, seeds))}, not consecutive numbers: say how they were chosen."
    return [Note(text, level="warning")]


def _compat(row: Row) -> str:
    """The switches with which a head computes what a published code does."""
    switches = ", ".join(f"{name}={value_text(value)}" for name, value in row.compat.items())
    return (
        f'{COMPAT_MARK} compat {switches}: computed as a published code does. Its "probabilities" need not sum to 1: '
        "compare these perplexities with numbers of that code only."
    )


def _code(findings: Findings, records: list[TrialRecord]) -> list[str]:
    """Rows whose code has changed since they were trained, or is of several versions."""
    evidence, lines = findings.evidence, findings.lines
    rows = versions.of_rows(((row_name(row, lines), row) for row in lines), evidence.outdated)
    return [Note(text, level="warning") for text in [*rows, *versions.of_harness(records)]]


def _sessions(record: TrialRecord) -> str:
    where = record.environment
    return (
        f"{record.spec} ({record.id}) was trained in {where.sessions} sessions, of which earlier ones ran with: "
        f"{', '.join(where.changed)}."
    )


def _unscored(findings: Findings) -> list[str]:
    """Trials whose perplexity cannot be computed again from stored token scores."""
    found, ok = findings.evidence.unscored, findings.evidence.trials.ok
    if not found:
        return []
    ids = sorted(found)
    more = f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
    return [
        f"No token scores: {len(ids)} of {ok} ok trials ({', '.join(ids[:SHOWN])}{more}): test_nll.npz is missing or "
        "does not fit the record."
    ]
