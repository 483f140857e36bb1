"""The executor under SLURM: each trial is a task of a job array, which `sbatch` submits.

The command submits, watches and reports; the jobs do not need it. A trial that SLURM requeues goes on from its
checkpoint. One whose job ended without a record is submitted again. Each array has a folder <runs>/.slurm/<name> for
its tasks, logs and progress. Its jobs have the same name, by which a later command finds them in `squeue`.
"""

import math
import os
import shlex
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.errors import ExecutionError, HarnessError
from harness.execution.executors import Execution, OnEvent, check_workers, refuse_classes_of_session
from harness.execution.watcher import ProgressFile, Watcher
from harness.machine.environment import resolve_device
from harness.machine.files import read_end
from harness.printable import counted, sentence
from harness.records import store
from harness.training.loop import Progress
from harness.training.step import refuse_unfit
from harness.trial.run import run
from harness.trial.sessions import MAX_DEATHS
from harness.trial.setup import fetch_sources
from harness.trial.task import Task

FOLDER, TASKS = ".slurm", "tasks.jsonl"
LOCK = "slurm"  # of the records' folder, while a command looks for jobs and submits others
MOST_TASKS = 1000  # of one array: SLURM's limit where MaxArraySize is not set
ATTEMPTS = MAX_DEATHS + 1  # jobs of a trial that end at one checkpoint: the last one writes why into its record
POLL_SECONDS, MOST_POLL_SECONDS = 1.0, 30.0  # squeue costs the whole cluster: less often while nothing changes
REPORT_SECONDS = 30.0  # between two reports of a job within an epoch
CERTIFIER_GIB = 1.0  # beside the trial's own process
LOST = "lost: "  # begins the last line in the log of a job that could not make a record
TAIL = 4096  # bytes of a log that are read
GONE = "FORGOTTEN"  # by SLURM, some minutes after its end (MinJobAge)
CANCELLED = {"CANCELLED", "DEADLINE"}
ENDED = CANCELLED | {"BOOT_FAIL", "COMPLETED", "FAILED", GONE, "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"}
CHANGE = "no job was submitted; change --account, --partition, --slurm, or what a trial needs (resources)"
MORE_MEMORY = "give the jobs more, by resources.memory_gib in the suite or --slurm '--mem=8G'"
HIDDEN = (
    "job {job.id} ended as {job.state}, and its log {job.log} is not here: the results folder must be one that all "
    "nodes share; name such a folder with --results"
)

Key = tuple[str, int]  # the name of an array, and the index of a task in it


@dataclass
class Job:
    """The job of one trial.

    Args:
        folder: of its array.
        index: in its array.
        id: SLURM's, as '12_0'.
        state: SLURM's, as it was seen last; '' before.
        reason: why it waits, in SLURM's word.
    """

    folder: Path
    index: int
    id: str
    state: str = ""
    reason: str = ""
    progress: ProgressFile = field(init=False)

    def __post_init__(self) -> None:
        self.progress = ProgressFile(_progress_file(self.folder, self.index))

    @property
    def key(self) -> Key:
        return self.folder.name, self.index

    @property
    def log(self) -> Path:
        return self.folder / f"{self.index}.log"

    def last_line(self) -> str:
        """Of its log; '' without one."""
        try:
            lines = read_end(self.log, TAIL).decode(errors="replace").split("\n")
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


def execute(execution: Execution, on_event: OnEvent) -> None:
    """See Executor. A trial that a job of an earlier command trains gets no other job; this command watches it.

    Raises: ExecutionError also where SLURM refuses the jobs, or the jobs cannot see the records' folder.
    """
    tasks = _prepared(execution)
    jobs = Jobs(Watcher(tasks, on_event, fail_fast=execution.fail_fast), [*_size(tasks[0]), *execution.slurm])
    try:
        with store.writing(tasks[0].runs, LOCK):
            jobs.submit(jobs.find(tasks))
        jobs.watch()
    except (KeyboardInterrupt, ExecutionError):
        if ids := jobs.arrays():
            _say(f"the jobs go on: the same command watches them again, and `scancel {' '.join(ids)}` ends them")
        raise
    if all(end.record is not None for end in jobs.watcher.ends.values()):
        with store.writing(tasks[0].runs, LOCK):
            _under_way(tasks[0].runs)  # removes the folders; where a trial is lost they stay, for their logs


class Jobs:
    """The jobs of some trials.

    Args:
        options: of sbatch.
    Attributes:
        running: trial id -> its job, until the trial has ended.
    """

    def __init__(self, watcher: Watcher, options: list[str]):
        self.watcher, self.options = watcher, options
        self.running: dict[str, Job] = {}
        self._ends: dict[
            str, tuple[list[str], int]
        ] = {}  # trial -> its checkpoints when a job ended; so many did there
        self._said: set[str] = set()

    def arrays(self) -> list[str]:
        """SLURM's ids of the arrays."""
        return list(dict.fromkeys(job.id.partition("_")[0] for job in self.running.values()))

    def find(self, tasks: list[Task]) -> list[Task]:
        """Find the jobs that earlier commands have left. Returns the tasks that have none."""
        found = _under_way(tasks[0].runs)
        self.running = {task.id: found[task.id] for task in tasks if task.id in found}
        for job in self.running.values():
            list(job.progress.new())  # an earlier command has shown it
        if self.running:
            _say(f"{counted(len(self.running), 'trial')} submitted before: job {', '.join(self.arrays())}")
        return [task for task in tasks if task.id not in self.running]

    def submit(self, tasks: list[Task]) -> None:
        for start in range(0, len(tasks), MOST_TASKS):
            some = tasks[start : start + MOST_TASKS]
            folder = some[0].runs / FOLDER / f"{some[0].suite}-{uuid.uuid4().hex[:8]}"
            folder.mkdir(parents=True)
            (folder / TASKS).write_text("".join(f"{task.to_json()}\n" for task in some), encoding="utf-8")
            array = _sbatch(folder, len(some), self.options)
            _say(f"submitted job {array}: {counted(len(some), 'trial')}; logs: {folder}")
            for index, task in enumerate(some):
                self.running[task.id] = Job(folder, index, f"{array}_{index}")

    def watch(self) -> None:
        """Report what happens to the jobs, until all trials have ended."""
        seconds, cancelled = POLL_SECONDS, False
        while self.running:
            time.sleep(seconds)
            seconds = POLL_SECONDS if self._look() else min(1.5 * seconds, MOST_POLL_SECONDS)
            if self.watcher.stopped and not cancelled:
                cancelled = True
                self._cancel()

    def _look(self) -> bool:
        """Look at all jobs once, and submit those trials again that are to go on. Returns whether anything changed."""
        try:
            queue = _squeue({job.folder.name for job in self.running.values()})
        except ExecutionError as fault:  # while its controller is restarted, for example
            self._say_once(f"{fault}; the command tries again")
            return False
        changed, again = False, []
        for trial, job in list(self.running.items()):
            before = job.state
            job.id, job.state, job.reason = queue.get(job.key, (job.id, GONE, ""))
            changed |= job.state != before
            if job.state == "RUNNING" != before:
                self.watcher.started(trial)
            for progress in job.progress.new():
                self.watcher.progress(trial, progress)
            if job.state == "PENDING" and job.reason != "None":
                self._say_once(f"jobs wait: {job.reason}")
            if job.state in ENDED:
                del self.running[trial]
                again += [self.watcher.tasks[trial]] if self._ended(trial, job) else []
        if again:
            with store.writing(again[0].runs, LOCK):  # another command removes folders whose jobs it does not find
                self.submit(again)
        return changed

    def _ended(self, trial: str, job: Job) -> bool:
        """The job of a trial has ended. Returns whether the trial is to have another one."""
        watcher, last = self.watcher, job.last_line()
        about = f"job {job.id} ended as {job.state} without a record"
        if watcher.stopped or watcher.new_record(trial) is not None:
            pass
        elif job.state == "OUT_OF_MEMORY":
            task = watcher.tasks[trial]  # its record is made here, where its device is not known
            watcher.tasks[trial] = replace(task, device="cuda" if task.gpus else "cpu")
            watcher.died(trial, f"{about}: it needed more memory than it had; {MORE_MEMORY}", "oom")
        elif job.state in ("COMPLETED", "FAILED") and not job.log.exists():
            self._cancel()
            self.running.clear()
            raise ExecutionError(HIDDEN.format(job=job))
        elif job.state in CANCELLED:
            watcher.lost(trial, about)
        elif last.startswith(LOST):
            watcher.lost(trial, last.removeprefix(LOST))
        elif self._goes_on(trial):
            _say(f"{trial}: {about}; it is submitted again")
            return True
        else:
            watcher.lost(trial, f"{about}, as {ATTEMPTS - 1} jobs before it; its log, {job.log}, ends with: {last}")
        watcher.ended(trial)
        return False

    def _goes_on(self, trial: str) -> bool:
        """Whether another job may get further: not after ATTEMPTS that left the same checkpoint, or none."""
        task = self.watcher.tasks[trial]
        now = sorted(place.name for place in task.folder.glob(store.CHECKPOINTS))
        before, times = self._ends.get(trial, (now, 0))
        times = times + 1 if now == before else 1
        self._ends[trial] = now, times
        return times < ATTEMPTS

    def _cancel(self) -> None:
        if self.running:
            _called("scancel", *(job.id for job in self.running.values()))

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            _say(text)


def _prepared(execution: Execution) -> list[Task]:
    """The trials as jobs get them. What they read is in the data folder then. A job looks for its GPU itself."""
    tasks, resources = execution.tasks, execution.resources
    if shutil.which("sbatch") is None:
        raise ExecutionError(
            "there is no sbatch here: --executor slurm submits jobs, as from a login node of a cluster; "
            "leave it out where SLURM is not installed"
        )
    refuse_classes_of_session(tasks)
    check_workers(tasks, resources)
    if (workers := max(task.spec.train.data_parallel for task in tasks)) > 1:
        raise ExecutionError(
            f"trials of {workers} workers (train.data_parallel) need Ray, which can run in one job: docs/cluster.md"
        )
    device = "cpu" if tasks[0].device == "auto" and resources.gpus == 0 else tasks[0].device
    gpus = math.ceil(resources.gpus) if resources.gpus is not None else int(device == "cuda")
    if device != "auto":
        for task in tasks:
            refuse_unfit(task.spec.train, device)
    fetch_sources([task.spec for task in tasks], tasks[0].data)
    return [replace(task, device=device, threads=resources.cpus, gpus=gpus, shared=True) for task in tasks]


def _size(task: Task) -> list[str]:
    """What a job asks for, as options of sbatch."""
    size = ["--nodes=1", "--ntasks=1", f"--cpus-per-task={task.threads}"]
    size += [f"--gres=gpu:{task.gpus:g}"] if task.gpus else []
    if task.memory_gib is not None:
        size.append(f"--mem={math.ceil(1024 * (task.memory_gib + CERTIFIER_GIB))}M")
    return size


def _under_way(runs: Path) -> dict[str, Job]:
    """Trial id -> its job that has not ended. The folders of arrays of which no job is left are removed."""
    folders = {place.name: place for place in (runs / FOLDER).glob("*/")}
    queue = _squeue(folders) if folders else {}
    active = {key: seen for key, seen in queue.items() if seen[1] not in ENDED}
    found = {}
    for name, folder in folders.items():
        if not any(array == name for array, _ in active):
            shutil.rmtree(folder)
            continue
        for index, line in enumerate((folder / TASKS).read_text(encoding="utf-8").splitlines()):
            if (name, index) in active:
                found[Task.from_json(line).id] = Job(folder, index, active[name, index][0])
    return found


def _squeue(names: Iterable[str]) -> dict[Key, tuple[str, str, str]]:
    """Id, state and reason of each job with these names, by array and index, as far as SLURM knows it."""
    columns = "--Format=Name:100,ArrayTaskID:20,ArrayJobID:20,State:30,Reason:60"
    shown = _called("squeue", "--noheader", "--array", "--states=all", f"--name={','.join(names)}", columns)
    rows = (line.split(maxsplit=4) for line in shown.splitlines())
    return {(name, int(index)): (f"{job}_{index}", state, why.strip()) for name, index, job, state, why in rows}


def _sbatch(folder: Path, number: int, options: list[str]) -> str:
    """Submit an array of so many jobs. Returns its id. What is refused leaves no folder."""
    ours = [f"--array=0-{number - 1}", f"--job-name={folder.name}", f"--output={folder}/%a.log"]
    command = shlex.join([sys.executable, "-m", __name__, str(folder)])
    try:
        shown = _called(
            "sbatch", *options, *ours, "--parsable", "--requeue", "--open-mode=append", f"--wrap=exec {command}"
        )
    except ExecutionError as refusal:
        shutil.rmtree(folder)
        raise ExecutionError(f"{refusal}; {CHANGE}") from None
    array = shown.strip().partition(";")[0]  # the id, and the name of the cluster where there are several
    if not array.isdecimal():
        shutil.rmtree(folder)
        raise ExecutionError(f"sbatch prints '{shown.strip()}' instead of the id of a job; {CHANGE}")
    return array


def _called(program: str, *arguments: str) -> str:
    """What a command of SLURM prints. Raises ExecutionError with SLURM's own sentences when it fails."""
    done = subprocess.run([program, *arguments], capture_output=True, text=True, errors="replace")
    if done.returncode:
        said = [line.removeprefix(f"{program}: ").removeprefix("error: ") for line in done.stderr.splitlines()]
        raise ExecutionError(sentence(f"{program}: {'; '.join(said) or f'exit code {done.returncode}'}"))
    return done.stdout


def _say(text: str) -> None:
    print(sentence(text), file=sys.stderr, flush=True)


def run_job(folder: Path, index: int) -> None:
    """In a job: run its trial, and write its progress. Without a record, the last line of the log says why."""
    task = Task.from_json((folder / TASKS).read_text(encoding="utf-8").splitlines()[index])
    file, due = ProgressFile(_progress_file(folder, index)), 0.0

    def report(progress: Progress) -> None:
        nonlocal due
        if progress.step == progress.steps or time.monotonic() >= due:
            due = time.monotonic() + REPORT_SECONDS
            file.write(progress)

    try:
        device = resolve_device(task.device).type
        refuse_unfit(task.spec.train, device)
        run(replace(task, device=device), report)
    except HarnessError as fault:  # not the trial's fault: it has no record
        raise SystemExit(f"{LOST}{sentence(str(fault))}") from None


def _progress_file(folder: Path, index: int) -> Path:
    return folder / f"{index}.jsonl"


if __name__ == "__main__":
    run_job(Path(sys.argv[1]), int(os.environ["SLURM_ARRAY_TASK_ID"]))
