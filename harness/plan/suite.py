"""A suite that was read and checked: its rows, and how they are run and shown. A row is one corpus,
backbone and head, trained with every seed, at the best of the points that are tried for it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from harness.corpora.corpus import CorpusFacts
from harness.plan.components import Component
from harness.plan.model_notes import PlanNote
from harness.plan.reader import Source
from harness.plan.specs import Contents, TrainSpec, TrialSpec
from harness.plan.suite_file import (
    CheckpointSpec,
    LadderSpec,
    MatchSpec,
    MeasureSpec,
    Resources,
    TableSpec,
    TimeoutSpec,
)
from harness.plan.tuning import Choice, Point, TuneSpec, epochs_text

if TYPE_CHECKING:
    from harness.flops import Flops  # which needs torch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidate:
    """A row at one of the points that are tried for it. A row that is not tuned has one, with the
    point {}.

    Args:
        point: the keys of `tune.space` that apply to the row, with their values: {'train.lr':
            7.312}.
        backbone, head: with the values of the point.
        params: the numbers of parameters (total, head).
        settled: the integers that the head's constructor chose for parameters that are None.
        tuning_trials: those that the method may ask for, under the seed of `tune`, the shortest
            first.
        trials: those of the table if this point is chosen, one for each seed of the suite.
    """

    point: Point
    backbone: Component
    head: Component
    params: tuple[int, int]
    settled: dict[str, int]
    tuning_trials: tuple[TrialSpec, ...] = ()
    trials: tuple[TrialSpec, ...] = ()

    @property
    def longest(self) -> TrialSpec:
        """Its longest tuning trial."""
        return self.tuning_trials[-1]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Row:
    """One corpus, backbone and head. Only itself is equal to it, so that it may be the key of a
    dict.

    Args:
        facts: what is known of the corpus before it is loaded.
        params: the numbers of parameters (total, head) without what is tuned.
        settled: the integers that the head's constructor chose for parameters that are None.
        is_control: whether claims are compared with it (harness/plan/controls.py).
        tune: how its point is chosen; None: it is not tuned.
        candidates: in the order in which the points were drawn.
        choice: the point that is used; None: some of its tuning trials have no record.
        non_embedding: N, the parameters of the backbone without those of its embeddings, of tokens and
            of positions.
        flops: of a training token, or why they are not known; None where the suite does not ask.
        follows: of a size of a ladder that is not tuned: given all rows, it returns the candidate
            that follows from the choice of another. Before that is made it returns one with the point
            {}, which stands for it.
        nearest: the number of the size that it follows.
    """

    corpus: Component
    facts: CorpusFacts
    backbone: Component
    head: Component
    params: tuple[int, int]
    settled: dict[str, int]
    train: TrainSpec
    is_control: bool = False
    tune: TuneSpec | None = None
    candidates: tuple[Candidate, ...] = ()
    choice: Choice | None = None
    non_embedding: int = 0
    flops: "Flops | str | None" = None
    follows: "Callable[[Sequence[Row]], Candidate] | None" = None
    nearest: int | None = None

    @property
    def model(self) -> tuple[int, str, str]:
        """(V, backbone, head): the parameter counts depend on these only."""
        return self.facts.vocab_size, str(self.backbone.spec), str(self.head.spec)

    @property
    def key(self) -> tuple[str, str, str]:
        """Corpus, backbone and head without what matching and tuning chose."""
        return self.corpus.written, self.backbone.written, self.head.written

    @property
    def size(self) -> int | None:
        """The number of its size on the ladder, from 1; None without a ladder."""
        return self.backbone.size

    @property
    def family(self) -> tuple[str, str, str]:
        """Corpus, backbone and head without its size: the rows of a ladder have one family."""
        return self.corpus.written, str(self.backbone.family or self.backbone.spec), self.head.written

    @property
    def chosen(self) -> Candidate | None:
        """The candidate that is used; None before a point is chosen, and where all tuning trials
        failed.
        """
        if self.tune is None:
            only = self.candidates[0]
            return only if self.follows is None or only.point else None
        best = None if self.choice is None else self.choice.trial
        for candidate in self.candidates:
            if any(trial.id == best for trial in candidate.tuning_trials):
                return candidate
        return None

    @property
    def trials(self) -> tuple[TrialSpec, ...]:
        """The trials of the table; () before a point is chosen."""
        return () if self.chosen is None else self.chosen.trials

    @property
    def tuning_trials(self) -> tuple[TrialSpec, ...]:
        """All tuning trials that the method may ask for; () for a row that is not tuned."""
        return _joined(each.tuning_trials for each in self.candidates)

    @property
    def possible_trials(self) -> tuple[TrialSpec, ...]:
        """All trials that it may have, whichever point is chosen: the tuning trials, then those of
        the table.
        """
        return self.tuning_trials + _joined(each.trials for each in self.candidates)

    @property
    def label(self) -> str:
        """The row in files: 'mos(num_mixtures=2) lstm markov'."""
        return f"{self.head.spec} {self.backbone.spec.name} {self.corpus.spec.name}"

    def next(self, ppl: Mapping[str, float | None]) -> list[TrialSpec] | Choice:
        """Return the tuning trials to run next, or the choice, as the method does."""
        return self.tune.next(self, ppl)

    def choose(self, ppl: Mapping[str, float | None]) -> Choice | None:
        """Return the choice that the perplexities of tuning trials give; None while the method asks
        for more trials.
        """
        made = self.next(ppl)
        return made if isinstance(made, Choice) else None

    def compared(self, choice: Choice) -> list[tuple[Point, TrialSpec]]:
        """Return the trials whose perplexities compare with that of the chosen one, with their
        points: where a method stops points at different lengths, those that stopped where it did.
        """
        stage = None
        for each in self.candidates:
            for index, trial in enumerate(each.tuning_trials):
                if trial.id == choice.trial:
                    stage = index
        found = []
        for each in self.candidates:
            for index, trial in enumerate(each.tuning_trials):
                if index == stage and trial.id in choice.valid_ppl:
                    found.append((each.point, trial))
        return found


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A suite that was read and checked, with its rows in the order of the file, those of `ngrams`
    last.

    Args:
        overrides: the changes by --set, as strings (key, value, value in the file or None). They
            are part of the title and the file name of the table.
        match: the comparison at equal numbers of parameters or training time, which chose the
            trials' widths or epochs; None without it.
        tune: the stage before the table: settings are tried, equally many for every row; None
            without it.
        ladder: the sizes of its backbones (harness/plan/ladder_rows.py); None without it.
        notes: on the pretrained models (harness/plan/model_notes.py), and on texts that are read more
            than once.
        control_notes: on controls that the file declares or lacks (harness/plan/controls.py).
        core_minutes: how long all trials take on one core of a CPU; None: not known.
    """

    name: str
    version: int
    rows: tuple[Row, ...]
    resources: Resources
    checkpoint: CheckpointSpec
    timeout: TimeoutSpec
    measure: MeasureSpec
    table: TableSpec
    overrides: tuple[tuple[str, str, str | None], ...]
    source: Source
    match: MatchSpec | None = None
    tune: TuneSpec | None = None
    ladder: LadderSpec | None = None
    notes: tuple[PlanNote, ...] = ()
    control_notes: tuple[str, ...] = ()
    core_minutes: float | None = None

    @property
    def path(self) -> Path:
        """The suite file."""
        return self.source.path

    @cached_property
    def trials(self) -> tuple[TrialSpec, ...]:
        """The trials of the table: of a suite with `tune`, those of the rows for which a point is
        chosen.
        """
        return _joined(row.trials for row in self.rows)

    @cached_property
    def tuning_trials(self) -> tuple[TrialSpec, ...]:
        """All trials that its tuning may ask for; () without `tune`."""
        return _joined(row.tuning_trials for row in self.rows)

    @cached_property
    def possible_trials(self) -> tuple[TrialSpec, ...]:
        """All trials that it may have, whichever points are chosen."""
        return _joined(row.possible_trials for row in self.rows)

    @property
    def tuned_rows(self) -> tuple[Row, ...]:
        """All rows but those of `ngrams` of a suite with `tune`; () without it."""
        return tuple(row for row in self.rows if row.tune is not None)

    @property
    def corpora(self) -> dict[str, CorpusFacts]:
        """The name of each corpus -> what is known of it before it is loaded."""
        return {row.corpus.name: row.facts for row in self.rows}

    @cached_property
    def _planned(self) -> dict[str, tuple[Row, Candidate]]:
        """Trial id -> its row and candidate."""
        found = {}
        for row in self.rows:
            for each in row.candidates:
                for trial in (*each.tuning_trials, *each.trials):
                    found[trial.id] = row, each
        return found

    def row_of(self, trial: TrialSpec) -> Row:
        """Return the row of one of its trials."""
        return self._planned[trial.id][0]

    def candidate_of(self, trial: TrialSpec) -> Candidate:
        """Return the row of one of its trials at the trial's point."""
        return self._planned[trial.id][1]

    def contents_of(self, trial: TrialSpec) -> Contents:
        """Return the contents that one of its trials reads, as in the trial's id."""
        row, candidate = self._planned[trial.id]
        parts = {"backbone": candidate.backbone.content, "head": candidate.head.content}
        return Contents(corpus=row.corpus.content, **parts)

    def trial_name(self, trial: TrialSpec) -> str:
        """Return what messages call a trial: 'affine softmax lstm ptb seed=1'."""
        row = self.row_of(trial)
        return f"{row.head.name} {row.backbone.name} {row.corpus.name} seed={trial.seed}"

    def key_of(self, trial: TrialSpec) -> tuple[str, str, str]:
        """Return the key of the row to which any trial would belong: without what matching and
        tuning choose here.
        """
        backbone = trial.backbone.without(chosen_parameters("backbone", self.match, self.tune))
        head = trial.head.without(chosen_parameters("head", self.match, self.tune))
        return str(trial.corpus), str(backbone), str(head)

    @property
    def tuning_budget(self) -> str:
        """The length of the tuning trials: '2 epochs', '10 to 40 epochs'."""
        return epochs_text(*(trial.train.epochs for trial in self.tuning_trials))

    @property
    def table_budget(self) -> str:
        """The length of the trials of the tuned rows of the table, whichever points are chosen."""
        epochs = []
        for row in self.tuned_rows:
            for each in row.candidates:
                epochs += [trial.train.epochs for trial in each.trials]
        return epochs_text(*epochs)


def chosen_parameters(kind: str, match: MatchSpec | None, tune: TuneSpec | None) -> set[str]:
    """Return the parameters of a kind of component that matching and tuning choose. A corpus has
    none.
    """
    if kind == "corpus":
        return set()
    chosen = set() if match is None else {match.vary}
    for key in [] if tune is None else tune.space:
        owner, _, parameter = key.partition(".")
        if owner == kind:
            chosen.add(parameter)
    return chosen


def _joined(groups: Iterable[tuple[TrialSpec, ...]]) -> tuple[TrialSpec, ...]:
    return tuple(chain.from_iterable(groups))


def with_choices(suite: Suite, choices: Sequence[Choice | None]) -> Suite:
    """Return the suite with the points that are chosen for its tuned rows, and with those that
    follow from them.
    """
    made, rows = dict(zip(suite.tuned_rows, choices, strict=True)), []
    for row in suite.rows:
        rows.append(replace(row, choice=made[row]) if row in made else row)
    for index, row in enumerate(rows):
        if row.follows is not None:
            rows[index] = replace(row, candidates=(row.follows(rows),))
    return replace(suite, rows=tuple(rows))


def row_labels(suite: Suite) -> list[str]:
    """The tuned rows as messages name them: by their head; with backbone and corpus where there are
    several.
    """
    rest = {row: f"{row.backbone.name} {row.corpus.name}" for row in suite.tuned_rows}
    several = len(set(rest.values())) > 1
    return [f"{row.head.name} {rest[row]}" if several else row.head.name for row in rest]
