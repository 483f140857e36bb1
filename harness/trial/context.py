"""What the steps of a trial share: where it runs, what it is resumed from, and what has been measured so far."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from harness.corpora.corpus import Corpus
from harness.machine.stop_request import StopRequest
from harness.model import LanguageModel
from harness.records.record import Behaviour, Certificate, Status
from harness.training.checkpoint import Checkpoint, Checkpoints, NoCheckpoints
from harness.training.clocks import Clocks
from harness.training.data_parallel import Workers
from harness.training.loop import Fitted, Progress
from harness.trial.attempt import Attempt
from harness.trial.session import Session
from harness.trial.task import Task
from harness.trial.watch import Watch


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a trial has so far. It is filled while the trial runs, so that one that fails keeps what it had.

    Args:
        message: one line about a status that is not 'ok'.
        fitted: what training leaves.
        weights_sha256: of the best weights.
        behaviour: what its components compute on small inputs.
    """

    status: Status = "ok"
    message: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    fitted: Fitted = field(default_factory=Fitted)
    weights_sha256: str | None = None
    certificate: Certificate | None = None
    behaviour: Behaviour | None = None


@dataclass(slots=True, kw_only=True)
class TrialContext:
    """One trial in one process.

    Args:
        task: with its route of products that is exact on this machine.
        workers: of which this process is one.
        report: receives the progress.
        resumed: the checkpoint that training is resumed from, or None.
        attempt: which attempt this is; None in a further worker, which keeps no attempts.
        stop: whether its training is to stop.
        stuck: where the attempt before was silent, as the watchdog wrote it; '' when it was not ended for silence.
    """

    task: Task
    session: Session
    log: logging.Logger
    workers: Workers
    watch: Watch
    checkpoints: Checkpoints | NoCheckpoints
    report: Callable[[Progress], None]
    resumed: Checkpoint | None
    attempt: Attempt | None = None
    stop: StopRequest = field(default_factory=StopRequest)
    stuck: str = ""
    clocks: Clocks = field(init=False)
    outcome: Outcome = field(default_factory=Outcome)

    def __post_init__(self) -> None:
        self.clocks = Clocks(self.device, self.watch.beat)
        if self.resumed is not None:
            self.outcome.fitted.load_state_dict(self.resumed.parts["fitted"])

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return torch.device(self.task.device)


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What a trial trains and evaluates.

    Args:
        model: on the trial's device.
        corpus: with its tokens where they were read to.
        on_device: the same corpus on the trial's device.
    """

    model: LanguageModel
    corpus: Corpus
    on_device: Corpus
