"""Softmax and SigSoftmax: where biases start, and the start as the embedding."""

import math

import pytest
import torch
from small_heads import D, E, V, assert_fills, load, make, states
from torch import nn

from harness.protocols import Hidden


def test_biases_start_as_torch_would():
    head = make("softmax", layer_dims=(9, 40), embedding=60, vocab_size=400, projection=True)
    assert_fills(head.output.bias, 1 / math.sqrt(60))
    assert head.facet.bias.abs().max() <= 1 / math.sqrt(40)


@pytest.mark.parametrize("name", ["softmax", "sigsoftmax"])
@pytest.mark.parametrize("params", [{"projection": True, "bias": False}, {"projection": True}, {}, {"bias": False}])
def test_started_as_the_embedding_the_logits_are_its_products_with_the_top_state(name, params):
    embedding = nn.Embedding(V, E)
    head = make(name, embedding=embedding, start="embedding", dtype=None, **params)
    h_BTE = torch.randn(1, 3, E, generator=torch.Generator().manual_seed(0))
    z_BTV = h_BTE @ embedding.weight.T
    expected = (z_BTV if name == "softmax" else z_BTV + z_BTV.sigmoid().log()).log_softmax(-1)
    found = head(Hidden((torch.zeros(1, 3, 9), h_BTE))).log_probs()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert head.output.weight is not embedding.weight
    assert head.output.weight.requires_grad


@pytest.mark.parametrize("name", ["softmax", "sigsoftmax"])
def test_started_as_the_embedding_a_tied_matrix_stays_tied_and_another_width_is_refused(name):
    embedding = nn.Embedding(V, E)
    assert make(name, embedding=embedding, tie_weights=True, start="embedding").output.weight is embedding.weight
    with pytest.raises(ValueError, match=r"start: 'embedding' needs .* the projection maps 4 to 6"):
        make(name, layer_dims=(9, D), projection=True, start="embedding")


def trained(head, centre_after_each_step):
    """The log-probabilities after five steps of AdamW."""
    optimizer = torch.optim.AdamW(head.parameters(), lr=0.1, weight_decay=0.1)
    hidden, targets = states(), torch.tensor([[0, 4, 10], [2, 2, 1]])
    for _ in range(5):
        optimizer.zero_grad()
        head(hidden).training_loss(targets).backward()
        optimizer.step()
        if centre_after_each_step:
            with torch.no_grad():
                head.output.weight -= head.output.weight.mean(0)
    return head(hidden).log_probs()


def test_centring_trains_as_the_authors_who_centre_the_parameter_after_each_step():
    ours, theirs = make("softmax", mu_centering=True, bias=False), make("softmax", bias=False)
    torch.testing.assert_close(trained(ours, False), trained(theirs, True), rtol=0, atol=1e-6)


@pytest.mark.parametrize("scale", [5.0, 0.5])
def test_the_gradient_of_the_input_embedding_is_scaled_and_that_of_the_output_is_not(scale):
    tokens, targets = torch.tensor([[0, 3, 3]]), torch.tensor([[3, 1, 7]])

    def gradients(**params):
        torch.manual_seed(3)
        embedding = nn.Embedding(V, E)
        head, found = make("softmax", embedding=embedding, bias=False, dtype=None, **params), embedding(tokens)
        loss = head(Hidden((found.tanh(),))).training_loss(targets)
        loss.backward()
        return found.detach(), loss.detach(), embedding.weight.grad, head.output.weight.grad

    # the same matrix twice, untied: the gradient of each use
    apart, loss, of_input, of_output = gradients(start="embedding")
    found, tied_loss, tied, _ = gradients(tie_weights=True, input_gradient_scale=scale)
    assert torch.equal(found, apart)
    assert torch.equal(tied_loss, loss)
    assert of_input.abs().max() > 0
    torch.testing.assert_close(tied - of_output, scale * of_input, rtol=0, atol=1e-6)


def test_an_embedding_whose_gradient_is_scaled_still_works_without_gradients():
    embedding, tokens = nn.Embedding(V, E), torch.tensor([[0, 3, 3]])
    make("softmax", embedding=embedding, tie_weights=True, input_gradient_scale=2.0, dtype=None)
    with torch.no_grad():
        assert torch.equal(embedding(tokens), embedding.weight[tokens])


def test_without_a_centring_loss_no_step_computes_the_mean_of_the_output_matrix():
    assert isinstance(make("softmax")(states()).aux_loss, float)
    assert make("softmax", mu_loss=0.1)(states()).aux_loss.shape == ()


@pytest.mark.parametrize("level", [0.0, -2.0, 3.0, -600.0, 600.0])
@pytest.mark.parametrize("name", ["softmax", "mos"])
def test_three_words_under_stablemax_have_the_probabilities_of_the_formula(name, level):
    # s(z) = z + 1 for z >= 0, 1 / (1 - z) else; p = s / sum s (Prieto 2025)
    given = {"num_mixtures": 1} if name == "mos" else {}
    head = make(name, vocab_size=3, logit_map="stablemax", **given)
    z = [level, level - 1.5, level + 1.0]
    load(head, output__weight=0.0, output__bias=z)
    s = [x + 1 if x >= 0 else 1 / (1 - x) for x in z]
    found = head(Hidden((torch.ones(1, 1, E, dtype=torch.float64),))).log_probs()[0, 0].exp().tolist()
    assert found == pytest.approx([each / sum(s) for each in s], abs=1e-12)
