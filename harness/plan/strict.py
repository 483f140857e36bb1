"""The base class of all parts of a suite file: frozen, no unknown keys, no string for a number, no infinite numbers."""

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """A part of a suite file or plan."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
