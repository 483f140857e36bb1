"""How long each model is trained: epochs, a number of tokens, or the training time of another head.

A number of tokens becomes epochs of each corpus. For equal times, the epochs of a head are those of the suite divided
by the ratio of its training step to that of the named head. The ratios are measured once, by `harness plan SUITE --time
--save`, and stored in a file beside the suite, so that the ids of trials are the same on every machine.
"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from harness.corpora.corpus import CorpusFacts
from harness.errors import SuiteError
from harness.machine.files import read_bounded
from harness.plan.expansion import Combination
from harness.plan.parameters import sentence
from harness.plan.reader import Source
from harness.plan.short_training import rescaled
from harness.plan.specs import MAX_EPOCHS, TrainSpec
from harness.plan.strict import Strict

DIGITS = 6  # of epochs that stand for a number of tokens
TIME_DIGITS = 2  # of epochs that stand for a time
PLACE = ("match", "time")
STEP = ("optimizer", "batch_size", "seq_len", "batching", "accumulation", "data_parallel", "precision")
MAX_BYTES = 4 * 1024**2


class StepRatio(Strict):
    """The time of a row's training step divided by that of the named head, on the same corpus and backbone."""

    corpus: str
    backbone: str
    head: str
    step_ratio: Annotated[float, Field(gt=0)]


class StepRatios(Strict):
    """The content of the file beside a suite.

    Args:
        time: the head of ratio 1.
        train: the settings of training that the time of a step depends on.
        measured: machine, threads, versions and date.
    """

    time: str
    train: dict[str, str | int]
    measured: dict[str, str | int | float]
    rows: tuple[StepRatio, ...]


def ratios_file(suite: Path) -> Path:
    """The file of ratios that belongs to a suite file: suites/x.yaml -> suites/x.times.json."""
    return suite.with_suffix(".times.json")


def of_step(train: TrainSpec) -> dict[str, str | int]:
    """The settings of training that the time of a step depends on."""
    return train.model_dump(include=set(STEP))


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


def in_equal_time(time: str, combined: list[Combination], source: Source) -> list[Combination]:
    """Return the combinations, each with the epochs that take the training time of the head `time`.

    Raises: SuiteError when the file of ratios is missing or does not fit the suite.
    """
    path = ratios_file(source.path)
    again = f"`harness plan {source.path} --time --save` writes it"
    try:
        found = StepRatios.model_validate_json(read_bounded(path, MAX_BYTES))
    except FileNotFoundError:
        raise SuiteError([source.problem(PLACE, f"{path.name} is not beside the suite; {again}")]) from None
    except ValidationError as error:
        raise SuiteError([source.problem(PLACE, f"{path.name}: {sentence(error.errors()[0])}; {again}")]) from None
    except OSError as error:
        raise SuiteError([source.problem(PLACE, f"{path.name} cannot be read: {error}; {again}")]) from None
    if found.time != time:
        raise SuiteError([source.problem(PLACE, f"{path.name} has the ratios to {found.time}; {again}")])
    wrong = [name for name, value in of_step(combined[0].train).items() if found.train.get(name) != value]
    if wrong:
        message = f"{path.name} was measured with another {' and '.join(wrong)}; delete it, then {again}"
        raise SuiteError([source.problem(PLACE, message)])
    ratios = {(row.corpus, row.backbone, row.head): row.step_ratio for row in found.rows}
    missing = [name for each in combined if (name := _name(each)) not in ratios]
    if missing:
        message = f"{path.name} has no ratio of {', '.join(missing[0])}; delete it, then {again}"
        raise SuiteError([source.problem(PLACE, message)])
    matched = [replace(each, train=_in_time(each.train, ratios[_name(each)])) for each in combined]
    if longest := [each for each in matched if each.train.epochs > MAX_EPOCHS]:
        message = f"{longest[0].head.spec} gets {longest[0].train.epochs:g} epochs; expected at most {MAX_EPOCHS:,}"
        raise SuiteError([source.problem(PLACE, message)])
    return matched


def _in_time(train: TrainSpec, ratio: float) -> TrainSpec:
    """The settings of a head whose step takes `ratio` times as long; its schedule is scaled to its epochs."""
    return rescaled(train, max(round(train.epochs / ratio, TIME_DIGITS), 10**-TIME_DIGITS))


def _name(each: Combination) -> tuple[str, str, str]:
    return str(each.corpus.spec), str(each.backbone.spec), str(each.head.spec)
