"""What a worker of Ray's is sent: a trial and all that goes with it, as plain data."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from harness.execution.events import Claim
from harness.plan.specs import TrialSpec
from harness.trial.setting import Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """One trial for a worker.

    Args:
        claim: of one worker.
        replaces: digest of the record that the trial's own is to replace, if any (harness/trial/run.py).
        scratch: folder of what the run's executor writes for itself.
    """

    spec: TrialSpec
    setting: Setting
    claim: Claim
    replaces: str | None
    scratch: Path

    def pack(self) -> dict[str, Any]:
        """JSON's types, and the trial's id to call it by. `setting.replaces`, of all trials, stays behind."""
        return {
            "id": self.spec.id,
            "spec": self.spec.model_dump_json(),
            "setting": replace(self.setting, replaces={}).to_json(),
            "claim": asdict(self.claim),
            "replaces": self.replaces,
            "scratch": str(self.scratch),
        }

    @classmethod
    def unpack(cls, packed: dict[str, Any]) -> Self:
        """What `pack` made."""
        return cls(
            spec=TrialSpec.model_validate_json(packed["spec"]),
            setting=Setting.from_json(packed["setting"]),
            claim=Claim(**packed["claim"]),
            replaces=packed["replaces"],
            scratch=Path(packed["scratch"]),
        )
