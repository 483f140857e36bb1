"""Components that misbehave, as plug-ins of a command: each is an error record that names it."""

import os
import re
from pathlib import Path

import pytest
from disturbed import Place, suite_text

HOSTILE = Path(__file__).parent.parent / "support" / "hostile"
TRAIN = "train: {optimizer: adam, lr: 0.01, epochs: 1, batch_size: 4, seq_len: 7}"


def head(does, where):
    return f"misbehaving: {{does: '{does}', where: {where}}}"


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("executor", ["inline", "ray"])
def test_as_a_command_it_leaves_with_1_names_it_and_trains_it_once(executor, tmp_path):
    hostile = {
        head("exit 0", "forward"): "on backbone lstm raised SystemExit: 0",
        head("KeyboardInterrupt", "nll"): "on backbone lstm raised KeyboardInterrupt",
        head("number of threads", "constructor"): "changed the number of threads in its constructor",
    }
    there = Place(tmp_path / "place", suite_text(*hostile, "softmax", train=TRAIN))
    path = os.pathsep.join([str(HOSTILE), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = there.run("--executor", executor, "--no-tracking", env={"PYTHONPATH": path})
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    found = list(there.records().values())
    assert sorted(record["status"] for record in found) == ["error", "error", "error", "ok"]
    messages = [
        re.sub(r" \((\d+ to \d+|misbehaving.py, line \d+)\)", "", record["message"].partition(";")[0])
        for record in found
        if record["status"] == "error"
    ]
    assert sorted(messages) == sorted(f"ComponentError: head misbehaving {said}" for said in hostile.values())
    assert all(record["environment"]["retries"] == 0 for record in found)
    for trial in there.records():
        assert (there.runs / trial / "trial.log").read_text().count(f"trial {trial}: ") == 1  # not twice
