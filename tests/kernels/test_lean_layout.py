"""Which facets score which words, by hand."""

import torch

from harness.kernels.mixture import Layout, Slice


def test_neighbours_of_one_facet_share_a_slice():
    assert Layout((1,)).slices == [Slice(0, 1)]
    assert Layout((1, 1, 1)).slices == [Slice(0, 3)]
    assert Layout((2,)).slices == [Slice(0, 1, 0, 2), Slice(1, 2, 1, 2)]
    assert Layout((2, 1, 1)).slices == [Slice(0, 1, 0, 2), Slice(1, 2, 1, 2), Slice(2, 4)]
    assert Layout((1, 1, 2, 1)).slices == [Slice(0, 2), Slice(2, 3, 0, 2), Slice(3, 4, 1, 2), Slice(4, 5)]


def test_a_layout_is_plain_without_partitions():
    assert [Layout(p).plain for p in ((1,), (1, 1), (2,), (1, 2), (2, 1))] == [True, True, False, False, False]


def test_owners_are_the_facets_that_score_the_target():
    # components of facets 0, 1 to 3 and 4 to 5: target 7 belongs to 7 mod 3 = 1 and 7 mod 2 = 1
    owners = Layout((1, 3, 2)).owners(torch.tensor([0, 7, 5]))
    assert owners.tolist() == [[0, 1, 4], [0, 2, 5], [0, 3, 5]]


def test_owners_are_where_the_targets_are():
    assert Layout((1, 3)).owners(torch.tensor([0, 7], device="meta")).device.type == "meta"
