"""Where and how a trial runs."""

import uuid
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from harness.kernels.products import Route
from harness.plan.specs import CheckpointSpec, MeasureSpec, TimeoutSpec, TrialSpec
from harness.records.record import Contents


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where and how a trial runs: nothing in it changes the result, but for rounding.

    Args:
        suite: the suite's name, noted in the record.
        runs: absolute folder of the suite's records; the trial writes to <runs>/<id> only.
        data: folder of the corpora's files.
        device: 'auto', 'cpu' or 'cuda'; 'auto' is settled by the executor.
        executor: 'ray' or 'inline'.
        threads: torch threads; the trial's CPU cores, set by the executor.
        shared: other trials can run at the same time, as the executor sees it.
        route: of float32 products on the CPU; torch's default one where the worker does not find this one exact.
        checkpoint: how often the state is kept.
        timeout: when the trial is ended.
        measure: what is measured beside what all trials measure.
        memory_gib: of the process, at which the trial ends as 'oom'.
        memory_share: of the machine's memory, that no trial may exceed once the machine is short of it.
        fresh: begin anew, whatever checkpoints there are.
        replaces: trial id -> digest of the record that its trial is to replace; any other record that turns up was made
            by another run meanwhile, and counts.
        contents: corpus, or backbone with pretrained weights -> content hash that the plan was made with; what a worker
            reads must have it.
        driver: names the run that the trial belongs to: deaths of workers are counted within it.
        retries: attempts that this run has made before, and given up.
    """

    suite: str
    runs: Path
    data: Path
    device: str
    executor: str
    threads: int = 1
    shared: bool = False
    route: Route = "default"
    checkpoint: CheckpointSpec = field(default_factory=CheckpointSpec)
    timeout: TimeoutSpec = field(default_factory=TimeoutSpec)
    measure: MeasureSpec = field(default_factory=MeasureSpec)
    memory_gib: float | None = None
    memory_share: float = 1.0
    fresh: bool = False
    replaces: dict[str, str] = field(default_factory=dict)
    contents: dict[str, str] = field(default_factory=dict)
    driver: str = field(default_factory=lambda: uuid.uuid4().hex)
    retries: int = 0

    def contents_of(self, spec: TrialSpec) -> Contents | None:
        """What the plan says that a trial reads, for its record; None where the plan says nothing of its corpus."""
        corpus = self.contents.get(str(spec.corpus))
        return None if corpus is None else Contents(corpus=corpus, backbone=self.contents.get(str(spec.backbone)))

    def to_json(self) -> str:
        """For a worker."""
        return _ADAPTER.dump_json(self).decode()

    @staticmethod
    def from_json(text: str) -> "Setting":
        """What `to_json` gave."""
        return _ADAPTER.validate_json(text)


_ADAPTER = TypeAdapter(Setting)
