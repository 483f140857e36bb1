"""Every registered head and backbone conforms, and each check catches a component that breaks it."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from harness.conformance import conformance, variants
from harness.conformance.backbones import BACKBONE_CHECKS, BackboneCase
from harness.conformance.heads import HEAD_CHECKS, HeadCase
from harness.distributions import Logits, Mixture
from harness.errors import ExecutionError, UnknownComponent
from harness.protocols import Hidden
from harness.registry import BACKBONES, HEADS

SMALLER = {"gpt2": {"d_model": 16, "num_layers": 2, "num_heads": 2}}  # its sizes take minutes


@pytest.mark.system
@pytest.mark.parametrize("name", [*HEADS.names(), *BACKBONES.names()])
def test_every_registered_component_passes(name):
    kind, outcomes = conformance(name, SMALLER.get(name))
    checks = HEAD_CHECKS if kind == "head" else BACKBONE_CHECKS
    assert [outcome.check for outcome in outcomes if outcome.variant == outcomes[0].variant] == list(checks)
    assert [str(outcome) for outcome in outcomes if not outcome.ok] == []


def test_a_variant_too_large_to_try_is_left_out_and_says_so(monkeypatch):
    monkeypatch.setattr(variants, "MAX_PARAMETERS", 10_000)
    sizes = {"d_model": 16, "num_layers": 1}  # 4 (16 + 16) 16 + 8 * 16 parameters beside the embedding's 11 * 16
    checked = {outcome.variant for outcome in conformance("lstm", sizes)[1] if "left out" in outcome.detail}
    assert checked == set()
    left_out = [str(o) for o in conformance("gpt2", {"d_model": 16, "num_heads": 2})[1] if "left out" in o.detail]
    # 24 blocks of 12 d^2 + 13 d, d = 16; 11 words, 1024 positions, the last layer norm
    assert (
        f"construction [size=medium]: left out: {24 * (12 * 256 + 13 * 16) + (11 + 1024 + 2) * 16:,} parameters"
        in (left_out[1].partition(";")[0])
    )


class PlainHead(nn.Module):
    """A correct head, from which each broken one below differs by one fault."""

    def __init__(self, dims, embedding):
        super().__init__()
        self.output = nn.Linear(dims.layer_dims[-1], dims.vocab_size)

    def forward(self, hidden):
        return Logits(self.output(hidden.layers[-1]))


class WrongShape(PlainHead):
    def forward(self, hidden):
        z = self.output(hidden.layers[-1])
        return Logits(torch.cat([z, z[..., :1]], dim=-1))  # V + 1 words


class TooMuchProbability(PlainHead):
    def forward(self, hidden):
        distribution = super().forward(hidden)
        log_probs = distribution.log_probs()
        distribution.log_probs = lambda: (log_probs.exp() + 1e-8).log()  # what the published codes do
        return distribution


class OverflowsFarOut(PlainHead):
    def forward(self, hidden):
        distribution = super().forward(hidden)
        z = distribution.z_BTV
        distribution.log_probs = lambda: z - z.float().exp().sum(-1, keepdim=True).log().to(z.dtype)
        return distribution


class AnotherNll(PlainHead):
    def forward(self, hidden):
        distribution = super().forward(hidden)
        exact = distribution.nll
        distribution.nll = lambda targets: exact(targets) + 1e-6
        return distribution


class GradientOffByOnePercent(PlainHead):
    """In mean_nll alone: log_probs has the right one."""

    def forward(self, hidden):
        distribution = super().forward(hidden)
        exact = distribution.mean_nll
        distribution.mean_nll = lambda t, w=None: 1.01 * exact(t, w) - 0.01 * exact(t, w).detach()
        return distribution


class GradientOffByOnePercentEverywhere(PlainHead):
    """In log_probs too: the two agree, and only differences can tell."""

    def forward(self, hidden):
        z = self.output(hidden.layers[-1])
        return Logits(1.01 * z - 0.01 * z.detach())


class LosesOneInput(PlainHead):
    """The value is right; one column of the input gets no gradient."""

    def forward(self, hidden):
        h = hidden.layers[-1]
        return Logits(self.output(torch.cat([h[..., :1].detach(), h[..., 1:]], dim=-1)))


class UnseededNoise(PlainHead):
    counter = 0

    def forward(self, hidden):
        type(self).counter += 1
        return Logits(self.output(hidden.layers[-1]) + 1e-3 * type(self).counter * torch.eye(13)[0])


class LearnsWhileItScores(PlainHead):
    def __init__(self, dims, embedding):
        super().__init__(dims, embedding)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, hidden):
        self.seen += 1
        return super().forward(hidden)


class UnusedParameter(PlainHead):
    def __init__(self, dims, embedding):
        super().__init__(dims, embedding)
        self.spare = nn.Parameter(torch.zeros(3))


class MultipliedByZero(PlainHead):
    """Its parameter has a gradient, which is zero whatever is trained."""

    def __init__(self, dims, embedding):
        super().__init__(dims, embedding)
        self.spare = nn.Parameter(torch.ones(3))

    def forward(self, hidden):
        return Logits(self.output(hidden.layers[-1]) + 0 * self.spare.sum())


class LastLayerStartsAtZero(PlainHead):
    """A correct head: at the start `first` has the gradient 0."""

    def __init__(self, dims, embedding):
        super().__init__(dims, embedding)
        self.first = nn.Linear(dims.layer_dims[-1], dims.layer_dims[-1])
        nn.init.zeros_(self.output.weight)

    def forward(self, hidden):
        return Logits(self.output(self.first(hidden.layers[-1])))


class AnotherCountOnMeta(PlainHead):
    def __init__(self, dims, embedding):
        super().__init__(dims, embedding)
        if dims.token_counts is not None:
            self.extra = nn.Parameter(torch.zeros(3))


class ConfusesWidths(nn.Module):
    """Sized by the embedding's width, fed the top layer's."""

    def __init__(self, dims, embedding):
        super().__init__()
        self.output = nn.Linear(dims.d_embed, dims.vocab_size)

    def forward(self, hidden):
        return Logits(self.output(hidden.layers[-1]))


def test_a_head_that_confuses_widths_fails_and_one_that_refuses_them_does_not():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        HEAD_CHECKS["other widths"](HeadCase(ConfusesWidths, {}))
    assert HEAD_CHECKS["other widths"](HeadCase(HEADS.get("softmax"), {})).startswith("refused: projection")
    assert HEAD_CHECKS["other widths"](HeadCase(HEADS.get("mos"), {})) == "layers (4, 5, 7), E = 6"


@pytest.mark.system
def test_the_checks_hold_when_python_drops_asserts():
    code = (
        "import torch; from torch import nn; from harness.conformance.heads import HEAD_CHECKS, HeadCase\n"
        "from harness.distributions import Logits\n"
        "class Bad(nn.Module):\n"
        "    def __init__(self, dims, embedding): super().__init__()\n"
        "    def forward(self, hidden): return Logits(torch.full((2, 4, 13), torch.nan))\n"
        "HEAD_CHECKS['probabilities sum to 1'](HeadCase(Bad, {}))"
    )
    done = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "Nonconforming" in done.stderr


class Restated(Logits):
    """Logits whose statistics are changed by `change`."""

    def statistics(self):
        found = super().statistics()
        return found._replace(**self.change(found))


class AnotherEntropy(PlainHead):
    def forward(self, hidden):
        made = Restated(super().forward(hidden).z_BTV)
        made.change = lambda found: {"entropy": found.entropy + 1e-9}
        return made


class AnotherTopWord(PlainHead):
    def forward(self, hidden):
        made = Restated(super().forward(hidden).z_BTV)
        made.change = lambda found: {"top": (found.top + 1) % 13}
        return made


def test_a_distribution_without_statistics_is_not_asked_for_them():
    class Bare(PlainHead):
        def forward(self, hidden):
            return object()

    assert HEAD_CHECKS["statistics"](HeadCase(Bare, {})) == "none"


@pytest.mark.parametrize(
    ("check", "cls"),
    [
        ("shapes", WrongShape),
        ("probabilities sum to 1", TooMuchProbability),
        ("probabilities sum to 1", OverflowsFarOut),
        ("nll, mean_nll and log_probs agree", AnotherNll),
        ("statistics", AnotherEntropy),
        ("statistics", AnotherTopWord),
        ("gradients", LosesOneInput),
        ("same seed, same output", UnseededNoise),
        ("nothing is learned in evaluation", LearnsWhileItScores),
        ("every parameter is trained", UnusedParameter),
        ("every parameter is trained", MultipliedByZero),
        ("counted without allocating", AnotherCountOnMeta),
    ],
)
def test_a_broken_head_fails_the_check_that_is_for_it(check, cls):
    HEAD_CHECKS[check](HeadCase(PlainHead, {}))
    with pytest.raises(AssertionError):
        HEAD_CHECKS[check](HeadCase(cls, {}))


def test_components_with_a_layer_that_starts_at_zero_pass_every_check():
    for checks, case in (
        (HEAD_CHECKS, HeadCase(LastLayerStartsAtZero, {})),
        (BACKBONE_CHECKS, BackboneCase(AddsNothingAtFirst, {})),
    ):
        for check in checks.values():
            check(case)


def test_a_wrong_gradient_is_told_apart_by_what_it_disagrees_with():
    with pytest.raises(AssertionError, match="gradients of mean_nll differ from those through log_probs"):
        HEAD_CHECKS["gradients"](HeadCase(GradientOffByOnePercent, {}))
    with pytest.raises(AssertionError, match="by differences"):
        HEAD_CHECKS["gradients"](HeadCase(GradientOffByOnePercentEverywhere, {}))


def test_a_piecewise_linear_head_passes_the_gradients_check():
    # the noise of its 100,000 slopes kinks the logits every 0.0004, within the larger steps' reach
    errors = HEAD_CHECKS["gradients"](HeadCase(HEADS.get("plif"), {}))
    assert errors["through log_probs"] <= 1e-9
    assert errors["by differences"] <= 1e-6


class PlainBackbone(nn.Module):
    """A correct backbone with a carried running sum, from which each broken one below differs by one fault."""

    def __init__(self, vocab_size):
        super().__init__()
        self.layer_dims = (4,)
        self.embedding = nn.Embedding(vocab_size, 4)
        nn.init.normal_(self.embedding.weight)

    def forward(self, tokens, state=None):
        summed = self.embedding(tokens).cumsum(1) + (0.0 if state is None else state[:, None])
        return Hidden((summed,), summed[:, -1])


class AddsNothingAtFirst(PlainBackbone):
    """A correct backbone with a block whose last layer starts at zero, so that `first` has the gradient 0."""

    def __init__(self, vocab_size):
        super().__init__(vocab_size)
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)
        nn.init.zeros_(self.last.weight)

    def forward(self, tokens, state=None):
        hidden = super().forward(tokens, state)
        (top,) = hidden.layers
        return Hidden((top + self.last(self.first(top)),), hidden.state)


class OtherWidth(PlainBackbone):
    def __init__(self, vocab_size):
        super().__init__(vocab_size)
        self.layer_dims = (5,)


class SeesTheFuture(PlainBackbone):
    def forward(self, tokens, state=None):
        x = self.embedding(tokens)
        return Hidden((x + 1e-6 * x.mean(1, keepdim=True),))


class MixesRows(PlainBackbone):
    def forward(self, tokens, state=None):
        hidden = super().forward(tokens, state)
        return Hidden((hidden.layers[0] + hidden.layers[0].mean(0),), hidden.state)


class ForgetsState(PlainBackbone):
    def forward(self, tokens, state=None):
        return super().forward(tokens, None)


class LearnsWhileItReads(PlainBackbone):
    def forward(self, tokens, state=None):
        with torch.no_grad():
            self.embedding.weight += 1e-9
        return super().forward(tokens, state)


class UnusedWeight(PlainBackbone):
    def __init__(self, vocab_size):
        super().__init__(vocab_size)
        self.spare = nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("check", "cls"),
    [
        ("shapes", OtherWidth),
        ("no dependence on later tokens", SeesTheFuture),
        ("rows are independent", MixesRows),
        ("carried state", ForgetsState),
        ("nothing is learned in evaluation", LearnsWhileItReads),
        ("every parameter is trained", UnusedWeight),
    ],
)
def test_a_broken_backbone_fails_the_check_that_is_for_it(check, cls):
    BACKBONE_CHECKS[check](BackboneCase(PlainBackbone, {}))
    with pytest.raises(AssertionError):
        BACKBONE_CHECKS[check](BackboneCase(cls, {}))


def test_a_variant_that_the_constructor_refuses_is_reported_and_not_failed(monkeypatch):
    class Picky(PlainHead):
        def __init__(self, dims, embedding, *, unusual: bool = False):
            super().__init__(dims, embedding)
            if unusual:
                raise ValueError("unusual: not here")

    monkeypatch.setitem(HEADS._classes, "picky", Picky)
    _, outcomes = conformance("picky")
    assert [o.detail for o in outcomes if o.variant == "unusual=True"] == ["refused: unusual: not here"]
    assert all(outcome.ok for outcome in outcomes)


def test_a_required_parameter_must_be_given(monkeypatch):
    class Needy(PlainHead):
        def __init__(self, dims, embedding, *, width: int):
            super().__init__(dims, embedding)
            self.width = width

    monkeypatch.setitem(HEADS._classes, "needy", Needy)
    with pytest.raises(ExecutionError, match="needs --set width="):
        conformance("needy")
    with pytest.raises(ExecutionError, match="valid integer"):
        conformance("needy", {"width": "wide"})
    assert all(outcome.ok for outcome in conformance("needy", {"width": 3})[1])


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(UnknownComponent, match="did you mean 'softmax'"):
        conformance("sofmax")


def test_a_gate_that_is_off_in_bfloat16_is_named_with_what_to_use():
    class InBfloat16(PlainHead):
        def forward(self, hidden):
            facets = hidden.layers[-1].unsqueeze(2).expand(-1, -1, 3, -1)
            return Mixture(facets, hidden.layers[-1][..., :3].log_softmax(-1), self.output.weight)

    gate = r"; so do the weights of its gate \(bfloat16, within .*\): make them by harness.distributions.log_prior"
    with pytest.raises(AssertionError, match=f"probabilities in bfloat16 sum to 1 within .*{gate}"):
        HEAD_CHECKS["probabilities sum to 1"](HeadCase(InBfloat16, {}))
