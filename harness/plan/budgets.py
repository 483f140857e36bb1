"""How long each model is trained: epochs, a number of tokens, or the training time of another head.

A number of tokens becomes epochs of each corpus. For equal times, the epochs of a head are those of the suite divided
by the ratio of its training step to that of the named head (harness/plan/step_ratios.py).
"""

from dataclasses import replace

from harness.corpora.corpus import CorpusFacts
from harness.errors import SuiteError
from harness.plan.expansion import Combination
from harness.plan.reader import Source
from harness.plan.short_training import rescaled
from harness.plan.specs import MAX_EPOCHS, TrainSpec
from harness.plan.step_ratios import PLACE, Measured, ratios_file, ratios_of
from harness.plan.suite_file import SuiteFile

DIGITS = 6  # of epochs that stand for a number of tokens
TIME_DIGITS = 2  # of epochs that stand for a time


def epochs_of(tokens: int, train: TrainSpec, num_tokens: int) -> float:
    """Return the epochs in which so many targets are trained, rounded to DIGITS digits after the point.

    stream: an epoch has B (floor(N / B) - 1) targets, of N tokens in B columns.
    blocks: an epoch has floor(floor(N / T) / B) B (T - 1) targets, of blocks of T tokens, B at a time.
    Raises: ValueError when an epoch has no target.
    """
    if train.batching == "blocks":
        batches = num_tokens // train.seq_len // train.batch_size
        of_epoch = batches * train.batch_size * (train.seq_len - 1)
    else:
        of_epoch = train.batch_size * (num_tokens // train.batch_size - 1)
    if of_epoch < 1:
        sizes = f"batch_size {train.batch_size} and seq_len {train.seq_len}"
        raise ValueError(f"{sizes} make no batch of its {num_tokens} training tokens")
    return round(tokens / of_epoch, DIGITS)


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
    return train.model_copy(update={"epochs": epochs})


def in_equal_time(file: SuiteFile, combined: list[Combination], source: Source) -> tuple[list[Combination], Measured]:
    """Return the combinations, each with the epochs that take the training time of the head `match.time`; and where and
    when the times were measured.

    Raises: SuiteError when the file of ratios is missing, damaged or edited, or does not fit the suite.
    """
    found = ratios_of(file.match.time, combined[0].train, file.resources.cpus, source)
    ratios = {(row.corpus, row.backbone, row.head): row.step_ratio for row in found.rows}
    missing = [name for each in combined if (name := _name(each)) not in ratios]
    if missing:
        name, again = ratios_file(source.path).name, f"`harness plan {source.path} --time --save` writes it"
        message = f"{name} has no ratio of {', '.join(missing[0])}; delete it, then {again}"
        raise SuiteError([source.problem(PLACE, message)])
    matched = [replace(each, train=_in_time(each.train, ratios[_name(each)])) for each in combined]
    if longest := [each for each in matched if each.train.epochs > MAX_EPOCHS]:
        message = f"{longest[0].head.spec} gets {longest[0].train.epochs:g} epochs; expected at most {MAX_EPOCHS:,}"
        raise SuiteError([source.problem(PLACE, message)])
    return matched, found.measured


def _in_time(train: TrainSpec, ratio: float) -> TrainSpec:
    """The settings of a head whose step takes `ratio` times as long; its schedule is scaled to its epochs."""
    return rescaled(train, max(round(train.epochs / ratio, TIME_DIGITS), 10**-TIME_DIGITS))


def _name(each: Combination) -> tuple[str, str, str]:
    return str(each.corpus.spec), str(each.backbone.spec), str(each.head.spec)
