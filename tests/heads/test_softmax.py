"""Softmax and SigSoftmax: the start as the embedding or a pretrained layer, centring, gradients, stablemax."""

import pytest
import torch
from small_heads import E, V, load, make, states
from torch import nn

from harness.protocols import HeadDims, Hidden, OutputLayer
from harness.registry import HEADS


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


@pytest.mark.parametrize("level", [0.0, -2.0, 3.0, -600.0, 600.0])
def test_three_words_under_stablemax_have_the_probabilities_of_the_formula(level):
    # s(z) = z + 1 for z >= 0, 1 / (1 - z) else; p = s / sum s (Prieto 2025)
    head = make("softmax", vocab_size=3, logit_map="stablemax")
    z = [level, level - 1.5, level + 1.0]
    load(head, output__weight=0.0, output__bias=z)
    s = [x + 1 if x >= 0 else 1 / (1 - x) for x in z]
    found = head(Hidden((torch.ones(1, 1, E, dtype=torch.float64),))).log_probs()[0, 0].exp().tolist()
    assert found == pytest.approx([each / sum(s) for each in s], abs=1e-12)


def test_sigsoftmax_does_not_start_from_an_output_layer_with_a_soft_cap():
    def started(softcap):
        layer = OutputLayer(weight=torch.ones(5, E), softcap=softcap)
        dims = HeadDims(vocab_size=5, layer_dims=(E,), d_embed=E, pretrained=layer)
        return HEADS.get("sigsoftmax")(dims, nn.Embedding(5, E), start="pretrained")

    assert torch.equal(started(None).output.weight, torch.ones(5, E))
    with pytest.raises(
        ValueError, match=r"^start: the pretrained output layer has a soft cap, which this head does not have$"
    ):
        started(30.0)
