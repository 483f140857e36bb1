"""Building a trial's model: the same seed starts from the same weights, in this version as in those before it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from harness.model import build, count_changed, count_parameters, fingerprint
from harness.plan.specs import ComponentSpec
from harness.training.checkpoint import weights_sha256

# Beginnings of SHA-256 over the initial weights, made by this test's code for SCHEMA_VERSION 2 (torch 2.13.0, CPU). The
# id of a trial does not hold the order in which a constructor draws: another order means other numbers under an old id.
# If that must be, raise SCHEMA_VERSION in harness/plan/identity.py and make these anew.
# The bits are those of x86 processors with AVX2: torch rounds differently without it (3e-8 of weights of up to 1). The
# first and last entry of each tensor, in initial_weights.json by digest, hold on all processors.
GOLDEN = [
    ("softmax", {}, "d0ecabc63031"),
    ("softmax", {"projection": True}, "c0dd53232382"),
    ("softmax", {"tie_weights": True, "bias": False}, "fb91833b2756"),
    ("mos", {"num_mixtures": 3}, "4d8bada7171c"),
    ("mos", {"num_mixtures": 2, "tie_weights": True, "prior_bias": True}, "b0d989314130"),
    ("mos", {"num_mixtures": 1}, "b83705af71ac"),
]
ENDS = json.loads(Path(__file__).with_name("initial_weights.json").read_text())


@pytest.mark.parametrize(("head", "params", "expected"), GOLDEN, ids=str)
def test_initial_weights_are_those_of_earlier_versions(head, params, expected):
    backbone = ComponentSpec(name="lstm", params={"d_model": 8, "num_layers": 1})
    model = build(backbone, ComponentSpec(name=head, params=params), vocab_size=11, seed=1)
    ends = {name: [weight.flatten()[end].item() for end in (0, -1)] for name, weight in model.state_dict().items()}
    assert ends == {name: pytest.approx(values, rel=0, abs=1e-6) for name, values in ENDS[expected].items()}
    if torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512"):
        assert weights_sha256(model.state_dict())[:12] == expected


def test_a_complex_parameter_is_two_numbers():
    model = build(
        ComponentSpec(name="lstm", params={"d_model": 8, "num_layers": 1}),
        ComponentSpec(name="softmax"),
        vocab_size=11,
        seed=1,
    )
    total, head = count_parameters(model)
    model.head.phase = torch.nn.Parameter(torch.zeros(5, dtype=torch.complex64))
    assert count_parameters(model) == (total + 10, head + 10)


@pytest.mark.system
def test_numbers_of_buffers_that_changed_are_counted():
    before = {
        "mean": torch.tensor([0.0, 1.0, 2.0]),
        "phase": torch.zeros(2, dtype=torch.complex64),
        "steps": torch.tensor(0),
        "mask": torch.ones(4, dtype=torch.bool),
    }
    now = {
        **before,
        "mean": torch.tensor([0.5, 1.0, 3.0]),  # 2
        "phase": torch.tensor([0, 1j]),  # 2: one complex number
        "steps": torch.tensor(7),  # 1
        "longer": torch.zeros(5),  # 5
    }
    assert count_changed(before, before) == 0
    unknown = {"mean": torch.tensor([float("nan"), 1.0])}
    assert count_changed(unknown, {"mean": torch.tensor([float("nan"), 2.0])}) == 1
    assert count_changed(before, now) == 2 + 2 + 1 + 5
    assert count_changed({"mean": before["mean"]}, {"mean": torch.zeros(4)}) == 4


def test_every_bit_of_weights_and_buffers_is_in_a_fingerprint():
    class Holding(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((40, 3), 1e8).t())  # not contiguous
            for kind in (torch.complex64, torch.float64, torch.bfloat16, torch.int64, torch.bool):
                self.register_buffer(f"of_{str(kind)[6:]}", torch.ones(3, dtype=kind))
            self.register_buffer("cache", torch.zeros(2), persistent=False)  # no part of the weights

    held = Holding()
    before = fingerprint(held)
    held.cache.fill_(1)
    assert fingerprint(held) == before
    held.weight.data[2, 1] = torch.nextafter(held.weight.data[2, 1], torch.tensor(0.0))
    assert fingerprint(held) != before
    for name, buffer in held.named_buffers():
        before = fingerprint(held)
        buffer[1] = 0
        assert (fingerprint(held) != before) == (name != "cache")


def test_the_module_is_imported_alone():
    done = subprocess.run([sys.executable, "-c", "from harness.model import build"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
