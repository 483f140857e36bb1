"""The file beside a suite with `match: {time: HEAD}`: how long the training step of each row takes, divided by HEAD's.

`harness plan SUITE --time --save` measures the ratios and writes the file, with a checksum over all of its content as
that of a record. The ids of trials depend on the ratios, so the file is stored, and the same on every machine.
"""

import json
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from harness.errors import SuiteError
from harness.machine.files import read_bounded
from harness.plan.parameters import sentence
from harness.plan.reader import Source
from harness.plan.specs import Strict, TrainSpec, checksum
from harness.printable import counted

PLACE = ("match", "time")
STEP = ("optimizer", "batch_size", "seq_len", "batching", "accumulation", "data_parallel", "precision")
MAX_BYTES = 4 * 1024**2


class StepRatio(Strict):
    """The time of a row's training step divided by that of the named head, on the same corpus and backbone."""

    corpus: str
    backbone: str
    head: str
    step_ratio: Annotated[float, Field(gt=0)]


class Measured(Strict):
    """Where and when the steps were timed.

    Args:
        threads: of torch, `resources.cpus` of the suite.
        commit: of the harness.
        taken: in ISO 8601.
        busy: processor cores that other work used meanwhile.
    """

    device: str
    threads: int
    torch: str
    commit: str
    taken: str
    busy: float

    def __str__(self) -> str:
        return (
            f"{self.device}, {counted(self.threads, 'thread')}, torch {self.torch}, harness at {self.commit}, "
            f"{self.taken}; other work used {self.busy:.1f} cores"
        )


class StepRatios(Strict):
    """The content of the file.

    Args:
        time: the head of ratio 1.
        train: the settings of training that the time of a step depends on.
    """

    time: str
    train: dict[str, str | int]
    measured: Measured
    rows: tuple[StepRatio, ...]


def ratios_file(suite: Path) -> Path:
    """The file of ratios that belongs to a suite file: suites/x.yaml -> suites/x.times.json."""
    return suite.with_suffix(".times.json")


def of_step(train: TrainSpec) -> dict[str, str | int]:
    """The settings of training that the time of a step depends on."""
    return train.model_dump(include=set(STEP))


def ratios_of(time: str, train: TrainSpec, threads: int, source: Source) -> StepRatios:
    """Return the ratios of a suite.

    Args:
        time: the head whose training time all heads get.
        train: how models are trained.
        threads: of a trial.
    Raises: SuiteError when the file is missing, damaged or edited, or was measured of another step.
    """
    path = ratios_file(source.path)
    again = f"`harness plan {source.path} --time --save` writes it"
    try:
        found = _parsed(read_bounded(path, MAX_BYTES))
    except FileNotFoundError:
        raise SuiteError([source.problem(PLACE, f"{path.name} is not beside the suite; {again}")]) from None
    except OSError as error:
        raise SuiteError([source.problem(PLACE, f"{path.name} cannot be read: {error}; {again}")]) from None
    except ValueError as error:
        raise SuiteError([source.problem(PLACE, f"{path.name}: {error}; delete it, then {again}")]) from None
    wrong = [name for name, value in of_step(train).items() if found.train.get(name) != value]
    if found.time != time:
        problem = f"{path.name} has the ratios to {found.time}"
    elif wrong:
        problem = f"{path.name} was measured with another {' and '.join(wrong)}"
    elif found.measured.threads != threads:
        measured = counted(found.measured.threads, "thread")
        problem = f"{path.name} was measured with {measured}, and resources.cpus is {threads}"
    else:
        return found
    raise SuiteError([source.problem(PLACE, f"{problem}; delete it, then {again}")])


def _parsed(text: bytes) -> StepRatios:
    """The content of the file. Raises: ValueError, with a sentence, when it is damaged or edited."""
    try:
        content = json.loads(text)
        stored = content.pop("sha256")
        fits = stored == checksum(content)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError("expected JSON with its checksum as sha256") from None
    if not fits:
        raise ValueError("the checksum does not fit the content, which was edited or is damaged")
    try:
        return StepRatios.model_validate_json(json.dumps(content))
    except ValidationError as error:
        raise ValueError(sentence(error.errors()[0])) from None
