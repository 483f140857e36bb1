"""The base of everything that a suite file says: frozen, no unknown keys, no text for a number, no infinities."""

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """A part of a plan."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
