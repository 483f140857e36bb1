"""What becomes of a trial by the state in which SLURM's job has ended, with a SLURM that is played by the test."""

from pathlib import Path

import golden
import pytest

from harness.errors import ExecutionError
from harness.execution import slurm
from harness.execution.executors import Execution, Resources
from harness.records import store

ONE = Resources(cpus=1, gpus=None)
LOG = "a line\nthe last line\n"


class Played:
    """SLURM: one end for each job in turn: its state, its log or None, and the names of checkpoints that it leaves."""

    def __init__(self, ends, task, save):
        self.ends, self.task, self.save, self.calls, self.jobs = list(ends), task, save, [], {}

    def __call__(self, program: str, *arguments: str) -> str:
        self.calls.append((program, *arguments))
        return getattr(self, program)(dict(each.partition("=")[::2] for each in arguments))

    def sbatch(self, options) -> str:
        number = str(len(self.jobs) + 1)
        self.jobs[options["--job-name"]] = (number, Path(options["--output"]))
        return f"{number};cluster\n"

    def squeue(self, options) -> str:
        if not self.ends:  # the command cleans up
            return ""
        if self.ends[0] == "unreachable":
            self.ends.pop(0)
            raise ExecutionError("squeue: Unable to contact slurm controller")
        (name,) = options["--name"].split(",")
        number, pattern = self.jobs[name]
        state, log, *checkpoints = self.ends.pop(0)
        if log is not None:
            pattern.with_name("0.log").write_text(log)
        for checkpoint in checkpoints:
            (self.task.folder / checkpoint).touch()
        if state == "COMPLETED" and log == LOG:
            self.save()
        return "" if state == slurm.GONE else f"{name} 0 {number} {state} NonZeroExitCode \n"

    def scancel(self, options) -> str:
        return ""


@pytest.fixture
def play(suite, tasks, tmp_path, record_of, monkeypatch):
    """A function: ends of the jobs of one trial -> SLURM after it, and the trial's events."""

    def run(*ends, **more):
        (task,) = tasks(suite.trials[:1], "", "slurm", runs=tmp_path / "runs")
        task.folder.mkdir(parents=True)
        played = Played(ends, task, lambda: store.save(record_of(task.spec, "ok", ""), task.runs))
        monkeypatch.setattr(slurm, "_called", played)
        monkeypatch.setattr(slurm.shutil, "which", lambda name: f"/bin/{name}")
        monkeypatch.setattr(slurm.time, "sleep", lambda seconds: None)
        events = []
        slurm.execute(Execution(tasks=[task], **{"resources": ONE, **more}), events.append)
        return played, events

    return run


def end(state: str, log: str | None = None, *checkpoints: str):
    """The end of a job as the table has it."""
    if state == "unreachable":
        return state
    return state, log and log.replace("LOG", LOG), *(f"checkpoint-{name}" for name in checkpoints)


@pytest.mark.parametrize("case", golden.read("messages/execution/jobs"), ids=lambda case: str(case["ends"]))
def test_a_trial_goes_on_in_another_job_where_that_can_get_further(play, case, capsys):
    played, events = play(*(end(*each) for each in case["ends"]))
    assert len(played.jobs) == case["jobs"]
    assert capsys.readouterr().err.count("it is submitted again") == case["jobs"] - 1
    (last,) = [event for event in events if event.kind == "finished"]
    assert (last.record.status if last.record else last.message).startswith(case["says"])
    assert "the last line" in last.message or "its log" not in case["says"]


def test_a_trial_that_slurm_ended_for_memory_says_so_in_its_record(play):
    _, (end,) = play(("OUT_OF_MEMORY", LOG))
    assert end.record.message.startswith("job 1_0 ended as OUT_OF_MEMORY without a record: it needed more memory")
    assert end.record.environment.device != "auto"


def test_a_job_whose_log_is_not_here_tells_of_a_folder_that_is_not_shared(play):
    with pytest.raises(ExecutionError, match="the results folder must be one that all nodes share"):
        play(("FAILED", None))


@pytest.mark.parametrize(
    ("resources", "memory", "size"),
    [
        (Resources(cpus=3, gpus=None), None, ["--cpus-per-task=3"]),
        (Resources(cpus=1, gpus=1.0), None, ["--cpus-per-task=1", "--gres=gpu:1"]),
        (Resources(cpus=1, gpus=0.25), None, ["--cpus-per-task=1", "--gres=gpu:1"]),  # a job has whole GPUs
        (Resources(cpus=1, gpus=0.0), 1.5, ["--cpus-per-task=1", "--mem=2560M"]),  # (1.5 + 1) * 1024
    ],
)
def test_a_job_asks_for_what_a_trial_needs_then_for_what_the_user_says(
    suite, tasks, monkeypatch, resources, memory, size
):
    (task,) = tasks(suite.trials[:1], "sizes", "slurm", memory_gib=memory)
    monkeypatch.setattr(slurm.shutil, "which", lambda name: f"/bin/{name}")
    asked = slurm._size(slurm._prepared(Execution(tasks=[task], resources=resources))[0])
    assert asked == ["--nodes=1", "--ntasks=1", *size]


def test_the_options_of_the_user_reach_sbatch_unchanged_and_before_ours(play):
    options = ("--account=me", "--comment=$(touch obeyed); two words")
    played, _ = play(("COMPLETED", LOG), slurm=options)
    (submission,) = [call for call in played.calls if call[0] == "sbatch"]
    assert submission[4:6] == options
    assert submission[6] == "--array=0-0"


def test_trials_of_several_workers_and_a_machine_without_slurm_are_refused(suite, tasks, monkeypatch):
    first = suite.trials[0]
    together = first.model_copy(update={"train": first.train.model_copy(update={"data_parallel": 2})})
    for spec, place, sentence in (
        (first, None, "there is no sbatch here: --executor slurm submits jobs"),
        (together, "/bin/sbatch", "trials of 2 workers .* need Ray, which can run in one job"),
    ):
        monkeypatch.setattr(slurm.shutil, "which", lambda name, place=place: place)
        with pytest.raises(ExecutionError, match=sentence):
            slurm.execute(Execution(tasks=tasks([spec], "refused", "slurm"), resources=ONE), print)
