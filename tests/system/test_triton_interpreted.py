"""The Triton kernels in Triton's interpreter, without a GPU. Its switch is read when Triton is first imported and would
change every other test of this process, so the cases have a process of their own.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import PATIENCE

CASES = Path(__file__).with_name("triton_interpreted.py")


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed: the extra `gpu`")
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
