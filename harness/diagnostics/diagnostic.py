"""What a diagnostic is: a value that a module of this package makes, and catalogue.py lists."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from harness.errors import HarnessError
from harness.trial.trained import Trained


class NotDefined(HarnessError):
    """A diagnostic that has no meaning for a head. The sentence says why; it is kept as the result."""


class Result(BaseModel):
    """What a diagnostic computes: a model of numbers, lists and texts, stored as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


Count = Annotated[int, Field(ge=0, le=2**53)]  # a whole number of a result
Amount = Annotated[float, Field(ge=0)]  # a number of a result that is not below 0


class Settings(BaseModel):
    """The settings of the diagnostics. `contexts`: how many scored positions of the validation split are used."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    contexts: int = Field(default=10_000, ge=2)
    seed: int = Field(default=0, ge=0)

    def of(self, diagnostic: "Diagnostic") -> dict[str, int]:
        """Those on which a diagnostic depends."""
        return self.model_dump(include=set(diagnostic.settings))


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A column of a diagnostic's table: the mean of a number over the seeds of a row.

    Args:
        value: the number of a result; None where it has none.
        at_least: whether the number of a result is only known to be at least this.
        on_terminal: whether the short table that a terminal shows has the column; that of the files has all.
    """

    name: str
    value: Callable[[Any], float | None]
    digits: int = 0
    at_least: Callable[[Any], bool] = lambda result: False
    on_terminal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """A plot with logarithmic axes: a line for each row of a suite, of its first seed, over 1, 2, 3 and so on.
    `points`: the values of a result, above 0.
    """

    name: str
    title: str
    x: str
    y: str
    points: Callable[[Any], Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """A diagnostic.

    Args:
        module: the module that defines it. When its code changes, or that of a module of this package that it
            imports, stored results are outdated.
        settings: the names of the settings on which it depends.
        compute: a trained model, settings -> result. Raises NotDefined.
        contexts: what the contexts are that a result counts in `contexts`, for a note below the table.
    """

    name: str
    title: str
    module: str
    settings: tuple[str, ...]
    result: type[Result]
    compute: Callable[[Trained, Settings], Result]
    figures: tuple[Figure, ...]
    contexts: str = "scored positions of the validation split"
    notes: tuple[str, ...] = ()
    plots: tuple[Curves, ...] = ()
