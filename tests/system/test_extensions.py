"""Extensions may be deleted: in a copy of the tree without their modules a suite runs, and its views are written."""

import itertools
import json
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


IN_TURN = """\
import contextlib, io, json, sys
from harness.cli import main

answers = []
for sys.argv[1:] in json.loads(sys.argv[1]):
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as leaving:
            code = leaving.code or 0
    answers.append((code, out.getvalue(), err.getvalue()))
print(json.dumps(answers))
"""


COPIES = 5
# Each extension is deleted in another pair of copies: so of any two, each is once deleted while the other is there.
PAIRS = dict(zip(EXTENSIONS, itertools.combinations(range(COPIES), 2), strict=True))


@pytest.mark.parametrize("copy", range(COPIES))
def test_without_four_of_them_a_suite_runs_and_is_shown(copy, tmp_path):
    deleted = [extension for extension, copies in PAIRS.items() if copy in copies]
    tree, project = tmp_path / "tree", tmp_path / "project"
    copied(",".join(deleted), tree)
    (project / "suites").mkdir(parents=True)
    (project / "suites" / "tiny.yaml").write_text(SUITE)
    shown = [
        ["--help"],
        ["plan", "tiny"],
        ["run", "tiny", "--executor", "inline"],
        ["table", "tiny", "--wide", "--form", "md"],
        ["report", "tiny"],
        ["runs", "tiny"],
    ]
    mistaken = [["plan", "tyni"], ["table", "ground_truth_ngrams"]]
    faults = {}  # what is asked for -> (what it is, the extension that it needs)
    for extension in deleted:
        for change, fault in ASKED.get(extension, {}).items():
            faults[change] = fault, extension
    refused = [["plan", "tiny", "--set", change] for change in faults]
    environment = {**os.environ, **WITHOUT_GPU, "PYTHONPATH": str(tree)}
    command = [sys.executable, "-c", IN_TURN, json.dumps([*shown, *mistaken, *refused])]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=True)
    answers = json.loads(done.stdout)
    expected = [0] * len(shown) + [2] * (len(mistaken) + len(refused))
    assert [code for code, *_ in answers] == expected, answers
    listed, planned, said, table, reported, runs = (out for _, out, _ in answers[: len(shown)])
    hints = [err for *_, err in answers[len(shown) :]]

    modules = [module for extension in deleted for module in EXTENSIONS[extension]]
    gone = set()
    for name, command in COMMANDS.items():
        if f"harness.cli.{command.place.partition(':')[0]}" in modules:
            gone.add(name)
        assert (f"\n│ {name} " in listed) != (name in gone)
    assert "4 trials, 4 to run" in planned
    assert "4 ok" in said
    assert gone.isdisjoint(re.findall(r"harness (\w+)", " ".join([said, *hints[: len(mistaken)]])))
    assert "MoS 2" in table
    assert "page: " in reported
    assert "ok" in runs
    assert (f"the certificate {LACK.format('integrity')}." in table) == ("integrity" in deleted)
    for (change, (fault, extension)), hint in zip(faults.items(), hints[len(mistaken) :], strict=True):
        line, _ = hint.splitlines()
        assert line == f"--set {change}: {fault} {LACK.format(extension)}"
