"""A session: one process' part in training a trial. What differs between the sessions of a trial is kept, and told."""

import platform
from typing import Any

import torch

import harness
from harness.code import fingerprints
from harness.code.fingerprints import SHOWN, Fingerprints
from harness.machine import environment, proofs
from harness.plan.specs import TrialSpec
from harness.records.record import Environment
from harness.trial.setting import Setting

SCHEMA = 1  # of checkpoints; another one's are not taken up


class Session:
    """The present session of a trial, and what checkpoints say of those before.

    Args:
        state: the checkpoint it goes on from, or None.
    """

    def __init__(self, setting: Setting, spec: TrialSpec, state: dict[str, Any] | None):
        self.setting, self.trial_id = setting, spec.id
        self.load = environment.load_average()
        self.switched_off = proofs.switched_off(torch.device(setting.device))  # here: before any clock of the trial
        self.code = fingerprints.of_trial(spec)
        self.facts = _facts(setting, self.code)
        before = state["session"] if state is not None else None
        self.number = before["number"] + 1 if before else 1
        self.started = before["started"] if before else environment.now()
        self.elapsed = before["elapsed"] if before else 0.0
        self.peak_memory_mib = before["peak_memory_mib"] if before else 0.0
        self.changed: tuple[str, ...] = tuple(before["changed"]) if before else ()
        if before:
            until = f"until epoch {state['epoch']}" + f", step {state['step']}" * (state["step"] > 0)
            old = before["facts"]
            self.changed += tuple(f"{k} {old[k]} {until}" for k, now in self.facts.items() if old.get(k, now) != now)

    def state(self, elapsed: float, peak_memory_mib: float) -> dict[str, Any]:
        """For a checkpoint, as plain values."""
        return {
            "schema": SCHEMA,
            "trial": self.trial_id,
            "session": {
                "number": self.number,
                "started": self.started,
                "elapsed": elapsed,
                "peak_memory_mib": max(peak_memory_mib, self.peak_memory_mib),
                "facts": self.facts,
                "changed": list(self.changed),
            },
        }

    def environment(self, *, graphed: bool, retries: int) -> Environment:
        """Of the record."""
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


def fits(state: dict[str, Any], trial_id: str) -> bool:
    """Whether a checkpoint is of this trial, and one that this harness can take up."""
    return state.get("schema") == SCHEMA and state.get("trial") == trial_id


def _facts(setting: Setting, code: Fingerprints) -> dict[str, str]:
    """What bits may depend on, beside the spec."""
    return {
        "device": environment.device_name(torch.device(setting.device)),
        "threads": str(setting.threads),
        "torch": str(torch.__version__),  # a subclass of str, which no checkpoint may hold
        "commit": environment.commit(),
        "products by": setting.route if setting.device == "cpu" else "cuBLAS",
        "switched off": ", ".join(proofs.proof_for(torch.device(setting.device)).failed) or "nothing",
        **{f"{part}'s code": sha256[:SHOWN] for part, sha256 in code.model_dump(exclude={"dirty"}).items()},
    }
