"""How much disk a suite needs in results/runs, computed from parameter counts and settings before it is run.

    weights          4 bytes a parameter
    a checkpoint     the weights, and the optimizer's state: of Adam two numbers a parameter, of SGD one with momentum
    token losses     about 4 bytes a test token, as they compress (harness/records/sidecars.py)

While a trial runs it has several checkpoints, and the weights of the best epochs that these name
(harness/training/checkpoint.py). Of a finished trial the weights of the best epoch and the token losses stay.
"""

import math
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.execution.planned import PlannedSuite
from harness.plan.loaded_suite import Suite
from harness.plan.specs import TrainSpec, TrialSpec
from harness.records import store
from harness.training.checkpoint import KEPT

NUMBER, TOKEN_LOSS = 4, 4  # bytes
REST = 32 * 2**10  # bytes of the record and the log; and in a checkpoint, of generators, clocks and the curve
OPTIMIZER_NUMBERS = {"adam": 2, "adamw": 2, "adamw_huggingface": 2}  # for each parameter; sgd: one with momentum


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialDisk:
    """Bytes in the folder of a trial.

    Args:
        finished: what stays.
        running: the most that there is while it runs.
    """

    finished: int
    running: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteDisk:
    """Bytes in the folder of a suite.

    Args:
        trials: the number of trials without a record, of both stages.
        finished: what these trials leave.
        running: the most that one of them has while it runs.
        free: what is free on the disk of the folder now.
        without_losses: corpora whose number of test tokens is not known before they are read: the token losses of
            their trials are not included.
    """

    trials: int
    finished: int
    running: int
    free: int
    without_losses: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The content of `disk` in `harness plan --json`."""
        return asdict(self)


def suite_disk(planned: PlannedSuite, results: Path) -> SuiteDisk:
    """The disk that the trials of a plan without a record need."""
    suite = planned.suite
    needed = [(spec, trial_disk(suite, spec, tuning=tuning)) for spec, tuning in _to_run(planned)]
    unknown = [str(spec.corpus) for spec, _ in needed if _tokens(suite, spec, "test") is None]
    return SuiteDisk(
        trials=len(needed),
        finished=sum(disk.finished for _, disk in needed),
        running=max((disk.running for _, disk in needed), default=0),
        free=shutil.disk_usage(_existing(store.runs_folder(results, suite.name))).free,
        without_losses=tuple(dict.fromkeys(unknown)) if suite.measure.token_nll else (),
    )


def trial_disk(suite: Suite, spec: TrialSpec, *, tuning: bool = False) -> TrialDisk:
    """The disk that a trial of a suite needs.

    Args:
        tuning: it is a tuning trial, which keeps no token losses.
    """
    counted = _tokens(suite, spec, "train") or 0  # an n-gram model keeps the text that it has counted
    weights = NUMBER * (counted if spec.is_ngram else suite.params[spec.id][0])
    losses = TOKEN_LOSS * (_tokens(suite, spec, "test") or 0) if suite.measure.token_nll and not tuning else 0
    epochs = max(1, math.ceil(spec.train.epochs))
    bests = min(epochs, KEPT + suite.checkpoint.epochs)
    checkpoints = min(epochs, KEPT) + (epochs > 1)  # a new one is written before the oldest is removed
    of_checkpoints = checkpoints * (weights * (1 + _optimizer_numbers(spec.train)) + REST)
    finished = weights + losses + REST
    return TrialDisk(finished=finished, running=max(finished, of_checkpoints + bests * weights) + REST)


def _optimizer_numbers(train: TrainSpec) -> int:
    if not train.epochs:
        return 0
    return OPTIMIZER_NUMBERS.get(train.optimizer, int(train.momentum > 0))


def _tokens(suite: Suite, spec: TrialSpec, split: str) -> int | None:
    return suite.num_tokens.get(str(spec.corpus), {}).get(split)


def _to_run(planned: PlannedSuite) -> Iterator[tuple[TrialSpec, bool]]:
    """Each trial without a record, and whether it is a tuning trial. A trial without an id is like its tuning trial."""
    tuning = {each.spec.id: each.spec for each in planned.tuning}
    yield from ((each.spec, False) for each in planned.trials if not each.finished)
    yield from ((each.spec, True) for each in planned.tuning if not each.finished)
    yield from ((tuning[row.first], False) for row in planned.later if not row.lost for _ in row.seeds)


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    folder = folder.absolute()
    return next(each for each in (folder, *folder.parents) if each.exists())
