"""Inference time: the forward pass with loss, a batch at a time."""

import time
from collections.abc import Callable
from itertools import cycle, islice

import torch
from torch import Tensor

from harness.corpora.batching import Segment, training_segments
from harness.model import LanguageModel
from harness.plan.specs import EvalSpec
from harness.training.clocks import WARMUP_BATCHES, quartiles

TIMED_BATCHES = 20


def inference_times(
    model: LanguageModel, tokens_N: Tensor, spec: EvalSpec, *, batch: int, beat: Callable[[], None]
) -> dict[str, float]:
    """Milliseconds of model and mean nll of `batch` segments without gradients, carried state or dropout: the metrics,
    median and interquartile range of TIMED_BATCHES after WARMUP_BATCHES, the device synchronised around each.

    The batches are the first full ones of the split, repeated if there are fewer. {} if there is no full one.

    Args:
        beat: called after each batch, as a sign of life.
    Source: the time column of Chang and McCallum's multi-facet poster, table 1 (batch of 4).
    Differs: their clock is read without synchronisation; here it is read when the device has ended the batch.
    """
    full = inference_segments(tokens_N, spec, batch=batch, device=next(model.parameters()).device)
    if not full:
        return {}
    milliseconds = inference_laps(model, full, WARMUP_BATCHES + TIMED_BATCHES, beat=beat)
    return {"inference_batch": batch, **quartiles("inference", milliseconds[WARMUP_BATCHES:])}


def inference_segments(tokens_N: Tensor, spec: EvalSpec, *, batch: int, device: torch.device) -> list[Segment]:
    """The first full batches of a split: as many as are timed, or fewer where there are not so many."""
    segments = training_segments(
        tokens_N, batch_size=batch, seq_len=spec.seq_len, batching=spec.batching, device=device
    )[: WARMUP_BATCHES + TIMED_BATCHES]
    width = spec.seq_len - (spec.batching == "blocks")
    return [segment for segment in segments if segment.inputs.shape[1] == width]


@torch.no_grad()
def inference_laps(
    model: LanguageModel, segments: list[Segment], number: int, *, beat: Callable[[], None] = lambda: None
) -> list[float]:
    """Milliseconds of so many batches; the segments are repeated."""
    device = next(model.parameters()).device
    model.eval()
    milliseconds = []
    for segment in islice(cycle(segments), number):
        _wait(device)
        began = time.perf_counter()
        distribution, _ = model(segment.inputs)
        distribution.mean_nll(segment.targets)
        _wait(device)
        milliseconds.append((time.perf_counter() - began) * 1e3)
        beat()
    return milliseconds


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
