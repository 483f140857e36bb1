"""Each extension may be deleted: in a copy of the tree without its modules a suite runs, and its views are written."""

import os
import re
import subprocess
import sys

import pytest
from commands import SUITE, WITHOUT_GPU
from without import copied

from harness.cli.commands import COMMANDS
from harness.extensions import EXTENSIONS

LACK = "belongs to the extension '{}', which is not installed; leave it out, or install it"
ASKED = {  # extension -> what a suite may ask of it, and where and why it is refused without it
    "awd": {
        "measure.dynamic.lr=0.1": "measure.dynamic: it",
        "backbones=[awd_lstm]": "backbones.0: the backbone 'awd_lstm'",
    },
    "gpu": {"train.data_parallel=2": "train.data_parallel: it"},
    "pretrained": {
        "backbones=[hf]": "backbones.0: the backbone 'hf'",
        "corpora=[{embedded: {tokenizer: {pretrained: .}}}]": "corpora.0: tokenizer.pretrained",
    },
}


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_without_it_a_suite_runs_and_is_shown(extension, tmp_path):
    tree, project = tmp_path / "tree", tmp_path / "project"
    copied(extension, tree)
    (project / "suites").mkdir(parents=True)
    (project / "suites" / "tiny.yaml").write_text(SUITE)

    def harness(*arguments: str, refused: bool = False) -> str:
        command = [sys.executable, "-m", "harness.cli", *arguments]
        environment = {**os.environ, **WITHOUT_GPU, "PYTHONPATH": str(tree)}
        done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == (2 if refused else 0), done.stderr
        return done.stderr if refused else done.stdout

    listed, gone = harness("--help"), set()
    for name, command in COMMANDS.items():
        if f"harness.cli.{command.place.partition(':')[0]}" in EXTENSIONS[extension]:
            gone.add(name)
        assert (f"\n│ {name} " in listed) != (name in gone)
    assert "4 trials, 4 to run" in harness("plan", "tiny")
    hints = [harness(*of, refused=True) for of in (("plan", "tyni"), ("table", "ground_truth_ngrams"))]
    assert "4 ok" in (said := harness("run", "tiny", "--executor", "inline"))
    assert gone.isdisjoint(re.findall(r"harness (\w+)", " ".join([said, *hints])))
    assert "MoS 2" in harness("table", "tiny", "--form", "md")
    assert "page: " in harness("report", "tiny")
    assert "ok" in harness("runs", "tiny")
    if extension == "integrity":
        assert f"the certificate {LACK.format(extension)}." in harness("table", "tiny", "--wide", "--form", "md")
    for change, fault in ASKED.get(extension, {}).items():
        line, _ = harness("plan", "tiny", "--set", change, refused=True).splitlines()
        assert line == f"--set {change}: {fault} {LACK.format(extension)}"
