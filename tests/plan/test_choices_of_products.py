"""Choices that the plan and the records write out again, because the modules that have them import torch."""

from typing import get_args

from harness.kernels import products
from harness.plan import specs
from harness.records import record


def test_the_precisions_and_routes_are_those_of_the_kernels():
    assert get_args(specs.Precision) == get_args(products.Precision)
    assert get_args(record.Route) == get_args(products.Route)
