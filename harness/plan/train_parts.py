"""Settings of the parts of training that a suite may ask for (harness/training/parts.py)."""

from typing import Annotated

from pydantic import Field

from harness.plan.strict import Strict


class Plateau(Strict):
    """Multiply the learning rate by `factor` after every epoch whose validation loss is not below the best so far."""

    factor: Annotated[float, Field(gt=0, lt=1)]


class Schedule(Strict):
    """How the learning rate changes from epoch to epoch."""

    plateau: Plateau
