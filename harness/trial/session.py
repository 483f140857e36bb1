"""A session: one process' part in training a trial. The record reports what differs between a trial's sessions."""

import platform

import torch

import harness
from harness.code import fingerprints
from harness.code.fingerprints import SHOWN
from harness.code.recorded import Fingerprints
from harness.machine import environment, proofs
from harness.plan.specs import TrialSpec
from harness.records.record import Environment
from harness.training.checkpoint import Checkpoint, SessionInfo
from harness.trial.setting import Setting


class Session:
    """The present session of a trial, after those that its checkpoint names.

    Args:
        checkpoint: what the trial is resumed from, or None.
    """

    def __init__(self, setting: Setting, spec: TrialSpec, checkpoint: Checkpoint | None):
        self.setting = setting
        self.load = environment.load_average()
        self.switched_off = proofs.switched_off(torch.device(setting.device))  # here: before any clock of the trial
        self.code = fingerprints.of_trial(spec)
        before = checkpoint.session if checkpoint is not None else None
        self.facts = _facts(setting, self.code)
        self.number = before.number + 1 if before else 1
        self.started = before.started if before else environment.now()
        self.elapsed = before.elapsed if before else 0.0
        self.peak_memory_mib = before.peak_memory_mib if before else 0.0
        self.changed = before.changed + self._changes(checkpoint) if before else ()

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
            route=self.setting.route if self.setting.device == "cpu" else "default",
            facts=self.facts,
            changed=self.changed,
        )

    def environment(self, *, graphed: bool, retries: int) -> Environment:
        """For the record."""
        setting = self.setting
        return Environment(
            device=self.facts["device"],
            threads=setting.threads,
            load_average=round(self.load, 2),
            shared=setting.shared,
            python=platform.python_version(),
            torch=torch.__version__,
            harness=harness.__version__,
            commit=self.facts["commit"],
            executor=setting.executor,
            started=self.started,
            finished=environment.now(),
            matmul_route=setting.route if setting.device == "cpu" else None,
            cuda_graph=graphed,
            sessions=self.number,
            retries=retries,
            changed=self.changed,
            switched_off=self.switched_off,
        )

    def _changes(self, checkpoint: Checkpoint) -> tuple[str, ...]:
        """'commit aaa until epoch 2' for each fact that is another one in this session."""
        (epoch, step), old = checkpoint.position, checkpoint.session.facts
        until = f"until epoch {epoch}" + (f", step {step}" if step else "")
        return tuple(f"{name} {old[name]} {until}" for name, now in self.facts.items() if old.get(name, now) != now)


def _facts(setting: Setting, code: Fingerprints) -> dict[str, str]:
    """What bits may depend on, beside the spec, by the names that records use."""
    return {
        "device": environment.device_name(torch.device(setting.device)),
        "threads": str(setting.threads),
        "torch": str(torch.__version__),  # a subclass of str, which no checkpoint may hold
        "commit": environment.commit(),
        "products by": setting.route if setting.device == "cpu" else "cuBLAS",
        "switched off": ", ".join(proofs.proof_for(torch.device(setting.device)).failed) or "nothing",
        **{f"{part}'s code": sha256[:SHOWN] for part, sha256 in code.model_dump(exclude={"dirty"}).items()},
    }
