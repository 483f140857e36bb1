"""What a Ray worker receives: a trial and everything it needs, as plain data."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from harness.execution.resources import Resources
from harness.plan.specs import TrialSpec
from harness.trial.setting import Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """One trial for a worker.

    Args:
        resources: what one worker needs.
        replaces: digest of the record that the trial's new record replaces, if any (see harness/trial/run.py).
        scratch: folder for the temporary files of the run's executor, with copies of the user's heads and backbones.
    """

    spec: TrialSpec
    setting: Setting
    resources: Resources
    replaces: str | None
    scratch: Path

    def pack(self) -> dict[str, Any]:
        """JSON types only, with the trial's id. `setting.replaces`, which is about all trials, is left out."""
        return {
            "id": self.spec.id,
            "spec": self.spec.model_dump_json(),
            "setting": replace(self.setting, replaces={}).to_json(),
            "resources": asdict(self.resources),
            "replaces": self.replaces,
            "scratch": str(self.scratch),
        }

    @classmethod
    def unpack(cls, packed: dict[str, Any]) -> Self:
        """The payload from what `pack` returned."""
        return cls(
            spec=TrialSpec.model_validate_json(packed["spec"]),
            setting=Setting.from_json(packed["setting"]),
            resources=Resources(**packed["resources"]),
            replaces=packed["replaces"],
            scratch=Path(packed["scratch"]),
        )
