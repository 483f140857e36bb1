"""A suite that was read and checked: its trials, and the points that are tried where it is tuned."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from harness.plan.comparison import MatchSpec, TableSpec
from harness.plan.reader import Source
from harness.plan.run_options import CheckpointSpec, MeasureSpec, Resources, TimeoutSpec
from harness.plan.specs import ComponentSpec, TrialSpec
from harness.plan.step_ratios import Measured
from harness.plan.strict import Strict
from harness.plan.tuning import Point, TuneSpec, epochs_text


class Candidate(Strict):
    """One point of a row that is tuned.

    Args:
        point: the keys of `tune.space` that apply to the row, with their values: {'train.lr': 7.312}.
        trial: the short trial under the seed of `tune`.
        finals: the trials of the table if this point is chosen, one for each seed of the suite.
    """

    point: Point
    trial: TrialSpec
    finals: tuple[TrialSpec, ...]


class TunedRow(Strict):
    """One corpus, backbone and head, with the points that are tried for it, in the order in which they were drawn."""

    candidates: tuple[Candidate, ...]

    @property
    def tuning_trials(self) -> tuple[TrialSpec, ...]:
        """The short trials, one for each point."""
        return tuple(each.trial for each in self.candidates)


class Choice(Strict):
    """Which point of a row is used, and the validation perplexities that decided it.

    Args:
        row: the row, for readers of the file.
        trial: the id of the best tuning trial; None: no tuning trial of the row is ok.
        point: the point of this trial; {} if there is none.
        valid_ppl: id of each tuning trial, in the order of drawing -> its validation perplexity; None: it failed.
    """

    row: str
    trial: str | None
    point: Point
    valid_ppl: dict[str, Annotated[float, Field(gt=0)] | None]


class Tuning(Strict):
    """The stage of a suite before its table: settings are tried, equally many for every row.

    Args:
        rows: in the order of the suite file.
        choices: for each row, what was chosen; None: some of its tuning trials have no record.
    """

    spec: TuneSpec
    rows: tuple[TunedRow, ...]
    choices: tuple[Choice | None, ...]

    def of_table(self, row: int) -> tuple[TrialSpec, ...]:
        """The trials of the table of a row; () before a point is chosen."""
        choice, found = self.choices[row], self.rows[row].candidates
        return next((each.finals for each in found if choice is not None and each.trial.id == choice.trial), ())

    @property
    def budget(self) -> str:
        """The length of the tuning trials: '2 epochs', '10 to 40 epochs'."""
        return epochs_text(*(trial.train.epochs for row in self.rows for trial in row.tuning_trials))

    @property
    def final_budget(self) -> str:
        """The length of the trials of the table, whichever points are chosen."""
        finals = (trial for row in self.rows for each in row.candidates for trial in each.finals)
        return epochs_text(*(trial.train.epochs for trial in finals))

    @property
    def points(self) -> dict[str, Point]:
        """Id of each trial -> its point: of the tuning trials, and of the trials that may follow them."""
        every = [each for row in self.rows for each in row.candidates]
        return {trial.id: each.point for each in every for trial in (each.trial, *each.finals)}


class Suite(Strict):
    """A suite that was read and checked, with its trials in the order of the file.

    Args:
        trials: the trials of the table. Of a suite with `tune`, those of the rows for which a point is chosen.
        overrides: the changes by --set, as strings (key, value, value in the file or None). They are part of the title
            and the file name of the table.
        source: the suite file, for messages.
        counting: the counting rule of each corpus. The key is str(corpus).
        contents: the content hash of each corpus, with the key str(corpus), and the identity of the weights that each
            backbone starts from, with the key str(backbone).
        num_tokens: split -> its number of tokens, of each corpus for which that is known before it is read. The key is
            str(corpus).
        params: trial id -> numbers of parameters (total, head).
        settled: trial id -> the integers that the head's constructor chose for parameters that are None.
        match: the comparison at equal numbers of parameters or training time, which chose the trials' widths or epochs;
            None without it.
        step_times: where and when the ratios of `match.time` were measured; None without it.
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
    counting: dict[str, str]
    contents: dict[str, str]
    num_tokens: dict[str, dict[str, int]] = Field(default_factory=dict)
    params: dict[str, tuple[int, int]]
    match: MatchSpec | None = None
    step_times: Measured | None = None
    core_minutes: float | None = None
    settled: dict[str, dict[str, int]] = Field(default_factory=dict)
    tuning: Tuning | None = None

    def compared(self, kind: Literal["backbone", "head"], trial: TrialSpec) -> ComponentSpec:
        """Return a trial's backbone or head without what matching and tuning chose. It identifies rows of a table."""
        spec: ComponentSpec = getattr(trial, kind)
        chosen = {self.match.vary} if self.match is not None else set()
        if self.tuning is not None:
            chosen |= {key.removeprefix(f"{kind}.") for key in self.tuning.spec.space if key.startswith(f"{kind}.")}
        kept = {name: value for name, value in spec.params.items() if name not in chosen}
        return ComponentSpec(name=spec.name, params=kept)

    @property
    def path(self) -> Path:
        """The suite file."""
        return self.source.path
