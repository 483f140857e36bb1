"""What can be compared: names, ways of multiplying, and what an implementation lacks."""

from types import SimpleNamespace

import pytest
import torch

from harness.benchmarks import cells, settings
from harness.benchmarks.cells import IMPLEMENTATIONS, OURS, Cell
from harness.distributions import LOGIT_MAPS, Mixture
from harness.errors import ExecutionError
from harness.kernels import products

FP32 = ("fp32", "default")
CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def mixture(partitions=(1,), logit_map="identity") -> Mixture:
    prior = torch.zeros(1, 2, len(partitions)) if len(partitions) > 1 else None
    facets, phi = torch.zeros(1, 2, sum(partitions), 3), LOGIT_MAPS[logit_map]
    return Mixture(facets, prior, torch.zeros(5, 3), partitions=partitions, logit_map=phi)


@pytest.fixture
def exact(monkeypatch):
    """A function that settles what the probe says of oneDNN's exactness."""
    return lambda answer: monkeypatch.setattr(cells.products, "load_probe", lambda: SimpleNamespace(exact=answer))


def test_both_routes_are_measured_where_the_second_is_exact(exact):
    exact(True)
    assert cells.checked_ways(("fp32", "bf16"), "both", CPU) == [
        ("fp32", "default"),
        ("fp32", "onednn"),
        ("bf16", "onednn"),
    ]
    exact(False)
    assert cells.checked_ways(("fp32", "bf16"), "both", CPU) == [("fp32", "default"), ("bf16", "default")]
    with pytest.raises(ExecutionError, match=r"--route onednn: its products are not exact"):
        cells.checked_ways(("fp32",), "onednn", CPU)


def test_a_gpu_has_tf32_and_no_routes():
    assert cells.checked_ways(("tf32", "bf16"), "both", CUDA) == [("tf32", "default"), ("bf16", "default")]
    with pytest.raises(ExecutionError, match=r"--precision tf32: expected fp32, bf16 on cpu"):
        cells.checked_ways(("tf32",), "default", CPU)


def test_ours_is_always_measured_and_the_compiled_form_when_asked_for():
    assert cells.checked_impls(("published",), compile_too=False) == ("ours", "published")
    assert "compiled" not in cells.checked_impls((), compile_too=False)
    assert cells.checked_impls(("published",), compile_too=True) == ("ours", "published", "compiled")
    with pytest.raises(ExecutionError, match="--impl publishd: expected ours, published"):
        cells.checked_impls(("publishd",), compile_too=False)


def test_what_an_implementation_lacks_is_said(monkeypatch):
    tiny = settings.SETTINGS["tiny"]
    missing = [] if hasattr(torch.nn.functional, "linear_cross_entropy") else ["not in this torch"]  # 2.11
    assert [cells.lacks(Cell("mfs", "torch", *FP32), mixture((2, 1)), tiny)] == (missing or ["no partitions"])
    sigsoftmax = cells.lacks(Cell("sigsoftmax", "torch", *FP32), mixture((1,), "sigsoftmax"), tiny)
    assert [sigsoftmax] == (missing or ["no logit map"])
    assert cells.lacks(Cell("softmax", "liger", *FP32), mixture(), tiny) == "CUDA only"
    assert IMPLEMENTATIONS["liger"][1](mixture((1, 1)), CUDA) in ("not installed", "no mixtures")
    monkeypatch.setattr(cells.shutil, "which", lambda name: None)
    assert cells.lacks(Cell("softmax", "compiled", *FP32), mixture(), tiny) == "no C++ compiler"
    monkeypatch.setattr(cells, "free_memory", lambda device: 4 * 4 * 70 * 2 * 97)
    assert cells.lacks(Cell("mos2", "published", *FP32), mixture((1, 1)), tiny).startswith("needs about ")
    assert cells.lacks(Cell("mos2", OURS, *FP32), mixture((1, 1)), tiny) == ""


def test_ours_multiplies_as_the_cell_says_and_a_baseline_under_autocast():
    a, b = torch.ones(2, 2), torch.ones(2, 2)
    with cells.arithmetic(Cell("mos2", "ours", "bf16", "default"), CPU):
        assert products.current().precision == "bf16"
        assert (a @ b).dtype == torch.float32
    with cells.arithmetic(Cell("mos2", "published", "bf16", "default"), CPU):
        assert products.current().precision == "fp32"
        assert (a @ b).dtype == torch.bfloat16
    with cells.arithmetic(Cell("mos2", "published", "fp32", "default"), CPU):
        assert (a @ b).dtype == torch.float32


def test_a_mixture_is_named_by_its_size():
    assert settings.component("mos12") == ("mos", {"num_mixtures": 12})
    assert [settings.mixtures(name) for name in ("softmax", "mos7", "mfs", "sigsoftmax")] == [1, 7, 3, 1]
    for wrong in ("mos", "mos0", "mos-2", "mixture"):
        with pytest.raises(ExecutionError, match=f"--heads {wrong}: expected "):
            settings.component(wrong)


def test_a_setting_takes_other_tokens_and_more_on_a_gpu():
    sizes = [settings.setting_of("gpt2-small", device, tokens).tokens for device in (CPU, CUDA) for tokens in (None, 9)]
    assert sizes == [1024, 9, 4096, 9]
    with pytest.raises(ExecutionError, match="--setting bert: expected ptb, wt2, gpt2-small, tiny"):
        settings.setting_of("bert", CPU)


def test_what_multiplies_in_bf16_only_is_no_float32_baseline(monkeypatch):
    monkeypatch.setitem(IMPLEMENTATIONS, "cce", (None, lambda mixture, device: ""))
    reasons = [
        cells.lacks(Cell("softmax", "cce", precision, "default"), mixture(), settings.SETTINGS["tiny"])
        for precision in ("fp32", "tf32", "bf16")
    ]
    assert reasons == ["bf16 only", "bf16 only", ""]


def test_ours_leaves_tf32_to_its_own_products_and_a_baseline_does_not():
    def allowed(impl: str) -> str:
        with cells.arithmetic(Cell("mos2", impl, "tf32", "default"), CUDA):
            return torch.backends.cuda.matmul.fp32_precision

    assert (allowed("ours"), allowed("published")) == ("ieee", "tf32")


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
def test_the_route_is_everyones():
    for impl in ("ours", "published"):
        with cells.arithmetic(Cell("mos2", impl, "fp32", "onednn"), CPU):
            assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"
