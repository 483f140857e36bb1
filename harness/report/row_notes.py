"""Notes on what the rows of a table are: what names leave out, how rows were matched, and what else was trained."""

from collections.abc import Sequence

from harness.plan.match import ratio_key
from harness.plan.names import with_settings
from harness.plan.specs import DECIDES_NO_RESULT, ComponentSpec, TrainSpec, value_text
from harness.plan.suite import Suite
from harness.printable import counted
from harness.report.content import Note
from harness.report.evidence import Evidence
from harness.report.findings import Findings
from harness.report.grouping import grouped
from harness.report.row_facts import REGISTRIES, RowFacts, of_head, ratio, row_name, time_of

FAR = 0.2  # by which a ratio of training times may differ from that of the measured times
TIME = "train_ms_per_batch"


def of_labels(findings: Findings) -> str:
    """'Labels: soft cap 30 is softmax(softcap=30).': what the labels of a suite's file stand for; '' without any."""
    said = {}
    for row in findings.rows:
        for kind, registry in REGISTRIES.items():
            component = getattr(row.planned, kind)
            if component.label:
                said[f"{component.label} is {with_settings(component.given, registry)}"] = None
    return f"Labels: {'; '.join(said)}." if said else ""


def of_heads(suite: Suite) -> list[str]:
    """'Every mos: num_mixtures=3.': what all entries of one head share, because labels show only what differs."""
    entries: dict[str, dict[str, ComponentSpec]] = {}
    for row in suite.rows:
        if row.trials:
            entries.setdefault(row.head.spec.name, {})[row.head.written] = row.head.given
    notes = []
    for name, specs in entries.items():
        given = []
        for spec in specs.values():
            given.append([f"{key}={value_text(value)}" for key, value in spec.params.items()])
        in_all = set(given[0]).intersection(*given)
        common = [text for text in given[0] if text in in_all]
        if len(given) > 1 and common:
            notes.append(f"Every {name}: {', '.join(common)}.")
    return notes


def of_match(findings: Findings) -> list[str]:
    """What is equal between the rows, and whether the ratios of training times are those that were measured."""
    suite = findings.evidence.suite
    if suite.match is None:
        return []
    where = "" if suite.match.measured is None else f" The steps were timed on {suite.match.measured}."
    said = [f"{suite.match.kind.capitalize()} matched: {suite.match}, within each corpus and backbone.{where}"]
    if suite.match.time is None:
        return said
    wrong = "; ".join(filter(None, (_wrong_ratio(row, findings) for row in findings.rows)))
    about = f"`match.ratios` differs from the measured times by more than {100 * FAR:g} %"
    return [*said, *([Note(f"{about}: {wrong}.", level="warning")] if wrong else [])]


def _wrong_ratio(row: RowFacts, findings: Findings) -> str:
    """'MoS 5: 0.5 is given, and 0.87 measured, so that it trained 73 % longer than softmax'; '' if a ratio is right, or
    the times are not of one exclusive pass and one batch size.
    """
    suite, timings, trial = findings.evidence.suite, findings.evidence.timings, row.spec
    alike = (each for each in of_head(findings.rows, suite.match.time) if each.group == row.group)
    reference, key = next(alike, None), ratio_key(suite.match, *row.planned.key)
    if key is None or reference is None or trial.train.batch_size != reference.spec.train.batch_size:
        return ""
    given, measured = suite.match.ratios[key], ratio(time_of(row, TIME, timings), time_of(reference, TIME, timings))
    if measured is None or abs(measured / given - 1) <= FAR:
        return ""
    more = measured / given - 1
    than = f"{100 * abs(more):.0f} % {'longer' if more > 0 else 'shorter'} than {reference.head}"
    return f"{row_name(row, findings.rows)}: {given:g} is given, and {measured:.3g} measured, so that it trained {than}"


def of_further(evidence: Evidence) -> list[str]:
    """'9 further records of these rows lie in the folder: 6 with seeds 7 to 12; 3 with another `train.lr`.'"""
    suite = evidence.suite
    trained = {row.key: row.chosen.trials[0].train for row in suite.rows if row.trials}
    by_settings = grouped(
        (_differing(each.spec.train, trained[suite.key_of(each.spec)]), each) for each in evidence.further
    )
    said = []
    for settings, records in sorted(by_settings.items()):
        seeds = sorted({each.spec.seed for each in records})
        named = f"seed{'s' * (len(seeds) > 1)} {listed(seeds)}"
        said.append(f"{len(records)} with {f'another {settings}' if settings else named}")
    about = f"{counted(len(evidence.further), 'further record')} of these rows in the results folder"
    return [Note(f"{about}, not in this table: {'; '.join(said)}.", level="reading")] if said else []


def _differing(one: TrainSpec, other: TrainSpec) -> str:
    """The settings in which two trainings differ: '`train.lr` and `train.epochs`'."""
    first, second = (each.model_dump(exclude=set(DECIDES_NO_RESULT)) for each in (one, other))
    return " and ".join(f"`train.{name}`" for name in first if value_text(first[name]) != value_text(second[name]))


def listed(seeds: Sequence[int]) -> str:
    """Seeds in order: '1 to 8', '1, 3'."""
    run = len(seeds) > 2 and seeds[-1] - seeds[0] == len(seeds) - 1
    return f"{seeds[0]} to {seeds[-1]}" if run else ", ".join(map(str, seeds))


def of_reading(lines: list[RowFacts]) -> list[str]:
    """A note on each row whose head or backbone read what no parameter names."""
    notes = []
    for line in lines:
        of_seeds = {frozenset(record.environment.read) for record in line.records.values()}
        read = sorted({each for found in of_seeds for each in found})
        if read:
            differs = ", and not the same for all seeds" if len(of_seeds) > 1 else ""
            said = f"{row_name(line, lines)} read what no parameter names, which is not part of the trial's id{differs}"
            notes.append(Note(f"{said}: {'; '.join(read)}.", level="warning"))
    return notes


def of_buffers(lines: list[RowFacts]) -> list[str]:
    """A note on each row with numbers in buffers that training changed: they are learned, and no parameters."""
    notes = []
    for line in lines:
        changed = max(line.values("changed_buffers"), default=0)
        if changed:
            what = f"{row_name(line, lines)} keeps {changed:,.0f} numbers in buffers that training changed"
            counts = "count as parameters, and a plan does not know them" if line.buffers else "are no parameters"
            notes.append(Note(f"{what}; they {counts}.", level="warning" if line.buffers else "detail"))
    return notes
