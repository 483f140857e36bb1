"""What is known of a row of a table: its records, one for each seed, its times, and the counts of its head."""

import statistics
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from harness.plan.parameters import resolved
from harness.plan.specs import TrialSpec
from harness.plan.suite import Row, Suite
from harness.plan.tuning import Point
from harness.records.record import TrialRecord
from harness.records.sidecars import Timing
from harness.registry import BACKBONES, CORPORA, HEADS
from harness.report.content import TIME_MARK
from harness.report.grouping import grouped
from harness.report.tuning_doubts import Tuned
from harness.report.versions import Changed, of_other_code

REGISTRIES = {"corpus": CORPORA, "backbone": BACKBONES, "head": HEADS}
MUCH = 0.01  # of the parameters: so many numbers in buffers make a model larger than its parameters say
NO_ENTRIES: Mapping = MappingProxyType({})
OTHER_CODE = "of other code"
SAID = {"missing": "not run"}  # a status -> its words in a table


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFacts:
    """A trial of a row and what is known of it.

    Args:
        record: None before it has ended.
        status: 'ok' of a trial that is part of the row's numbers. Of others the status of their
            record; 'of other code', where the numbers are of another version of the code;
            'interrupted', with a checkpoint and no record; 'missing'.
        outdated: whether its record is ok, and its code has changed since.
    """

    spec: TrialSpec
    record: TrialRecord | None = None
    status: str = "missing"
    outdated: bool = False

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def seed(self) -> int:
        return self.spec.seed


def trial_facts(
    trials: Iterable[TrialSpec],
    records: Mapping[str, TrialRecord],
    outdated: Changed = NO_ENTRIES,
    interrupted: Container[str] = (),
) -> tuple[TrialFacts, ...]:
    """What is known of the trials of a row, which differ only in their seed.

    Args:
        records: by trial id, also of other rows.
        outdated: the changed components of trials whose code has changed since (versions.py).
    """
    trials = tuple(trials)
    left_out = of_other_code([records[each.id] for each in trials if each.id in records], outdated)
    found = []
    for spec in trials:
        record = records.get(spec.id)
        if record is None:
            status = "interrupted" if spec.id in interrupted else "missing"
        else:
            status = OTHER_CODE if spec.id in left_out else record.status
        made = TrialFacts(spec=spec, record=record, status=status, outdated=spec.id in outdated)
        found.append(made)
    return tuple(found)


@dataclass(frozen=True, kw_only=True, eq=False)
class RowFacts:
    """A row with what its trials have given. Only itself is equal to it, so that it may be the key of a dict.

    Args:
        corpus, backbone, head: their names in views (harness/plan/names.py).
        trials: those that differ only in their seed.
        params_total, params_head: with those of `buffers`.
        buffers: numbers in buffers that count as parameters, because training changed them.
        tuning: what is wrong with its tuning, and how much lower its log perplexity may be at other values.
        planned: the row of the suite; None for rows of the leaderboard, and of a single trial.
    """

    corpus: str
    backbone: str
    head: str
    trials: tuple[TrialFacts, ...]
    params_total: int
    params_head: int
    buffers: int = 0
    tuning: Tuned = field(default_factory=Tuned)
    planned: Row | None = None

    @property
    def spec(self) -> TrialSpec:
        """The first of its trials: the others differ only in their seed."""
        return self.trials[0].spec

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of its trials."""
        return tuple(trial.id for trial in self.trials)

    @cached_property
    def records(self) -> dict[int, TrialRecord]:
        """Seed -> the record of its trial, for those that have one."""
        return {each.seed: each.record for each in self.trials if each.record is not None}

    @cached_property
    def ok(self) -> list[TrialRecord]:
        """The records of the row's numbers, in the order of the suite; none if a trial of the row is invalid."""
        if self.invalid:
            return []
        return [each.record for each in self.trials if each.status == "ok"]

    @property
    def ok_seeds(self) -> list[int]:
        """The seeds of the row's numbers."""
        return [record.spec.seed for record in self.ok]

    @property
    def is_control(self) -> bool:
        """Whether it computes a plain softmax of the state (harness/plan/controls.py)."""
        return self.planned is not None and self.planned.is_control

    @property
    def tuned(self) -> Point:
        """Keys of the space of `tune` -> their chosen values; {} without `tune`."""
        return {} if self.planned is None else self.planned.chosen.point

    @property
    def group(self) -> tuple[str, str]:
        """Corpus and backbone: heads are compared within a group."""
        return self.corpus, self.backbone

    @property
    def is_ngram(self) -> bool:
        """Whether it is of an n-gram model, which has no seeds and is compared with nothing."""
        return self.spec.is_ngram

    def values(self, metric: str, seeds: Iterable[int] | None = None) -> list[float]:
        """A metric of the ok records, in the order of the seeds; of some seeds only if these are given."""
        records = self.ok if seeds is None else [self.records[seed] for seed in seeds]
        return [record.metrics[metric] for record in records if metric in record.metrics]

    def params_of(self, kind: str) -> dict[str, object]:
        """The values of all parameters of its 'head', 'backbone' or 'corpus', defaults included."""
        spec = getattr(self.spec, kind)
        return resolved(REGISTRIES[kind].get(spec.name), spec.params)

    @property
    def params(self) -> dict[str, object]:
        """All of these, named as in printed cells: those of the head by their names, others like 'backbone.size'."""
        others = [(kind, self.params_of(kind)) for kind in ("backbone", "corpus")]
        named = {f"{kind}.{name}": value for kind, params in others for name, value in params.items()}
        return {**self.params_of("head"), **named}

    @property
    def compat(self) -> dict[str, object] | None:
        """The switches with which the head computes what a published code does, instead of its definition."""
        return self.params_of("head").get("compat")

    @property
    def boundary(self) -> str:
        """The counting rule of the corpus: 'eos', 'sos_eos', or '' if its tokens are not the words of lines."""
        params = self.params_of("corpus")
        return "" if params.get("tokenizer") else params.get("boundary", "")

    @property
    def outdated(self) -> bool:
        """Whether the code of some of its ok records has changed since, or is of several versions."""
        return any(each.outdated or each.status == OTHER_CODE for each in self.trials)

    @property
    def invalid(self) -> bool:
        """Whether the certificate of a trial failed.

        What the head computes is then not a probability, so the row has no means, no rank and no comparisons.
        """
        return any(each.status == "invalid" for each in self.trials)

    @property
    def failed(self) -> bool:
        """Whether some of its trials ended, and are not ok."""
        return any(record.status != "ok" for record in self.records.values())

    @property
    def has_equal_seeds(self) -> bool:
        """Whether two of its ok seeds have the same weights, or the same test perplexity and training losses.

        They are then one result: of a model that is not trained at all, or of a record that was copied. Two trainings
        with the same perplexity, as 1.0, differ in their losses.
        """
        weights = [each.weights_sha256 for each in self.ok if each.weights_sha256 is not None]
        trained = []
        for each in self.ok:
            if each.curve:
                losses = (point.train_loss for point in each.curve)
                trained.append((each.metrics["test_ppl"], *losses))
        return len(set(weights)) < len(weights) or len(set(trained)) < len(trained)

    @property
    def uncertified(self) -> bool:
        """Whether some of the row's numbers are of records without a certificate."""
        return any(record.uncertified for record in self.ok)

    @property
    def certified_earlier(self) -> bool:
        """Whether some of the row's certificates were asked in the process that had trained, as they were at first."""
        certificates = [record.certificate for record in self.ok]
        return any(each is not None and not each.drawn for each in certificates)

    @property
    def state(self) -> str:
        """'3/3', or '1/3: 1 diverged, 1 not run'."""
        return ": ".join(filter(None, (self.done, self.undone)))

    @property
    def done(self) -> str:
        """'1/3': the ok trials, of the planned ones."""
        return f"{sum(each.status == 'ok' for each in self.trials)}/{len(self.trials)}"

    @property
    def undone(self) -> str:
        """'1 diverged, 1 not run'; '' where all trials are ok."""
        statuses = Counter(each.status for each in self.trials if each.status != "ok")
        return ", ".join(f"{count} {SAID.get(status, status)}" for status, count in statuses.items())


def rows(
    suite: Suite,
    records: dict[str, TrialRecord],
    interrupted: Container[str] = (),
    outdated: Changed = NO_ENTRIES,
    doubts: Mapping[Row, Tuned] = NO_ENTRIES,
) -> list[RowFacts]:
    """The rows of a suite that have trials, in the order of its file.

    Args:
        outdated: the changed components of trials whose code has changed since; see harness.report.versions.
        doubts: the tuning of rows; see harness.report.tuning_doubts.
    """
    found = []
    for planned in suite.rows:
        chosen = planned.chosen
        if chosen is None:
            continue
        trials = trial_facts(chosen.trials, records, outdated, interrupted)
        row = RowFacts(
            corpus=planned.corpus.name,
            backbone=planned.backbone.name,
            head=planned.head.name,
            trials=trials,
            **sizes(chosen.params, trials),
            tuning=doubts.get(planned, Tuned()),
            planned=planned,
        )
        found.append(row)
    return found


def sizes(params: tuple[int, int], trials: Iterable[TrialFacts]) -> dict[str, int]:
    """Return `params_total`, `params_head` and `buffers` of a row, given its numbers of parameters.

    Numbers that training changed in buffers count, too, if they are more than a hundredth of the parameters: running
    averages of a batch are fewer.
    """
    records = [each.record for each in trials if each.record is not None]
    ok = [record.metrics for record in records if record.status == "ok"]
    changed = int(max((each.get("changed_buffers", 0) for each in ok), default=0))
    of_head = int(max((each.get("changed_buffers_head", 0) for each in ok), default=0))
    total, head = params
    if changed <= MUCH * total:
        return {"params_total": total, "params_head": head}
    return {"params_total": total + changed, "params_head": head + of_head, "buffers": changed}


def of_trial(record: TrialRecord) -> RowFacts:
    """The row of a single trial with a record, named by its id; its parameters are not counted."""
    spec = record.spec
    return RowFacts(
        corpus=str(spec.corpus),
        backbone=str(spec.backbone),
        head=record.id,
        trials=trial_facts([spec], {spec.id: record}),
        params_total=0,
        params_head=0,
    )


def row_name(row: RowFacts, lines: list[RowFacts]) -> str:
    """A row as notes name it: its head, with corpus and backbone where the table has several."""
    parts = [row.head]
    for kind in ("corpus", "backbone"):
        if len({getattr(line, kind) for line in lines}) > 1:
            parts.append(getattr(row, kind))
    return ", ".join(parts)


def of_head(rows: Iterable[RowFacts], name: str | None) -> list[RowFacts]:
    """The rows that a name as in `table.baseline` means: those of the head that the plan prints so, as 'softmax' or
    'softmax(projection=True)'; without one, those of all heads of this name.
    """
    rows = list(rows)
    written = [row for row in rows if row.planned is not None and row.planned.head.written == name]
    return written or [row for row in rows if row.spec.head.name == name]


def reduction(row: RowFacts, baseline: RowFacts | None, metric: str = "test_ppl") -> float | None:
    """(baseline - head) / baseline of the means of a metric over the seeds that both have; None if they share none,
    or one has a compatibility switch.
    """
    if baseline is None or row is baseline or row.compat is not None or baseline.compat is not None:
        return None
    theirs = {record.spec.seed for record in baseline.ok if metric in record.metrics}
    ours = [record.spec.seed for record in row.ok if metric in record.metrics]
    shared = [seed for seed in ours if seed in theirs]
    if not shared:
        return None
    head, base = (statistics.fmean(each.values(metric, shared)) for each in (row, baseline))
    return (base - head) / base if base else None  # it is 0 in a forged record only


@dataclass(frozen=True, slots=True, kw_only=True)
class Time:
    """A time of a row, in the metric's unit.

    Args:
        spread: of an exclusive pass, the interquartile range over batches; else the standard deviation over seeds, None
            for one seed.
        exclusive: no other work was known or observed on the machine; otherwise tables mark it.
        device, threads: with which it was measured.
        pass_id: of the exclusive pass; times of one pass can be compared. None: the mean of what the trials measured.
        left_out: trials of the row that were measured on another device or with other threads.
    """

    value: float
    spread: float | None
    exclusive: bool
    device: str
    threads: int
    pass_id: str | None
    left_out: int = 0


def ratio(time: Time | None, reference: Time | None) -> float | None:
    """A time divided by another one; None where both are not of one pass, or of training, on one device with one number
    of threads.
    """
    if time is None or reference is None or not (time.exclusive and reference.exclusive and reference.value):
        return None
    if time.pass_id != reference.pass_id or is_elsewhere(time, reference):
        return None
    return time.value / reference.value


def is_elsewhere(time: Time, reference: Time) -> bool:
    """Whether a time was taken on another device, or with another number of threads."""
    return (time.device, time.threads) != (reference.device, reference.threads)


def time_mark(time: Time, reference: Time | None) -> str:
    """The mark of a time that was taken beside other work, or on another device or with another number of threads than
    that of a reference.
    """
    elsewhere = reference is not None and is_elsewhere(time, reference)
    return TIME_MARK if elsewhere or not time.exclusive else ""


def time_of(row: RowFacts, metric: str, timings: dict[str, Timing]) -> Time | None:
    """A time of a row; None where it was not measured.

    It is that of the row's newest exclusive timing that was not disturbed by other work. If there is none, it is the
    mean over the ok records of one device and number of threads, those of most records, or of equally many the one with
    fewer threads; and not exclusive if an exclusive pass was disturbed.

    Args:
        metric: 'train_ms_per_batch', 'eval_ms_per_batch' or 'inference_ms_per_batch'.
    """
    taken = [timings[record.id] for record in row.ok if record.id in timings]
    fit = [timing for timing in taken if not timing.shared and metric in timing.metrics]
    if fit:
        timing = max(fit, key=lambda each: each.taken)
        return Time(
            value=timing.metrics[metric],
            spread=timing.metrics.get(f"{metric}_iqr"),
            exclusive=True,
            device=timing.device,
            threads=timing.threads,
            pass_id=timing.pass_id,
        )
    found = [record for record in row.ok if metric in record.metrics]
    if not found:
        return None
    places = grouped(((record.environment.device, record.environment.threads), record) for record in found)
    (device, threads), alike = max(places.items(), key=lambda each: (len(each[1]), -each[0][1]))
    values = [record.metrics[metric] for record in alike]
    return Time(
        value=statistics.fmean(values),
        spread=statistics.stdev(values) if len(values) > 1 else None,
        exclusive=not any(record.environment.shared for record in alike) and not any(each.shared for each in taken),
        device=device,
        threads=threads,
        pass_id=None,
        left_out=len(found) - len(alike),
    )


def head_counts(row: RowFacts) -> dict[str, int | None]:
    """The counts of a row's head, by the symbols of the multi-facet poster; None if it has no such parameter.

    #S, K: `num_mixtures`, or the sum of `components`. #I: `num_input_layers` times `window` + 1. #P: `num_partitions`.
    Values that its constructor chooses are those that the plan found.
    """
    params = row.params_of("head")
    if row.planned is not None:
        params |= row.planned.chosen.settled
    layers, window = _whole(params.get("num_input_layers")), _whole(params.get("window"))
    return {
        "#S": _whole(params.get("num_mixtures")) or _total(params.get("components")),
        "#I": None if layers is None else layers * ((window or 0) + 1),
        "#P": _whole(params.get("num_partitions")),
    }


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _total(value: object) -> int | None:
    """The sum of whole numbers in a list or mapping; None for anything else."""
    parts = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(parts, list | tuple) or any(_whole(part) is None for part in parts):
        return None
    return sum(parts) or None
