"""A suite that was read and checked: its trials, and the points that are tried where it is tuned."""

from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field

from harness.corpora.corpus import CorpusFacts
from harness.plan.controls import Role
from harness.plan.model_notes import ModelNote
from harness.plan.reader import Source
from harness.plan.specs import ComponentSpec, Strict, TrialSpec
from harness.plan.suite_file import CheckpointSpec, MatchSpec, MeasureSpec, Resources, TableSpec, TimeoutSpec
from harness.plan.tuning import Choice, TunedRow, Tuning


class Suite(Strict):
    """A suite that was read and checked, with its trials in the order of the file.

    Args:
        trials: the trials of the table. Of a suite with `tune`, those of the rows for which a point is chosen.
        overrides: the changes by --set, as strings (key, value, value in the file or None). They are part of the title
            and the file name of the table.
        facts: what is known of each corpus before it is loaded. The key is str(corpus).
        contents: the content hash of each corpus, with the key str(corpus), and the identity of the weights that each
            backbone starts from, with the key str(backbone).
        params: trial id -> numbers of parameters (total, head).
        settled: trial id -> the integers that the head's constructor chose for parameters that are None.
        names: kind of component -> str(spec) of what `compared` returns -> its name in views (harness/plan/names.py).
        labels: those of these names that the suite's file gives.
        roles: str(spec) of what `compared` returns for a head -> whether it is a control (harness/plan/controls.py).
        match: the comparison at equal numbers of parameters or training time, which chose the trials' widths or epochs;
            None without it.
        notes: on the pretrained models (harness/plan/model_notes.py).
        control_notes: on controls that the file declares or lacks (harness/plan/controls.py).
        core_minutes: how long all trials take on one core of a CPU; None: not known.
        tuning: of a suite with `tune`; None without it.
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
    facts: dict[str, CorpusFacts]
    contents: dict[str, str]
    params: dict[str, tuple[int, int]]
    names: dict[str, dict[str, str]]
    labels: dict[str, dict[str, str]] = Field(default_factory=dict)
    roles: dict[str, Role] = Field(default_factory=dict)
    match: MatchSpec | None = None
    notes: tuple[ModelNote, ...] = ()
    control_notes: tuple[str, ...] = ()
    core_minutes: float | None = None
    settled: dict[str, dict[str, int]] = Field(default_factory=dict)
    tuning: Tuning | None = None

    def compared(self, kind: Literal["backbone", "head"], trial: TrialSpec) -> ComponentSpec:
        """Return a trial's backbone or head without what matching and tuning chose. It identifies rows of a table."""
        spec: ComponentSpec = getattr(trial, kind)
        chosen = {self.match.vary} if self.match is not None else set()
        if self.tuning is not None:
            chosen |= {key.removeprefix(f"{kind}.") for key in self.tuning.spec.space if key.startswith(f"{kind}.")}
        return spec.without(chosen)

    def name_of(self, kind: Literal["corpus", "backbone", "head"], trial: TrialSpec) -> str:
        """Return what views call a trial's corpus, backbone or head."""
        spec = trial.corpus if kind == "corpus" else self.compared(kind, trial)
        return self.names[kind][str(spec)]

    def is_control(self, trial: TrialSpec) -> bool:
        """Whether a trial's head is one with which claims are compared."""
        role = self.roles.get(str(self.compared("head", trial)))
        return role is not None and role.is_control

    def trial_name(self, trial: TrialSpec) -> str:
        """Return what messages call a trial: 'affine softmax lstm ptb seed=1'."""
        names = [self.name_of(kind, trial) for kind in ("head", "backbone", "corpus")]
        return f"{' '.join(names)} seed={trial.seed}"

    @property
    def tuning_trials(self) -> tuple[TrialSpec, ...]:
        """All trials that its tuning may ask for; () without `tune`."""
        return () if self.tuning is None else tuple(trial for row in self.tuning.rows for trial in row.tuning_trials)

    @property
    def path(self) -> Path:
        """The suite file."""
        return self.source.path


def with_choices(suite: Suite, choices: list[Choice | None]) -> Suite:
    """Return the suite with the trials of its table: of every row for which a point is chosen, and the n-grams."""
    tuning = suite.tuning.model_copy(update={"choices": tuple(choices)})
    tuned = tuple(trial for row in range(len(tuning.rows)) for trial in tuning.of_table(row))
    ngrams = tuple(trial for trial in suite.trials if trial.is_ngram)
    return suite.model_copy(update={"trials": (*tuned, *ngrams), "tuning": tuning})


def row_labels(suite: Suite) -> list[str]:
    """The rows as messages name them: by their head; with backbone and corpus if the suite has several of them."""
    firsts = [row.candidates[0].trial for row in suite.tuning.rows]
    others = [f"{suite.name_of('backbone', trial)} {suite.name_of('corpus', trial)}" for trial in firsts]
    several = len(set(others)) > 1
    heads = [suite.name_of("head", trial) for trial in firsts]
    return [f"{head} {other}" if several else head for head, other in zip(heads, others, strict=True)]


def possible_trials(suite: Suite) -> tuple[TrialSpec, ...]:
    """All trials that a suite may have; of one with `tune`, whichever points are chosen."""
    if suite.tuning is None:
        return suite.trials
    ngrams = (trial for trial in suite.trials if trial.is_ngram)
    return (*(trial for row in suite.tuning.rows for trial in trials_of_row(row)), *ngrams)


def trials_of_row(row: TunedRow) -> tuple[TrialSpec, ...]:
    """All trials that a tuned row may have."""
    return (*row.tuning_trials, *(trial for each in row.candidates for trial in each.finals))
