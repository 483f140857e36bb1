"""How many floating-point operations (FLOPs) a training token takes, counted from the shapes of a model's tensors."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from harness import kernels
from harness.containment import first_line
from harness.corpora.batching import Segment
from harness.fading import Fade
from harness.model import Chosen, LanguageModel, build_backbone, build_head, on_meta
from harness.protocols import Hidden
from harness.random_streams import own_generators

BACKWARD = 2  # products of the backward pass for one of the forward pass: for its input and for its weight
FAKE_TENSOR_LOG = logging.getLogger("torch._subclasses.fake_tensor")


@dataclass(frozen=True, slots=True)
class Flops:
    """FLOPs of one training token, forward and backward pass.

    Args:
        body: of the backbone; 0 where it is frozen, because its states are computed once and kept.
        head: of the head and its training loss.
    """

    body: float
    head: float

    @property
    def total(self) -> float:
        """Of the whole model."""
        return self.body + self.head


def training_flops(
    backbone: Chosen, head: Chosen, vocab_size: int, rows: int, tokens: int, body: float | None = None
) -> Flops:
    """Return the FLOPs of a training token, for batches of `rows` x `tokens`.

    Each matrix product of the forward pass counts 2 m n k, and twice as much in the backward pass, for its input
    and its weight: 6 for each weight that a token meets. A frozen backbone needs no gradient of its states, so the
    first product of a head counts 4 there. The products of attention count over the whole segment, not halved by
    causality: 12 T d for a layer and token. Element-wise operations and look-ups count nothing. Logits that the
    evaluation in chunks computes again in its backward pass count once. What a batch shares, as the noise words of
    nce, is divided among its tokens. A loss that fades counts for the share of training until it is 0.

    The model runs once on tensors without content, so nothing is allocated, and products are counted where torch sees
    them, whatever code a head has.

    Args:
        body: of the backbone, where another head on it was counted before; None: it is counted. It is counted again
            under a head that puts a hook on the embedding.
    Raises: ValueError where the products depend on the values of tensors, as in adaptive, which computes the clusters
        of the targets only, or where a component raises an error.
    """
    what = f"the FLOPs of {head.name} on {backbone.name} are not known from shapes"
    try:
        with own_generators(0, torch.device("cpu")), on_meta():
            built = build_backbone(backbone, vocab_size)
            counts = torch.ones(vocab_size, device="cpu")  # some heads rank the words by them
            texts = (b"-",) * vocab_size  # and some learn the bytes of words
            names = f"backbone {backbone.name}", f"head {head.name}"
            model = LanguageModel(built, build_head(head, built, vocab_size, counts, texts), names)
        is_known = body is not None and getattr(built.embedding, "changed_by", None) is None
        return _counted(model, rows, tokens, body if is_known else None)
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise ValueError(f"{what}: its products depend on the values of tensors ({error})") from error
    except Exception as error:  # of any code that a component has
        raise ValueError(f"{what}: {first_line(error)}") from error


def _counted(model: LanguageModel, rows: int, tokens: int, body: float | None) -> Flops:
    frozen = hasattr(model.backbone, "shapes")
    of_body, of_head = 0, 0
    plain = sdpa_kernel(SDPBackend.MATH)  # torch does not count its fused attention on a CPU
    with _quiet(), FakeTensorMode(allow_non_fake_inputs=True), kernels.reference_only(), plain:
        model.to_empty(device="cpu")
        ids = torch.zeros(rows, tokens, dtype=torch.int64)
        segment = Segment(ids, ids)
        for each, text in ((model, segment), (model.from_the_right(), segment.reversed())):
            if each is None:
                continue
            if body is None and not frozen:
                with _products() as counter, torch.no_grad():
                    each.hidden(text)
                of_body += (1 + BACKWARD) * counter.get_total_flops()
            # The head's backward pass as it is: without gradients for the states of a frozen backbone.
            layers = [torch.zeros(rows, tokens, width).requires_grad_(not frozen) for width in each.backbone.layer_dims]
            for share in _stages(each):
                with _products() as counter:
                    each.distribution(Hidden(tuple(layers))).training_loss(text.targets).backward()
                of_head += share * counter.get_total_flops()
    return Flops(of_body / (rows * tokens) if body is None else body, of_head / (rows * tokens))


def _stages(model: LanguageModel) -> Iterator[float]:
    """Yield the lengths of the stages of training between which losses of the head end, as shares of it. The model is
    as it is in that stage.
    """
    fades = [module for module in model.head.modules() if isinstance(module, Fade)]
    for start, end in pairwise(sorted({0.0, *(fade.end for fade in fades), 1.0})):
        for fade in fades:
            fade.is_over = start >= fade.end
        yield end - start


def _products() -> FlopCounterMode:
    return FlopCounterMode(display=False, custom_mapping={torch.ops.aten.mkldnn_rnn_layer: _of_fused_lstm})


@contextmanager
def _quiet() -> Iterator[None]:
    """Within it torch logs nothing of operations that it cannot follow without content: the error says it."""
    before = FAKE_TENSOR_LOG.level
    FAKE_TENSOR_LOG.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        FAKE_TENSOR_LOG.setLevel(before)


def _of_fused_lstm(x_shape, w_shape, u_shape, *_, out_shape: object = None, **__) -> int:
    """FLOPs of one layer of torch's LSTM on a CPU, which torch computes in one operation: x (T, B, D_in), its weights
    (4 D, D_in), those of the state (4 D, D).
    """
    steps, rows = x_shape[:2]
    return 2 * steps * rows * (w_shape[0] * w_shape[1] + u_shape[0] * u_shape[1])
