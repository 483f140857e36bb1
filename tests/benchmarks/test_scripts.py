"""The scripts of benchmarks/ at sizes that say nothing of speed, and the losses that they compare."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from harness.machine.environment import torch_threads

FOLDER = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(FOLDER))

import head  # noqa: E402
import implementations  # noqa: E402
import settings  # noqa: E402

CPU = torch.device("cpu")
TINY = ("--setting", "tiny", "--rounds", "1", "--device", "cpu", "--precision", "fp32", "--heads", "softmax,mos2,mfs")
SCRIPTS = {
    "head": (*TINY, "--impl", "ours,published"),
    "step": TINY,
    "memory": (*TINY[:-1], "mos2", "--impl", "ours,published"),
    "grokking": ("--seeds", "1", "--steps", "1,2"),
    "backbone": ("--rounds", "1", "--device", "cpu", "--backbones", "gru,gpt2", "--contexts", "4,8"),
}


def script(name, *arguments):
    command = [sys.executable, FOLDER / f"{name}.py", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


@pytest.mark.system
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_prints_one_table_and_its_machine(name):
    done = script(name, *SCRIPTS[name])
    assert done.returncode == 0, done.stderr
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines() if "|" in line]
    firsts = list(dict.fromkeys((row[0], row[1]) for row in cells[2:]))  # one row for each route of products
    rows = {"head": ("softmax", "mos2", "mfs"), "step": ("softmax", "mos2", "mfs"), "memory": ("mos2",)}
    if name == "backbone":
        assert firsts == [(backbone, context) for context in "48" for backbone in ("gru", "gpt2")]
    elif name == "grokking":
        assert firsts == [("0", "softmax"), ("0", "StableMax")]
        assert "Steps: 1. Softmax does not generalise and StableMax does: no" in done.stdout
    else:
        assert firsts == [(of, by) for of in rows[name] for by in ("ours", "published")]
    assert f"torch {torch.__version__}" in done.stdout.splitlines()[-1]


@pytest.mark.system
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("head", "--heads", "mos"), "--heads mos: expected softmax, sigsoftmax, mfs, mfs-inputs, or mos with its K"),
        (("head", "--impl", "none"), "--impl none: expected some of ours,"),
        (("head", "--precision", "fp8", "--device", "cpu"), "--precision fp8: expected fp32, bf16 on cpu"),
        (("grokking", "--steps", "0"), "--seeds 3 --steps 0: expected numbers of at least 1"),
        (("step", "--tokens", "36"), "--tokens 36: expected a multiple of 35"),
        (("step", "--theirs", "nowhere", "--heads", "mos2"), "--theirs nowhere: expected a copy of github.com/"),
    ],
)
def test_a_mistake_is_one_sentence_and_code_2(arguments, sentence):
    done = script(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(sentence)


@pytest.mark.system
def test_the_command_for_gpus_runs_all_parts_and_reports_one_that_fails(tmp_path, monkeypatch):
    import gpu

    monkeypatch.setattr(gpu, "TINY", (("head", "--setting", "none"), gpu.TINY[0]))
    assert gpu.main(["--tiny", "--out", str(tmp_path)]) == 1
    titles = [line for line in (tmp_path / "summary.md").read_text().splitlines() if line.startswith("## ")]
    assert [title.endswith(": FAILED") for title in titles] == [True, False]


@pytest.mark.parametrize("name", ["softmax", "mos2", "mos3", "mfs", "mfs-inputs", "sigsoftmax"])
@pytest.mark.parametrize("impl", ["ours", "published", "cross_entropy", "torch"])
def test_every_loss_is_that_of_the_equations(name, impl):
    """In float64: the loss and its gradients. The published epsilon, 1e-8 beside p, is in the expected value."""
    work = head.HeadPass(name, settings.SETTINGS["tiny"], CPU)
    work.head.double()
    layers = tuple(layer.detach().double().requires_grad_() for layer in work.hidden.layers)
    work.hidden = work.hidden._replace(layers=layers)
    if implementations.lacks(impl, work.distribution(), 70):
        pytest.skip("has no partitions and no logit maps")
    leaves = [*work.head.parameters(), *layers]
    mixture = work.distribution()
    p_NV = mixture.log_probs().flatten(0, 1).exp() + head.EPSILON.get(impl, 0.0)
    nll_N = -torch.log(p_NV.gather(1, work.targets_BT.reshape(-1, 1)))
    expected = [nll_N.mean().detach(), *torch.autograd.grad(nll_N.mean(), leaves, allow_unused=True)]
    with torch_threads(1):
        loss = implementations.mean_loss(impl, work.distribution(), work.targets_BT)
        # means are float32 but for ours, as in the scripts
        found = [loss, *torch.autograd.grad(loss, leaves, allow_unused=True)]
    for one, other in zip(found, expected, strict=True):
        if other is not None:
            bound = 1e-9 if impl == "ours" else 1e-6
            torch.testing.assert_close(one.double(), other, rtol=bound, atol=bound * float(other.abs().max()))
