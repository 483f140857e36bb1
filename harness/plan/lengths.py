"""How long a row is trained: for a number of tokens, and for a part or a multiple of the epochs of a suite."""

import math

from harness.corpora.corpus import CorpusFacts
from harness.plan.schedule import Schedule, StepDecay, Warmup
from harness.plan.specs import MAX_EPOCHS, AveragingSpec, TrainSpec
from harness.plan.tuning import rounded

DIGITS = 6  # of a scaled factor, and of epochs that stand for a number of tokens


def epochs_of(tokens: int, train: TrainSpec, num_tokens: int) -> float:
    """Return the epochs in which so many targets are trained, rounded to DIGITS digits after the point.

    Raises: ValueError when an epoch has no target.
    """
    of_epoch = targets_of_epoch(train, num_tokens)
    if of_epoch < 1:
        sizes = f"batch_size {train.batch_size} and seq_len {train.seq_len}"
        raise ValueError(
            f"{sizes} make no batch of its {num_tokens} training tokens; make them smaller, or give a longer text"
        )
    return round(tokens / of_epoch, DIGITS)


def targets_of_epoch(train: TrainSpec, num_tokens: int) -> int:
    """Return the number of targets of an epoch.

    stream: B (floor(N / B) - 1), of N tokens in B columns.
    blocks: floor(floor(N / T) / B) B (T - 1), of blocks of T tokens, B at a time.
    windows: floor((N - 1) / (B T)) B T.
    """
    if train.batching == "windows":
        of_step = train.batch_size * train.seq_len
        return (num_tokens - 1) // of_step * of_step
    if train.batching == "blocks":
        batches = num_tokens // train.seq_len // train.batch_size
        return batches * train.batch_size * (train.seq_len - 1)
    return train.batch_size * (num_tokens // train.batch_size - 1)


def in_tokens(tokens: int, train: TrainSpec, facts: CorpusFacts) -> TrainSpec:
    """Return the settings with the epochs of a number of tokens.

    Raises: ValueError when they are not known, none, or more than MAX_EPOCHS.
    """
    if facts.num_tokens is None:
        raise ValueError("the number of training tokens of this corpus is known only after it was read; give epochs")
    epochs = epochs_of(tokens, train, facts.num_tokens["train"])
    if not epochs:
        raise ValueError(f"{tokens} tokens are less than a step of this corpus; give more")
    if epochs > MAX_EPOCHS:
        raise ValueError(f"{tokens} tokens are {epochs:g} epochs of this corpus; expected at most {MAX_EPOCHS:,}")
    if train.finetune is not None and not epochs.is_integer():
        raise ValueError(f"{tokens} tokens are {epochs:g} epochs, and finetune needs whole ones; give epochs")
    return train.model_copy(update={"epochs": epochs})


def rescaled(train: TrainSpec, epochs: float) -> TrainSpec:
    """Return the settings for a training of other epochs, with r = epochs / train.epochs:

    step     after -> round(r after), at least 1; and factor -> factor^(D / d), with D decays in the whole training
             and d in the short one, so that the rate of the last epoch is the same share of that of the first.
             If the whole training has a decay, so has the short one, unless it has one epoch only.
    warmup   steps -> round(r steps), at least 1. Its decay ends with the training in any case.
    plateau  unchanged: it has no horizon.
    averaging, finetune: `after` and the epochs of the second stage -> r times as many, at least 1. With a second stage
             the first one has whole epochs.
    """
    if train.finetune is not None:
        epochs = max(1, round(epochs))
    if epochs == train.epochs:
        return train
    changes, ratio = {"epochs": float(epochs)}, epochs / train.epochs
    if train.averaging is not None and train.averaging.after:
        changes["averaging"] = AveragingSpec(after=max(1, round(ratio * train.averaging.after)))
    if train.finetune is not None:
        second = max(1, round(ratio * train.finetune.epochs))
        changes["finetune"] = train.finetune.model_copy(update={"epochs": second})
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
