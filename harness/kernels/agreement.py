"""Whether a form of the loss agrees with the equations in float64 on a batch: loss, nll of each token, gradients.

The form computes the whole batch, with weight zero for all but some tokens, and the equations compute those tokens.
They are compared on three batches of the same shape:

- as it is;
- with the facets scaled until a component is nearly certain of a word, where differences of large logits are taken;
- of few bits: facets in -1, -1/2 .. 1 and words in -1/2, 0, 1/2. Their logits are multiples of 1/4 that float32, tf32
  and bfloat16 hold exactly. So the nll has to be right up to the rounding of float32 sums in every precision, and a
  fault of one in ten thousand is seen. Only gradients have larger errors: they are products of rounded exponentials.

In the first two, rounding an input changes a logit in proportion to it, so the bound on a token's nll grows with the
largest logit of that token.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from harness.kernels import products, reference
from harness.kernels.chunked import tokens_per_chunk
from harness.kernels.forms import CHUNKS_OF_EQUATIONS, Form, differentiates, in_chunks
from harness.kernels.mixture import HarmonicMap, SigmoidCap, SoftCap, Tensors, identity
from harness.kernels.products import Precision

# The relative error of float32 sums: some hundred roundings of 2^-24. One missing word of 8,209 makes an error of 1e-4.
SUMS = 1e-5
# The relative error of a product's inputs: tensor cores may truncate to tf32; bfloat16 is rounded to nearest.
ROUNDING: dict[Precision, float] = {"fp32": SUMS, "tf32": 2.0**-10, "bf16": 2.0**-8}
LOWEST_NLL = -1e-5  # as in harness/records/record.py, which is without torch; a test compares them
CERTAIN = 1e-5  # nats, of the most probable word of a component
TOKENS = 256  # that are compared
DOUBLINGS = 20
COLUMNS = 512  # of facets of few bits that are not 0, on average: logits stay below 64, where bfloat16 holds quarters
NLL, LOSS = "a token's nll", "the loss"
NAMES = ("the facets", "the prior", "the output matrix", "the bias")

Batch = tuple[str, Tensors, Tensor]  # its name, the mixture, targets


def fault_of(
    form: Form, mixture: Tensors, targets_N: Tensor, z_loss: float = 0.0, *, tokens: int = TOKENS, whole: bool = True
) -> str:
    """Return what is wrong with a form on a batch, or '' where it agrees with the equations in float64.

    Args:
        tokens: how many of the batch are compared.
        whole: compare on all three batches, not only on the one that is given.
    """
    N = len(targets_N)
    at_n = torch.linspace(0, N - 1, min(N, tokens), device=targets_N.device).round().long()
    batches = [("as it is", mixture, targets_N)]
    if whole:  # guard: form-on-certain-words
        batches.append(("with a nearly certain word", *_certain(mixture, targets_N, at_n)))
        if mixture.facets_NFE.dtype != torch.bfloat16:  # else the scaled facets would be rounded
            batches.append(("of few bits", *_of_few_bits(form, mixture, targets_N)))
    return next(filter(None, (_fault_on(form, batch, at_n, z_loss) for batch in batches)), "")


def _fault_on(form: Form, batch: Batch, at_n: Tensor, z_loss: float) -> str:
    name, mixture, targets_N = batch
    few, every_n = _in_float64(mixture, at_n), torch.arange(len(at_n), device=at_n.device)
    gradients = differentiates(mixture)
    exact = _evaluated(CHUNKS_OF_EQUATIONS, few, targets_N[at_n], every_n, gradients, z_loss)
    found = _evaluated(form, mixture, targets_N, at_n, gradients, z_loss)
    precision = "bf16" if mixture.facets_NFE.dtype == torch.bfloat16 else products.current().precision
    for what, expected in exact.items():
        size, bound = _allowed(what, expected, few, precision, few_bits=name == "of few bits")
        if name == "of few bits" and z_loss and "gradient" in what:
            bound *= 2  # the z-loss has a gradient of its own, which is rounded, too
        wrong = ((found[what].detach().double() - expected.detach()).abs() / size).max().item()
        # guard: form-not-a-number not wrong <= -> wrong >
        if not wrong <= bound:  # written so that NaN is an error, too
            return f"{what} is wrong by {wrong:.1e} ({precision}, the batch {name}; at most {bound:.1e} is rounding)"
    lowest = found[NLL].min().item()
    if not lowest >= LOWEST_NLL - (mixture.log_epsilon or 0.0):
        return f"{NLL} is {lowest:.1e}, below 0 ({precision}, the batch {name})"
    return ""


def _allowed(
    what: str, expected: Tensor, few: Tensors, precision: Precision, *, few_bits: bool
) -> tuple[Tensor | float, float]:
    """The size that an error is relative to, and how large it may be."""
    size = max(expected.detach().abs().max().item(), _least_size(what, few))
    if few_bits:
        if what in (NLL, LOSS, "the gradient of the prior"):
            return size, SUMS
        # the gradient of a bias is smaller than the sums of which it is the difference
        return size, ROUNDING[precision] * (1.5 if precision == "bf16" and "bias" in what else 1)
    logit_n = _largest_logits(few).clamp(min=1)
    if what == NLL:  # both inputs of a product may be truncated to tf32, by 2^-10 each; bfloat16 rounds by 2^-9 each
        factor = 2 if precision == "tf32" else 1
        return torch.minimum(factor * logit_n, size * logit_n.max()), ROUNDING[precision]
    return size, ROUNDING[precision] * logit_n.max().item()  # an error of a logit is a relative error of exp(logit)


def _evaluated(
    form: Form, mixture: Tensors, targets_N: Tensor, at_n: Tensor, gradients: bool, z_loss: float
) -> dict[str, Tensor]:
    """Name -> value of everything that is compared, for the tokens `at_n` of a batch."""
    leaves = [
        each if each is None else each.detach().requires_grad_(gradients and each.requires_grad)
        for each in mixture.given
    ]
    wanted = {name: each for name, each in zip(NAMES, leaves, strict=True) if each is not None and each.requires_grad}
    given = Tensors(*leaves, mixture.partitions, mixture.logit_map, mixture.log_epsilon)
    found: dict[str, Tensor] = {}
    with torch.set_grad_enabled(gradients):
        nll_N = form.nll(given, targets_N)
        found[NLL] = nll_N.detach()[at_n]
        if not gradients:
            return found
        weight_N = torch.zeros_like(nll_N)
        weight_N[at_n] = 1 + torch.arange(len(at_n), device=at_n.device, dtype=nll_N.dtype) % 3
        signed_N = weight_N - 2 * (weight_N == 2).to(weight_N.dtype) * weight_N
        losses = {"": _mean_nll(form, given, targets_N, weight_N / weight_N.sum(), z_loss)}
        found[LOSS] = losses[""].detach()
        losses[", by tokens"] = (nll_N * (signed_N / weight_N.sum())).sum()
        for suffix, loss in losses.items():
            for name, gradient in zip(wanted, torch.autograd.grad(loss, list(wanted.values())), strict=True):
                part = gradient[at_n] if name in NAMES[:2] else gradient
                found[f"the gradient of {name}{suffix}"] = part
    return found


def _mean_nll(form: Form, given: Tensors, targets_N: Tensor, weight_N: Tensor, z_loss: float) -> Tensor:
    if form.mean_nll is not None:
        return form.mean_nll(given, targets_N, weight_N, z_loss)
    loss_N = form.nll(given, targets_N)
    if z_loss:
        loss_N = loss_N + z_loss * in_chunks(reference.log_normaliser, given).square().mean(1)
    return (weight_N * loss_N).sum()


def _in_float64(mixture: Tensors, at_n: Tensor) -> Tensors:
    """The tokens `at_n` of a mixture. What requires a gradient still does."""

    def wide(each: Tensor | None, *at: Tensor) -> Tensor | None:
        return None if each is None else each.detach()[at].double().requires_grad_(each.requires_grad)

    facets_NFE, prior_NK, weight_VE, bias_V = mixture.given
    few = wide(facets_NFE, at_n), wide(prior_NK, at_n), wide(weight_VE), wide(bias_V)
    return Tensors(*few, mixture.partitions, mixture.logit_map, mixture.log_epsilon)


@torch.no_grad()
def _certain(mixture: Tensors, targets_N: Tensor, at_n: Tensor) -> tuple[Tensors, Tensor]:
    """The batch with facets that are scaled until a component is nearly certain of a word, and such words as the
    targets of half of the tokens `at_n`.
    """
    few, scale = _in_float64(mixture, at_n), 1.0
    cap = _steep(mixture)
    for _ in range(DOUBLINGS):
        scaled = few.changed(facets_NFE=scale * few.facets_NFE)
        top_n, top_logp_n = _most_certain(scaled)
        if top_logp_n.max() > -CERTAIN or _largest_logits(scaled).max() > cap:
            break
        scale *= 2
    targets_N, certain_n = targets_N.clone(), top_logp_n.argsort(descending=True)[: (len(at_n) + 1) // 2]
    targets_N[at_n[certain_n]] = top_n[certain_n]
    facets_NFE = (scale * mixture.facets_NFE.detach()).requires_grad_(mixture.facets_NFE.requires_grad)
    return mixture.changed(facets_NFE=facets_NFE), targets_N


def _steep(mixture: Tensors) -> float:
    """How large logits may be before the slopes of the map vanish; scaled facets of a harmonic map are no distances."""
    if isinstance(mixture.logit_map, HarmonicMap):
        return 0.0
    if isinstance(mixture.logit_map, SigmoidCap):
        return 0.9 * mixture.logit_map.a
    return 0.9 * mixture.logit_map.c if isinstance(mixture.logit_map, SoftCap) else math.inf


@torch.no_grad()
def _of_few_bits(form: Form, mixture: Tensors, targets_N: Tensor) -> tuple[Tensors, Tensor]:
    """A random batch of the same shape and device, with the last word and the first one among its targets. The second
    token has a high logit for the last word, so that no form may miss it.
    """
    generator = torch.Generator(targets_N.device).manual_seed(0)

    def halves(like: Tensor, largest: int = 2) -> Tensor:
        return like.new_empty(like.shape).random_(-largest, largest + 1, generator=generator) / 2

    facets_NFE, prior_NK, weight_VE, bias_V = (None if each is None else each.detach() for each in mixture.given)
    V, E = weight_VE.shape
    facets = halves(facets_NFE)
    if E > COLUMNS:
        facets *= torch.rand(facets.shape, generator=generator, device=facets.device) < COLUMNS / E
    words = halves(weight_VE, 1)
    words[-1] = 0
    words[-1, :64] = facets[min(1, len(facets) - 1), (V - 1) % mixture.partitions[0], :64].sign() / 2
    scale = abs(form.scale(mixture))
    unit = 2.0 ** math.floor(math.log2(scale)) / scale  # from 1/2 to 1: unit x, times the scale, has the bits of x
    prior = None if prior_NK is None else halves(prior_NK).log_softmax(-1)
    added = 0.0 if mixture.logit_map is identity else mixture.logit_map.offset  # so that the sum with the bias has few
    bias = None if bias_V is None else unit * halves(bias_V) - added
    given = unit * facets, prior, words, bias
    for made, each in zip(given, mixture.given, strict=True):
        if made is not None:
            made.requires_grad_(each.requires_grad)
    targets_N = targets_N.clone()
    targets_N[:2] = torch.tensor([V - 1, 0], device=targets_N.device)[: len(targets_N)]
    return Tensors(*given, mixture.partitions, mixture.logit_map, mixture.log_epsilon), targets_N


def _chunks(mixture: Tensors) -> Iterator[Tensors]:
    size = tokens_per_chunk(mixture.weight_VE, mixture.partitions)
    return (mixture.part(slice(i, i + size)) for i in range(0, len(mixture.facets_NFE), size))


def _most_certain(mixture: Tensors) -> tuple[Tensor, Tensor]:
    """(n,) the word that one of the components of a token is the most certain of, and its log-probability there."""
    found = []
    for part in _chunks(mixture):
        logp_nK, word_nK = zip(
            *(u_nV.log_softmax(-1).max(-1) for u_nV in reference.component_logits(part)), strict=True
        )
        logp_n, k_n = torch.stack(logp_nK).max(0)
        found.append((torch.stack(word_nK).gather(0, k_n[None])[0], logp_n))
    words, logps = zip(*found, strict=True)
    return torch.cat(words), torch.cat(logps)


@torch.no_grad()
def _largest_logits(mixture: Tensors) -> Tensor:
    """(n,) the largest absolute logit of each token."""
    return torch.cat(
        [
            torch.stack([u_nV.abs().amax(-1) for u_nV in reference.component_logits(part)]).amax(0)
            for part in _chunks(mixture)
        ]
    )


def _least_size(what: str, few: Tensors) -> float:
    """What an error is at least relative to: a nat, and of a gradient a hundredth of the largest that it can be."""
    if "gradient" not in what:
        return 1.0
    largest = 1.0
    if "facets" in what:
        largest = few.weight_VE.detach().abs().max().item()
    elif "matrix" in what:
        largest = few.facets_NFE.detach().abs().max().item()
    return max(0.01 * largest / len(few.facets_NFE), torch.finfo(torch.float32).tiny)
