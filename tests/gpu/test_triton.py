"""The Triton kernels without a GPU and a driver: every shipped configuration compiled for compute capability 9.0, and
the results in Triton's interpreter.

Limits of an H100 or H200 (CUDA C++ Programming Guide, compute capability 9.0): 65,536 registers and 2,048 threads a
multiprocessor, 227 KiB of shared memory a program. With more a kernel would not start; spilt registers make it slow.

The interpreter's switch is read when Triton is first imported and would change every other test of this process, so the
cases have a process of their own.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import PATIENCE

SCRIPT = Path(__file__).with_name("triton_compiled.py")
pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed: the extra `gpu`"),
]


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TRITON_")}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("triton"))}
    environment |= {"PYTHONPATH": str(SCRIPT.parents[2]), "PYTHONWARNINGS": "error::UserWarning"}
    outcome = subprocess.run(
        [sys.executable, str(SCRIPT)], env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert outcome.returncode == 0, outcome.stderr
    return json.loads(outcome.stdout)


def test_every_configuration_is_compiled(programs):
    found = [program["configuration"] for program in programs]
    assert set(found) == {"torch.bfloat16", "torch.float32", "bf16", "tf32", "fp32"}
    # one machine code of the log-normalisers for all sizes, so that these figures hold for all of them
    assert [found.count(precision) for precision in ("bf16", "tf32", "fp32")] == [1, 1, 1]


def test_no_program_spills_registers(programs):
    assert [p for p in programs if p["stack"] or p["spills"]] == []


def test_shared_memory_suffices(programs):
    assert [p for p in programs if p["shared"] > 227 * 1024] == []


def test_two_programs_fit_on_a_multiprocessor(programs):
    # which the numbers of warps count on; of 228 KiB the system keeps one for each program
    assert [p for p in programs if 2 * p["threads"] * p["registers"] > 65_536] == []
    assert [p for p in programs if 2 * (p["shared"] + 1024) > 228 * 1024] == []


def test_memory_is_read_sixteen_bytes_at_a_time(programs):
    assert [p for p in programs if not p["wide loads"] and "unpadded" not in p["name"]] == []


def test_products_are_made_by_the_tensor_cores(programs):
    for program in programs:
        assert (program["tensor core instructions"] > 0) == (program["configuration"] in {"bf16", "tf32"}), program


def test_exponentials_are_rounded_to_the_nearest(programs):
    assert [p for p in programs if p["truncations to bfloat16"]] == []


CASES = Path(__file__).with_name("triton_interpreted.py")


def test_the_kernels_are_right_in_the_interpreter():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CASES)]
    # Nothing of the surrounding pytest is handed on; PYTEST_ADDOPTS would be, and may ask for workers.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    outcome = subprocess.run(
        command,
        env=environment | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        cwd=CASES.parents[2],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
