"""The routes of float32 products on the CPU that trials may take on this machine."""

from typing import get_args

import pytest

from harness.kernels.products import Route
from harness.trial import routes


@pytest.fixture(params=get_args(Route))
def exact_route(request) -> Route:
    """Each route in turn, if its products are float32's here. What happens with the others: test_probe.py."""
    if routes.checked_route(request.param) != request.param:
        pytest.skip(f"products by {request.param} are not exact on this processor, so no trial takes them")
    return request.param
