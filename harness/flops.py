"""How many floating-point operations (FLOPs) a training token takes, counted from the shapes of a model's tensors."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch._subclasses import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from harness import kernels
from harness.corpora.batching import Segment
from harness.model import Chosen, LanguageModel, build_backbone, build_head, on_meta
from harness.random_streams import own_generators

BACKWARD = 2  # products of the backward pass for one of the forward pass: for its input and for its weight


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


def training_flops(backbone: Chosen, head: Chosen, vocab_size: int, rows: int, tokens: int) -> Flops:
    """Return the FLOPs of a training token, for batches of `rows` x `tokens`.

    Each matrix product of the forward pass counts 2 m n k, and twice as much in the backward pass: 6 for each weight
    that a token meets. The products of attention count over the whole segment, not halved by causality: 12 T d for a
    layer and token. Element-wise operations and look-ups count nothing. Logits that the evaluation in chunks computes
    again in its backward pass count once. What a batch shares, as the noise words of nce, is divided among its tokens.

    The model runs once on tensors without content, so nothing is allocated, and products are counted where torch sees
    them, whatever code a head has.

    Raises: ValueError where the products depend on the values of tensors, as in adaptive, which computes the clusters
        of the targets only; and what the constructors raise.
    """
    with own_generators(0, torch.device("cpu")), on_meta():
        body = build_backbone(backbone, vocab_size)
        counts = torch.ones(vocab_size, device="cpu")  # some heads rank the words by them
        model = LanguageModel(body, build_head(head, body, vocab_size, counts))
    try:
        plain = sdpa_kernel(SDPBackend.MATH)  # torch does not count its fused attention on a CPU
        with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad(), kernels.reference_only(), plain:
            model.to_empty(device="cpu")
            ids = torch.zeros(rows, tokens, dtype=torch.int64)
            frozen = hasattr(body, "num_parameters")
            states = torch.zeros(rows, tokens, sum(body.layer_dims)) if frozen else None
            return _counted(model, Segment(ids, ids, states=states))
    except RuntimeError as error:  # which tensors without content raise where their values are asked for
        what = f"the FLOPs of {head.name} on {backbone.name} are not known from shapes"
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{what}: its products depend on the values of tensors ({reason})") from error


def _counted(model: LanguageModel, segment: Segment) -> Flops:
    of_body, of_head = 0, 0
    for each, text in ((model, segment), (model.from_the_right(), segment.reversed())):
        if each is None:
            continue
        hidden, products = _with_products(lambda each=each, text=text: each.hidden(text))
        of_body += products
        _, products = _with_products(
            lambda each=each, text=text, hidden=hidden: each.distribution(hidden).training_loss(text.targets)
        )
        of_head += products
    per_token = (1 + BACKWARD) / segment.targets.numel()
    return Flops(body=per_token * of_body, head=per_token * of_head)


def _with_products(compute: Callable[[], object]) -> tuple[object, int]:
    """Return what a function returns, and the FLOPs of its matrix products."""
    with FlopCounterMode(display=False, custom_mapping={torch.ops.aten.mkldnn_rnn_layer: _of_fused_lstm}) as counter:
        found = compute()
    return found, counter.get_total_flops()


def _of_fused_lstm(x_shape, w_shape, u_shape, *_, out_shape: object = None, **__) -> int:
    """FLOPs of one layer of torch's LSTM on a CPU, which torch computes in one operation: x (T, B, D_in), its weights
    (4 D, D_in), those of the state (4 D, D).
    """
    steps, rows = x_shape[:2]
    return 2 * steps * rows * (w_shape[0] * w_shape[1] + u_shape[0] * u_shape[1])
