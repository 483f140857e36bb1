"""A trial is handed a route of float32 products, and takes it only where that route is exact."""

from functools import partial

import handmade
import pytest
from onednn import sitecustomize as onednn

from harness import plan
from harness.kernels import products
from harness.trial.run import run


def trained(spec, folder, route):
    setting = partial(handmade.task, runs=folder, route=route)
    return run(setting(spec=spec))


@pytest.mark.parametrize("machine", ["inexact", "absent"])
def test_a_route_that_is_not_exact_here_is_not_taken(machine, tiny_suite, tmp_path, monkeypatch):
    onednn.imitate(machine, monkeypatch.setattr)
    spec = plan.load(tiny_suite, ("train.epochs=1",)).trials[2]  # a mixture
    handed, default = (trained(spec, tmp_path / route, route) for route in ("onednn", "default"))
    assert handed.status == default.status == "ok"
    assert handed.environment.matmul_route == default.environment.matmul_route == "default"
    assert (handed.weights_sha256, handed.metrics["test_ppl"]) == (default.weights_sha256, default.metrics["test_ppl"])


def test_rounded_products_would_have_changed_the_weights(tiny_suite, tmp_path, monkeypatch):
    """Else the test above could not fail. The certificate may notice them, too: log_probs and nll round differently."""
    onednn.imitate("inexact", monkeypatch.setattr)
    monkeypatch.setattr(products, "checked_route", lambda route: route)
    spec = plan.load(tiny_suite, ("train.epochs=1",)).trials[2]
    rounded, exact = (trained(spec, tmp_path / route, route) for route in ("onednn", "default"))
    assert rounded.status in ("ok", "invalid")
    assert exact.status == "ok"
    assert rounded.weights_sha256 != exact.weights_sha256
