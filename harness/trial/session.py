"""A session: one process' part in training a trial. The record reports what differs between a trial's sessions."""

import platform

import torch

import harness
from harness.code import fingerprints
from harness.code.fingerprints import SHOWN
from harness.kernels.choice import Choice
from harness.machine import environment
from harness.records.record import Environment, Fingerprints
from harness.training.checkpoint import Checkpoint, SessionInfo
from harness.trial.task import Task

SWITCHED_OFF, NOTHING = "switched off", "nothing"


class Session:
    """The present session of a trial, after those that its checkpoint names.

    Args:
        checkpoint: what the trial is resumed from, or None.
        choice: the forms that this session takes. What an earlier session left out stays left out.
    """

    def __init__(self, task: Task, checkpoint: Checkpoint | None, choice: Choice | None = None):
        self.task = task
        self.load = environment.load_average()
        self.choice = choice or Choice()
        self.code = fingerprints.of_trial(task.spec)
        before = checkpoint.session if checkpoint is not None else None
        self._fixed = _facts(task, self.code)
        for name in () if before is None else _left_out(before.facts):
            self.choice.leave_out(name, "it was left out before the trial was resumed")
        self.number = before.number + 1 if before else 1
        self.started = before.started if before else environment.now()
        self.elapsed = before.elapsed if before else 0.0
        self.peak_memory_mib = before.peak_memory_mib if before else 0.0
        self.changed = before.changed + self._changes(checkpoint) if before else ()

    @property
    def facts(self) -> dict[str, str]:
        """What bits may depend on, beside the spec, by the names that records use."""
        return {**self._fixed, SWITCHED_OFF: ", ".join(sorted(self.choice.left_out)) or NOTHING}

    def info(self, elapsed: float, peak_memory_mib: float) -> SessionInfo:
        """For a checkpoint.

        Args:
            elapsed: seconds of all sessions until now.
            peak_memory_mib: of this session until now.
        """
        return SessionInfo(
            number=self.number,
            started=self.started,
            elapsed=elapsed,
            peak_memory_mib=max(peak_memory_mib, self.peak_memory_mib),
            route=self.task.route if self.task.device == "cpu" else "default",
            facts=self.facts,
            changed=self.changed,
        )

    def environment(self, *, graphed: bool, retries: int) -> Environment:
        """For the record."""
        task = self.task
        return Environment(
            device=self.facts["device"],
            threads=task.threads,
            load_average=round(self.load, 2),
            shared=task.shared,
            python=platform.python_version(),
            torch=torch.__version__,
            harness=harness.__version__,
            commit=self.facts["commit"],
            executor=task.executor,
            started=self.started,
            finished=environment.now(),
            matmul_route=task.route if task.device == "cpu" else None,
            cuda_graph=graphed,
            sessions=self.number,
            retries=retries,
            changed=self.changed,
            switched_off=self.choice.sentences(),
        )

    def _changes(self, checkpoint: Checkpoint) -> tuple[str, ...]:
        """'commit aaa until epoch 2' for each fact that is another one in this session."""
        (epoch, step), old = checkpoint.position, checkpoint.session.facts
        until = f"until epoch {epoch}" + (f", step {step}" if step else "")
        return tuple(f"{name} {old[name]} {until}" for name, now in self.facts.items() if old.get(name, now) != now)


def _facts(task: Task, code: Fingerprints) -> dict[str, str]:
    """Those that stay the same in a session."""
    return {
        "device": environment.device_name(torch.device(task.device)),
        "threads": str(task.threads),
        "torch": str(torch.__version__),  # a subclass of str, which no checkpoint may hold
        "commit": environment.commit(),
        "products by": task.route if task.device == "cpu" else "cuBLAS",
        **{f"{part}'s code": sha256[:SHOWN] for part, sha256 in code.model_dump(exclude={"dirty"}).items()},
    }


def _left_out(facts: dict[str, str]) -> list[str]:
    names = facts.get(SWITCHED_OFF, NOTHING)
    return [] if names == NOTHING else names.split(", ")
