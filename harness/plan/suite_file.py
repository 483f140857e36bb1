"""The keys of a suite file, and their JSON schema, by which editors complete keys and show their meaning.

The schema (`harness schema`) is made of the pydantic types and their docstrings. It accepts every suite that `load`
accepts. The reverse does not hold: names and parameters of components, and rules between several keys, are checked by
`load` only (harness/plan/components.py, loading.py).
"""

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from harness.plan.specs import COUNTED, GROUND_TRUTH, LEADERBOARD, MAX_EPOCHS, SUITE_NAME, Optimizer, Strict, TrainSpec
from harness.plan.tuning import OneLine, Tune

MAX_ORDER = 20


class NgramSpec(Strict):
    """One n-gram model.

    Args:
        order: n, the tokens of context and the predicted one.
        cache: interpolate with a unigram cache, whose window and weight are chosen on the validation split.
    """

    order: Annotated[int, Field(ge=1, le=MAX_ORDER)]
    cache: bool = False

    @property
    def head_params(self) -> dict[str, Any]:
        """The parameters of the head that are not at their default."""
        return {"order": self.order} | ({"cache": True} if self.cache else {})


def _order_only(value: Any) -> Any:
    return {"order": value} if type(value) is int else value


NgramList = list[Annotated[NgramSpec, BeforeValidator(_order_only, json_schema_input_type=int | NgramSpec)]]


class Resources(Strict):
    """The resources of one trial.

    A data-parallel trial uses the cores and the memory once for each worker, and as many GPUs as it has workers:
    `gpus: 4` implies `train: {data_parallel: 4}`.

    Args:
        cpus: the number of CPU cores, which is also the number of torch threads.
        gpus: the number of GPUs, or a share of one GPU, on a machine with a GPU. None: one whole GPU; 0: run on the
            CPU.
        memory_gib: the memory of the trial's process, in GiB, above which it ends with status 'oom'. None: it ends when
            the machine has too little memory and the trial uses more than its share. Memory is checked between batches,
            not within a step.
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
    """How often a checkpoint of a trial is saved. An interrupted trial resumes from its last checkpoint.

    Args:
        epochs: save after this number of epochs.
        minutes: save within an epoch, too, when this number of minutes have passed since the last checkpoint.
    """

    epochs: Annotated[int, Field(ge=1)] = 1
    minutes: Annotated[float, Field(gt=0)] = 10.0


class TimeoutSpec(Strict):
    """When a trial is ended with status 'timeout'. None: never.

    Args:
        minutes: the limit of its total running time, over all attempts.
        silent_minutes: the limit of the time without progress. A trial reports progress after every batch.
    """

    minutes: Annotated[float, Field(gt=0)] | None = None
    silent_minutes: Annotated[float, Field(gt=0)] | None = None


class DynamicSpec(Strict):
    """Dynamic evaluation: the weights follow the text while it is scored (harness/training/dynamic_evaluation.py).

    Args:
        lr: the learning rate.
        decay: lambda, how fast the weights return to those that were trained; 0: not at all.
        epsilon: what is added to the size of the gradients.
        seq_len: tokens that are scored before each update.
        batch_size: rows of the batches of the training split by which the size of the gradients is known.
    """

    lr: Annotated[float, Field(gt=0)] = 0.002
    decay: Annotated[float, Field(ge=0)] = 0.02
    epsilon: Annotated[float, Field(gt=0)] = 0.001
    seq_len: Annotated[int, Field(ge=1)] = 5
    batch_size: Annotated[int, Field(ge=1)] = 100

    def as_metrics(self) -> dict[str, float]:
        """The settings, as a record keeps them beside the perplexities that were measured under them."""
        return {f"dynamic_{name}": value for name, value in self}

    @classmethod
    def of_metrics(cls, metrics: Mapping[str, float]) -> Self | None:
        """The settings of the perplexities in a record; None where it has none."""
        kept = {name: metrics.get(f"dynamic_{name}") for name in cls.model_fields}
        return None if None in kept.values() else cls.model_validate(kept, strict=False)


class MeasureSpec(Strict):
    """Additional measurements of a trial. They change no result, so they are not part of a trial's id.

    Args:
        start: measure the validation perplexity before the first update.
        inference_batch: measure, after training, the time of a forward pass with loss on this number of segments of the
            test split.
        token_nll: keep the negative log-likelihood of each token of the test split under the best weights, about 4
            bytes per token. It is used for confidence intervals and to find the tokens on which a head is better
            (harness/records/sidecars.py).
        calibration: measure the expected calibration error and the mean entropy of the test split under the best
            weights, in one more pass over it (harness/training/evaluation.py).
        dynamic: measure the perplexities of both splits under dynamic evaluation, for backbones that carry a state.
            They are columns of their own.
        exclusive: after training, time one trial of each row again while no other trial of the run is running
            (harness/records/sidecars.py).
    """

    start: bool = False
    inference_batch: Annotated[int, Field(ge=1)] | None = None
    token_nll: bool = True
    calibration: bool = False
    dynamic: DynamicSpec | None = None
    exclusive: bool = True


PrintedTableName = Annotated[str, Field(pattern=r"^[a-z0-9_]+/[A-Za-z0-9_.-]+$")]
Shape = Literal["mixtures", "heads", "corpora", "ladder"]
Form = Literal["md", "csv", "latex"]  # of a table as text
Test = Literal["paired", "welch"]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


class TableSpec(Strict):
    """The content of the suite's table.

    Args:
        rows: what the rows compare; always 'head'.
        shape: the layout. 'mixtures': one row for each corpus, backbone and head. 'heads': one row for each backbone
            and head, with columns for each corpus. 'corpora': rows for each corpus, with one column for each head.
            'ladder', which suites with `ladder` have by default: one row for each head, with columns for each size.
        compare: '<paper>/<table>' of results/published, or a list of them: published numbers that are printed beside
            ours. If several have a number for a row, the first is printed.
        baseline: the head that the others are compared with (the column of the reduction), or None. It is written as
            the plan prints it, 'affine softmax', or by its name: then the first head of this name. A suite
            that does not give it has the plain softmax, if it has one (harness/plan/loading.py).
        test: of the difference of two heads: the t test of the differences of each seed, or Welch's of the two means.
        margin: the smallest relative difference of perplexity that is of interest; heads that differ by less are
            equivalent.
        notes: sentences under the table, such as what a paper reports that is no number of a table.
        caption: of the table in LaTeX; without it, the suite's name and version.
        doubt: why the numbers of the suite are in doubt, such as a fault that was mended after it was trained. It is
            said first wherever its outcome is.
    """

    rows: Literal["head"] = "head"
    shape: Shape = "mixtures"
    compare: Annotated[
        list[PrintedTableName],
        BeforeValidator(_listed, json_schema_input_type=PrintedTableName | list[PrintedTableName]),
        Field(default_factory=list),
    ]
    baseline: str | None = "softmax"
    test: Test = "paired"
    margin: Annotated[float, Field(gt=0, le=0.1)] = 0.01
    notes: list[OneLine] = Field(default_factory=list)
    caption: OneLine = ""
    doubt: OneLine = ""


TOLERANCE = 0.005  # the largest relative difference between the parameter count of a matched trial and the target


def _head_or_number(value: Any) -> Any:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # 1e6 is a float in YAML
    if type(value) is int and 0 < value < 2**63:
        return value
    raise ValueError(f"expected the name of a head or a whole number of parameters, got {json.dumps(value)}")


class MatchSpec(Strict):
    """A comparison at equal numbers of parameters, at equal FLOPs of training, or at equal training time.

    Numbers of parameters: every trial gets the width at which its total number meets a target. FLOPs: every head gets
    the epochs in which it takes as many as a named head in its own. Training time: those that take as long
    (harness/plan/match.py). FLOPs follow from shapes, times are of one machine: take FLOPs where they say enough.

    Args:
        params: the target: a number, or a head, which is not changed. With a head, the target is its total number of
            parameters on the same corpus and backbone. A head is written as the plan prints it,
            'softmax(projection=True)', or by its name if only one head of the suite has this name.
        vary: the parameter that is changed: an integer parameter of the head or the backbone whose name begins with d_
            (d_model, d_ff, d_embed, d_gate).
        flops: the head whose FLOPs all heads get, written in the same way (harness/flops.py).
        time: the head whose training time all heads get, written in the same way.
        ratios: how long the training step of each head takes, divided by that of the head `time`: by the head as the
            plan prints it, or by 'HEAD on BACKBONE and CORPUS' where these differ. `harness plan SUITE --time` prints
            them.
        measured: where and when the steps were timed, for the notes of the table.
    Source: Parthiban et al. (2021), main table 5, for equal numbers of parameters.
    """

    params: Annotated[int | str | None, BeforeValidator(_head_or_number)] = None
    vary: str | None = None
    flops: str | None = None
    time: str | None = None
    ratios: dict[str, Annotated[float, Field(gt=0)]] | None = None
    measured: OneLine | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> "MatchSpec":
        keys = ("params", "vary", "flops", "time", "ratios")
        given = [name for name in keys if getattr(self, name) is not None]
        if given in (["params"], ["vary"]):
            raise ValueError(f"the key '{'vary' if given == ['params'] else 'params'}' is missing")
        if given == ["time"]:
            raise ValueError("the key 'ratios' is missing; `harness plan SUITE --set match=null --time` prints it")
        if given not in (["params", "vary"], ["flops"], ["time", "ratios"]):
            raise ValueError(
                f"expected params and vary, or flops, or time and ratios, got {', '.join(given) or 'none of them'}"
            )
        return self

    @property
    def kind(self) -> str:
        """What is equal: 'parameters', 'FLOPs' or 'training time'."""
        if self.flops is not None:
            return "FLOPs"
        return "parameters" if self.time is None else "training time"

    @property
    def by_epochs(self) -> bool:
        """Whether it chooses epochs, and not a width."""
        return self.params is None

    def __str__(self) -> str:
        if self.flops is not None:
            return f"each head trains for as many FLOPs as {self.flops}"
        if self.time is not None:
            return f"the epochs of each head take as long as those of {self.time}"
        target = f"{self.params:,}" if isinstance(self.params, int) else f"{self.params}'s"
        return f"totals agree with {target} within {100 * TOLERANCE:g} %, by {self.vary}"


class LadderSpec(Strict):
    """Backbones of several sizes: does a difference hold when the model grows? (harness/plan/ladder_rows.py)

    Args:
        sizes: from small to large: parameters in place of the backbone's own, or keys of its parameter `config`.
        tuned: the sizes, by their numbers from 1, whose learning rate is tuned. At the others a head has its rate of
            the nearest tuned size (in log N), moved by rate_power. None: every size is tuned.
        rate_power: p: a rate that is not tuned is (N / n)^p times that of the tuned size n, for every head alike.
        seeds: how many seeds each size has: the first ones of `seeds`. None: all of them.
    """

    sizes: list[Annotated[dict[str, Any], Field(min_length=1)]]
    tuned: list[Annotated[int, Field(ge=1)]] | None = None
    rate_power: Annotated[float, Field(ge=-1, le=1)] = 0.0
    seeds: list[Annotated[int, Field(ge=1)]] | None = None

    @model_validator(mode="after")
    def _several(self) -> "LadderSpec":
        if len(self.sizes) < 2:
            raise ValueError(f"sizes: a ladder needs two sizes or more, got {len(self.sizes)}")
        if self.tuned is not None and len(set(self.tuned)) < 2:
            raise ValueError(f"tuned: a rule for learning rates needs two tuned sizes or more, got {self.tuned}")
        return self


MULTIPLE = r"^[0-9]+([.][0-9]+)?x$"  # of N, the parameters without embeddings


def _number_or_multiple(value: Any) -> int | str:
    if isinstance(value, str) and re.match(MULTIPLE, value):
        return value
    if type(value) is int and value > 0:
        return value
    raise ValueError(f"expected a whole number, or a number for each parameter as 20x, got {json.dumps(value)}")


_Tokens = int | Annotated[str, Field(pattern=MULTIPLE)]
Tokens = Annotated[_Tokens, BeforeValidator(_number_or_multiple, json_schema_input_type=_Tokens)]


class TrainFile(TrainSpec):
    """The key `train` of a suite: the settings of TrainSpec, with either of two ways to say how long.

    The defaults of optimizer, batch_size and seq_len are of suite files only. TrainSpec has none for them, so they are
    part of a trial's id whatever their values are, as when every suite had to give them.

    Args:
        optimizer, batch_size, seq_len: as in TrainSpec.
        epochs: as in TrainSpec.
        tokens: the number of targets to train on, in all epochs together; '20x': 20 for each parameter of the backbone
            without its embeddings. It becomes epochs of each corpus (harness/plan/lengths.py).
    """

    optimizer: Optimizer = "sgd"
    batch_size: Annotated[int, Field(ge=1)] = 20
    seq_len: Annotated[int, Field(ge=1)] = 35
    epochs: Annotated[float, Field(ge=0, le=MAX_EPOCHS)] | None = None
    tokens: Tokens | None = None

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


MOST_SEEDS = 10_000


def listed_seeds(given: Any) -> Any:
    """The seeds of a number of seeds: 6 -> [1, 2, 3, 4, 5, 6]; a list as it is.

    Raises: ValueError for anything else, and for a number below 1 or above MOST_SEEDS.
    """
    if isinstance(given, list):
        return given
    if not isinstance(given, int) or isinstance(given, bool):
        raise ValueError(f"expected a number of seeds, as 6 for the seeds 1 to 6, or a list of seeds, got {given!r}")
    if not 1 <= given <= MOST_SEEDS:
        raise ValueError(f"expected the number of seeds, 1 to {MOST_SEEDS:,}, or a list of seeds, got {given}")
    return list(range(1, given + 1))


_Listed = Annotated[list[Annotated[int, Field(ge=0, lt=2**63)]], Field(min_length=1)]
Seeds = Annotated[_Listed, BeforeValidator(listed_seeds, json_schema_input_type=int | _Listed)]


class SuiteFile(Strict):
    """The keys of a suite file. Components are checked against the registries in harness/plan/components.py.

    Args:
        name: the name under which records and tables are stored. None: the name of the file, without its ending
            (harness/plan/loading.py).
        version: printed in the table's title; raise it when the meaning of the trials changes.
        core_minutes: how long all trials take on one core of a CPU, as far as it is known. It changes nothing in a run;
            `harness reproduce` leaves out long suites by it.
        corpora: the texts, each a name, or one name with its parameters. A list as the value of a parameter is a grid.
        backbones: the models below the heads, written like corpora.
        heads: the output heads, written like corpora: softmax, or mos: {num_mixtures: [2, 5]}.
        train: how every trial is trained and evaluated.
        seeds: one trial of each combination for each seed: a list, or a number (6: the seeds 1 to 6).
        ngrams: n-gram models with Kneser-Ney smoothing, each counted once on each corpus: an order, or a mapping.
        resources: cores, GPUs and memory of a trial.
        checkpoint: how often a trial is saved.
        timeout: when a trial is ended.
        measure: what is measured beside the results.
        table: the content of the table.
        match: a comparison at equal numbers of parameters, FLOPs or training time.
        tune: an equal tuning budget for every row.
        ladder: the backbones at several sizes.
    """

    name: Annotated[str, Field(pattern=SUITE_NAME)] | None = None
    version: Annotated[int, Field(ge=1)] = 1
    core_minutes: Annotated[float, Field(gt=0)] | None = None
    corpora: Annotated[list[Entry], Field(min_length=1)]
    backbones: Annotated[list[Entry], Field(min_length=1)]
    heads: Annotated[list[Entry], Field(min_length=1)]
    train: TrainFile
    seeds: Seeds
    ngrams: NgramList = Field(default_factory=list)
    resources: Resources = Resources()
    checkpoint: CheckpointSpec = CheckpointSpec()
    timeout: TimeoutSpec = TimeoutSpec()
    measure: MeasureSpec = MeasureSpec()
    table: TableSpec = TableSpec()
    match: MatchSpec | None = None
    tune: Tune | None = None
    ladder: LadderSpec | None = None

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


DRAFT = "https://json-schema.org/draft/2020-12/schema"
ARGUMENT = re.compile(r"^    (\w+(?:, \w+)*): (.+(?:\n {8}.+)*)", re.MULTILINE)
REFERRING = "as in "  # how a description begins that is given elsewhere


def suite_schema() -> dict[str, Any]:
    """Return the schema of suite files: keys, types, limits, defaults and descriptions."""
    schema = SuiteFile.model_json_schema()
    classes = {cls.__name__: cls for cls in _subclasses(Strict)}
    for name, part in {SuiteFile.__name__: schema, **schema["$defs"]}.items():
        if name in classes:
            _describe(part, classes[name])
    required = set(schema["required"])
    schema["required"] = sorted(required - OF_TRAINING)
    schema["anyOf"] = [{"required": sorted(required & OF_TRAINING)}, {"required": ["ngrams"]}]
    return {"$schema": DRAFT, **schema, "title": "A suite of output-head-harness"}


def schema_text() -> str:
    """Return the content of suites/schema.json."""
    return f"{json.dumps(suite_schema(), indent=1)}\n"


def _subclasses(cls: type) -> Iterator[type]:
    for each in cls.__subclasses__():
        yield each
        yield from _subclasses(each)


def _describe(part: dict[str, Any], cls: type) -> None:
    """Put the descriptions of a class's docstring, and of those below it, into its schema, in place of the titles that
    pydantic makes.
    """
    texts = {name: text for each in (*_subclasses(cls), cls) for name, text in descriptions(each).items()}
    for node in (part, *part.get("anyOf", [])):
        for name, key in node.get("properties", {}).items():
            key.pop("title", None)
            if name in texts:
                key["description"] = texts[name]
        node.pop("title", None)
        node.pop("description", None)
    part["description"] = " ".join(inspect.cleandoc(cls.__doc__).partition("\n\n")[0].split())


def descriptions(cls: type) -> dict[str, str]:
    """Return field -> its description under `Args:` in the docstring of the class, or of a class above it."""
    found: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        arguments = inspect.cleandoc(each.__doc__ or "").partition("Args:\n")[2]
        for names, text in ARGUMENT.findall(arguments):
            for name in names.split(", "):
                if not text.startswith(REFERRING):
                    found[name] = " ".join(text.split())
    return found
