"""Multi-facet softmax: the layers that are read."""

import pytest
from small_heads import E, make

WIDTHS = (3, 4, 6)  # bottom to top


@pytest.mark.parametrize(("layers", "expected"), [(1, 1), (2, 2), (3, 3), (5, 3)])
def test_three_layers_are_read_or_all_where_there_are_fewer(layers, expected):
    assert make("mfs", layer_dims=(E,) * layers).num_input_layers == expected
