"""Every head on an LSTM, and every backbone under a softmax and a mixture, take training steps on a device that is not
the CPU: a tensor that is left on the wrong device is found without a GPU. Of a backbone, a head sees the states only.

Covered: forward pass, lean loss or the head's own, backward pass (in a thread of its own, as on a GPU), clipping, the
optimiser's state, two steps; losses and probabilities in evaluation. Not covered, since these tensors hold no numbers
and the device is no CUDA device: what evaluation finds; checkpoints; the corpus on its way to the device; branches for
CUDA alone (Triton's kernels, products of bfloat16 summed in float32, the capturable optimiser, CUDA graphs, events for
timing); the fused update itself, of which torch knows no sizes; the backbone gru, whose cell torch has not there.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from torch.utils import backend_registration

from harness.registry import BACKBONES, HEADS

SCRIPT = Path(__file__).with_name("second_device.py")
pytestmark = [
    pytest.mark.timeout(1200),  # the script takes some 20 s on a quiet core
    pytest.mark.skipif(
        not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
        reason="this torch has no backends in Python",
    ),
]


@pytest.fixture(scope="module")
def found():
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": str(SCRIPT.parents[2]), "OMP_NUM_THREADS": "1"}
    outcome = subprocess.run(
        [sys.executable, str(SCRIPT)], env=environment, capture_output=True, text=True, timeout=1100
    )
    assert outcome.returncode == 0, outcome.stderr
    return json.loads(outcome.stdout.splitlines()[-1])


def test_every_backbone_and_head_takes_steps_with_all_tensors_on_the_device(found):
    outcomes = found["outcomes"]
    assert (found["backbones"], found["heads"]) == (BACKBONES.names(), HEADS.names())
    tried = set(BACKBONES.names()) - {"gru"}  # torch's fake tensors have no GRU; all but its cell is the code of lstm
    expected = {f"{backbone}, {head}, fp32" for backbone in tried for head in ("softmax", "mos")}
    expected |= {f"lstm, {head}, {precision}" for head in HEADS.names() for precision in ("fp32", "bf16")}
    assert expected == {case for case in outcomes if "," in case}
    assert {case: said for case, said in outcomes.items() if "," in case and said != "ok"} == {}


def test_the_lean_evaluation_is_what_ran(found):
    # once a step and once in evaluation for each head that returns a Mixture: most of them
    assert found["lean"] >= 3 * len(found["heads"])


def test_the_head_that_the_planted_ones_are_made_of_is_right(found):
    assert found["outcomes"]["Right"] == "ok"


@pytest.mark.parametrize(
    ("head", "told"),
    [
        ("MakesATensorOnTheCpu", "second:0 and cpu"),
        ("MakesATensorOnTheCpuInEvaluation", "second:0 and cpu"),
        ("KeepsATensorThatIsNoBuffer", "device='meta'"),
        ("ReturnsFromTheCpu", "cpu and second:0"),
    ],
)
def test_a_tensor_on_the_wrong_device_is_found(found, head, told):
    assert told in found["outcomes"][head]
