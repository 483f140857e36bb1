"""The types that decide the id of a trial: components, how it is trained and evaluated; and their canonical JSON.

They are frozen, and unknown keys are errors. No torch is imported, because readers of records need these types.
"""

import hashlib
import json
import re
from collections.abc import Collection
from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from harness.plan.schedule import Schedule, Sparse, Strict

GroupOptimizer = Literal["sgd", "adam", "adamw", "adamw_huggingface"]
Optimizer = Literal["sgd", "adam", "adamw", "adamw_huggingface", "muon"]
Beta = Annotated[float, Field(ge=0, lt=1)]
Betas = tuple[Beta, Beta]
FACTOR = r"^x[0-9]+([.][0-9]+)?(e-?[0-9]+)?$"  # of a learning rate: x0.1


def as_number(value: Any) -> float | None:
    """Return the number that a value is, of a factor 'x0.1' that of the factor; None if it is none."""
    if isinstance(value, str):
        return float(value[1:]) if re.match(FACTOR, value) else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


class GroupSpec(Sparse):
    """What differs for a group of parameters.

    Args:
        lr: a learning rate, or a factor of `train.lr` as 'x0.1'. None for train.lr.
        weight_decay: in place of train.weight_decay; None for that.
        optimizer: 'sgd', 'adam', 'adamw' or 'adamw_huggingface', in place of train.optimizer; None for that. 'sgd' has
            no momentum, unless train.optimizer is sgd, too.
        betas: in place of train.betas, for the forms of Adam; None for these.
    """

    lr: Annotated[float, Field(gt=0)] | Annotated[str, Field(pattern=FACTOR)] | None = None
    weight_decay: Annotated[float, Field(ge=0)] | None = None
    optimizer: GroupOptimizer | None = None
    betas: Betas | None = None

    @field_validator("lr", mode="before")
    @classmethod
    def _rate_or_factor(cls, value: Any) -> Any:
        found = as_number(value)
        if value is not None and (found is None or found < 0 or value == 0):
            raise ValueError(f"expected a rate above 0, or a factor of train.lr as x0.1, got {value}")
        return value

    def rate(self, lr: float) -> float:
        """The learning rate of the group, where others have `lr`."""
        if self.lr is None:
            return lr
        return lr * as_number(self.lr) if isinstance(self.lr, str) else self.lr


class RandomLengths(Strict):
    """Segments of random lengths in training. Each has round-down of a normal variable of mean seq_len, or seq_len / 2
    with probability `half`, tokens; the learning rate of its step is multiplied by its length / seq_len.

    Args:
        deviation: the standard deviation of the lengths, in tokens.
        half: the probability of a mean of seq_len / 2.
        shortest: the smallest length.
        longest: the largest one; None for no limit.
    """

    deviation: Annotated[float, Field(ge=0)] = 5.0
    half: Annotated[float, Field(ge=0, le=1)] = 0.05
    shortest: Annotated[int, Field(ge=1)] = 5
    longest: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _in_order(self) -> "RandomLengths":
        if self.longest is not None and self.longest < self.shortest:
            raise ValueError(f"longest must be at least shortest = {self.shortest}, got {self.longest}")
        return self


class AveragingSpec(Sparse):
    """From when the weights are averaged: exactly one of these. The average over all steps since then is what is
    validated, tested and kept; training goes on with the weights themselves (averaged SGD, ASGD).

    Args:
        after: begin after so many epochs; 0: with the first step.
        non_monotone: n; begin after the first epoch whose validation loss is above the best of all epochs but the last
            n (the non-monotone trigger).
    """

    after: Annotated[int, Field(ge=0)] | None = None
    non_monotone: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _one_way(self) -> "AveragingSpec":
        if (self.after is None) == (self.non_monotone is None):
            raise ValueError("expected exactly one of after, non_monotone")
        return self


class FinetuneSpec(Strict):
    """A second stage of training: from the best weights of the first, with averaging from its first step. It ends after
    the first epoch whose validation loss is above the best of all its epochs but the last `non_monotone`.

    Args:
        epochs: the largest number of its epochs, after those of the first stage.
        lr: its learning rate, which does not change; None for `train.lr`, also where a schedule has lowered it. The
            rates of groups are scaled by it.
        non_monotone: how many of its last epochs are not compared with.
    Source: salesforce/awd-lstm-lm and zihangdai/mos, finetune.py.
    """

    epochs: Annotated[int, Field(ge=1)]
    lr: Annotated[float, Field(gt=0)] | None = None
    non_monotone: Annotated[int, Field(ge=1)] = 5


class EvalSpec(Strict):
    """How the validation and the test split are scored. TrainSpec.evaluation derives it from the mapping `train`.

    Functions that evaluate take an EvalSpec and no TrainSpec: a setting that changes what they compute has to be a
    field here, with the name that it has in TrainSpec. Trials that differ in a field are in different groups of the
    leaderboard (harness/board/groups.py).

    Args:
        seq_len, batching, eval_batch_size, eval_stride, eval_batches: as in harness.plan.specs.TrainSpec.
    """

    seq_len: int
    batching: Literal["stream", "blocks"]
    eval_batch_size: int
    eval_stride: int | None
    eval_batches: int | None


GroupName = Literal["backbone", "embedding", "head", "vectors"]
Precision = Literal["fp32", "tf32", "bf16"]  # as in harness.kernels.products, which needs torch; a test compares them
MAX_EPOCHS = 50_000  # a record of more epochs would exceed the size limit


class ComponentSpec(Strict):
    """A corpus, backbone or head: its name and the parameters that the suite sets.

    Other parameters have their defaults.
    """

    name: str
    params: dict[str, Any] = Field(default_factory=dict)

    def __str__(self) -> str:
        return self.label(*self.params)

    def without(self, names: Collection[str]) -> "ComponentSpec":
        """Return the component without some of its parameters."""
        kept = {key: value for key, value in self.params.items() if key not in names}
        return ComponentSpec(name=self.name, params=kept)

    def label(self, *keys: str) -> str:
        """Return the name with some of the parameters: 'mos(num_mixtures=2)'."""
        shown = ", ".join(f"{key}={value_text(self.params[key])}" for key in keys if key in self.params)
        return f"{self.name}({shown})" if shown else self.name


def value_text(value: Any) -> str:
    """Return a value as a suite file would write it, [15, 5] or {top: 15}; a tuple like the list of a record."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {value_text(child)}" for key, child in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(value_text, value)) + "]"
    return str(value)


DECIDES_NO_RESULT = frozenset(
    {"cuda_graph", "deterministic", "loss_form"}
)  # settings of `train` that are not part of a trial's id
# Settings of `train` that change nothing in what a perplexity means: a leaderboard compares them.
COMPARED = frozenset(
    (
        *("optimizer", "lr", "schedule", "batch_size", "clip", "weight_decay", "z_loss", "momentum", "reset_momentum"),
        *("betas", "eps", "shift_columns", "shuffle", "accumulation", "data_parallel", "precision", "groups", "ar"),
        *("tar", "random_lengths", "averaging"),
    )
)


class TrainSpec(Strict):
    """The mapping `train` of a suite: how a trial is trained, and how it is evaluated (`evaluation`).

    Args:
        optimizer: torch's 'sgd', 'adam' or 'adamw'; 'adamw_huggingface', AdamW as the transformers library had it; or
            'muon', torch's Muon for the matrices of the backbone and its AdamW for all else
            (harness/training/optimizers.py).
        lr: the learning rate at the start, or after a warm-up.
        epochs: the number of passes over the training split. A fraction as 0.4 is possible; 0 evaluates the untrained
            model.
        batch_size: B, the number of rows of an update, of all workers and parts together. A row is a column of the
            training stream, or a block.
        seq_len: T, the number of tokens of a segment in training and evaluation (bptt). For a backbone without state
            this is its whole context.
        batching: 'stream': the split is cut into contiguous columns, each segment continues the previous one, and every
            token except the first of the split is a target. 'blocks': the split is cut into blocks of seq_len tokens
            without overlap, and the first token of each block is not a target, in training and in evaluation, as in the
            multi-facet code; `shuffle` then shuffles blocks, not segments. 'windows': each row of a batch is a window
            of seq_len targets at a random place, drawn with replacement, as in nanoGPT; an epoch has as many targets as
            the split, and evaluation is that of 'stream'.
        schedule: the schedule of the learning rate; None for a constant rate.
        clip: the largest 2-norm of the whole gradient, or None for no limit.
        weight_decay: torch's weight decay, for every optimizer.
        z_loss: beta; beta times the mean over tokens of (log Z)^2 is added to the training loss. Z is the normaliser of
            the softmax; for a mixture it is the mean of the squares over its components. PaLM has 1e-4.
        momentum: for 'sgd' only.
        reset_momentum: begin each epoch with a momentum of zero, as Pytorch-NCE does (Stonesjtu/Pytorch-NCE, main.py,
            makes a new optimizer in each epoch). It needs a momentum.
        betas, eps: for the forms of Adam only.
        eval_batch_size: the number of rows in evaluation: columns of the stream, or blocks.
        eval_stride: the number of tokens by which an evaluation window of seq_len tokens moves. Each window scores its
            last eval_stride tokens, and the others are context. None: seq_len, no overlap. For backbones without state.
        eval_batches: the number of batches of a split that are scored, from its start; None for all.
        shuffle: read the segments in a random order in each epoch, without carried state.
        shift_columns: begin the columns of the training stream at a token that the seed chooses, not at the first token
            of the split, so that seeds differ in their segments, too. The last column goes on with the beginning of the
            split after its end. For batching 'stream'.
        accumulation: the number of equal parts, by rows, in which a worker computes its batch of an update, one after
            the other. The update is the same except for rounding, if there is no dropout and the head's loss is a mean
            over tokens. A loss that couples rows is computed for each part separately: the balance term of doc, and the
            noise words of nce, which are drawn again for each part.
        data_parallel: the number of workers among which the batch is divided, by rows, each on its own cores or GPU.
            The update is the same with the same exceptions, and dropout masks differ.
        precision: the precision of products with the output matrix in training: 'fp32', 'tf32' (on a GPU only) or
            'bf16'. All other computation, and all of evaluation, is in fp32. The head of a plug-in that multiplies by
            the output matrix in its own code follows this setting if it uses harness.distributions.linear.
        groups: what differs for some parameters: {head: {lr: x0.1, optimizer: adam}, vectors: {weight_decay: 0}}.
            'head': those that only the head has; 'embedding': the input embedding; 'backbone': its others; 'vectors':
            all with one dimension, as biases and the factors of norms, if it is given. A parameter is in one group.
        ar: activation regularisation: ar times the mean square of the top layer's output is added to the training loss.
        tar: temporal activation regularisation: tar times the mean square of the difference of the top layer's states
            at neighbouring positions, before dropout, is added. For backbones that return these (awd_lstm).
        random_lengths: segments of random lengths in training; None: all have seq_len. For batching 'stream'.
        averaging: averages of the weights, which are evaluated instead of the last ones; None: no average.
        finetune: a second stage of training; None: none. Not with data_parallel.
        cuda_graph: run the training step as one CUDA graph. 'auto': if there is a GPU and the step can be captured;
            'on': the trial fails if it is not possible; 'off'. The result is the same, so it is not part of a trial's
            id.
        loss_form: how the loss of a mixture is computed, exactly each time. 'chunked': with the logits of some tokens
            at a time; 'stored': with those of all tokens of a batch, on a GPU; 'auto': stored on a GPU where they take
            a sixteenth of its memory or less. Results differ only by rounding, so it is not part of a trial's id.
        deterministic: torch's deterministic algorithms, for a GPU. 'true': an operation that has none raises an error;
            'warn': it warns; 'false': the fastest algorithms. Results on the CPU are reproducible in any case. Results
            differ only by rounding, so it is not part of a trial's id.
    """

    optimizer: Optimizer
    lr: Annotated[float, Field(gt=0)]
    epochs: Annotated[float, Field(ge=0, le=MAX_EPOCHS)]
    batch_size: Annotated[int, Field(ge=1)]
    seq_len: Annotated[int, Field(ge=1)]
    schedule: Schedule | None = None
    clip: Annotated[float, Field(gt=0)] | None = None
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    z_loss: Annotated[float, Field(ge=0)] = 0.0
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    reset_momentum: bool = False
    betas: Betas = (0.9, 0.999)
    eps: Annotated[float, Field(gt=0)] = 1e-8
    eval_batch_size: Annotated[int, Field(ge=1)] = 10
    eval_stride: Annotated[int, Field(ge=1)] | None = None
    eval_batches: Annotated[int, Field(ge=1)] | None = None
    shuffle: bool = False
    shift_columns: bool = False
    batching: Literal["stream", "blocks", "windows"] = "stream"
    accumulation: Annotated[int, Field(ge=1)] = 1
    data_parallel: Annotated[int, Field(ge=1)] = 1
    precision: Precision = "fp32"
    groups: dict[GroupName, GroupSpec] = Field(default_factory=dict)
    ar: Annotated[float, Field(ge=0)] = 0.0
    tar: Annotated[float, Field(ge=0)] = 0.0
    random_lengths: RandomLengths | None = None
    averaging: AveragingSpec | None = None
    finetune: FinetuneSpec | None = None
    cuda_graph: Literal["auto", "on", "off"] = "auto"
    loss_form: Literal["auto", "chunked", "stored"] = "auto"
    deterministic: Literal["true", "warn", "false"] = "false"

    @field_validator(
        "deterministic", mode="before", json_schema_input_type=Literal[True, "true", "warn", False, "false"]
    )
    @classmethod
    def _yaml_truth(cls, value: Any) -> Any:
        return str(value).lower() if isinstance(value, bool) else value

    @model_validator(mode="after")
    def _settings_fit_optimizer(self) -> "TrainSpec":
        if self.optimizer != "sgd" and self.momentum:
            raise ValueError(f"momentum belongs to sgd, and the optimizer is {self.optimizer}")
        if self.reset_momentum and not self.momentum:
            raise ValueError("reset_momentum needs a momentum above 0")
        adam_only = [name for name in ("betas", "eps") if getattr(self, name) != TrainSpec.model_fields[name].default]
        if self.optimizer == "sgd" and adam_only:
            raise ValueError(f"{' and '.join(adam_only)} belong to the forms of adam, and the optimizer is sgd")
        for name, group in self.groups.items():
            if self.optimizer == "muon" and name == "backbone" and (group.optimizer or group.betas):
                raise ValueError("groups.backbone: muon moves its matrices; leave optimizer and betas out")
            if group.betas is not None and (group.optimizer or self.optimizer) == "sgd":
                raise ValueError(f"groups.{name}: betas belong to the forms of adam, and its optimizer is sgd")
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
        if self.batching != "stream" and self.shift_columns:
            raise ValueError(f"shift_columns belongs to batching: stream; {self.batching} have no columns")
        if self.batching == "windows" and self.shuffle:
            raise ValueError("shuffle: windows are at random places already; leave it out")
        if self.batching == "blocks" and self.seq_len < 2:
            raise ValueError(
                f"seq_len must be at least 2 for blocks, whose first token is no target, got {self.seq_len}"
            )
        return self

    @model_validator(mode="after")
    def _stages_fit(self) -> "TrainSpec":
        if self.random_lengths is not None and (self.batching != "stream" or self.shuffle):
            raise ValueError("random_lengths is for batching: stream without shuffle, where segments follow each other")
        if self.random_lengths is not None and self.schedule is not None and self.schedule.warmup is not None:
            raise ValueError("random_lengths does not go with schedule.warmup, which needs a known number of steps")
        if self.finetune is not None and self.data_parallel > 1:
            raise ValueError("finetune does not go with data_parallel")
        if self.finetune is not None and self.epochs is not None:
            if not self.epochs or not float(self.epochs).is_integer():
                raise ValueError(f"finetune needs a first stage of whole epochs, at least 1, got {self.epochs:g}")
            if self.most_epochs > MAX_EPOCHS:
                raise ValueError(f"epochs: both stages have {self.most_epochs:g}, expected at most {MAX_EPOCHS:,}")
        return self

    def __hash__(self) -> int:
        return hash(canonical(self.model_dump()))  # `groups` is a mapping

    @property
    def most_epochs(self) -> float:
        """The largest number of epochs of both stages."""
        return self.epochs + (0 if self.finetune is None else self.finetune.epochs)

    @property
    def batch_shape(self) -> tuple[int, int]:
        """(rows, tokens) of the targets that a worker computes at once."""
        tokens = self.seq_len - 1 if self.batching == "blocks" else self.seq_len
        return self.batch_size // (self.data_parallel * self.accumulation), tokens

    @property
    def evaluation(self) -> EvalSpec:
        """The settings that decide what a perplexity means."""
        settings = {name: getattr(self, name) for name in EvalSpec.model_fields}
        if self.batching == "windows":
            settings["batching"] = "stream"
        return EvalSpec(**settings)


# A trial of `ngrams` takes no steps. It reads a split as one column, so that a cache goes on from line to line.
COUNTED = TrainSpec(optimizer="sgd", lr=1.0, epochs=0.0, batch_size=1, seq_len=1000, eval_batch_size=1)
NGRAM_BACKBONE, NGRAM_HEAD = "last_tokens", "kneser_ney"  # what it is made of; a suite does not name them


class TrialSpec(Strict):
    """One trial: everything that decides its result, and the id, which is a hash of it (harness/plan/identity.py)."""

    id: str
    corpus: ComponentSpec
    backbone: ComponentSpec
    head: ComponentSpec
    train: TrainSpec
    seed: int

    def __str__(self) -> str:
        return f"{self.head} {self.backbone.name} {self.corpus.name} seed={self.seed}"

    @property
    def is_ngram(self) -> bool:
        """Whether it is a trial of `ngrams`, which counts the text and depends on no seed."""
        return self.backbone.name == NGRAM_BACKBONE


class Contents(Strict):
    """What a trial reads, as in its id: hashes, or addresses whose content never changes.

    Args:
        backbone: the pretrained weights of the backbone; None if it started from random ones.
        head: the files that its parameters name; None without any.
    """

    corpus: str
    backbone: str | None = None
    head: str | None = None

    @model_serializer(mode="wrap")
    def _without_head(self, dumped: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A record without files of a head is as before there were any: earlier versions read it."""
        return {key: value for key, value in dumped(self).items() if key != "head" or value}


# Suite names and trial ids are names of folders, so they cannot contain path separators.
SUITE_NAME = "^[a-z0-9][a-z0-9_-]{0,63}$"
LEADERBOARD, GROUND_TRUTH = "leaderboard", "ground_truth"  # tables of several suites: results/tables/leaderboard.md
BOARD = "board_"  # begins the name of a suite to which heads are submitted
TRIAL_ID = "^[0-9a-f]{12}$"


def canonical(value: Any) -> str:
    """Return JSON that is equal for equal values."""
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def checksum(content: dict[str, Any]) -> str:
    """Return the SHA-256 that a file of this content holds beside it."""
    return hashlib.sha256(canonical(content).encode()).hexdigest()


def plain(value: Any) -> Any:
    """Return a value in the types of JSON: 1.0 becomes 1 and a tuple becomes a list, also within lists and mappings."""
    if isinstance(value, str | int | None):  # most values: thousands of records are read this way
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {key: plain(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [plain(child) for child in value]
    return value
