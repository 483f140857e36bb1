"""A row's times: those of an exclusive pass, or else those that its trials measured while they trained."""

import statistics
from dataclasses import dataclass

from harness.records.sidecars import Timing
from harness.report.evidence.table_rows import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Time:
    """A time of a row, in the metric's unit.

    Args:
        spread: of an exclusive pass, the interquartile range over batches; else the standard deviation over seeds, None
            for one seed.
        exclusive: no other work was known or observed on the machine; otherwise tables mark it.
        device: on which it was measured; 'A; B' for several.
        pass_id: of the exclusive pass; times of one pass can be compared. None: the mean of what the trials measured.
    """

    value: float
    spread: float | None
    exclusive: bool
    device: str
    pass_id: str | None


def ratio(time: Time | None, reference: Time | None) -> float | None:
    """A time divided by another one; None where both are not of one exclusive pass on one device."""
    if time is None or reference is None or not (time.exclusive and reference.exclusive and reference.value):
        return None
    same = (time.device, time.pass_id) == (reference.device, reference.pass_id)
    return time.value / reference.value if same else None


def time_of(row: Row, metric: str, timings: dict[str, Timing]) -> Time | None:
    """A time of a row; None where it was not measured.

    It is that of the row's newest exclusive timing that was not disturbed by other work. If there is none, it is the
    mean over the ok records, and not exclusive if an exclusive pass was disturbed.

    Args:
        metric: 'train_ms_per_batch', 'eval_ms_per_batch' or 'inference_ms_per_batch'.
        timings: by trial id.
    """
    seeds = set(row.ok_seeds)
    taken = [timings[trial.id] for trial in row.trials if trial.seed in seeds and trial.id in timings]
    fit = [timing for timing in taken if not timing.shared and metric in timing.metrics]
    if fit:
        timing = max(fit, key=lambda each: each.taken)
        return Time(
            value=timing.metrics[metric],
            spread=timing.metrics.get(f"{metric}_iqr"),
            exclusive=True,
            device=timing.device,
            pass_id=timing.pass_id,
        )
    found = [row.records[seed] for seed in row.ok_seeds if metric in row.records[seed].metrics]
    if not found:
        return None
    values = [record.metrics[metric] for record in found]
    return Time(
        value=statistics.fmean(values),
        spread=statistics.stdev(values) if len(values) > 1 else None,
        exclusive=not any(record.environment.shared for record in found) and not any(each.shared for each in taken),
        device="; ".join(dict.fromkeys(record.environment.device for record in found)),
        pass_id=None,
    )
