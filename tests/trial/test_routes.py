"""The probe of the CPU's product routes: exactness decides, then speed; measured once, kept, proven before use."""

import json
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from onednn import sitecustomize as onednn

import harness
from harness.trial import routes
from harness.trial.routes import Probe

SPEEDUP = routes._speedup  # as it is measured: tests/conftest.py has another one in its place


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A function: the probes in a cache that is empty at first."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    return lambda: list((tmp_path / "probes").glob("*.json"))


def planted(monkeypatch, *, speedup=2.0, error=1e-7):
    """A machine with oneDNN, of which the probe finds this."""
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(routes, "_speedup", lambda: speedup)
    monkeypatch.setattr(routes, "_error", lambda route: error if route == "onednn" else 1e-7)


@pytest.mark.parametrize(
    ("speedup", "error", "route"),
    [
        (1.1, 2e-6, "onednn"),
        (1.09, 2e-6, "default"),
        (9.0, 2.1e-6, "default"),
    ],
)
def test_the_faster_route_is_taken_if_it_is_exact(monkeypatch, speedup, error, route):
    planted(monkeypatch, speedup=speedup, error=error)
    found = routes.measure()
    assert (found.route, found.speedup, found.error) == (route, speedup, error)
    assert routes.checked_route("onednn") == ("onednn" if found.exact else "default")


PRODUCTS = {
    "a matrix": (torch, "mm", lambda a, b: b.t().is_contiguous()),
    "every fourth word": (torch, "mm", lambda a, b: not b.is_contiguous() and not b.t().is_contiguous()),
    "a transposed factor": (torch, "mm", lambda a, b: a.t().is_contiguous()),
    "added to a sum": (torch, "addmm", lambda *given: True),
    "with a bias": (torch.nn.functional, "linear", lambda *given: len(given) == 3),
    "a batch of matrices": (torch, "bmm", lambda *given: True),
}


@pytest.mark.parametrize("kind", PRODUCTS)
def test_each_kind_of_product_of_a_trial_is_tried(monkeypatch, kind):
    owner, name, is_it = PRODUCTS[kind]
    exact = getattr(owner, name)

    def rounded(*given):
        found = exact(*given)
        return found.bfloat16().float() if found.dtype == torch.float32 and is_it(*given) else found

    monkeypatch.setattr(owner, name, rounded)
    assert routes._error("default") > 1e-3


def test_without_onednn_nothing_is_measured(monkeypatch):
    onednn.imitate("absent", monkeypatch.setattr)
    for measured in ("_speedup", "_error"):
        monkeypatch.setattr(routes, measured, lambda *given: pytest.fail("measured"))
    found = routes.measure()
    assert found == Probe(found.cpu, torch.__version__, "default", speedup=1, error=0, default_error=0, exact=False)
    assert routes.checked_route("onednn") == "default"


def test_the_speedup_is_the_ratio_of_the_medians_of_five_rounds_after_one_that_does_not_count(monkeypatch):
    seconds = [(9, 90), (4, 2), (8, 1), (5, 3), (6, 2), (7, 2)]  # of torch's route and of oneDNN's: medians 6 and 2
    ticks = [tick for pair in seconds for taken in pair for tick in (100, 100 + taken)]
    monkeypatch.setattr(routes, "time", SimpleNamespace(perf_counter=partial(ticks.pop, 0)))
    monkeypatch.setattr(routes, "SIZES", (2, 3, 4))
    assert SPEEDUP() == 3
    assert ticks == []


def test_products_with_bfloat16_inside_are_noticed_and_not_taken_however_fast(monkeypatch):
    onednn.imitate("inexact", monkeypatch.setattr)
    monkeypatch.setattr(routes, "_speedup", lambda: 9.0)
    found = routes.measure()
    assert found.error > 1e-3
    assert (found.route, found.exact) == ("default", False)
    assert (routes.chosen_route(), routes.checked_route("onednn")) == ("default", "default")


def test_a_probe_is_kept_for_the_machine_and_made_again_when_asked(monkeypatch, cache):
    planted(monkeypatch, speedup=3.0)
    first = routes.load_probe()
    planted(monkeypatch, speedup=4.0)
    with monkeypatch.context() as context:
        context.setattr(routes, "measure", lambda: pytest.fail("measured again"))
        assert routes.load_probe() == first
        assert routes.chosen_route() == first.route
    (kept,) = cache()
    assert json.loads(kept.read_text())["speedup"] == first.speedup == 3.0
    assert routes.load_probe(again=True) != first
    for spoilt in ("", "[]", '{"route": "onednn"}', '{"cpu": 1, "route": "x", "nonsense": 2}'):
        kept.write_text(spoilt)
        assert routes.load_probe() == routes.measure()
        assert json.loads(kept.read_text())["speedup"] == 4.0
    monkeypatch.setenv("HARNESS_CACHE", str(kept))  # a file where the folder should be
    assert routes.load_probe() == routes.measure()


def test_another_torch_or_a_processor_of_the_same_name_that_can_do_more_is_measured_anew(monkeypatch, cache, tmp_path):
    planted(monkeypatch)
    for number, flags in enumerate(("flags\t\t: fpu avx512f", "flags\t\t: fpu avx512f amx_bf16", "nothing of it"), 1):
        monkeypatch.setattr(routes, "CPUINFO", tmp_path / str(number))
        routes.CPUINFO.write_text(f"model name\t: AMD EPYC\n{flags}\n")
        routes.load_probe()
        assert len(cache()) == number
    changes = (torch, "__version__", "9.9.9"), (harness, "__version__", "9.9.9"), (routes, "device_name", str)
    for number, change in enumerate(changes, start=4):
        monkeypatch.setattr(*change)
        routes.load_probe()
        assert len(cache()) == number
