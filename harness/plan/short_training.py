"""The settings of a training of other epochs, mostly fewer: its schedule is scaled to its epochs."""

import math

from harness.plan.specs import TrainSpec
from harness.plan.train_parts import Schedule, StepDecay, Warmup
from harness.plan.tuning import rounded

DIGITS = 6  # of a scaled factor


def rescaled(train: TrainSpec, epochs: float) -> TrainSpec:
    """Return the settings for a training of other epochs, with r = epochs / train.epochs:

    step     after -> round(r after), at least 1; and factor -> factor^(D / d), with D decays in the whole training
             and d in the short one, so that the rate of the last epoch is the same share of that of the first.
             If the whole training has a decay, so has the short one, unless it has one epoch only.
    warmup   steps -> round(r steps), at least 1. Its decay ends with the training in any case.
    plateau  unchanged: it has no horizon.
    """
    if epochs == train.epochs:
        return train
    changes = {"epochs": float(epochs)}
    if train.schedule is not None:
        changes["schedule"] = _scaled(train.schedule, train.epochs, epochs)
    return train.model_copy(update=changes)


def _scaled(schedule: Schedule, whole: float, short: float) -> Schedule:
    way = schedule.way
    if isinstance(way, Warmup) and way.steps:
        return Schedule(warmup=way.model_copy(update={"steps": max(1, round(way.steps * short / whole))}))
    if isinstance(way, StepDecay):
        return Schedule(step=_step(way, math.ceil(whole), math.ceil(short), short / whole))
    return schedule


def _step(way: StepDecay, whole: int, short: int, ratio: float) -> StepDecay:
    decays = max(0, whole - way.after)
    after = max(1, round(way.after * ratio))
    if decays and short > 1:
        after = min(after, short - 1)
    fewer = max(0, short - after)
    factor = rounded(way.factor ** (decays / fewer), DIGITS) if decays and fewer else way.factor
    return StepDecay(after=after, factor=factor if 0 < factor < 1 else way.factor)
