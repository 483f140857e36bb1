"""TrialRecord: the one thing that makes a trial finished. harness/records/store.py writes and reads it."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from harness.code.fingerprints import Fingerprints
from harness.kernels.products import Route
from harness.plan.specs import TrialSpec
from harness.records.certificate import Certificate

SCHEMA = 1
Status = Literal["ok", "diverged", "oom", "error", "timeout", "invalid"]  # invalid: its certificate failed


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class CurvePoint(_Frozen):
    """One epoch, or what a setting like `epochs: 0.4` leaves of the last: `epoch` is how many are done. `train_loss`:
    mean of what was minimised, per token; `lr`: the rate it was trained with; `seconds`: its training time.
    """

    epoch: float
    train_loss: float
    valid_ppl: Annotated[float, Field(gt=0)]
    lr: float
    seconds: float


class Environment(_Frozen):
    """Where and by what a trial was run. What has a default is younger than the first records."""

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
    matmul_route: Route | None = None  # of float32 products on the CPU; None on a GPU, and where it was not noted
    cuda_graph: bool = False  # the training steps were replays of one CUDA graph
    sessions: int = 1  # processes that trained it, one after the other, each from the checkpoint of the one before
    retries: int = (
        0  # further attempts by the run that finished it: after a worker's death, or alone for want of memory
    )
    changed: tuple[str, ...] = ()  # what was different in earlier sessions: 'commit abc until epoch 3'
    switched_off: tuple[str, ...] = ()  # a sentence for each part for GPUs that failed its proof on this machine


class Contents(_Frozen):
    """What a trial read, by hash or by a place that never changes, as its id has it: the text, and the weights that the
    backbone started from, None for random ones.
    """

    corpus: str
    backbone: str | None = None


class TrialRecord(_Frozen):
    """A finished trial: what it was, how it ended, what was measured. Raw numbers; the units are in their names."""

    schema_version: int = SCHEMA
    suite: str
    spec: TrialSpec
    status: Status
    metrics: dict[str, float]
    curve: tuple[CurvePoint, ...]
    environment: Environment
    message: str = ""
    weights_sha256: str | None = None
    contents: Contents | None = None  # None in the first records, and where the plan did not say
    certificate: Certificate | None = None  # None in older records, and where the trial did not come so far
    code: Fingerprints | None = None  # None in records from before code was noted

    @property
    def id(self) -> str:
        """The trial's id."""
        return self.spec.id

    @property
    def uncertified(self) -> bool:
        """Whether it is ok without a certificate: it was made before there were any."""
        return self.status == "ok" and self.certificate is None
