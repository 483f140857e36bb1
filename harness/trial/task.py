"""A task: one trial, where and how it runs. It is all that a worker is given, and travels as JSON."""

import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from pydantic import TypeAdapter

from harness.kernels.products import Route
from harness.plan.specs import Contents, TrialSpec
from harness.plan.suite_file import CheckpointSpec, MeasureSpec, TimeoutSpec
from harness.records import store


class NotCertified(Exception):
    """No certificate can be had; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One trial, where and how it runs. Nothing beside `spec` changes the result, except by rounding.

    Args:
        runs: absolute folder of the suite's records; the trial writes to <runs>/<id> only.
        device: 'auto', 'cpu' or 'cuda'; the executor replaces 'auto'.
        executor: of harness.execution.EXECUTORS. 'inline': in the command's own process.
        threads: torch threads of a worker, which are its CPU cores; set by the executor.
        gpus: GPUs of a worker, or a share of one; set by the executor.
        shared: other trials can run at the same time, as the executor sees it.
        route: of float32 products on the CPU; a worker on whose machine it is not exact uses torch's default.
        memory_gib: of the process, at which the trial ends as 'oom'.
        memory_share: share of the machine's memory that no trial may exceed when the machine is short of memory.
        fresh: begin again, without the checkpoints that there are.
        replaces: digest of the record that the trial is to replace; any other record was made by another run in the
            meantime, and is kept.
        contents: what the plan was made with; the files that a worker reads must have it. None: not known.
        driver: name of the run that the trial belongs to; deaths of workers are counted within a run.
        retries: attempts that this run has made before and given up.
        certifier: address of the command's process that certifies; on another machine, or without one, a worker starts
            its own.
        tuning: the trial is a tuning trial of its suite, noted in the record.
    """

    spec: TrialSpec
    suite: str
    runs: Path
    data: Path
    device: str
    executor: str
    threads: int = 1
    gpus: float = 0.0
    shared: bool = False
    route: Route = "default"
    checkpoint: CheckpointSpec = field(default_factory=CheckpointSpec)
    timeout: TimeoutSpec = field(default_factory=TimeoutSpec)
    measure: MeasureSpec = field(default_factory=MeasureSpec)
    memory_gib: float | None = None
    memory_share: float = 1.0
    fresh: bool = False
    replaces: str | None = None
    contents: Contents | None = None
    driver: str = field(default_factory=lambda: uuid.uuid4().hex)
    retries: int = 0
    certifier: Path | None = None
    tuning: bool = False

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def folder(self) -> Path:
        return store.folder(self.runs, self.spec.id)

    def to_json(self) -> str:
        return _ADAPTER.dump_json(self).decode()

    @classmethod
    def from_json(cls, text: str) -> Self:
        return _ADAPTER.validate_json(text)


_ADAPTER = TypeAdapter(Task)
