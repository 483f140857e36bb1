"""TrialRecord: the result of a trial. A trial with a record is finished. store.py writes and reads it."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from harness.code.recorded import Behaviour, Fingerprints
from harness.plan.specs import TrialSpec
from harness.records.certificate import Certificate

SCHEMA = 1
Route = Literal["default", "onednn"]  # as in harness.kernels.products, which needs torch; a test compares them
Status = Literal["ok", "diverged", "oom", "error", "timeout", "invalid"]  # invalid: its certificate failed


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class CurvePoint(_Frozen):
    """One epoch of training, or the last part of one with a setting like `epochs: 0.4`.

    Args:
        epoch: the number of epochs that are done.
        train_loss: mean of the minimised loss, per token.
        lr: the learning rate of the epoch's last step.
        seconds: its training time.
    """

    epoch: float
    train_loss: float
    valid_ppl: Annotated[float, Field(gt=0)]
    lr: float
    seconds: float


class Environment(_Frozen):
    """Where a trial was run, and by which versions. Fields with a default did not exist in the first records."""

    device: str
    threads: int
    load_average: float
    shared: bool  # other trials could run at the same time, so times are not exclusive
    python: str
    torch: str
    harness: str
    commit: str
    executor: str
    started: str
    finished: str
    matmul_route: Route | None = None  # of float32 products on the CPU; None on a GPU and in older records
    cuda_graph: bool = False  # the training steps were replays of one CUDA graph
    sessions: int = 1  # processes that trained it, each resumed from the checkpoint of the one before
    retries: int = 0  # further attempts: after the death of a worker, or alone because memory was short
    changed: tuple[str, ...] = ()  # what differed in earlier sessions: 'commit abc until epoch 3'
    switched_off: tuple[str, ...] = ()  # a sentence for each part for GPUs that failed its proof on this machine


class Contents(_Frozen):
    """What a trial read, as in its id: hashes, or addresses whose content never changes.

    Args:
        corpus: the text.
        backbone: the pretrained weights of the backbone; None if it started from random ones.
    """

    corpus: str
    backbone: str | None = None


class TrialRecord(_Frozen):
    """A finished trial: its settings, how it ended, what was measured (raw numbers; the units are in their names).

    Args:
        tuning: it is a tuning trial of its suite, and belongs to no table.
    """

    schema_version: int = SCHEMA
    suite: str
    spec: TrialSpec
    status: Status
    metrics: dict[str, float]
    curve: tuple[CurvePoint, ...]
    environment: Environment
    message: str = ""
    weights_sha256: str | None = None
    contents: Contents | None = None  # None in the first records, and where the plan did not know them
    certificate: Certificate | None = None  # None in older records, and where the trial ended before it was measured
    code: Fingerprints | None = None  # None in records made before code was recorded
    behaviour: Behaviour | None = None  # likewise, and where the trial is not ok
    tuning: bool = False

    @property
    def id(self) -> str:
        """The trial's id."""
        return self.spec.id

    @property
    def uncertified(self) -> bool:
        """Whether it is ok and has no certificate, because it was made before certificates existed."""
        return self.status == "ok" and self.certificate is None
