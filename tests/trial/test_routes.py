"""A trial is handed a route of float32 products, and takes it only where that route is exact."""

import pytest
from onednn import sitecustomize as onednn
from trained import ran

from harness import plan
from harness.kernels import products


@pytest.fixture
def both(tiny_suite, tmp_path):
    """The records of a mixture by the route of oneDNN and by the default one."""

    def both():
        spec = plan.load(tiny_suite, ("train.epochs=1",)).trials[2]
        return [ran(spec, tmp_path / route, route=route) for route in ("onednn", "default")]

    return both


@pytest.mark.parametrize("machine", ["inexact", "absent"])
def test_a_route_that_is_not_exact_here_is_not_taken(machine, both, monkeypatch):
    onednn.imitate(machine, monkeypatch.setattr)
    handed, default = both()
    assert handed.status == default.status == "ok"
    assert handed.environment.matmul_route == default.environment.matmul_route == "default"
    assert (handed.weights_sha256, handed.metrics["test_ppl"]) == (default.weights_sha256, default.metrics["test_ppl"])


def test_rounded_products_would_have_changed_the_weights(both, monkeypatch):
    """Else the test above could not fail. The certificate may notice them, too: log_probs and nll round differently."""
    onednn.imitate("inexact", monkeypatch.setattr)
    monkeypatch.setattr(products, "checked_route", lambda route: route)
    rounded, exact = both()
    assert rounded.status in ("ok", "invalid")
    assert exact.status == "ok"
    assert rounded.weights_sha256 != exact.weights_sha256
