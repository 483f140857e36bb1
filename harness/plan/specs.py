"""The plan's types: what a suite file may say, and the trials it stands for. Frozen; unknown keys are refused."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from harness.kernels.products import Precision
from harness.plan.comparison import MatchSpec, TableSpec
from harness.plan.eval_spec import EvalSpec
from harness.plan.reader import Source
from harness.plan.strict import Strict
from harness.plan.train_parts import Schedule


class ComponentSpec(Strict):
    """A corpus, backbone or head by name, with the parameters the suite gives it; the others keep their defaults."""

    name: str
    params: dict[str, Any] = Field(default_factory=dict)

    def __str__(self) -> str:
        return self.label(*self.params)

    def label(self, *keys: str) -> str:
        """'mos(num_mixtures=2)': the name with the chosen parameters."""
        shown = ", ".join(f"{key}={value_text(self.params[key])}" for key in keys if key in self.params)
        return f"{self.name}({shown})" if shown else self.name


def value_text(value: Any) -> str:
    """A parameter's value in words: lists and mappings as a suite file has them, [15, 5] and {top: 15}, so that a tuple
    reads like the list that a record makes of it.
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {value_text(child)}" for key, child in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(value_text, value)) + "]"
    return str(value)


DECIDES_NO_RESULT = frozenset({"cuda_graph", "deterministic"})  # settings of `train` that are no part of a trial's id


class TrainSpec(Strict):
    """The mapping `train` of a suite: how a trial is trained, and how it is evaluated (`evaluation`).

    Args:
        optimizer: 'sgd', 'adam' or 'adamw', torch's.
        lr: learning rate at the start.
        epochs: passes over the training split; a fraction such as 0.4 is allowed; 0 evaluates the untrained model.
        batch_size: B of an update: columns of the training stream, or blocks. Of all workers and parts together.
        seq_len: T, tokens a segment, in training and evaluation (bptt). For a backbone without state it is the context.
        batching: 'stream': contiguous columns, each segment continues the one before, every token but a split's first
            is a target. 'blocks': blocks of seq_len tokens that do not overlap, the first token of each no target, in
            training and in evaluation, as the multi-facet code does; `shuffle` then orders blocks, not segments.
        schedule: None keeps the learning rate.
        clip: largest 2-norm of the whole gradient, or None.
        weight_decay: torch's, for every optimizer.
        momentum: for 'sgd' only.
        betas, eps: for 'adam' and 'adamw' only.
        eval_batch_size: columns of the validation and test streams, or blocks.
        eval_stride: tokens by which an evaluation window of seq_len tokens moves: each scores its last ones, the others
            are context. None: seq_len, no overlap. For backbones without state.
        eval_batches: score so many batches of a split, from its start; None: all.
        shuffle: take the segments in a random order each epoch, without carried state.
        accumulation: equal parts, by rows, in which a worker's batch of an update is computed, one after the other. The
            update is the same except for rounding, without dropout and for heads whose loss is a mean over tokens.
            Losses that couple rows are computed for each part separately: doc's balance term, nce's noise words.
        data_parallel: workers among which the batch is divided, by rows, each on its own cores or GPU. The update is
            the same with the same exceptions; dropout masks differ.
        precision: of the products with the output matrix in training: 'fp32', 'tf32' (on a GPU only) or 'bf16'.
            Everything else, and all of evaluation, is fp32. A plug-in's head that multiplies by that matrix itself,
            instead of returning a Mixture, uses harness.distributions.linear to follow this setting.
        cuda_graph: replay the training step as one CUDA graph: 'auto' on a GPU if the step can be captured; 'on': the
            trial fails if it cannot; 'off'. The result is the same, so it is no part of a trial's id.
        deterministic: torch's deterministic algorithms: 'true' raises an error for an operation that has none, 'warn'
            warns, 'false' uses the fastest one. For a GPU; on the CPU results repeat in any case. Results are equal
            except for rounding, so it is no part of a trial's id.
    """

    optimizer: Literal["sgd", "adam", "adamw"]
    lr: Annotated[float, Field(gt=0)]
    epochs: Annotated[float, Field(ge=0, le=50_000)]  # a record of more would be refused for its size
    batch_size: Annotated[int, Field(ge=1)]
    seq_len: Annotated[int, Field(ge=1)]
    schedule: Schedule | None = None
    clip: Annotated[float, Field(gt=0)] | None = None
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    eps: Annotated[float, Field(gt=0)] = 1e-8
    eval_batch_size: Annotated[int, Field(ge=1)] = 10
    eval_stride: Annotated[int, Field(ge=1)] | None = None
    eval_batches: Annotated[int, Field(ge=1)] | None = None
    shuffle: bool = False
    batching: Literal["stream", "blocks"] = "stream"
    accumulation: Annotated[int, Field(ge=1)] = 1
    data_parallel: Annotated[int, Field(ge=1)] = 1
    precision: Precision = "fp32"
    cuda_graph: Literal["auto", "on", "off"] = "auto"
    deterministic: Literal["true", "warn", "false"] = "false"

    @field_validator("deterministic", mode="before")
    @classmethod
    def _yaml_truth(cls, value: Any) -> Any:
        return str(value).lower() if isinstance(value, bool) else value

    @model_validator(mode="after")
    def _settings_fit_optimizer(self) -> "TrainSpec":
        if self.optimizer != "sgd" and self.momentum:
            raise ValueError(f"momentum belongs to sgd, and the optimizer is {self.optimizer}")
        adam_only = [name for name in ("betas", "eps") if getattr(self, name) != _default(self, name)]
        if self.optimizer == "sgd" and adam_only:
            raise ValueError(f"{' and '.join(adam_only)} belong to adam and adamw, and the optimizer is sgd")
        return self

    @model_validator(mode="after")
    def _sizes_fit(self) -> "TrainSpec":
        if self.batch_size % (self.data_parallel * self.accumulation):
            parts = f"{self.data_parallel} workers x {self.accumulation} parts"
            raise ValueError(f"batch_size must divide evenly among {parts}, got {self.batch_size}")
        if self.eval_stride is not None and self.eval_stride > self.seq_len:
            raise ValueError(f"eval_stride must be at most seq_len = {self.seq_len}, got {self.eval_stride}")
        if self.batching == "blocks" and self.eval_stride is not None:
            raise ValueError("eval_stride belongs to batching: stream; blocks do not overlap")
        if self.batching == "blocks" and self.seq_len < 2:
            raise ValueError(
                f"seq_len must be at least 2 for blocks, whose first token is no target, got {self.seq_len}"
            )
        return self

    @property
    def evaluation(self) -> EvalSpec:
        """The settings that decide what a perplexity means."""
        return EvalSpec(**{name: getattr(self, name) for name in EvalSpec.model_fields})


def _default(spec: BaseModel, name: str) -> Any:
    return type(spec).model_fields[name].default


class TrialSpec(Strict):
    """One trial: everything that decides its result, and the id that is the hash of it (harness/plan/identity.py)."""

    id: str
    corpus: ComponentSpec
    backbone: ComponentSpec
    head: ComponentSpec
    train: TrainSpec
    seed: int

    def __str__(self) -> str:
        return f"{self.head} {self.backbone.name} {self.corpus.name} seed={self.seed}"


class Resources(Strict):
    """What one trial takes: CPU cores, which are also its torch threads; a share of a GPU where there is one (None: a
    whole one; 0: none, it runs on the CPU); and the memory of its process, GiB, at which it ends as 'oom' (None: more
    than its share, once the machine is short of it). Memory is looked at between batches, not within a step. A
    data-parallel trial takes the cores and the memory once for each worker, and as many GPUs as it has workers:
    `gpus: 4` implies `train: {data_parallel: 4}`.
    """

    cpus: Annotated[int, Field(ge=1)] = 1
    gpus: Annotated[float, Field(ge=0)] | None = None
    memory_gib: Annotated[float, Field(gt=0)] | None = None

    @field_validator("gpus")
    @classmethod
    def _whole_beyond_one(cls, gpus: float | None) -> float | None:
        if gpus is not None and gpus > 1 and not gpus.is_integer():
            raise ValueError(f"must be a share of one GPU or a whole number of GPUs, got {gpus:g}")
        return gpus


class CheckpointSpec(Strict):
    """How often a trial's state is kept, so that an interrupted one goes on from there: after so many epochs, and
    within an epoch whenever so many minutes have passed since the last time.
    """

    epochs: Annotated[int, Field(ge=1)] = 1
    minutes: Annotated[float, Field(gt=0)] = 10.0


class TimeoutSpec(Strict):
    """When a trial is ended, with status 'timeout': after so many minutes of work in all, and after so many without a
    sign of life, which it gives after every batch. None: never.
    """

    minutes: Annotated[float, Field(gt=0)] | None = None
    silent_minutes: Annotated[float, Field(gt=0)] | None = None


class MeasureSpec(Strict):
    """What a trial measures beside what all do; none of it changes a result, so it is no part of a trial's id.

    Args:
        start: validation perplexity before the first update.
        inference_batch: time of a batch of so many segments of the test split, forward with loss, after training.
        token_nll: keep what the best weights give each token of the test split, some 4 bytes a token, for intervals and
            for where a gain is (harness/records/token_nll.py).
        exclusive: after training, time one trial of each row again while nothing else of ours runs
            (harness/records/timings.py).
    """

    start: bool = False
    inference_batch: Annotated[int, Field(ge=1)] | None = None
    token_nll: bool = True
    exclusive: bool = True


SUITE_NAME = "^[a-z0-9][a-z0-9_-]{0,63}$"  # these two are names of folders, and never paths
LEADERBOARD = "leaderboard"  # results/tables/leaderboard.md is of all suites
TRIAL_ID = "^[0-9a-f]{12}$"


class SuiteFile(Strict):
    """The keys of a suite file. Components are checked against the registries in harness/plan/components.py."""

    name: Annotated[str, Field(pattern=SUITE_NAME)]
    version: Annotated[int, Field(ge=1)]
    corpora: Annotated[list[Any], Field(min_length=1)]
    backbones: Annotated[list[Any], Field(min_length=1)]
    heads: Annotated[list[Any], Field(min_length=1)]
    train: TrainSpec
    seeds: Annotated[list[Annotated[int, Field(ge=0, lt=2**63)]], Field(min_length=1)]
    resources: Resources = Resources()
    checkpoint: CheckpointSpec = CheckpointSpec()
    timeout: TimeoutSpec = TimeoutSpec()
    measure: MeasureSpec = MeasureSpec()
    table: TableSpec = TableSpec()
    match: MatchSpec | None = None

    @field_validator("name")
    @classmethod
    def _its_table_is_its_own(cls, name: str) -> str:
        if name == LEADERBOARD:
            raise ValueError(f"must be another than '{LEADERBOARD}', whose table is of all suites")
        return name


class Suite(Strict):
    """A suite, read and checked: its trials in the order of the file.

    Args:
        overrides: what --set changed, as texts (key, value, value in the file or None); part of the table's title and
            file name.
        source: the file it was read from, for messages.
        counting, contents: the counting rule and the content hash of each corpus, by str(corpus); among the hashes,
            what the weights are that backbones start from, by str(backbone).
        params: (total, head) parameter counts of each trial, by id.
        settled: whole numbers that heads left to their constructors, as these made them, by id.
        match: what the trials' widths were chosen by, or None.
    """

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    name: str
    version: int
    trials: tuple[TrialSpec, ...]
    resources: Resources
    checkpoint: CheckpointSpec
    timeout: TimeoutSpec
    measure: MeasureSpec
    table: TableSpec
    overrides: tuple[tuple[str, str, str | None], ...]
    source: Source
    counting: dict[str, str]
    contents: dict[str, str]
    params: dict[str, tuple[int, int]]
    match: MatchSpec | None = None
    settled: dict[str, dict[str, int]] = Field(default_factory=dict)

    def compared(self, spec: ComponentSpec) -> ComponentSpec:
        """A backbone or head as rows are told apart by it: without the width that matching chose."""
        vary = self.match.vary if self.match is not None else None
        return ComponentSpec(name=spec.name, params={k: value for k, value in spec.params.items() if k != vary})

    @property
    def path(self) -> Path:
        """The suite file."""
        return self.source.path
