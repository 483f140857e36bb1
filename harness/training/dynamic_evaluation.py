"""Dynamic evaluation: the weights follow the text while it is scored.

Its perplexities compare with each other only: the model goes on learning on the split that is scored, from each token
after it was predicted. They are metrics of their own, beside those of the weights as they were trained.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from harness.corpora.batching import training_segments
from harness.corpora.corpus import Corpus
from harness.errors import ExecutionError
from harness.model import LanguageModel
from harness.plan.specs import EvalSpec
from harness.plan.suite_file import DynamicSpec
from harness.training.evaluation import perplexity, scored_segments, state_of
from harness.training.step import changed

SPLITS = ("valid", "test")


def dynamic_evaluation(
    model: LanguageModel, corpus: Corpus, settings: DynamicSpec, *, beat: Callable[[], None] = lambda: None
) -> dict[str, float]:
    """The perplexities of the validation and the test split under dynamic evaluation, as metrics. With the gradient g_b
    of the mean loss of batch b of the training split, and g of a segment's of the split that is scored, a weight w is

        R = sqrt(sum_b g_b^2);    r = min(R / sum over parameters of mean(R), 1 / decay)
        w <- w + decay r (w_0 - w) - lr g / (R + epsilon)        after a segment is scored

    The split is read as one text, with the carried state. Every token but the first is scored. Dropout is off.

    Args:
        corpus: on the model's device.
        beat: called after each segment, as a sign of life.
    Returns: the metrics; the weights are afterwards as they were.
    Raises: ExecutionError for a backbone without a state, whose context would be a segment, or a training split
        without a batch.
    Source: Krause et al. (2018), arXiv:1709.07432, section 3 and algorithm 1 (RMS and decay to w_0); zihangdai/mos,
        dynamiceval.py, whose R is a root of a sum and whose mean of R is a sum over parameters.
    Differs: the paper's R is the root of the mean over batches, and its r is divided by the mean over all weights.
        dynamiceval.py leaves the weight drop on; it scores no last segment of one token.
    """
    refuse_dynamic(model, corpus, settings)
    weights = [each for each in model.parameters() if each.requires_grad]
    start = [each.clone() for each in weights]
    with _without_dropout(model):
        roots = _gradient_sizes(model, corpus, settings, weights, beat)
        total = sum(each.mean() for each in roots)
        shares = [(each / total).clamp(max=1 / settings.decay if settings.decay else math.inf) for each in roots]

        def follow(gradients: Sequence[Tensor]) -> None:
            for w, w_0, g, root, share in zip(weights, start, gradients, roots, shares, strict=True):
                w.add_(settings.decay * share * (w_0 - w) - settings.lr * g / (root + settings.epsilon))

        found = {}
        for split in SPLITS:
            found[f"dynamic_{split}_ppl"] = _scored(model, corpus, split, settings, weights, follow, beat)
            with torch.no_grad():
                torch._foreach_copy_(weights, start)
    return {name: ppl for name, ppl in found.items() if math.isfinite(ppl)}


def refuse_dynamic(model: LanguageModel, corpus: Corpus, settings: DynamicSpec) -> None:
    """Raises ExecutionError for a backbone without a state, or a training split without a batch."""
    if state_of(model) is None:
        raise ExecutionError(
            f"measure.dynamic: {model.backbone_name} carries no state, so its context would be {settings.seq_len} "
            "tokens; leave dynamic out"
        )
    if len(corpus.train) < 2 * settings.batch_size:
        raise ExecutionError(
            f"measure.dynamic: the training split has {len(corpus.train)} tokens, fewer than two for each of "
            f"{settings.batch_size} rows; give it a smaller batch_size, or leave dynamic out"
        )


@contextmanager
def _without_dropout(model: LanguageModel) -> Iterator[None]:
    """Within it, the layers of torch's RNNs in a model in evaluation mode are in training mode, without dropout: cuDNN
    computes their gradients in this mode only.
    """
    layers = [module for module in model.modules() if isinstance(module, nn.RNNBase)]
    rates = [layer.dropout for layer in layers]
    try:
        for layer in layers:
            layer.train()
            layer.dropout = 0.0
        yield
    finally:
        for layer, rate in zip(layers, rates, strict=True):
            layer.dropout = rate
        model.eval()


def _gradients(model: LanguageModel, segment, state, weights: list[Tensor]):
    """The nats of a segment's tokens, the gradients of their mean, and the state after it."""
    distribution, state = model(segment, state)
    nll_BT = distribution.nll(segment.targets)
    found = torch.autograd.grad(nll_BT.mean(), weights, materialize_grads=True)
    return nll_BT, found, changed(state, Tensor.detach)


def _gradient_sizes(
    model: LanguageModel, corpus: Corpus, settings: DynamicSpec, weights: list[Tensor], beat: Callable[[], None]
) -> list[Tensor]:
    """R of each parameter."""
    sums, state = [torch.zeros_like(each) for each in weights], None
    sizes = {"batch_size": settings.batch_size, "seq_len": settings.seq_len}
    for segment in training_segments(corpus.train, **sizes, device=weights[0].device):
        _, gradients, state = _gradients(model, segment, state, weights)
        with torch.no_grad():
            torch._foreach_addcmul_(sums, gradients, gradients)
        beat()
    return [each.sqrt() for each in sums]


def _scored(
    model: LanguageModel,
    corpus: Corpus,
    split: str,
    settings: DynamicSpec,
    weights: list[Tensor],
    follow: Callable[[Sequence[Tensor]], None],
    beat: Callable[[], None],
) -> float:
    """The perplexity of a split, whose weights follow it."""
    tokens_N = getattr(corpus, split)
    device, state = weights[0].device, None
    nats = torch.zeros((), dtype=torch.float64, device=device)
    one_text = {"batching": "stream", "eval_batch_size": 1, "eval_stride": None, "eval_batches": None}
    for segment in scored_segments(corpus, split, EvalSpec(seq_len=settings.seq_len, **one_text)):
        nll_BT, gradients, state = _gradients(model, segment.to(device), state, weights)
        with torch.no_grad():
            nats += nll_BT.sum()
            follow(gradients)
        beat()
    return perplexity(nats.item() / (len(tokens_N) - 1))
