"""What a Mixture and its parts take and refuse; the numbers themselves are tested in kernels/ and heads/."""

import math
import re
from typing import Literal

import pytest
import torch
from torch import nn

from harness.distributions import (
    LOGIT_MAPS,
    BinaryLogLoss,
    Cap,
    Compat,
    Logits,
    Mixture,
    SigmoidCap,
    SoftCap,
    Start,
    copy_output_,
    facet_map,
    log_epsilon,
    logit_map_of,
    output_layer,
    output_width,
    softcap_of,
    start_as_,
    xavier_uniform_,
)
from harness.protocols import HeadDims, OutputLayer

DIMS = HeadDims(vocab_size=7, layer_dims=(3, 4), d_embed=5)
LAYER = OutputLayer(weight=torch.arange(35.0).view(7, 5), bias=torch.arange(7.0) - 2, softcap=30.0)


def two_tokens(kind):
    """A distribution over two words at two positions, p(0) = 1/2 and 1/5, and an auxiliary loss of 1/4."""
    z = torch.tensor([[[0.0, 0.0], [0.0, 3.0]]], dtype=torch.float64).log1p()
    if kind == "logits":
        return Logits(z - 0.0, aux_loss=0.25)
    return Mixture(z[:, :, None], None, torch.eye(2, dtype=torch.float64), aux_loss=0.25)


@pytest.mark.parametrize(
    ("shapes", "sentence"),
    [
        ({"facets": (1, 2, 4)}, "facets must be (B, T, K, E), got (1, 2, 4); for one facet add .unsqueeze(2)"),
        ({"facets": (2, 4)}, "facets must be (B, T, K, E), got (2, 4)"),
        ({"prior": (1, 3, 2)}, "the log prior must be (B, T, K) with B, T = (1, 2) as the facets have, got (1, 3, 2)"),
        (
            {"prior": (1, 2, 2, 1)},
            "the log prior must be (B, T, K) with B, T = (1, 2) as the facets have, got (1, 2, 2, 1)",
        ),
        ({"weight": (5, 4, 1)}, "the output matrix must be (V, E) with E = 4 as the facets have, got (5, 4, 1)"),
        ({"weight": (5, 3)}, "the output matrix must be (V, E) with E = 4 as the facets have, got (5, 3)"),
        ({"bias": (4,)}, "the output bias must be (V,) = (5,) as the output matrix has, got (4,)"),
    ],
)
def test_a_mixture_says_which_tensor_has_the_wrong_shape(shapes, sentence):
    right = {"facets": (1, 2, 2, 4), "prior": (1, 2, 2), "weight": (5, 4), "bias": (5,)}
    Mixture(*(torch.zeros(shape) for shape in right.values()))
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        Mixture(*(torch.zeros(shape) for shape in (right | shapes).values()))


def test_logits_say_that_they_have_the_wrong_shape():
    with pytest.raises(ValueError, match=re.escape("logits must be (B, T, V), got (2, 5)")):
        Logits(torch.zeros(2, 5))


def test_the_statistics_of_logits_by_hand():
    # Z = 1 + 1 and 1 + 4, p = (1/2, 1/2) and (1/5, 4/5)
    found = two_tokens("logits").statistics()
    assert found.log_normaliser.tolist() == [[[pytest.approx(math.log(2))], [pytest.approx(math.log(5))]]]
    assert found.entropy.tolist() == [[pytest.approx(math.log(2)), pytest.approx(math.log(5) - 0.8 * math.log(4))]]
    assert found.top[0, 1] == 1


@pytest.mark.parametrize("weight", [None, torch.tensor([[1.0], [3.0]], dtype=torch.float64)])
def test_the_z_term_of_a_binary_loss_by_hand(weight):
    """loss = -log p(y) - log(1 - p(other)), of two words 2 x -log p(y); the z-term is z_loss (log Z)^2."""
    z = torch.tensor([[[0.0, 0.0]], [[0.0, 3.0]]], dtype=torch.float64).log1p()
    distribution = BinaryLogLoss(z[:, :, None], None, torch.eye(2, dtype=torch.float64))
    distribution.z_loss = 1.0
    first, second = (1 / 2, 1 / 2) if weight is None else (1 / 4, 3 / 4)
    z_term = first * math.log(2) ** 2 + second * math.log(5) ** 2
    loss = 2 * (first * math.log(2) + second * math.log(5))
    targets = torch.zeros(2, 1, dtype=torch.int64)
    assert distribution.z_term(weight).item() == pytest.approx(z_term, rel=1e-12)
    assert distribution.training_loss(targets, weight).item() == pytest.approx(loss + z_term, rel=1e-12)


def test_the_options_that_a_suite_may_give():
    assert Compat == dict[Literal["log_epsilon"], float]
    assert Start == Literal["xavier", "identity", "embedding", "pretrained"]
    assert Cap == float | dict[Literal["a", "b", "c"], float]


@pytest.mark.parametrize(("compat", "expected"), [(None, None), ({"log_epsilon": 1e-8}, 1e-8)])
def test_log_epsilon_is_off_unless_it_is_asked_for(compat, expected):
    assert log_epsilon(compat) == expected


@pytest.mark.parametrize("epsilon", [0.0, -1e-8, 1.0, 1.5])
def test_a_log_epsilon_that_is_no_probability_is_refused(epsilon):
    with pytest.raises(ValueError, match=f"compat: expected a log_epsilon between 0 and 1, got .*{epsilon}"):
        log_epsilon({"log_epsilon": epsilon})


def test_a_compat_without_a_switch_is_refused():
    with pytest.raises(ValueError, match=r"compat: expected a log_epsilon between 0 and 1, got \{\}"):
        log_epsilon({})


@pytest.mark.parametrize("partitions", [(1,), (2,), (2, 1)])
def test_a_part_is_its_tokens_distribution_without_the_auxiliary_loss(partitions):
    generator = torch.Generator().manual_seed(0)
    facets, prior, weight, bias = (
        torch.randn(*shape, generator=generator) for shape in ((2, 4, sum(partitions), 3), (2, 4, 2), (5, 3), (5,))
    )
    given = {"partitions": partitions, "logit_map": torch.exp, "log_epsilon": 0.01, "aux_loss": 7.0}
    whole = Mixture(facets, prior.log_softmax(-1) if len(partitions) == 2 else None, weight, bias, **given)
    part = whole.part(slice(3, 6))
    assert part.shape == (1, 3)
    torch.testing.assert_close(part.log_probs()[0], whole.log_probs().flatten(0, 1)[3:6])
    assert part.aux_loss == 0


@pytest.mark.parametrize("kind", ["mixture", "logits"])
def test_the_training_loss_is_weighted_as_the_mean_nll_is(kind):
    # nll of word 0: log 2 and log 5; weights 3 and 1
    targets, weight = torch.zeros(1, 2, dtype=torch.long), torch.tensor([[3.0, 1.0]])
    expected = (3 * torch.tensor(2.0, dtype=torch.float64).log() + torch.tensor(5.0, dtype=torch.float64).log()) / 4
    assert two_tokens(kind).mean_nll(targets, weight).item() == pytest.approx(expected.item(), abs=1e-12)
    assert two_tokens(kind).training_loss(targets, weight).item() == pytest.approx(expected.item() + 0.25, abs=1e-12)


def test_weights_of_any_type_leave_the_loss_in_the_logits_type():
    facets, targets = torch.ones(1, 2, 1, 3), torch.zeros(1, 2, dtype=torch.long)
    for weight in (torch.ones(1, 2, dtype=torch.float64), torch.ones(1, 2, dtype=torch.long)):
        assert Mixture(facets, None, torch.ones(4, 3)).mean_nll(targets, weight).dtype == torch.float32


@pytest.mark.parametrize("partitions", [(1, 1, 2), (0, 1, 2), (4, -2, 1), (3, 1, 0)])
def test_partitions_that_do_not_share_out_the_facets_are_refused(partitions):
    with pytest.raises(ValueError, match="do not fit partitions"):
        Mixture(torch.zeros(1, 1, 3, 2), torch.zeros(1, 1, 3), torch.zeros(5, 2), partitions=partitions)


def test_facet_map_projects_from_the_top_layer_or_refuses():
    assert tuple(facet_map(DIMS, projection=True).weight.shape) == (5, 4)
    with pytest.raises(ValueError, match="the top layer has width 4, the output embedding 5; set projection to true"):
        facet_map(DIMS, projection=False)


def test_a_heads_own_width_is_free_but_when_tied():
    assert output_width(DIMS, None, tie_weights=True) == 5
    assert output_width(DIMS, 5, tie_weights=True) == 5
    assert output_width(DIMS, 1, tie_weights=False) == 1
    with pytest.raises(ValueError, match="tie_weights: the embedding has width 5, d_embed is 2; they must be equal"):
        output_width(DIMS, 2, tie_weights=True)
    with pytest.raises(ValueError, match="d_embed must be at least 1, got 0"):
        output_width(DIMS, 0, tie_weights=False)


def test_output_layer_is_a_row_and_a_bias_for_each_word():
    embedding = nn.Embedding(7, 5)
    own = output_layer(DIMS, embedding, bias=True, tie_weights=False, width=2)
    assert (tuple(own.weight.shape), tuple(own.bias.shape)) == ((7, 2), (7,))
    assert output_layer(DIMS, embedding, bias=False, tie_weights=False).weight.shape == (7, 5)
    assert output_layer(DIMS, embedding, bias=False, tie_weights=False).bias is None
    assert output_layer(DIMS, embedding, bias=True, tie_weights=True).weight is embedding.weight


def test_xavier_fills_matrices_in_their_order():
    first, second, bias = nn.Linear(4, 5), nn.Linear(5, 7), torch.full((5,), 0.5)
    with torch.no_grad():
        first.bias.copy_(bias)
    torch.manual_seed(0)
    expected = [torch.empty(i, o).uniform_(-((6 / (i + o)) ** 0.5), (6 / (i + o)) ** 0.5) for i, o in ((7, 5), (5, 4))]
    torch.manual_seed(0)
    xavier_uniform_(nn.Identity(), None, second, first)
    torch.testing.assert_close(second.weight.detach(), expected[0])
    torch.testing.assert_close(first.weight.detach(), expected[1])
    assert torch.equal(first.bias, bias)


def test_an_output_layer_leaves_a_tied_embedding_alone():
    embedding = nn.Embedding(7, 5)
    before = embedding.weight.clone()
    output_layer(DIMS, embedding, bias=True, tie_weights=True)
    assert torch.equal(embedding.weight, before)


def test_a_facet_without_words_is_refused():
    with pytest.raises(ValueError, match=r"partitions \(1, 4\) are more than the 3 words"):
        Mixture(torch.zeros(1, 1, 5, 2), torch.zeros(1, 1, 2), torch.zeros(3, 2), partitions=(1, 4))


@pytest.mark.parametrize("kind", ["mixture", "logits", "another map"])
@pytest.mark.parametrize("grad", [True, False])
def test_weights_that_are_all_0_have_no_mean(kind, grad):
    facets = torch.ones(1, 2, 1, 3, requires_grad=True)
    made = {
        "mixture": lambda: Mixture(facets, None, torch.ones(4, 3)),
        "another map": lambda: Mixture(facets, None, torch.ones(4, 3), logit_map=lambda z: 2 * z),
        "logits": lambda: Logits(facets[:, :, 0]),
    }[kind]()
    targets = torch.zeros(1, 2, dtype=torch.long)
    with torch.set_grad_enabled(grad):
        for loss in (made.mean_nll, made.training_loss):
            with pytest.raises(ValueError, match="the weights of all tokens are 0"):
                loss(targets, torch.zeros(1, 2))
            assert loss(targets, torch.tensor([[0.0, 1.0]])).isfinite()


def test_a_soft_cap_is_the_only_map():
    assert logit_map_of(None)(torch.ones(1)).item() == 1
    assert logit_map_of(None, "sigsoftmax") is LOGIT_MAPS["sigsoftmax"]
    assert logit_map_of(3.0) == SoftCap(3.0)
    assert logit_map_of({"a": 23.0, "b": 5.0, "c": 7.5}) == SigmoidCap(a=23.0, b=5.0, c=7.5)
    with pytest.raises(ValueError, match="the logit map is sigsoftmax already; give one of the two"):
        logit_map_of(3.0, "sigsoftmax")
    with pytest.raises(ValueError, match="softcap must be a finite number above 0, got 0"):
        logit_map_of(0.0)


def test_a_facet_map_has_the_width_that_is_asked_for():
    assert tuple(facet_map(DIMS, projection=True, width=3).weight.shape) == (3, 4)
    assert isinstance(facet_map(DIMS, projection=False, width=4), nn.Identity)
    with pytest.raises(ValueError, match="the top layer has width 4, the output embedding 3; set projection to true"):
        facet_map(DIMS, projection=False, width=3)


def test_a_matrix_of_another_width_is_no_copy_of_the_embedding():
    embedding = nn.Embedding(7, 5)
    output = output_layer(DIMS, embedding, bias=True, tie_weights=False, width=2)
    with pytest.raises(ValueError, match="copies the input embedding, which has width 5, the output matrix 2"):
        start_as_("embedding", DIMS, embedding, nn.Identity(), output)


def pretrained(weight=LAYER.weight, bias=LAYER.bias, **layers):
    """The sizes of a backbone with an output layer of its own, its input embedding, and a head's facet and output."""
    layer = OutputLayer(weight=weight, bias=bias, softcap=LAYER.softcap)
    dims = HeadDims(vocab_size=7, layer_dims=(5,), d_embed=5, pretrained=layer)
    return dims, nn.Embedding(7, 5), layers.get("facet", nn.Linear(5, 10)), layers.get("output", nn.Linear(5, 7))


def test_a_head_that_starts_as_the_pretrained_layer_has_its_values_and_its_soft_cap():
    dims, embedding, facet, output = pretrained()
    start_as_("pretrained", dims, embedding, facet, output)
    assert torch.equal(output.weight, LAYER.weight)
    assert torch.equal(output.bias, LAYER.bias)
    assert torch.equal(facet.weight, torch.eye(5).repeat(2, 1))
    assert not facet.bias.any()
    assert softcap_of("pretrained", dims, None) == softcap_of("pretrained", dims, 30.0) == 30
    assert softcap_of("embedding", dims, None) is None
    assert softcap_of("embedding", dims, 15.0) == 15
    with pytest.raises(ValueError, match=r"^softcap: the pretrained output layer has 30; leave it out, got 15\.0$"):
        softcap_of("pretrained", dims, 15.0)


def test_a_bias_that_only_the_head_has_starts_at_zero():
    dims, embedding, facet, output = pretrained(bias=None)
    start_as_("pretrained", dims, embedding, facet, output)
    assert not output.bias.any()


def test_a_copied_output_layer_is_the_pretrained_one_or_the_embedding():
    dims, embedding, _, output = pretrained()
    copy_output_(dims, embedding, output)
    assert torch.equal(output.weight, LAYER.weight)
    assert torch.equal(output.bias, LAYER.bias)
    before = output.bias.clone()
    copy_output_(DIMS, embedding, output)
    assert torch.equal(output.weight, embedding.weight)
    assert torch.equal(output.bias, before)


@pytest.mark.parametrize(
    "start", [copy_output_, lambda dims, embedding, output: start_as_("pretrained", dims, embedding, None, output)]
)
def test_a_pretrained_bias_is_not_lost(start):
    dims, embedding, _, output = pretrained(output=nn.Linear(5, 7, bias=False))
    with pytest.raises(ValueError, match=r"^bias: the pretrained output layer has one; set bias to true$"):
        start(dims, embedding, output)


@pytest.mark.parametrize(
    ("start", "layers", "sentence"),
    [
        (
            "pretrained",
            {"weight": torch.ones(7, 4)},
            "copies the pretrained output layer, which has width 4, the output matrix 5",
        ),
        (
            "pretrained",
            {"facet": nn.Linear(5, 7)},
            "the width of the pretrained output layer, the projection maps 5 to 7",
        ),
        ("identity", {"facet": nn.Linear(10, 10)}, "the width of the output matrix, the projection maps 10 to 10"),
    ],
)
def test_a_layer_of_another_width_cannot_start_so(start, layers, sentence):
    with pytest.raises(ValueError, match=f"^start: '{start}' .*{sentence}$"):
        start_as_(start, *pretrained(**layers))


def test_a_tied_matrix_is_the_pretrained_one_or_refused():
    dims, embedding, facet, output = pretrained()
    output.weight = embedding.weight
    with pytest.raises(ValueError, match=r"^tie_weights: the pretrained output matrix is not the input embedding"):
        start_as_("pretrained", dims, embedding, facet, output)
    start_as_("pretrained", pretrained(weight=embedding.weight)[0], embedding, facet, output)
    assert output.weight is embedding.weight


def test_without_a_pretrained_layer_no_head_starts_as_one():
    _, embedding, facet, output = pretrained()
    assert softcap_of("pretrained", DIMS, None) is None
    with pytest.raises(ValueError, match=r"^start: 'pretrained' needs a backbone with pretrained weights"):
        start_as_("pretrained", DIMS, embedding, facet, output)
