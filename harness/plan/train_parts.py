"""Settings of the parts of training that a suite may ask for (harness/training/parts.py)."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_serializer, model_validator

from harness.plan.strict import Strict


class Plateau(Strict):
    """Multiply the learning rate by `factor` after every epoch whose validation does not improve on `reference`.

    Args:
        factor: what the rate is multiplied by.
        threshold: the smallest improvement that counts, in perplexity. 0: any lower loss is an improvement.
        reference: the epoch to improve on: the 'best' of all before, or the 'previous' one.
    """

    factor: Annotated[float, Field(gt=0, lt=1)]
    threshold: Annotated[float, Field(ge=0)] = 0.0
    reference: Literal["best", "previous"] = "best"

    def __str__(self) -> str:
        previous, rule = self.reference == "previous", ""
        if self.threshold:
            rule = f", unless perplexity improves by {self.threshold:g}{' on the previous epoch' if previous else ''}"
        elif previous:
            rule = ", unless the loss is below that of the previous epoch"
        return f"plateau, lr times {self.factor:.4g}{rule}"


class StepDecay(Strict):
    """Keep the learning rate for `after` epochs; from then on multiply it by `factor` after every epoch."""

    after: Annotated[int, Field(ge=1)]
    factor: Annotated[float, Field(gt=0, lt=1)]

    def __str__(self) -> str:
        return f"lr times {self.factor:.4g} after epoch {self.after} and every later one"


class Warmup(Strict):
    """Raise the learning rate from 0 over `steps` training steps; then keep it, or let it fall to 0 until the end of
    training.

    Args:
        steps: training steps, not epochs. 0: no rise.
        decay: 'none', or the form of the fall: 'linear', or 'cosine', half a period.
    """

    steps: Annotated[int, Field(ge=0)]
    decay: Literal["none", "linear", "cosine"] = "none"

    def __str__(self) -> str:
        return f"warm-up of {self.steps} steps" + ("" if self.decay == "none" else f", {self.decay} decay to 0")


class Schedule(Strict):
    """How the learning rate changes: exactly one of these ways."""

    plateau: Plateau | None = None
    step: StepDecay | None = None
    warmup: Warmup | None = None

    @model_validator(mode="after")
    def _one_way(self) -> "Schedule":
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            known = ", ".join(type(self).model_fields)
            raise ValueError(f"expected exactly one of {known}, got {' and '.join(given) or 'none'}")
        return self

    @model_serializer(mode="wrap")
    def _without_the_others(self, serialised) -> dict[str, Any]:
        return {name: value for name, value in serialised(self).items() if value is not None}

    @property
    def way(self) -> Plateau | StepDecay | Warmup:
        """The one that is given."""
        return next(each for each in (self.plateau, self.step, self.warmup) if each is not None)
