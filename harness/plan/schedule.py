"""How the learning rate changes in training: what `train.schedule` of a suite may say."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_serializer, model_validator


class Strict(BaseModel):
    """A part of a suite file or plan."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Sparse(Strict):
    """A part of which only what is given is written."""

    @model_serializer(mode="wrap")
    def _given(self, serialised) -> dict[str, Any]:
        return {name: value for name, value in serialised(self).items() if value is not None}


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
    """Keep the learning rate for some epochs; from then on multiply it after every epoch.

    Args:
        after: the epochs for which the rate stays the same.
        factor: what it is multiplied by after these epochs, and after every later one.
    """

    after: Annotated[int, Field(ge=1)]
    factor: Annotated[float, Field(gt=0, lt=1)]

    def __str__(self) -> str:
        return f"lr times {self.factor:.4g} after epoch {self.after} and every later one"


class Warmup(Strict):
    """Raise the learning rate from 0 over `steps` training steps; then keep it, or let it fall until the end of
    training.

    Args:
        steps: training steps, not epochs. 0: no rise.
        decay: 'none', or the form of the fall: 'linear', or 'cosine', half a period.
        stable: the share of the steps after the rise in which the rate stays, before it falls (warm-up, stable, decay).
        floor: the share of the rate at which the fall ends; nanoGPT has 0.1.
    """

    steps: Annotated[int, Field(ge=0)]
    decay: Literal["none", "linear", "cosine"] = "none"
    stable: Annotated[float, Field(ge=0, lt=1)] = 0.0
    floor: Annotated[float, Field(ge=0, lt=1)] = 0.0

    @model_validator(mode="after")
    def _needs_a_decay(self) -> "Warmup":
        if self.stable and self.decay == "none":
            raise ValueError("stable: the rate stays before it falls; set decay to linear or cosine")
        if self.floor and self.decay == "none":
            raise ValueError("floor: the rate does not fall; set decay to linear or cosine")
        return self

    @model_serializer(mode="wrap")
    def _without_the_default(self, serialised) -> dict[str, Any]:
        return {name: value for name, value in serialised(self).items() if value or name not in ("stable", "floor")}

    def __str__(self) -> str:
        stable = f", {100 * self.stable:g} % of the rest constant" if self.stable else ""
        end = f"{100 * self.floor:g} %" if self.floor else "0"
        fall = "" if self.decay == "none" else f", {self.decay} decay to {end}"
        return f"warm-up of {self.steps} steps{stable}{fall}"


class Schedule(Sparse):
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

    @property
    def way(self) -> Plateau | StepDecay | Warmup:
        """The one that is given."""
        return next(each for each in (self.plateau, self.step, self.warmup) if each is not None)
