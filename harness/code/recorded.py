"""Fingerprints as a record holds them. fingerprints.py computes them; reading a record needs no component."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

UNKNOWN = "unknown"
Hash = Annotated[str, Field(pattern=rf"^([0-9a-f]{{64}}|{UNKNOWN})$")]


class Fingerprints(BaseModel):
    """The code of one trial, as SHA-256 hashes. A hash is 'unknown' if there is no Python source to read.

    Args:
        dirty: True if one of these files differs from git's last commit or is not part of it; None if none of them is
            in a git checkout. A file that git ignores, or that is outside of any checkout, counts as unchanged.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    head: Hash
    backbone: Hash
    corpus: Hash
    harness: Hash
    dirty: bool | None = None

    @property
    def components(self) -> tuple[str, ...]:
        """The hashes of head, backbone and corpus, in this order."""
        return self.head, self.backbone, self.corpus


class Behaviour(BaseModel):
    """What head and backbone of a trial compute on fixed inputs (harness/trial/behaviour.py); None where only the
    source can be compared.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    head: tuple[float, ...] | None = None
    backbone: tuple[float, ...] | None = None
