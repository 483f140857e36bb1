"""Components that misbehave or cheat, plug-ins of a command: each record says so, and the command goes on and ends."""

import os
import re
from pathlib import Path

import pytest
from disturbed import Place, suite_text

HOSTILE = Path(__file__).parent.parent / "support" / "hostile"
TRAIN = "train: {optimizer: adam, lr: 0.01, epochs: 1, batch_size: 4, seq_len: 7}"
ASKED = "the nll that was counted for a token is not -log_probs of its target, asked in a process of its own"
MISBEHAVING = {  # what a head does, and where -> what is said of it
    ("exit 0", "forward"): "on backbone telling raised SystemExit: 0",
    ("KeyboardInterrupt", "nll"): "on backbone telling raised KeyboardInterrupt",
    ("number of threads", "constructor"): "changed the number of threads in its constructor",
}
CHEATS = ["honest_alone", "remembers", "most_segments", "told"]


@pytest.mark.parametrize(("executor", "first"), [("inline", 0), ("ray", -1)], ids=["inline", "ray"])
def test_as_a_command_it_leaves_with_1_names_it_and_trains_it_once(executor, first, tmp_path):
    """Under Ray with one head that cheats, whose trial is certified by a process of the command."""
    heads = [f"misbehaving: {{does: '{does}', where: {where}}}" for does, where in MISBEHAVING]
    heads += [f"cheating: {{kind: {kind}}}" for kind in CHEATS[first:]]
    text = suite_text(*heads, "softmax", train=TRAIN, backbones="backbones: [telling: {d_model: 8}]")
    there = Place(tmp_path / "place", text)
    paths = os.pathsep.join([str(HOSTILE), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = there.run("--executor", executor, "--no-tracking", env={"PYTHONPATH": paths})
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    said = {}
    for label, record in there.by_head().items():
        message = re.sub(r" \((\d+ to \d+|misbehaving.py, line \d+)\)", "", record["message"].partition(";")[0])
        said[label] = record["status"], message
    misbehaving = {
        f"misbehaving does={does} where={where}": ("error", f"ComponentError: head misbehaving {text}")
        for (does, where), text in MISBEHAVING.items()
    }
    cheating = {label: ended for label, ended in said.items() if label.startswith("cheating")}
    assert said == {"softmax": ("ok", ""), **misbehaving, **cheating}
    assert len(cheating) == len(CHEATS[first:])
    assert all(status == "invalid" and ASKED in message for status, message in cheating.values())
    assert "invalid: the nll that was counted" in done.stdout
    assert {record["environment"]["retries"] for record in there.records().values()} == {0}
    for trial in there.records():
        assert (there.runs / trial / "trial.log").read_text().count(f"trial {trial}: ") == 1  # not twice
