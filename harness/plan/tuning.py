"""The key `tune` of a suite: what is tried for every row before its trials are trained, and the drawing of the points.

Every row gets the same points. So a row that needs another learning rate than the others is not behind because of it,
and no row had more attempts than another one, but for parameters that only some heads have.
"""

import itertools
import json
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, model_serializer, model_validator

from harness.plan.specs import Strict, TrialSpec, as_number, value_text

if TYPE_CHECKING:
    from harness.plan.suite import Row

Point = dict[str, Any]  # key of the space -> its value, in the order of the suite file
WAYS = ("log_uniform", "uniform", "choice")
FEWEST = 3  # values of a list, of which one is at an end and one is not
DIGITS = 4  # of a value that is drawn from a range
EPOCHS = "train.epochs"
EXPECTED = f"a list, or a mapping with one of {', '.join(WAYS)}"


def _known_method(name: str) -> str:
    if name not in METHODS:
        raise ValueError(f"expected one of {', '.join(METHODS)}, got '{name}'")
    return name


def _one_line(text: str) -> str:
    if not (text.strip() and text.isprintable()):
        raise ValueError(f"expected one line of printable text, got {json.dumps(text)}")
    return text


OneLine = Annotated[str, AfterValidator(_one_line)]  # which a suite's file has for its readers
MethodName = Annotated[str, AfterValidator(_known_method)]


class Axis(Strict):
    """The values of one key of `tune.space`: exactly one of these.

    Args:
        log_uniform: [low, high], above 0: the logarithm of the value is uniform.
        uniform: [low, high].
        choice: one of these values is drawn for each point, each with the same probability.
        grid: every one of these values, with every other point. In a suite file it is a plain list.
    """

    log_uniform: list[Annotated[float, Field(gt=0)]] | None = None
    uniform: list[float] | None = None
    choice: Annotated[list[Any], Field(min_length=1)] | None = None
    grid: Annotated[list[Any], Field(min_length=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _plain_list(cls, given: Any) -> Any:
        if isinstance(given, list):
            return {"grid": given}
        if not isinstance(given, dict) or "grid" in given:
            raise ValueError(f"expected {EXPECTED}")
        return given

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        """The schema of what a suite file may have: a list, or a mapping without `grid`."""
        mapping = handler(core_schema)
        handler.resolve_ref_schema(mapping)["properties"].pop("grid", None)
        return {"anyOf": [mapping, {"type": "array", "minItems": 1}]}

    @model_validator(mode="after")
    def _one_way(self) -> "Axis":
        given = [name for name in (*WAYS, "grid") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"expected {EXPECTED}, got {' and '.join(given) or 'none'}")
        if self.range is not None and not (len(self.range) == 2 and self.range[0] < self.range[1]):
            raise ValueError(f"{given[0]} needs [low, high] with low < high, got {self.range}")
        return self

    @property
    def range(self) -> list[float] | None:
        """Lowest and highest value of a continuous axis; None for a list of values."""
        return self.uniform if self.log_uniform is None else self.log_uniform

    @property
    def listed(self) -> list[Any]:
        """The values of `choice` or of a grid; [] for a continuous axis."""
        return self.choice or self.grid or []

    @property
    def ordered(self) -> bool:
        """Whether it is a range, or a grid of at least FEWEST different numbers, or of so many factors: then it has a
        lowest value.
        """
        grid = self.grid or []
        alike = len({isinstance(each, str) for each in grid}) == 1 and all(as_number(each) is not None for each in grid)
        return self.range is not None or (alike and len(set(map(as_number, grid))) >= FEWEST)

    def at(self, u: float) -> Any:
        """Return the value for a number 0 <= u < 1; not of a grid.

            log_uniform: exp(log low + u (log high - log low))
            uniform:     low + u (high - low)
            choice:      value number floor(u n) of n, from 0

        Values of a range are rounded to DIGITS significant digits, so that the last bit of exp, which differs between
        machines, does not change the id of a trial.
        """
        if self.choice is not None:
            return self.choice[math.floor(u * len(self.choice))]
        low, high = self.range
        if self.log_uniform is not None:
            value = math.exp(math.log(low) + u * (math.log(high) - math.log(low)))
        else:
            value = low + u * (high - low)
        return min(max(rounded(value, DIGITS), low), high)


class TuneSpec(Strict):
    """An equal tuning budget: every row is trained with the same points, and its best point is used.

    How points are tried and one is chosen is a method: a class below this one, and a line in METHODS. The fields of the
    class, if it has any, are settings of the method: further keys of `tune`.

    Args:
        trials: the number of points that are drawn, for each combination of the grids; None if all axes are grids.
        epochs: of each tuning trial. Schedules are shortened with it (harness/plan/lengths.py). None: each is as
            long as the trials that follow if its point is chosen; it must be so where `train.epochs` is in the space.
        seed: of the drawing, and of the tuning trials.
        method: how the points are tried. 'once': each once, and the one with the lowest validation perplexity is used.
        space: 'train.<setting>', 'head.<parameter>' or 'backbone.<parameter>' -> its values. A setting may lie within
            another one: 'train.groups.head.lr', 'train.schedule.warmup.steps'.
        ends: why the values of the space end where they do. A row that is best at an end is then no
            reason to try more.
    """

    trials: Annotated[int, Field(ge=1, le=1024)] | None = None
    epochs: Annotated[float, Field(gt=0)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    method: MethodName = "once"
    space: Annotated[dict[str, Axis], Field(min_length=1)]
    ends: OneLine = ""
    rule: ClassVar[str]  # which point is used, for the note under a table

    @abstractmethod
    def lengths(self, epochs: float) -> list[float]:
        """Return the epochs of all tuning trials that the method may ask for, the shortest first, of a point whose
        trials of the table have `epochs`.
        """

    @abstractmethod
    def next(self, row: "Row", ppl: Mapping[str, float | None]) -> "list[TrialSpec] | Choice":
        """Return the tuning trials to run next, or the choice.

        Args:
            ppl: id of each finished tuning trial -> its validation perplexity; None: it failed.
        """

    @staticmethod
    @abstractmethod
    def allows(choice: "Choice") -> bool:
        """Return whether the method can have made a stored choice of the perplexities in it, as far as these say."""

    @model_validator(mode="after")
    def _one_length(self) -> "TuneSpec":
        if EPOCHS in self.space and self.epochs is not None:
            raise ValueError(f"'epochs' must be left out: each tuning trial has the epochs of its point, by {EPOCHS}")
        return self

    @model_validator(mode="after")
    def _trials_of_drawn_axes(self) -> "TuneSpec":
        drawn = [key for key, axis in self.space.items() if axis.grid is None]
        if drawn and self.trials is None:
            raise ValueError(f"the key 'trials' is missing: how many points are drawn for {', '.join(drawn)}")
        if not drawn and self.trials is not None:
            raise ValueError("'trials' must be left out: the space has lists only, which are tried completely")
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        """The schema of what a suite file may have: the keys of every method."""
        mapping = handler(core_schema)
        if cls is TuneSpec:
            for method in METHODS.values():
                own = handler.resolve_ref_schema(handler(method.__pydantic_core_schema__))["properties"]
                known = handler.resolve_ref_schema(mapping)["properties"]
                known.update({key: value for key, value in own.items() if key not in known})
        return mapping


def _of_its_method(given: Any) -> Any:
    """Read a mapping of a suite file as the class of its method."""
    method = given.get("method", "once") if isinstance(given, dict) else None
    return METHODS[method].model_validate(given) if isinstance(method, str) and method in METHODS else given


Tune = Annotated[TuneSpec, BeforeValidator(_of_its_method)]


def points(tune: TuneSpec) -> list[Point]:
    """Return all points of the space, with all keys: for each combination of the grids the same drawn points.

    The drawn points are the first of a scrambled Sobol sequence, with one dimension for each axis that is not a grid,
    in the order of the suite file.

    Source: Sobol (1967); Owen (1998) for scrambling; scipy.stats.qmc.Sobol.
    """
    drawn = [key for key, axis in tune.space.items() if axis.grid is None]
    grids = {key: axis.grid for key, axis in tune.space.items() if axis.grid is not None}
    numbers = _sobol(len(drawn), tune.trials, tune.seed) if drawn else [()]
    found = []
    for cell in itertools.product(*grids.values()):
        for each in numbers:
            values = dict(zip(grids, cell, strict=True))
            values |= {key: tune.space[key].at(float(u)) for key, u in zip(drawn, each, strict=True)}
            found.append({key: values[key] for key in tune.space})
    return found


def epochs_text(*epochs: float) -> str:
    """Return '1 epoch', '0.5 epochs'; of different numbers '10 to 40 epochs'."""
    low, high = min(epochs), max(epochs)
    if low < high:
        return f"{low:g} to {high:g} epochs"
    return f"{low:g} epoch{'' if low == 1 else 's'}"


def point_text(point: Point) -> str:
    """Return 'lr 7.312, head.dropout 0.2'; settings of `train` without its name."""
    return ", ".join(f"{key.removeprefix('train.')} {value_text(value)}" for key, value in point.items())


def with_setting(settings: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """Return settings with another value of a key, which may lie within mappings: 'groups.head.lr'."""
    first, _, rest = key.partition(".")
    return {**settings, first: with_setting(settings.get(first) or {}, rest, value) if rest else value}


def rounded(value: float, digits: int) -> float:
    """Return a number rounded to so many significant digits."""
    return float(f"{value:.{digits}g}")


def _sobol(dimensions: int, number: int, seed: int) -> np.ndarray:
    """The first points of the sequence, (number, dimensions). It is drawn in powers of two, as its balance asks for."""
    from scipy.stats import qmc  # here: it takes a second to import

    sequence = qmc.Sobol(dimensions, scramble=True, rng=np.random.default_rng(seed))
    return sequence.random_base2(math.ceil(math.log2(number)))[:number]


class Choice(Strict):
    """Which point of a row is used, and the validation perplexities that decided it.

    Args:
        row: the row, for readers of the file.
        trial: the id of the best tuning trial; None: no tuning trial of the row is ok.
        point: the point of this trial; {} if there is none.
        valid_ppl: id of each tuning trial that was run, in the order of drawing -> its validation perplexity; None: it
            failed.
        method: by which it was made.
    """

    row: str
    trial: str | None
    point: Point
    valid_ppl: dict[str, Annotated[float, Field(gt=0)] | None]
    method: MethodName = "once"

    @model_serializer(mode="wrap")
    def _as_before_there_were_methods(self, serialised: Any) -> dict[str, Any]:
        return {name: value for name, value in serialised(self).items() if (name, value) != ("method", "once")}


class Once(TuneSpec):
    """Every point once, then the one with the lowest validation perplexity; of equal ones the first that was drawn."""

    rule = "The point with the lowest validation perplexity is used."

    def lengths(self, epochs: float) -> list[float]:
        return [epochs if self.epochs is None else self.epochs]

    def next(self, row: "Row", ppl: Mapping[str, float | None]) -> list[TrialSpec] | Choice:
        return [trial for trial in row.tuning_trials if trial.id not in ppl] or lowest(row, row.tuning_trials, ppl)

    @staticmethod
    def allows(choice: Choice) -> bool:
        ok = {trial: ppl for trial, ppl in choice.valid_ppl.items() if ppl is not None}
        return choice.trial == min(ok, key=ok.get, default=None)


def lowest(row: "Row", trials: Sequence[TrialSpec], ppl: Mapping[str, float | None]) -> Choice:
    """Return the choice of the point of the trial with the lowest perplexity; of none if all of these trials failed."""
    best = min((each for each in trials if ppl[each.id] is not None), key=lambda each: ppl[each.id], default=None)
    point = next((each.point for each in row.candidates if best in each.tuning_trials), {})
    tried = {trial.id: ppl[trial.id] for trial in row.tuning_trials if trial.id in ppl}
    made = None if best is None else best.id
    return Choice(row=row.label, trial=made, point=point, valid_ppl=tried, method=row.tune.method)


METHODS: dict[str, type[TuneSpec]] = {"once": Once}
