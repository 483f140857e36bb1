"""`harness doctor` says by what float32 products are computed."""

import re
from types import SimpleNamespace

import pytest
import torch
from onednn import sitecustomize as onednn

from harness.trial import routes

pytestmark = pytest.mark.system


def test_the_doctor_tells_machine_and_probe(harness, monkeypatch, tmp_path):
    asked = []
    monkeypatch.chdir(tmp_path)
    found = SimpleNamespace(route="onednn", speedup=2.125, error=2.5e-7, exact=True, cpu="A CPU")
    monkeypatch.setattr(routes, "load_probe", lambda again: asked.append(again) or found)
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    assert harness("doctor").code == 0
    done = harness("doctor", "--again")
    assert (done.code, asked) == (0, [False, True])
    assert "processor:       A CPU" in done.out
    assert (
        "by oneDNN; oneDNN is 2.12 times as fast as the default and as exact as float32 (relative error 2.5e-07)"
        in done.out
    )


@pytest.mark.parametrize(
    ("imitated", "sentence"),
    [
        ("inexact", r"by torch's default; oneDNN is [\d.]+ times as fast as the default and NOT as exact as float32"),
        ("absent", r"by torch's default; this torch has no oneDNN"),
    ],
)
def test_where_onednn_is_not_exact_the_doctor_says_so(harness, monkeypatch, tmp_path, imitated, sentence):
    onednn.imitate(imitated, monkeypatch.setattr)
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    assert re.search(f"matrix products: float32 on the CPU {sentence}", harness("doctor").out)
