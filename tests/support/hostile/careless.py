"""Heads and backbones with honest mistakes, as one makes them: plug-ins for tests of what is said of them."""

import torch
from torch import nn
from torch.nn import functional

from harness.backbones.lstm import StackedLSTM
from harness.distributions import Logits
from harness.heads.softmax import Softmax
from harness.protocols import Hidden


def _with_top(hidden: Hidden, top_BTD) -> Hidden:
    return hidden._replace(layers=(*hidden.layers[:-1], top_BTD))


class DropsOutAlways(Softmax):
    """Its dropout is a function, which does not know that evaluation has begun."""

    def forward(self, hidden):
        return super().forward(_with_top(hidden, functional.dropout(hidden.layers[-1], 0.3)))


class _Plain(nn.Module):
    """A softmax whose logits its subclasses change."""

    kind = Logits

    def __init__(self, dims, embedding):
        super().__init__()
        self.output = nn.Linear(dims.layer_dims[-1], dims.vocab_size)

    def forward(self, hidden):
        found = self.kind(self.output(hidden.layers[-1]))
        found.head = self
        return found


class _OverRows(Logits):
    def log_probs(self):
        return self.z_BTV.log_softmax(0)

    def nll(self, targets_BT):
        return -self.log_probs().gather(-1, targets_BT[..., None])[..., 0]


class NormalisesRows(_Plain):
    """Its softmax is over the rows of the batch and not over the words."""

    kind = _OverRows


class _Smoothed(Logits):
    def nll(self, targets_BT):
        return 0.9 * super().nll(targets_BT) - 0.1 * self.z_BTV.log_softmax(-1).mean(-1)


class Smooths(_Plain):
    """Its label smoothing is in the loss that is counted."""

    kind = _Smoothed


class CentresByMemory(Softmax):
    """It subtracts a running mean of the states, which also moves while it is scored."""

    def __init__(self, dims, embedding):
        super().__init__(dims, embedding)
        self.register_buffer("mean", torch.zeros(dims.layer_dims[-1]))

    def forward(self, hidden):
        top_BTD = hidden.layers[-1]
        self.mean.lerp_(top_BTD.detach().mean((0, 1)), 0.1)
        return super().forward(_with_top(hidden, top_BTD - self.mean))


class RemembersStates(Softmax):
    """It adds the mean state of the batch before, which it keeps in an attribute."""

    before = None

    def forward(self, hidden):
        top_BTD = hidden.layers[-1]
        before, self.before = self.before, top_BTD.detach().mean((0, 1))
        return super().forward(hidden if before is None else _with_top(hidden, top_BTD + before))


class NormalisesBatches(Softmax):
    """Its batch normalisation uses the statistics of the batch in evaluation, too."""

    def forward(self, hidden):
        flat = functional.batch_norm(hidden.layers[-1].flatten(0, 1), None, None, training=True)
        return super().forward(_with_top(hidden, flat.view_as(hidden.layers[-1])))


class NormalisesRunning(Softmax):
    """Honest: a batch normalisation with running statistics."""

    def __init__(self, dims, embedding):
        super().__init__(dims, embedding)
        self.norm = nn.BatchNorm1d(dims.layer_dims[-1])

    def forward(self, hidden):
        flat = self.norm(hidden.layers[-1].flatten(0, 1))
        return super().forward(_with_top(hidden, flat.view_as(hidden.layers[-1])))


class _Heated(Logits):
    def nll(self, targets_BT):
        head = self.head
        if head.training:
            return super().nll(targets_BT)
        with torch.enable_grad():
            log_t = head.log_t.detach().requires_grad_()
            scaled = Logits(self.z_BTV.detach() * log_t.exp())
            (gradient,) = torch.autograd.grad(scaled.mean_nll(targets_BT), log_t)
        head.log_t.sub_(0.5 * gradient)
        return super().nll(targets_BT)


class Calibrates(_Plain):
    """Its temperature is a buffer that is fitted wherever it is scored: on the validation text, too."""

    kind = _Heated

    def __init__(self, dims, embedding):
        super().__init__(dims, embedding)
        self.register_buffer("log_t", torch.zeros(()))

    def forward(self, hidden):
        found = self.kind(self.output(hidden.layers[-1]) * self.log_t.exp())
        found.head = self
        return found


class SeedsItself(Softmax):
    """Its constructor seeds torch."""

    def __init__(self, dims, embedding):
        torch.manual_seed(0)
        super().__init__(dims, embedding)


class DrawsUnseeded(Softmax):
    """Its noise in training comes from a generator of its own without a seed."""

    def __init__(self, dims, embedding):
        super().__init__(dims, embedding)
        self.generator = torch.Generator()
        self.generator.seed()

    def forward(self, hidden):
        top_BTD = hidden.layers[-1]
        noise = torch.randn(top_BTD.shape, generator=self.generator).to(top_BTD)
        return super().forward(_with_top(hidden, top_BTD + 0.1 * noise * self.training))


class RegistersLate(Softmax):
    """It makes a layer when it is first called."""

    def forward(self, hidden):
        if not hasattr(self, "late"):
            self.late = nn.Linear(hidden.layers[-1].shape[-1], hidden.layers[-1].shape[-1], bias=False)
            self.late.to(hidden.layers[-1])
        return super().forward(_with_top(hidden, self.late(hidden.layers[-1])))


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, upstream):
        return 10 * upstream


class ScalesGradient(Softmax):
    """It multiplies the gradient that the backbone gets."""

    def forward(self, hidden):
        return super().forward(_with_top(hidden, _Scaled.apply(hidden.layers[-1])))


class SharesUnderAnotherName(Softmax):
    """Its output matrix is another parameter in the memory of the backbone's embedding."""

    def __init__(self, dims, embedding):
        super().__init__(dims, embedding)
        self.output.weight = nn.Parameter(embedding.weight.data)


class HidesWeights(Softmax):
    """Its output matrix is a buffer that it updates itself by the gradient."""

    def __init__(self, dims, embedding):
        super().__init__(dims, embedding)
        weight = self.output.weight.detach().clone()
        del self.output.weight
        self.output.register_buffer("weight", weight)

    def forward(self, hidden):
        if self.training and torch.is_grad_enabled():
            self.output.weight = self.output.weight.detach().requires_grad_()
            self.output.weight.register_hook(self._step)
        return super().forward(hidden)

    def _step(self, gradient):
        self.output.weight.data.sub_(0.5 * gradient)


class TakesRate(Softmax):
    """The rate that it gives to its matrix is that of the backbone's embedding, to which the matrix is tied."""

    def __init__(self, dims, embedding):
        super().__init__(dims, embedding, tie_weights=True)
        self.learning_rates = {"output.weight": 10.0}


class SumsLoss(_Plain):
    """Its training loss is a sum over the tokens."""

    class kind(Logits):
        """See above."""

        def training_loss(self, targets_BT, weight_BT=None):
            return self.nll(targets_BT).sum()


class CountsUnsaved(_Plain):
    """What it counts is in a buffer that is not saved with the weights."""

    def __init__(self, dims, embedding):
        super().__init__(dims, embedding)
        self.register_buffer("counts_V", torch.zeros(dims.vocab_size), persistent=False)

    def count(self, train_N, line_end):
        self.counts_V.copy_(train_N.bincount(minlength=len(self.counts_V)))
        return {}

    def forward(self, hidden):
        return Logits(self.output(hidden.layers[-1]) + self.counts_V.log1p())


class CentresUnsaved(Softmax):
    """The running mean that it subtracts is not saved with the weights."""

    def __init__(self, dims, embedding):
        super().__init__(dims, embedding)
        self.register_buffer("mean", torch.zeros(dims.layer_dims[-1]), persistent=False)

    def forward(self, hidden):
        top_BTD = hidden.layers[-1]
        if self.training:
            self.mean.lerp_(top_BTD.detach().mean((0, 1)), 0.5)
        return super().forward(_with_top(hidden, 30 * (top_BTD - self.mean)))


class CountsValidation(Softmax):
    """Its method `count` is as it was when the validation text was given to heads."""

    def count(self, train_N, valid_N, line_end):
        return {}


class CachesMask(Softmax):
    """It keeps a tensor of the length of the text in a buffer that is not saved, as a mask is kept: no mistake."""

    def __init__(self, dims, embedding):
        super().__init__(dims, embedding)
        self.register_buffer("mask", torch.ones(1), persistent=False)

    def forward(self, hidden):
        if len(self.mask) < hidden.layers[-1].shape[1]:
            self.mask = torch.ones(hidden.layers[-1].shape[1])
        return super().forward(hidden)


class CountsAndInitialises(Softmax):
    """It gives the backbone's embedding other first values where it counts the text."""

    def __init__(self, dims, embedding):
        super().__init__(dims, embedding)
        self.given = [embedding]

    def count(self, train_N, line_end):
        torch.nn.init.normal_(self.given[0].weight)
        return {}


class ForgetsState(StackedLSTM):
    """It returns a state, and begins each segment from zero."""

    def forward(self, tokens_BT, state=None):
        return super().forward(tokens_BT, None)


class RemembersText(StackedLSTM):
    """It keeps its state in an attribute, and never begins a split anew."""

    kept, rows = None, 0

    def forward(self, tokens_BT, state=None):
        rows = len(tokens_BT)
        hidden = super().forward(tokens_BT, self.kept if self.rows == rows else None)
        self.rows, self.kept = rows, tuple((h.detach(), c.detach()) for h, c in hidden.state)
        return hidden._replace(state=None)


class PoolsSegment(StackedLSTM):
    """It adds the mean state of the segment, later positions included."""

    def forward(self, tokens_BT, state=None):
        layers, state, *more = super().forward(tokens_BT, state)
        return Hidden((*layers[:-1], layers[-1] + layers[-1].mean(1, keepdim=True)), state, *more)


HEADS = {
    "drops_out_always": DropsOutAlways,
    "normalises_rows": NormalisesRows,
    "smooths": Smooths,
    "centres_by_memory": CentresByMemory,
    "remembers_states": RemembersStates,
    "normalises_batches": NormalisesBatches,
    "normalises_running": NormalisesRunning,
    "calibrates": Calibrates,
    "seeds_itself": SeedsItself,
    "draws_unseeded": DrawsUnseeded,
    "registers_late": RegistersLate,
    "scales_gradient": ScalesGradient,
    "shares_under_another_name": SharesUnderAnotherName,
    "hides_weights": HidesWeights,
    "takes_rate": TakesRate,
    "sums_loss": SumsLoss,
    "counts_and_initialises": CountsAndInitialises,
    "counts_unsaved": CountsUnsaved,
    "centres_unsaved": CentresUnsaved,
    "counts_validation": CountsValidation,
    "caches_mask": CachesMask,
}
BACKBONES = {"forgets_state": ForgetsState, "remembers_text": RemembersText, "pools_segment": PoolsSegment}
