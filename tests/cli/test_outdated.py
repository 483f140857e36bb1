"""A head is edited after its trials were trained: plan, run and table say so, and none passes for new."""

import importlib
import re
import sys
from functools import partial

import commands
import handmade
import pytest

from harness import plan
from harness.code import hashes
from harness.records import store
from harness.registry import HEADS
from harness.trial.run import run as run_trial

pytestmark = pytest.mark.system

SUITE = commands.SUITE.replace("{mos: {num_mixtures: 2}}", "lowrank")
HEAD = '''\
"""A head whose code is edited by a test."""

from torch import nn

from harness.distributions import Mixture
from harness.registry import HEADS


@HEADS.register("lowrank")
class LowRank(nn.Module):
    """Softmax by a product of two narrow matrices."""

    def __init__(self, dims, embedding):
        super().__init__()
        self.down = nn.Linear(dims.layer_dims[-1], 4, bias=False)
        self.output = nn.Linear(4, dims.vocab_size, bias=False)

    def forward(self, hidden):
        """(B, T, D) top states -> a Mixture of one component."""
        return Mixture(self.down(hidden.layers[-1]).unsqueeze(2), None, self.output.weight)
'''
ZERO = ("self.down(hidden.layers[-1])", "0 * self.down(hidden.layers[-1])")
CHANGED = "lowrank_edited.py changed since these 2 records were made: "


@pytest.fixture
def edit(tmp_path, monkeypatch):
    """A function: replacements in the head's file, which is then imported as a new process would."""
    place = tmp_path / "lowrank_edited.py"
    place.write_text(HEAD)
    monkeypatch.syspath_prepend(str(tmp_path))
    HEADS.names()
    before = dict(HEADS._classes)

    def change(*replacements):
        for old, new in replacements:
            text = place.read_text()
            assert old in text
            place.write_text(text.replace(old, new))
        HEADS._classes.pop("lowrank", None)
        sys.modules.pop(place.stem, None)
        importlib.invalidate_caches()
        importlib.import_module(place.stem)
        hashes._of_class.cache_clear()

    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    change()
    yield change
    HEADS._classes.clear()
    HEADS._classes.update(before)
    sys.modules.pop(place.stem, None)
    hashes._of_class.cache_clear()


@pytest.fixture
def trained(edit, fresh, run):
    """The suite's two heads, two seeds each, trained; the suite's folder, as the current one."""
    (fresh / "suites" / "tiny.yaml").write_text(SUITE)
    assert run().code == 0
    return fresh


def states(harness, *arguments) -> list[str]:
    return [trial["state"] for trial in commands.planned(harness, *arguments)]


def test_a_forward_multiplied_by_zero_keeps_no_old_number_in_silence(trained, edit, run, harness):
    """The attack: it was 'nothing to run', and the old numbers."""
    before = commands.record_files(trained)
    edit(ZERO)
    assert states(harness) == ["ok", "ok", "outdated", "outdated"]
    shown = harness("plan", "suites/tiny.yaml").out
    assert "4 trials, 0 to run, 2 outdated" in shown
    assert CHANGED in shown
    done = run()
    assert done.code == 1
    command = "`harness run suites/tiny.yaml --only head=lowrank --force --executor inline --no-tracking`"
    assert f"{CHANGED}{command} trains them again, `--keep` keeps them" in done.err
    assert "nothing else to run" in done.out
    assert commands.record_files(trained) == before
    assert {"lowrank ¶": "2/2", "softmax": "2/2"}.items() <= commands.table_rows(done.out).items()
    assert "- ¶ lowrank: trained before lowrank_edited.py changed" in (trained / "results/tables/tiny.md").read_text()
    done = run("--keep")
    assert (done.code, "changed since" in done.err, "lowrank ¶" in done.out) == (0, False, True)
    assert commands.record_files(trained) == before


def test_the_command_of_the_sentence_trains_what_it_says_where_new_seeds_are_of_the_new_code(
    trained, edit, run, harness
):
    edit(ZERO)
    place = trained / "suites" / "tiny.yaml"
    place.write_text(place.read_text().replace("[1, 2]", "[1, 2, 3]"))
    assert states(harness) == ["ok", "ok", "missing", "outdated", "outdated", "missing"]
    done = run()
    assert done.code == 1
    assert CHANGED in done.err
    # no mean is over both versions
    assert commands.table_rows(done.out)["lowrank ¶"] == "1/3: 2 of other code"
    assert "- ¶ lowrank: trained by 2 versions of " in done.out
    found = [store.load(trained / "results/runs/tiny", trial["id"]) for trial in commands.planned(harness)[3:]]
    (line,) = [line for line in done.out.splitlines() if line.startswith("| lowrank")]
    assert f"{found[2].metrics['test_ppl']:.2f}" in [cell.strip(" *↓") for cell in line.split("|")]
    (command,) = re.findall(r"`harness run suites/tiny.yaml (.*?)`", run().err)
    before = commands.record_files(trained)
    outdated = {trial["id"] for trial in commands.planned(harness)[3:5]}
    assert run(*command.split()).code == 0
    after = commands.record_files(trained)
    assert {trial for trial in before if after[trial] != before[trial]} == outdated


def test_a_trial_resumed_by_other_code_says_so(edit, tiny_suite, tmp_path):
    tiny_suite.write_text(SUITE)
    trial = plan.load(tiny_suite).trials[2]
    assert trial.head.name == "lowrank"
    setting = partial(handmade.task, runs=tmp_path / "runs")
    with handmade.interrupted_before(18):  # of 15 steps an epoch
        run_trial(setting(spec=trial))
    before = hashes.of("head", "lowrank")
    edit(ZERO)
    record = run_trial(setting(spec=trial))
    # the first epoch was the best one by a head that is no more
    assert (record.status, record.environment.sessions) == ("invalid", 2)
    assert "was chosen by the validation perplexity" in record.message
    assert f"head's code {before[:12]} until epoch 2" in record.environment.changed
    assert record.code == hashes.of_trial(trial)
    assert record.code.head != before
