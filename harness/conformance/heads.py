"""The checks of heads. Each takes a case. It returns its numerical errors by name, or a text, and raises Nonconforming
if the check fails.

Shape letters: see harness/protocols.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from harness.conformance.require import (
    require,
    require_all_trained,
    require_equal_counts,
    require_module,
    require_nothing_learned,
)
from harness.containment import guarded
from harness.protocols import HasStatistics, HeadDims, Hidden, TokenDistribution, followers, require_distribution
from harness.random_streams import seeded

B, T, V, D, NUM_LAYERS = 2, 4, 13, 6, 3
TEXTS = tuple(b"words"[: number % 6] for number in range(V))  # of 0 to 5 bytes
OTHER_DIMS, OTHER_EMBED = (4, 5, 7), 6  # layers and embedding of different widths
EXTREME, DOUBLINGS = 100.0, 20
# Steps of finite differences. A kink of a piecewise-linear map may disturb one of them; a wrong gradient disagrees with
# all.
STEPS = (1e-5, 1e-6, 1e-7, 1e-8)


@dataclass(frozen=True, slots=True)
class HeadCase:
    """A head's class and parameters, and small inputs for it."""

    cls: type
    params: dict[str, Any]

    def build(self, dtype: torch.dtype = torch.float64) -> nn.Module:
        """Build the head in evaluation mode, always from the same seed."""
        with seeded(0, "conformance", "head"):
            dims, embedding = _dims((D,) * NUM_LAYERS, D), nn.Embedding(V, D)
            with guarded(f"head {self.cls.__name__}", "its constructor"):
                head = self.cls(dims, embedding, **self.params)
            require_module(head)
            return head.to(dtype).eval()

    def hidden(self, dtype: torch.dtype = torch.float64, scale: float = 1.0) -> Hidden:
        """Standard-normal states of every layer."""
        with seeded(0, "conformance", "hidden"):
            return Hidden(tuple((scale * torch.randn(B, T, D)).to(dtype) for _ in range(NUM_LAYERS)))

    def targets(self) -> Tensor:
        """(B, T) targets."""
        with seeded(0, "conformance", "targets"):
            return torch.randint(V, (B, T))

    def weight(self) -> Tensor:
        """(B, T) token weights, one of them zero."""
        return torch.arange(B * T, dtype=torch.float64).view(B, T)


def _dims(layer_dims: tuple[int, ...], d_embed: int) -> HeadDims:
    known = {"token_counts": torch.arange(1, V + 1), "token_bytes": TEXTS}
    return HeadDims(vocab_size=V, layer_dims=layer_dims, d_embed=d_embed, **known)


def shapes(case: HeadCase) -> str:
    """The head returns a TokenDistribution, and its methods return tensors of the documented shapes."""
    distribution, targets = case.build()(case.hidden()), case.targets()
    require_distribution(distribution, "the head")
    # the words first: with too few of them, the others find no target
    shape = tuple(distribution.log_probs().shape)
    require(shape == (B, T, V), f"log_probs has shape {shape}, expected {(B, T, V)}, V = {V} words")
    for name, expected in {"nll": (B, T), "mean_nll": (), "training_loss": ()}.items():
        shape = tuple(getattr(distribution, name)(targets).shape)
        require(shape == expected, f"{name} has shape {shape}, expected {expected}")
    return f"(B, T, V) = {(B, T, V)}"


def other_widths(case: HeadCase) -> str:
    """With layers and an embedding of different widths it works, or its constructor raises ValueError."""
    with seeded(0, "conformance", "other widths"):
        dims = _dims(OTHER_DIMS, OTHER_EMBED)
        hidden = Hidden(tuple(torch.randn(B, T, width) for width in OTHER_DIMS))
        try:
            head = case.cls(dims, nn.Embedding(V, OTHER_EMBED), **case.params)
        except ValueError as refusal:
            return f"refused: {refusal}"
        shape = tuple(head(hidden).log_probs().shape)
    require(shape == (B, T, V), f"log_probs has shape {shape}, expected {(B, T, V)}")
    return f"layers {OTHER_DIMS}, E = {OTHER_EMBED}"


def normalised(case: HeadCase) -> dict[str, float]:
    """Probabilities sum to 1: to 1e-12 in float64, 1e-5 in float32 and with bfloat16 inputs; with large logits, too."""
    worst = {}
    for dtype, tolerance in {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 1e-5}.items():
        for extreme in (False, True):
            distribution = _extreme(case, dtype) if extreme else case.build(dtype)(case.hidden(dtype))
            log_probs = distribution.log_probs()
            require(torch.isfinite(log_probs).all(), f"log-probabilities in {dtype} are not finite")
            error = (log_probs.double().exp().sum(-1) - 1).abs().max().item()
            where = f"{dtype}{' large logits' if extreme else ''}".removeprefix("torch.")
            cause = _gate_off(distribution, tolerance) if error > tolerance else ""
            sums = f"probabilities in {where} sum to 1 within {error:.1e}, expected {tolerance}{cause}"
            require(error <= tolerance, sums)
            worst[where] = error
    return worst


def _gate_off(distribution: TokenDistribution, tolerance: float) -> str:
    """What to do where the weights of a Mixture are what does not sum to 1; '' where they do, or there are none."""
    prior_NK = getattr(distribution, "log_prior_NK", None)
    if prior_NK is None or (error := (prior_NK.double().exp().sum(-1) - 1).abs().max().item()) <= tolerance:
        return ""
    return (
        f"; so do the weights of its gate ({prior_NK.dtype}, within {error:.1e}): make them by "
        "harness.distributions.log_prior(scores), which normalises in at least float32"
    ).replace("torch.", "")


def agreement(case: HeadCase) -> dict[str, float]:
    """nll and mean_nll, with and without weights, agree with log_probs to 1e-12 in float64."""
    distribution, targets, weight = case.build()(case.hidden()), case.targets(), case.weight()
    expected = -distribution.log_probs().gather(-1, targets[..., None])[..., 0]
    errors = {
        "nll": distribution.nll(targets) - expected,
        "mean_nll": distribution.mean_nll(targets) - expected.mean(),
        "weighted mean_nll": distribution.mean_nll(targets, weight) - (weight * expected).sum() / weight.sum(),
    }
    return _worst(errors, "differs")


def _worst(errors: dict[str, Tensor], differs: str) -> dict[str, float]:
    worst = {name: error.abs().max().item() for name, error in errors.items()}
    for name, error in worst.items():
        require(error <= 1e-12, f"{name} {differs} from log_probs by {error:.1e}")
    return worst


def statistics(case: HeadCase) -> dict[str, float] | str:
    """If the distribution has statistics, they agree with log_probs to 1e-12 in float64."""
    distribution = case.build()(case.hidden())
    if not isinstance(distribution, HasStatistics):
        return "none"
    found, log_probs = distribution.statistics(), distribution.log_probs()
    errors = {
        "top": found.top_logp - log_probs.amax(-1),
        "the top word": log_probs.gather(-1, found.top[..., None])[..., 0] - log_probs.amax(-1),
        "entropy": found.entropy + (log_probs.exp() * log_probs).sum(-1),
    }
    return _worst(errors, "of the statistics differs")


def gradients(case: HeadCase) -> dict[str, float]:
    """Gradients of mean_nll equal autograd's through log_probs to 1e-9, and finite differences to 1e-6, in float64."""
    head, targets, weight = case.build(), case.targets(), case.weight()
    hidden = Hidden(tuple(layer.requires_grad_() for layer in case.hidden().layers))
    inputs = [*hidden.layers, *head.parameters()]

    def reference() -> Tensor:
        picked = head(hidden).log_probs().gather(-1, targets[..., None])[..., 0]
        return -(weight * picked).sum() / weight.sum()

    ours = _grad(head(hidden).mean_nll(targets, weight), inputs)
    error = max((a - b).abs().max().item() for a, b in zip(ours, _grad(reference(), inputs), strict=True))
    require(error <= 1e-9, f"gradients of mean_nll differ from those through log_probs by {error:.1e}")
    with seeded(0, "conformance", "direction"):
        direction = [torch.randn_like(tensor) for tensor in inputs]
    slope = sum((a * b).sum() for a, b in zip(ours, direction, strict=True)).item()
    numeric = [_difference(lambda: head(hidden).mean_nll(targets, weight), inputs, direction, step) for step in STEPS]
    differences = [abs(each - slope) for each in numeric]
    best = min(differences)
    require(
        best <= 1e-6 * max(1.0, abs(slope)), f"slope {slope:.9f}, by differences {numeric[differences.index(best)]:.9f}"
    )
    return {"through log_probs": error, "by differences": best}


def reproducible(case: HeadCase) -> str:
    """The same seed gives the same training loss, bit for bit, with dropout."""
    losses = []
    for _ in range(2):
        head = case.build(torch.float32).train()
        with seeded(0, "conformance", "dropout"):
            losses.append(head(case.hidden(torch.float32)).training_loss(case.targets()))
    require(torch.equal(*losses), f"two runs of one seed give {losses[0].item()} and {losses[1].item()}")
    return "bit-equal"


def trains_every_parameter(case: HeadCase) -> str:
    """Every parameter gets a finite gradient from training_loss, which after one step is not zero
    everywhere. A head that follows training may need some parameters at its start only, and some at
    its end.
    """
    head = case.build()

    def loss(done: float) -> Tensor:
        for module in followers(head):
            module.progress.fill_(done)
        return head(case.hidden()).training_loss(case.targets())

    shares = (0.0, 0.999) if followers(head) else (0.0,)
    return require_all_trained(head, *(partial(loss, done) for done in shares))


def learns_nothing(case: HeadCase) -> str:
    """What it scores changes no parameter and no buffer."""
    head = case.build()
    return require_nothing_learned(head, lambda: head(case.hidden()).nll(case.targets()))


def rows_apart(case: HeadCase) -> dict[str, float]:
    """The distributions of a row of the batch do not depend on the other rows."""
    head, hidden = case.build(), case.hidden()
    one_row = Hidden(tuple(layer[:1] for layer in hidden.layers))
    error = (head(hidden).log_probs()[:1] - head(one_row).log_probs()).abs().max().item()
    require(error <= 1e-12, f"a row alone differs by {error:.1e}")
    return {"a row alone": error}


def mean_loss(case: HeadCase) -> str:
    """The training loss is a mean over tokens: of two copies of a batch it is less than 1.5 times that of one."""
    head, hidden, targets = case.build(), case.hidden(), case.targets()
    twice = Hidden(tuple(torch.cat([layer, layer]) for layer in hidden.layers))
    with seeded(0, "conformance", "loss"):
        once_loss = head(hidden).training_loss(targets).item()
        twice_loss = head(twice).training_loss(torch.cat([targets, targets])).item()
    require(
        abs(twice_loss - once_loss) < 0.5 * abs(once_loss),
        f"it is {once_loss:.4g} for a batch, and {twice_loss:.4g} for two copies of it",
    )
    return f"{once_loss:.3g} and {twice_loss:.3g}"


def follows_training(case: HeadCase) -> str:
    """What a head has of the course of training is among its saved weights: loaded, they have the same loss."""
    losses = []
    head = case.build()
    asking = followers(head)
    if not asking:
        return "does not ask"
    saved = head.state_dict()
    missing = [name for name, _ in head.named_buffers() if name.endswith("progress") and name not in saved]
    require(not missing, f"the buffer {', '.join(missing)} is not saved")
    for module in asking:
        module.progress.fill_(0.5)
    loaded = case.build()
    loaded.load_state_dict(head.state_dict())
    for each in (head, loaded):
        with seeded(0, "conformance", "loss"):
            losses.append(each(case.hidden()).training_loss(case.targets()).item())
    require(losses[0] == losses[1], f"the loss is {losses[0]:.6g}, and {losses[1]:.6g} of loaded weights")
    return "bit-equal when loaded"


def counts_without_allocating(case: HeadCase) -> str:
    """On the meta device it has the same number of parameters as on the CPU, because plans count parameters there.
    `forward` makes no further ones.
    """
    with torch.device("meta"):
        dims = HeadDims(vocab_size=V, layer_dims=(D,) * NUM_LAYERS, d_embed=D)
        planned = case.cls(dims, nn.Embedding(V, D), **case.params)
    head = case.build()
    head(case.hidden())
    return require_equal_counts(planned, head)


HEAD_CHECKS = {
    "shapes": shapes,
    "other widths": other_widths,
    "probabilities sum to 1": normalised,
    "nll, mean_nll and log_probs agree": agreement,
    "rows are independent": rows_apart,
    "the training loss is a mean": mean_loss,
    "statistics": statistics,
    "gradients": gradients,
    "same seed, same output": reproducible,
    "nothing is learned in evaluation": learns_nothing,
    "every parameter is trained": trains_every_parameter,
    "follows training": follows_training,
    "counted without allocating": counts_without_allocating,
}


def _grad(loss: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True)


@torch.no_grad()
def _difference(loss: Callable[[], Tensor], inputs: list[Tensor], direction: list[Tensor], step: float) -> float:
    """Return (loss(x + step d) - loss(x - step d)) / (2 step). The inputs have their old values afterwards."""
    before, values = [tensor.clone() for tensor in inputs], []
    for sign in (1, -1):
        for tensor, at, along in zip(inputs, before, direction, strict=True):
            tensor.copy_(at + sign * step * along)
        values.append(loss().item())
    for tensor, at in zip(inputs, before, strict=True):
        tensor.copy_(at)
    return (values[0] - values[1]) / (2 * step)


@torch.no_grad()
def _extreme(case: HeadCase, dtype: torch.dtype) -> TokenDistribution:
    """Return the distribution of the head with inputs and matrices scaled until a word has a probability below e^-100.

    The scale is at most 2^20, because the logits of some heads are bounded by construction.
    """
    head = case.build(dtype)
    for doubling in range(DOUBLINGS):
        distribution = head(case.hidden(dtype, 2.0**doubling))
        if distribution.log_probs().min() < -EXTREME:
            break
        for parameter in head.parameters():
            if parameter.dim() > 1:
                parameter.mul_(2)
    return distribution
