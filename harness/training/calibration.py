"""Calibration of the test split: does a model know how often its most probable word is right?"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from harness.containment.calls import calling
from harness.errors import ExecutionError
from harness.model import LanguageModel
from harness.plan.eval_spec import EvalSpec
from harness.protocols import HasStatistics
from harness.training.evaluation import scored_segments

NUM_BINS = 15


@torch.no_grad()
def calibration(
    model: LanguageModel, tokens_N: Tensor, spec: EvalSpec, *, beat: Callable[[], None] = lambda: None
) -> dict[str, float]:
    """The expected calibration error and the mean entropy of a split, as metrics.

    ECE = sum_b n_b / n |accuracy_b - confidence_b|

    The n scored tokens are put into 15 bins of equal width, (0, 1/15] .. (14/15, 1], by the probability of the most
    probable word. accuracy_b is the share of the tokens of a bin whose target is that word, confidence_b the mean of
    the probabilities. The split is scored as by `evaluate`: the same tokens with the same contexts.

    Args:
        beat: called after each segment, as a sign of life.
    Raises: ExecutionError when the head's distribution has no `statistics`.
    Source: Guo, Pleiss, Sun and Weinberger (2017), arXiv:1706.04599, section 2, with its M = 15.
    """
    model.eval()
    device = next(model.parameters()).device
    sums_3M = torch.zeros(3, NUM_BINS, dtype=torch.float64, device=device)  # tokens, confidence, right ones
    entropy = torch.zeros((), dtype=torch.float64, device=device)
    state: Any = None
    for cut in scored_segments(tokens_N, spec):
        segment = cut.to(device)
        distribution, state = model(segment.inputs, state)
        refuse_without_statistics(model, distribution)
        with calling(model.head_name, "statistics"):
            found = distribution.statistics()
        weight_N = segment.weight.double().flatten()
        confidence_N = found.top_logp.double().exp().flatten()
        right_N = (found.top == segment.targets).double().flatten()
        bin_N = (confidence_N * NUM_BINS).ceil().long().clamp(1, NUM_BINS) - 1
        for row_M, values_N in zip(sums_3M, (torch.ones_like(weight_N), confidence_N, right_N), strict=True):
            row_M.index_add_(0, bin_N, weight_N * values_N)
        entropy += (weight_N * found.entropy.double().flatten()).sum()
        state = None if spec.batching == "blocks" else state
        beat()
    count_M, confidence_M, right_M = sums_3M
    error = (right_M - confidence_M).abs().sum() / count_M.sum()
    return {"test_calibration_error": error.item(), "test_entropy": (entropy / count_M.sum()).item()}


def refuse_without_statistics(model: LanguageModel, distribution: Any) -> None:
    """Raises ExecutionError when a distribution has no `statistics`."""
    if not isinstance(distribution, HasStatistics):
        raise ExecutionError(
            f"measure.calibration: {model.head_name} returns a {type(distribution).__name__}, which has no method "
            "statistics (harness/protocols.py); leave calibration out"
        )
