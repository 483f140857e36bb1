"""The poster's DOC: which layer feeds which facet."""

import torch
from small_heads import E, make, states

WIDTHS = (3, 4, 6, 5)  # bottom to top


def test_each_facet_reads_its_own_layer_and_the_gate_all_of_them_the_lowest_first():
    head, hidden = make("doc_poster", layer_dims=WIDTHS), states(widths=WIDTHS)
    distribution = head(hidden)
    facets = distribution.facets_NFE.view(2, 3, 3, E)
    for k, layer in enumerate(hidden.layers[1:]):
        torch.testing.assert_close(facets[:, :, k], head.facets[k](layer), rtol=0, atol=1e-12)
    expected = head.prior(torch.cat(hidden.layers[1:], dim=-1)).log_softmax(-1)
    torch.testing.assert_close(distribution.log_prior_NK.view(2, 3, 3), expected, rtol=0, atol=1e-12)


def test_one_mixture_is_a_softmax_of_the_top_layers_facet():
    head, hidden = make("doc_poster", layer_dims=WIDTHS, num_mixtures=1), states(widths=WIDTHS)
    expected = (head.facets[0](hidden.layers[-1]) @ head.output.weight.T).log_softmax(-1)
    assert head.prior is None
    torch.testing.assert_close(head(hidden).log_probs(), expected, rtol=0, atol=1e-12)
