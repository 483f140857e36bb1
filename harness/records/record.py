"""TrialRecord: the result of a trial, with the certificate that its perplexity is computed from probabilities, and the
hashes of the code that computed it.

A trial with a record is finished. store.py writes and reads it. harness/integrity/certify.py measures the certificate
after training; docs/certificates.md explains it. Its limits are here, so that they are applied again when a record is
read.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from harness.plan.specs import Contents, TrialSpec

SUM_ERROR = 1e-4  # float32 sums over 50,000 words have errors 100 times smaller
LOWEST_NLL = -1e-5  # nats: rounding can put the nll of a certain token this far below 0
NLL_GAP = 1e-3  # at one position: float32 sums in another order, for logits of up to some thousands
LATER_CHANGE = 1e-4  # the same shapes were computed twice, so even rounding was mostly the same
MEAN_GAP = 1e-4  # over all positions, where rounding averages out: a perplexity can change by less than 0.1 %

_Size = Annotated[float, Field(ge=0)] | None


class Certificate(BaseModel):
    """What was measured at sampled positions of the splits, with the weights of the test perplexity.

    "Due" is -log p[target] of the model's distribution over all words, computed from the tokens before the target.
    Gaps and changes are in nats, divided by the nll where that is above 1. A size that is not a finite number is None.

    Args:
        sum_error: largest |sum of p over all words - 1|.
        nll_gap: largest |nll - due|; in certificates without `drawn` also of other words as targets.
        mean_gap: |mean over positions of the nll that evaluation scored - due|.
        lowest_nll: in nats, of all scored tokens of the test split; None if one of them is not a finite number.
        later_change: largest change of a token's nll with the tokens after it; 0 in certificates with `drawn`, where it
            is part of nll_gap.
        log_epsilon: what the head adds to the probability of each word, as published codes do (`compat`); usually 0.
        drawn: split -> the places whose tokens were asked for; {} in certificates that were made in the trial's own
            process.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    positions: Annotated[int, Field(ge=1)]
    sum_error: _Size
    nll_gap: _Size
    mean_gap: _Size
    lowest_nll: float | None
    later_change: _Size = 0.0
    vocab_size: Annotated[int, Field(ge=1)]
    log_epsilon: Annotated[float, Field(ge=0, lt=1)] = 0.0
    drawn: dict[str, tuple[int, ...]] = {}
    seconds: Annotated[float, Field(ge=0)] = 0.0

    @property
    def fault(self) -> str | None:
        """The first rule that is broken, as one sentence; None if none is."""
        lowest = LOWEST_NLL - self.log_epsilon  # -log(1 + epsilon) is above -epsilon
        if self.lowest_nll is None:
            return "the nll of a test token is not a finite number"
        if self.lowest_nll < lowest:
            return f"the nll of a test token is {self.lowest_nll:.4g}: below 0, as if its probability were above 1"
        sums = "the probabilities of all words do not sum to 1: at a position of the text they are off by"
        asked = "-log_probs of its target, asked in a process of its own with other tokens after it and in other rows:"
        gap = f"the nll that was counted for a token is not {asked} the gap is"
        mean = f"the nll that was counted for a token is, on average, not {asked} the gap is"
        later = "the nll of a test token depends on the tokens after it, which the model must not see: it changes by"
        return (
            _breach(sums, self.sum_error, SUM_ERROR + self.vocab_size * self.log_epsilon)
            or _breach(gap, self.nll_gap, NLL_GAP)
            or _breach(mean, self.mean_gap, MEAN_GAP)
            or _breach(later, self.later_change, LATER_CHANGE)
        )


def _breach(what: str, size: float | None, limit: float) -> str | None:
    if size is None:
        return f"{what} no finite number"
    return f"{what} {size:.4g} (allowed: {limit:.4g})" if size > limit else None


SCHEMA = 1
Route = Literal["default", "onednn"]  # as in harness.kernels.products, which needs torch; a test compares them
Status = Literal["ok", "diverged", "oom", "error", "timeout", "invalid"]  # invalid: its certificate failed
MENDED = "once its head or its backbone is mended"  # an invalid trial would be invalid again
UNKNOWN = "unknown"
Hash = Annotated[str, Field(pattern=rf"^([0-9a-f]{{64}}|{UNKNOWN})$")]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class CurvePoint(_Frozen):
    """One epoch of training, or the last part of one with a setting like `epochs: 0.4`.

    Args:
        train_loss: mean of the minimised loss, per token.
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
    shared: bool  # other work was known or observed to run, so times are not exclusive
    python: str
    torch: str
    harness: str
    commit: str
    executor: str
    started: str
    finished: str
    matmul_route: Route | None = None  # of float32 products on the CPU; None on a GPU and in older records
    cuda_graph: bool = False  # the training steps were replays of one CUDA graph
    loss_form: str | None = None  # that trained it (kernels/forms.py); None without a mixture, and in older records
    sessions: int = 1  # processes that trained it, each resumed from the checkpoint of the one before
    retries: int = 0  # further attempts: after the death of a worker, or alone because memory was short
    changed: tuple[str, ...] = ()  # what differed in earlier sessions: 'commit abc until epoch 3'
    switched_off: tuple[str, ...] = ()  # a sentence for each part for GPUs that was left out
    read: tuple[str, ...] = ()  # files and variables that no parameter names: 'head mine: words.txt (sha256 0123...)'

    @model_serializer(mode="wrap")
    def _without_read(self, dumped: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A record in which nothing was read is as before that was noted: earlier versions read it."""
        return {key: value for key, value in dumped(self).items() if key != "read" or value}


class Fingerprints(_Frozen):
    """The code of one trial (harness/code/hashes.py), as SHA-256 hashes; 'unknown' where there is no source to read.

    Args:
        harness, dirty: of records from before hashes were of the files of a component's classes.
    """

    head: Hash
    backbone: Hash
    corpus: Hash
    harness: Hash | None = None
    dirty: bool | None = None


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
    contents: Contents | None = None  # None where the plan did not know them
    certificate: Certificate | None = None  # None where the trial ended before it was measured
    code: Fingerprints | None = None
    behaviour: dict[str, tuple[float, ...] | None] | None = None  # of older records: numbers on fixed inputs
    not_certified: str = ""  # why it is ok and no certificate could be had; '' in records from before there were any
    tuning: bool = False

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def uncertified(self) -> str:
        """Why it is ok and has no certificate; '' where it has one, or is not ok."""
        if self.status != "ok" or self.certificate is not None:
            return ""
        return self.not_certified or "it was trained before there were certificates"
