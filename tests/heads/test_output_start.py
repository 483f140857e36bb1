"""Under one seed, heads whose output layers have one shape start with the same W and b, and other draws do not depend
on the shape of W."""

import math

import pytest
import torch
from head_table import rows
from torch import nn

from harness.corpora.batching import Segment
from harness.distributions import Mixture, output_layer, xavier_uniform_
from harness.model import build
from harness.plan.specs import ComponentSpec
from harness.protocols import HeadDims
from harness.registry import HEADS

V, E, LAYERS = 23, 8, 3
COUNTS = torch.arange(V) % 5
OWN_START, COPIED = rows("start"), rows("start_copied")  # W is Xavier-uniform, or a copy of the embedding
RANGE = 0.125
UNIFORM = "init_bias: 'uniform' needs an init_range, and a head with a bias"
EVERY = [*OWN_START, *((name, params) for name, params in COPIED if "start" not in params)]
own_start = pytest.mark.parametrize(("name", "params"), OWN_START, ids=str)
every = pytest.mark.parametrize(("name", "params"), EVERY, ids=str)


def started(name: str, params: dict, seed: int = 1, vocab_size: int = V):
    """A trial's model at its start."""
    backbone = ComponentSpec(name="lstm", params={"d_model": E, "num_layers": LAYERS})
    counts = COUNTS if vocab_size == V else torch.arange(vocab_size) % 5
    head = ComponentSpec(name=name, params=params)
    return build(backbone, head, vocab_size=vocab_size, seed=seed, token_counts=counts)


def assert_same_others(first: nn.Module, second: nn.Module):
    """What a head has beside its output layers."""
    one, two = (
        {key: value for key, value in head.named_parameters() if not key.startswith(("output.", "unembedding."))}
        for head in (first, second)
    )
    assert one.keys() == two.keys()
    assert all(torch.equal(value, two[key]) for key, value in one.items())


@pytest.fixture(scope="module")
def softmax():
    output = started("softmax", {}).head.output
    assert 0.8 * E**-0.5 < output.bias.abs().max() <= E**-0.5  # 23 draws
    return output


@own_start
def test_every_head_starts_with_the_same_output_matrix_which_the_seed_decides(softmax, name, params):
    first, again, other = started(name, params), started(name, params), started(name, params, seed=2)
    assert torch.equal(first.head.output.weight, softmax.weight)
    assert all(torch.equal(one, two) for one, two in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first.head.output.weight, other.head.output.weight)


@every
def test_every_head_starts_with_the_same_output_bias(softmax, name, params):
    for tied in (False, True):
        made = started(name, {**params, "bias": True, "tie_weights": tied})
        assert torch.equal(made.head.output.bias, softmax.bias)


@pytest.mark.parametrize(("name", "params"), COPIED, ids=str)
def test_a_head_that_starts_as_the_embedding_has_a_copy_of_it(name, params):
    model = started(name, params)
    assert torch.equal(model.head.output.weight, model.backbone.embedding.weight)
    assert model.head.output.weight.data_ptr() != model.backbone.embedding.weight.data_ptr()


@pytest.mark.parametrize(("name", "params"), [*OWN_START, *COPIED], ids=str)
def test_no_other_draw_of_a_head_depends_on_the_output_layer(name, params):
    if name == "ngpt":  # so that the number of scales does not depend on V
        params = {**params, "scale": "one"}
    if name == "mixtape":  # so that the number of words with gates of their own does not depend on V
        params = {**params, "own_gates": 0.0}
    first = started(name, params).head
    assert_same_others(first, started(name, params, vocab_size=V + 4).head)
    for change in ({"bias": False}, {"tie_weights": True}):
        assert_same_others(first, started(name, {**params, **change}).head)


class OtherHead(nn.Module):
    """A head of a user: another number of draws before its output layer."""

    def __init__(self, dims: HeadDims, embedding: nn.Embedding):
        super().__init__()
        self.first = nn.Linear(dims.layer_dims[-1], 40)
        self.second = nn.Linear(40, dims.d_embed)
        self.output = output_layer(dims, embedding, bias=True, tie_weights=False)
        xavier_uniform_(self.second, self.first)

    def forward(self, hidden):
        return Mixture(self.second(self.first(hidden.layers[-1]))[:, :, None], None, self.output.weight)


def test_a_head_of_a_user_that_calls_output_layer_shares_it_and_by_hand_follows_torchs_seed(softmax, monkeypatch):
    def made(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return OtherHead(HeadDims(vocab_size=V, layer_dims=(E,), d_embed=E), nn.Embedding(V, E)).output.weight

    HEADS.names()
    monkeypatch.setitem(HEADS._classes, "other_head", OtherHead)
    output = started("other_head", {}).head.output
    assert torch.equal(output.weight, softmax.weight)
    assert torch.equal(output.bias, softmax.bias)
    assert torch.equal(made(0), made(0))
    assert not torch.equal(made(0), made(1))


@pytest.fixture(scope="module")
def ranged():
    """The output layer of a softmax that starts in a range, its bias zero or drawn too."""
    zero, drawn = (
        started("softmax", {"init_range": RANGE, "init_bias": bias}).head.output for bias in ("zero", "uniform")
    )
    assert 0.97 * RANGE < zero.weight.abs().max() <= RANGE
    assert zero.weight.std().item() == pytest.approx(RANGE / 3**0.5, rel=0.1)  # 184 draws
    assert zero.weight.mean().item() == pytest.approx(0, abs=4 * RANGE / (3 * zero.weight.numel()) ** 0.5)
    assert 0.5 * RANGE < drawn.bias.abs().max() <= RANGE
    assert drawn.bias.min() < 0 < drawn.bias.max()
    assert not torch.equal(drawn.bias, drawn.weight.flatten()[:V])
    return drawn


@every
def test_a_range_is_that_of_every_output_matrix_and_the_bias_is_zero_or_drawn_from_it(ranged, name, params):
    params = {**params, "bias": True}
    without, within = started(name, params).head, {**params, "init_range": RANGE}
    zero, drawn = started(name, within).head, started(name, {**within, "init_bias": "uniform"}).head
    assert torch.equal(zero.output.weight, ranged.weight)
    assert not zero.output.bias.any()
    assert torch.equal(drawn.output.weight, ranged.weight)
    assert torch.equal(drawn.output.bias, ranged.bias)
    assert_same_others(zero, without)


@every
def test_a_range_of_a_tied_matrix_is_that_of_the_embedding(ranged, name, params):
    model = started(name, {**params, "init_range": RANGE, "tie_weights": True})
    assert model.head.output.weight is model.backbone.embedding.weight
    assert torch.equal(model.backbone.embedding.weight, ranged.weight)


@every
def test_a_start_that_cannot_be_is_refused(name, params):
    for given, sentence in (
        ({"init_range": 0.0}, "init_range must be more than 0, got 0.0"),
        ({"init_range": -0.1}, "init_range must be more than 0, got -0.1"),
        ({"init_bias": "uniform"}, UNIFORM),
        ({"init_bias": "uniform", "init_range": 0.1, "bias": False}, UNIFORM),
    ):
        with pytest.raises(ValueError, match=f"^{sentence}$"):
            started(name, {**params, **given})


@pytest.mark.parametrize(("start", "of_softmax"), [("embedding", "embedding"), ("identity", "xavier")])
@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("softmax", {"projection": True}),
        *((name, {"num_mixtures": 3, "activation": "none"}) for name in ("mos", "moc")),
    ],
)
def test_a_head_whose_maps_start_at_the_identity_starts_as_a_plain_softmax(name, params, start, of_softmax):
    tokens = torch.arange(2 * 3).view(2, 3) % V
    for more in ({}, *([{"init_range": RANGE}] if start == "identity" else [])):
        softmax, mapped = (
            started(head, {**given, **more}).eval()(Segment(tokens, tokens))[0].log_probs()
            for head, given in (("softmax", {"start": of_softmax}), (name, {**params, "start": start}))
        )
        torch.testing.assert_close(mapped, softmax)


@pytest.mark.parametrize("params", [{}, {"init_range": RANGE}, {"log_normaliser": 9.0}], ids=str)
def test_nce_may_start_its_bias_at_the_unigram(params):
    # by hand: q(x) = count(x) / sum of counts, at least 1e-10, renormalised; b = log q + lnZ, lnZ = log V or as given
    shares = [max(count / COUNTS.sum().item(), 1e-10) for count in COUNTS.tolist()]
    log_normaliser = params.get("log_normaliser", math.log(V))
    expected = [math.log(share / sum(shares)) + log_normaliser for share in shares]
    model, without = started("nce", {**params, "init_bias": "unigram"}), started("nce", params)
    torch.testing.assert_close(model.head.output.bias.tolist(), expected, rtol=0, atol=1e-5)
    assert torch.equal(model.head.output.weight, without.head.output.weight)
