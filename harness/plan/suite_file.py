"""The keys of a suite file. Components are checked against the registries in harness/plan/components.py."""

from typing import Annotated, Any

from pydantic import Field, WithJsonSchema, field_validator, model_validator

from harness.plan.comparison import MatchSpec, TableSpec
from harness.plan.ngrams import NgramList
from harness.plan.run_options import CheckpointSpec, MeasureSpec, Resources, TimeoutSpec
from harness.plan.specs import COUNTED, GROUND_TRUTH, LEADERBOARD, MAX_EPOCHS, SUITE_NAME, Optimizer, TrainSpec
from harness.plan.strict import Strict
from harness.plan.tuning import TuneSpec


class TrainFile(TrainSpec):
    """The key `train` of a suite: the settings of TrainSpec, with either of two ways to say how long.

    The defaults of optimizer, batch_size and seq_len are of suite files only. TrainSpec has none for them, so they are
    part of a trial's id whatever their values are, as when every suite had to give them.

    Args:
        optimizer, batch_size, seq_len: as in TrainSpec.
        epochs: as in TrainSpec.
        tokens: the number of targets to train on, in all epochs together. It becomes epochs of each corpus
            (harness/plan/budgets.py).
    """

    optimizer: Optimizer = "sgd"
    batch_size: Annotated[int, Field(ge=1)] = 20
    seq_len: Annotated[int, Field(ge=1)] = 35
    epochs: Annotated[float, Field(ge=0, le=MAX_EPOCHS)] | None = None
    tokens: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _one_length(self) -> "TrainFile":
        if self.epochs is None and self.tokens is None:
            raise ValueError("the key 'epochs' is missing, or 'tokens' in its place")
        if self.epochs is not None and self.tokens is not None:
            raise ValueError("expected either epochs or tokens, got both")
        return self

    def with_epochs(self, epochs: float) -> TrainSpec:
        """Return the settings of a trial of so many epochs."""
        settings = {name: getattr(self, name) for name in TrainSpec.model_fields}
        return TrainSpec(**settings | {"epochs": epochs})


_ENTRY = {  # of `corpora`, `backbones` or `heads`, in the JSON schema
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "minProperties": 1,
            "maxProperties": 1,
            "additionalProperties": {"anyOf": [{"type": "object"}, {"type": "null"}]},
        },
    ]
}
Entry = Annotated[Any, WithJsonSchema(_ENTRY)]


class SuiteFile(Strict):
    """The keys of a suite file. Components are checked against the registries in harness/plan/components.py.

    Args:
        name: the name under which records and tables are stored. None: the name of the file, without its ending
            (harness/plan/left_out.py).
        version: printed in the table's title; raise it when the meaning of the trials changes.
        core_minutes: how long all trials take on one core of a CPU, as far as it is known. It changes nothing in a run;
            `harness reproduce` leaves out long suites by it.
        corpora: the texts, each a name, or one name with its parameters. A list as the value of a parameter is a grid.
        backbones: the models below the heads, written like corpora.
        heads: the output heads, written like corpora: softmax, or mos: {num_mixtures: [2, 5]}.
        train: how every trial is trained and evaluated.
        seeds: one trial of each combination for each seed.
        ngrams: n-gram models with Kneser-Ney smoothing, each counted once on each corpus: an order, or a mapping.
        resources: cores, GPUs and memory of a trial.
        checkpoint: how often a trial is saved.
        timeout: when a trial is ended.
        measure: what is measured beside the results.
        table: the content of the table.
        match: a comparison at equal numbers of parameters, or at equal training time.
        tune: an equal tuning budget for every row.
    """

    name: Annotated[str, Field(pattern=SUITE_NAME)] | None = None
    version: Annotated[int, Field(ge=1)] = 1
    core_minutes: Annotated[float, Field(gt=0)] | None = None
    corpora: Annotated[list[Entry], Field(min_length=1)]
    backbones: Annotated[list[Entry], Field(min_length=1)]
    heads: Annotated[list[Entry], Field(min_length=1)]
    train: TrainFile
    seeds: Annotated[list[Annotated[int, Field(ge=0, lt=2**63)]], Field(min_length=1)]
    ngrams: NgramList = Field(default_factory=list)
    resources: Resources = Resources()
    checkpoint: CheckpointSpec = CheckpointSpec()
    timeout: TimeoutSpec = TimeoutSpec()
    measure: MeasureSpec = MeasureSpec()
    table: TableSpec = TableSpec()
    match: MatchSpec | None = None
    tune: TuneSpec | None = None

    @field_validator("name")
    @classmethod
    def _its_table_is_its_own(cls, name: str | None) -> str | None:
        if name in (LEADERBOARD, GROUND_TRUTH):
            raise ValueError(f"must not be '{name}', which is the name of a table of several suites")
        return name


class NgramSuiteFile(SuiteFile):
    """The keys of a suite file of n-grams only: without backbones, heads, seeds and settings of training."""

    backbones: Annotated[list[Any], Field(max_length=0)] = Field(default_factory=list)
    heads: Annotated[list[Any], Field(max_length=0)] = Field(default_factory=list)
    seeds: Annotated[list[int], Field(max_length=0)] = Field(default_factory=list)
    train: TrainFile = TrainFile(**COUNTED.model_dump(exclude_unset=True))
    ngrams: Annotated[NgramList, Field(min_length=1)]


OF_TRAINING = frozenset({"backbones", "heads", "seeds", "train"})  # keys that a suite of n-grams only does not have
