"""How trials of a suite are run and what they measure beside their results. None of it is part of a trial's id."""

from typing import Annotated

from pydantic import Field, field_validator

from harness.plan.strict import Strict


class Resources(Strict):
    """The resources of one trial.

    A data-parallel trial uses the cores and the memory once for each worker, and as many GPUs as it has workers:
    `gpus: 4` implies `train: {data_parallel: 4}`.

    Args:
        cpus: the number of CPU cores, which is also the number of torch threads.
        gpus: the number of GPUs, or a share of one GPU, on a machine with a GPU. None: one whole GPU; 0: run on the
            CPU.
        memory_gib: the memory of the trial's process, in GiB, above which it ends with status 'oom'. None: it ends when
            the machine has too little memory and the trial uses more than its share. Memory is checked between batches,
            not within a step.
    """

    cpus: Annotated[int, Field(ge=1)] = 1
    gpus: Annotated[float, Field(ge=0)] | None = None
    memory_gib: Annotated[float, Field(gt=0)] | None = None

    @field_validator("gpus")
    @classmethod
    def _whole_beyond_one(cls, gpus: float | None) -> float | None:
        if gpus is not None and gpus > 1 and not gpus.is_integer():
            raise ValueError(f"must be a share of one GPU or a whole number of GPUs, got {gpus:g}")
        return gpus


class CheckpointSpec(Strict):
    """How often a checkpoint of a trial is saved. An interrupted trial resumes from its last checkpoint.

    Args:
        epochs: save after this number of epochs.
        minutes: save within an epoch, too, when this number of minutes have passed since the last checkpoint.
    """

    epochs: Annotated[int, Field(ge=1)] = 1
    minutes: Annotated[float, Field(gt=0)] = 10.0


class TimeoutSpec(Strict):
    """When a trial is ended with status 'timeout'. None: never.

    Args:
        minutes: the limit of its total running time, over all attempts.
        silent_minutes: the limit of the time without progress. A trial reports progress after every batch.
    """

    minutes: Annotated[float, Field(gt=0)] | None = None
    silent_minutes: Annotated[float, Field(gt=0)] | None = None


class MeasureSpec(Strict):
    """Additional measurements of a trial. They change no result, so they are not part of a trial's id.

    Args:
        start: measure the validation perplexity before the first update.
        inference_batch: measure, after training, the time of a forward pass with loss on this number of segments of the
            test split.
        token_nll: keep the negative log-likelihood of each token of the test split under the best weights, about 4
            bytes per token. It is used for confidence intervals and to find the tokens on which a head is better
            (harness/records/token_nll.py).
        calibration: measure the expected calibration error and the mean entropy of the test split under the best
            weights, in one more pass over it (harness/training/evaluation.py).
        exclusive: after training, time one trial of each row again while no other trial of the run is running
            (harness/records/timings.py).
    """

    start: bool = False
    inference_batch: Annotated[int, Field(ge=1)] | None = None
    token_nll: bool = True
    calibration: bool = False
    exclusive: bool = True
