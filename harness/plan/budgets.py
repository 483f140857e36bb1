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
from harness.plan.expansion import Combination
from harness.plan.parameters import sentence
from harness.plan.reader import Source
from harness.plan.specs import TrainSpec
from harness.plan.strict import Strict

DIGITS = 6  # of epochs that stand for a number of tokens
TIME_DIGITS = 2  # of epochs that stand for a time
PLACE = ("match", "time")


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
        measured: machine, threads, versions and date.
    """

    time: str
    measured: dict[str, str | int | float]
    rows: tuple[StepRatio, ...]


def ratios_file(suite: Path) -> Path:
    """The file of ratios that belongs to a suite file: suites/x.yaml -> suites/x.times.json."""
    return suite.with_suffix(".times.json")


def epochs_of(tokens: int, train: TrainSpec, num_tokens: int) -> float:
    """Return the epochs in which so many targets are trained, rounded to DIGITS digits after the point.

    stream: an epoch has B (floor(N / B) - 1) targets, of N tokens in B columns.
    blocks: an epoch has floor(floor(N / T) / B) B (T - 1) targets, of blocks of T tokens, B at a time.
    """
    if train.batching == "blocks":
        batches = num_tokens // train.seq_len // train.batch_size
        of_epoch = batches * train.batch_size * (train.seq_len - 1)
    else:
        of_epoch = train.batch_size * (num_tokens // train.batch_size - 1)
    return round(tokens / of_epoch, DIGITS)


def in_tokens(tokens: int, train: TrainSpec, facts: CorpusFacts) -> TrainSpec:
    """Return the settings with the epochs of a number of tokens. Raises ValueError when they are not known or none."""
    if facts.num_tokens is None:
        raise ValueError("the number of training tokens of this corpus is known only after it was read; give epochs")
    epochs = epochs_of(tokens, train, facts.num_tokens["train"])
    if not epochs:
        raise ValueError(f"{tokens} tokens are less than a step of this corpus; give more")
    return train.model_copy(update={"epochs": epochs})


def in_equal_time(time: str, combined: list[Combination], source: Source) -> list[Combination]:
    """Return the combinations, each with the epochs that take the training time of the head `time`.

    Raises: SuiteError when the file of ratios is missing or does not fit the suite.
    """
    path = ratios_file(source.path)
    again = f"`harness plan {source.path} --time --save` writes it"
    try:
        found = StepRatios.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise SuiteError([source.problem(PLACE, f"{path.name} is not beside the suite; {again}")]) from None
    except ValidationError as error:
        raise SuiteError([source.problem(PLACE, f"{path.name}: {sentence(error.errors()[0])}; {again}")]) from None
    except OSError as error:
        raise SuiteError([source.problem(PLACE, f"{path.name} cannot be read: {error}; {again}")]) from None
    if found.time != time:
        raise SuiteError([source.problem(PLACE, f"{path.name} has the ratios to {found.time}; {again}")])
    ratios = {(row.corpus, row.backbone, row.head): row.step_ratio for row in found.rows}
    missing = [name for each in combined if (name := _name(each)) not in ratios]
    if missing:
        message = f"{path.name} has no ratio of {', '.join(missing[0])}; delete it, then {again}"
        raise SuiteError([source.problem(PLACE, message)])
    return [replace(each, train=_slower(each.train, ratios[_name(each)])) for each in combined]


def _slower(train: TrainSpec, ratio: float) -> TrainSpec:
    return train.model_copy(update={"epochs": max(round(train.epochs / ratio, TIME_DIGITS), 10**-TIME_DIGITS)})


def _name(each: Combination) -> tuple[str, str, str]:
    return str(each.corpus.spec), str(each.backbone.spec), str(each.head.spec)
