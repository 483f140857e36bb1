"""For tests of faults: suites whose heads fail as told, commands as processes of their own, and what they leave."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import handmade
import psutil
import pytest
from commands import PATIENCE, WITHOUT_GPU

from harness import plan
from harness.execution import inline
from harness.execution.executors import Execution, Resources
from harness.plan.specs import TrialSpec
from harness.registry import HEADS
from harness.trial import routes

PLUGIN = Path(__file__).parent / "faulty"
MARKOV = "{markov: {vocab_size: 12, num_tokens: 400, branching: 3}}"
LSTM = "backbones: [{lstm: {d_model: 8, num_layers: 2, dropout: 0.1}}]"
UNTIMED = "measure: {exclusive: false}"
TRAIN = "train: {optimizer: adam, lr: 0.01, epochs: 3, batch_size: 4, seq_len: 7}"  # 15 steps an epoch


def suite_text(
    *heads: str, seeds: str = "[1]", more: str = "", corpus: str = MARKOV, backbones: str = LSTM, train: str = TRAIN
) -> str:
    """A suite of tiny trials, which are not timed again after training."""
    listed = "\n".join(f"  - {head}" for head in heads)
    return (
        f"name: tiny\nversion: 1\ncorpora: [{corpus}]\n{backbones}\nheads:\n{listed}\n{train}\nseeds: {seeds}\n"
        f"{UNTIMED}\n{more}\n"
    )


class Place:
    """A folder with a suite, in which commands are run as processes of their own."""

    def __init__(self, folder: Path, text: str):
        self.folder, self.marks = folder, folder / "marks"
        (folder / "suites").mkdir(parents=True)
        self.marks.mkdir()
        self.suite = folder / "suites" / "tiny.yaml"
        self.suite.write_text(text)
        self.runs = folder / "results" / "runs" / "tiny"

    def start(self, command: str = "run", *options, env=None, **popen) -> subprocess.Popen:
        """`harness <command> suites/tiny.yaml <options>`, on the way."""
        return self.command(command, "suites/tiny.yaml", *options, env=env, **popen)

    def command(self, *arguments, **more) -> subprocess.Popen:
        """`harness <arguments>`, on the way."""
        return self._start("-m", "harness.cli", *arguments, **more)

    def script(self, text: str, *arguments) -> subprocess.Popen:
        """A Python script, on the way."""
        return self._start("-c", text, *arguments)

    def run(self, *options, **more) -> subprocess.CompletedProcess:
        """`harness run` to its end."""
        return self.end(self.start("run", *options, **more))

    def end(self, process: subprocess.Popen) -> subprocess.CompletedProcess:
        try:
            out, err = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def here(self) -> dict[str, tuple]:
        """The results of `harness run --executor inline`, as this process runs it, to which nothing happens: to compare
        with what was disturbed elsewhere, or to go on with it. No step is slow.
        """
        with self._known_here():
            inline.execute(
                Execution(
                    tasks=[self.setting()(spec=spec) for spec in self.trials()], resources=Resources(cpus=1, gpus=0.0)
                ),
                lambda event: None,
            )
        return self.results()

    def trials(self) -> list[TrialSpec]:
        """Those of the suite."""
        with self._known_here():
            return list(plan.load(self.suite).trials)

    def setting(self) -> partial:
        """How `harness run --executor inline` runs them."""
        return partial(handmade.task, runs=self.runs,
                       route=routes.chosen_route())  # fmt: skip

    @contextmanager
    def _known_here(self) -> Iterator[None]:
        """The plug-in, which other processes find by PYTHONPATH."""
        from faulty import faulty_head

        HEADS.names()  # all others are known before it
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HARNESS_TEST_MARKS", str(self.marks))
            patch.setattr(faulty_head, "pause", lambda seconds: None)
            patch.setitem(HEADS._classes, "faulty", faulty_head.Faulty)
            yield

    def let_go(self) -> None:
        """What is `held` goes on, here and in all processes."""
        (self.marks / "go").touch()

    def held(self) -> bool:
        """Whether a head `held` has reached its step."""
        return any(self.marks.glob("held-*"))

    def steps(self) -> int:
        """How many training steps heads `faulty` made, in all processes."""
        return len((self.marks / "steps").read_text())

    def records(self) -> dict[str, dict]:
        """Trial id -> content of its record."""
        found = {path.parent.name: json.loads(path.read_text()) for path in self.runs.glob("*/record.json")}
        return dict(sorted(found.items()))

    def by_head(self) -> dict[str, dict]:
        """Head and its parameters -> content of its record."""
        return {label(record): record for record in self.records().values()}

    def results(self) -> dict[str, tuple]:
        """Trial id -> what must not depend on how a trial was run."""
        return {trial: result(record) for trial, record in self.records().items()}

    def epochs(self, trial: str) -> list[int]:
        """The epochs whose ends a trial's log tells of."""
        lines = (self.runs / trial / "trial.log").read_text().splitlines()
        return [int(line.split("epoch=")[1].split(",")[0]) for line in lines if "Progress(" in line]

    def checkpoints(self) -> list[Path]:
        return sorted(self.runs.glob("*/checkpoint-*.pt"))

    def leftovers(self) -> list[str]:
        """What no run may leave behind once all trials have records."""
        kept = {
            "record.json",
            "record.previous.json",
            "record.bad",
            "best.pt",
            "trial.log",
            "test_nll.npz",
            "timing.json",
        }
        return [str(path) for path in self.runs.glob("*/*") if path.parent.name != ".locks" and path.name not in kept]

    def environment(self) -> dict[str, str]:
        """The variables of a command there: it finds the plug-in and its marks, no GPU, and no other folders."""
        environment = {name: os.environ[name] for name in os.environ if name not in ("HARNESS_DATA", "HARNESS_RESULTS")}
        paths = [str(PLUGIN), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {
            **environment,
            **WITHOUT_GPU,
            "PYTHONPATH": os.pathsep.join(paths),
            "HARNESS_TEST_MARKS": str(self.marks),
        }

    def _start(self, *arguments, env=None, **popen) -> subprocess.Popen:
        heeded = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs ignore it
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        given = {**pipes, "text": True, "preexec_fn": heeded, **popen}
        environment = {**self.environment(), **(env or {})}
        return subprocess.Popen([sys.executable, *map(str, arguments)], cwd=self.folder, env=environment, **given)


def label(record: dict) -> str:
    """'faulty kind=raise'."""
    head = record["spec"]["head"]
    return " ".join([head["name"], *(f"{key}={value}" for key, value in head["params"].items())])


def result(record: dict) -> tuple:
    """What must not depend on how a trial was run."""
    scores = {name: value for name, value in record["metrics"].items() if "ppl" in name or "epoch" in name}
    curve = [(point["epoch"], point["train_loss"], point["valid_ppl"], point["lr"]) for point in record["curve"]]
    return record["status"], record["weights_sha256"], scores, curve


def wait_for(condition, seconds: float = PATIENCE):
    """The condition's value once it is true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {condition}")


def descendants(pid: int) -> list[psutil.Process]:
    """All processes below a process."""
    return psutil.Process(pid).children(recursive=True)


def workers(pid: int) -> list[psutil.Process]:
    """The processes below a driver that train."""
    found = []
    for process in descendants(pid):
        try:
            if "TrialWorker" in " ".join(process.cmdline()):  # Ray calls a worker by the class of its actor
                found.append(process)
        except psutil.Error:
            continue
    return found


def all_gone(processes: list[psutil.Process], seconds: float = PATIENCE) -> bool:
    """Whether the processes end by themselves, but for Ray's two agents, which end a minute after their driver."""
    _, alive = psutil.wait_procs(processes, timeout=0)
    deadline = time.monotonic() + seconds
    while (alive := [each for each in alive if _runs(each) and not _is_agent(each)]) and (time.monotonic() < deadline):
        _, alive = psutil.wait_procs(alive, timeout=0.2)
    return not alive


def _runs(process: psutil.Process) -> bool:
    """Not ended. In a container without an init process, what has ended and lost its parent stays as a zombie."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _is_agent(process: psutil.Process) -> bool:
    try:
        return "agent" in " ".join(process.cmdline()).lower()  # whatever it calls itself so far
    except psutil.NoSuchProcess:
        return True
