"""The job array of docs/cluster.md: its script and its commands, taken from the page, under a stand-in for SLURM."""

import re
import sys
from pathlib import Path

import pytest
from array_scheduler import ArrayScheduler
from disturbed import Place, suite_text, wait_for

PAGE = (Path(__file__).parent.parent.parent / "docs" / "cluster.md").read_text()
SECTION = PAGE.partition("## SLURM: one task for each trial")[2].partition("\n## ")[0]
SCRIPT, IDS, TUNING_IDS = re.findall(r"```bash\n(.*?)```", SECTION, flags=re.DOTALL)
AT = 20  # the step in which the signals come, the fifth of the second epoch
HEAD = f"faulty: {{kind: held, at: {AT}}}"  # waits in that step until the test lets it go on
EPOCHS = 3
STEPS = 15 * EPOCHS
TRAIN = f"train: {{optimizer: adam, lr: 0.01, epochs: {EPOCHS}, batch_size: 4, seq_len: 7}}"
TUNE = "tune: {space: {train.lr: {log_uniform: [0.001, 0.1]}}, trials: 2, epochs: 1, seed: 3}"


def adapted(text: str) -> str:
    """With the suite of the test, and with one core for a trial."""
    suites = text.replace("ptb_mixtures", "tiny").replace("ptb_small_heads", "tiny")
    return suites.replace("--cpus-per-task=4", "--cpus-per-task=1")


@pytest.fixture
def scheduler():
    """A function: a Place -> the scheduler of the page's script there, in an environment that the script activates."""

    def make(there: Place) -> ArrayScheduler:
        bin_folder = there.folder / ".venv" / "bin"
        bin_folder.mkdir(parents=True)
        (bin_folder / "activate").write_text(f'export PATH="{bin_folder}:$PATH"\n')
        for name, module in {"harness": "-m harness.cli ", "python": ""}.items():
            (bin_folder / name).write_text(f'#!/bin/bash\nexec "{sys.executable}" {module}"$@"\n')
            (bin_folder / name).chmod(0o755)
        (there.folder / "trial.sbatch").write_text(adapted(SCRIPT))
        return ArrayScheduler(there.folder / "trial.sbatch", there.environment())

    return make


def resumed_from(there: Place, trial: str) -> list[int]:
    """The steps that were done at each checkpoint from which a trial went on."""
    found = re.findall(
        r"goes on from its checkpoint: epoch (\d+), (\d+) steps done", (there.runs / trial / "trial.log").read_text()
    )
    return [15 * (int(epoch) - 1) + int(steps) for epoch, steps in found]


def test_preempted_and_timed_out_tasks_lose_two_steps_at_most_and_end_with_the_same_bits(
    place, scheduler, tmp_path_factory
):
    text = {"seeds": "[1, 2]", "train": TRAIN}
    undisturbed = Place(tmp_path_factory.mktemp("undisturbed") / "place", suite_text(HEAD, **text))
    undisturbed.let_go()
    expected = undisturbed.here()
    there = place(HEAD, **text)
    slurm = scheduler(there)
    slurm.shell(f". .venv/bin/activate\n{adapted(IDS)}")
    trials = (there.folder / "ids.txt").read_text().split()
    assert sorted(trials) == sorted(expected)
    one, two = tasks = slurm.submitted()
    wait_for(lambda: len((there.marks / f"held-{AT}-1000000").read_text()) == 2 if there.held() else False)
    slurm.preempt(one)
    slurm.time_ends(two)
    there.let_go()
    assert [slurm.ended(task) for task in tasks] == [False, False], slurm.log(one) + slurm.log(two)
    assert [slurm.ended(task) for task in tasks] == [True, True]
    assert (one.codes, two.codes) == ([143, 0], [143, 0]), slurm.log(one) + slurm.log(two)
    assert there.results() == expected
    for trial in trials:
        (done,) = resumed_from(there, trial)
        assert done >= AT - 1
        assert there.records()[trial]["environment"]["sessions"] == 2
    assert 2 * STEPS <= there.steps() <= 2 * STEPS + 2 * 2
    assert there.leftovers() == []


def test_a_tuned_suite_is_trained_by_two_arrays(place, scheduler):
    there = place("softmax", "{mos: {num_mixtures: 2}}", more=TUNE, train=TRAIN)
    slurm = scheduler(there)
    slurm.shell(f". .venv/bin/activate\n{adapted(TUNING_IDS)}")
    assert len((there.folder / "ids.txt").read_text().split()) == 2  # one for each row
    assert [slurm.ended(task) for task in slurm.submitted()] == [True, True]
    assert len(there.records()) == 2 * 2
    slurm.shell(f". .venv/bin/activate\n{adapted(IDS)}")
    second = slurm.submitted()
    assert [slurm.ended(task) for task in second] == [True, True]
    assert [task.codes for task in second] == [[0], [0]], "".join(map(slurm.log, second))
    records = there.records()
    assert len(records) == 2 * 2 + 2
    trained = {trial: record for trial, record in records.items() if not record["tuning"]}
    assert sorted(trained) == sorted((there.folder / "ids.txt").read_text().split())
    assert {record["status"] for record in trained.values()} == {"ok"}
