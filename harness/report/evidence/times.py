"""A row's times, and whether they can be believed: those of an exclusive pass, or else what its trials noted."""

import statistics
from dataclasses import dataclass

from harness.records.timings import Timing
from harness.report.evidence.table_rows import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Time:
    """A time of a row, in the metric's unit.

    Args:
        spread: with `passed` the interquartile range over batches; else the standard deviation over seeds, None of one.
        exclusive: no other work was known or seen to run beside it; else it is to be marked.
        device: what it was taken on; of several, 'A; B'.
        passed: the exclusive pass that it is of: times of one pass compare. None: the mean of what the trials noted.
    """

    value: float
    spread: float | None
    exclusive: bool
    device: str
    passed: str | None


def time_of(row: Row, metric: str, timings: dict[str, Timing]) -> Time | None:
    """A time of a row: from its exclusive timing, the newest, where there is one that was not shared; else the mean
    over its ok records, not exclusive either where a pass found the machine shared. None where neither has it.

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
            passed=timing.passed,
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
        passed=None,
    )
