"""The two stages of a suite with `tune`: the tuning trials, and the trials of the table at the chosen points.

A suite without `tune` has one stage, the trials of its table.
"""

from collections.abc import Mapping

from harness.plan.loaded_suite import Choice, Suite, TunedRow
from harness.plan.run_options import MeasureSpec
from harness.plan.selection import select
from harness.plan.specs import TrialSpec


def first_stage(suite: Suite, rows: list[int] | None = None) -> Suite:
    """Return the suite whose trials are the tuning trials, of some rows or of all. They measure nothing in addition."""
    chosen = range(len(suite.tuning.rows)) if rows is None else rows
    trials = tuple(trial for row in chosen for trial in suite.tuning.rows[row].tuning_trials)
    measure = MeasureSpec(token_nll=False, exclusive=False)
    return suite.model_copy(update={"trials": trials, "measure": measure})


def everything(suite: Suite) -> tuple[TrialSpec, ...]:
    """Return the trials of both stages, as far as points are chosen."""
    return suite.trials if suite.tuning is None else (*first_stage(suite).trials, *suite.trials)


def with_choices(suite: Suite, choices: list[Choice | None]) -> Suite:
    """Return the suite with the trials of its table: of every row for which a point is chosen, and the n-grams."""
    tuning = suite.tuning.model_copy(update={"choices": tuple(choices)})
    tuned = tuple(trial for row in range(len(tuning.rows)) for trial in tuning.of_table(row))
    ngrams = tuple(trial for trial in suite.trials if trial.is_ngram)
    return suite.model_copy(update={"trials": (*tuned, *ngrams), "tuning": tuning})


def choose(row: TunedRow, found: Mapping[str, float | None]) -> Choice | None:
    """Return the point with the lowest validation perplexity; of equal ones the first that was drawn.

    Args:
        found: id of each finished tuning trial -> its validation perplexity; None if it failed: it cannot be chosen.
    Returns: None while some tuning trial is not finished.
    """
    if any(trial.id not in found for trial in row.tuning_trials):
        return None
    ok = [each for each in row.candidates if found[each.trial.id] is not None]
    best = min(ok, key=lambda each: found[each.trial.id], default=None)
    return Choice(
        row=row_label(row),
        trial=None if best is None else best.trial.id,
        point={} if best is None else best.point,
        valid_ppl={trial.id: found[trial.id] for trial in row.tuning_trials},
    )


def row_labels(suite: Suite) -> list[str]:
    """The rows as messages name them: by their head; with backbone and corpus if the suite has several of them."""
    firsts = [row.candidates[0].trial for row in suite.tuning.rows]
    others = [f"{suite.compared('backbone', trial)} {trial.corpus.name}" for trial in firsts]
    several = len(set(others)) > 1
    heads = [str(suite.compared("head", trial)) for trial in firsts]
    return [f"{head} {other}" if several else head for head, other in zip(heads, others, strict=True)]


def row_label(row: TunedRow) -> str:
    """A row with its head, backbone and corpus: 'mos(num_mixtures=2) lstm markov'."""
    first = row.candidates[0]
    tuned = {key.removeprefix("head.") for key in first.point}
    head = first.trial.head.label(*(name for name in first.trial.head.params if name not in tuned))
    return f"{head} {first.trial.backbone.name} {first.trial.corpus.name}"


def chosen_rows(suite: Suite, only: tuple[str, ...]) -> list[int]:
    """Return the indices of the rows whose tuning belongs to some conditions: those with a trial that meets them.

    The trial is a tuning trial of the row, or a trial of the table at any of its points: 'seed=1' is met by every row.

    Raises: SuiteError as `select` does.
    """
    met = {trial.id for trial in select(possible_trials(suite), only)}
    rows = enumerate(suite.tuning.rows)
    return [index for index, row in rows if not met.isdisjoint(trial.id for trial in _of_row(row))]


def chosen_trials(suite: Suite, only: tuple[str, ...]) -> tuple[TrialSpec, ...]:
    """Return the trials of the table that meet at least one of the conditions.

    Of a suite with `tune` these may be none: the point of a row may not be chosen yet, or may be another one.

    Raises: SuiteError as `select` does.
    """
    met = {trial.id for trial in select(possible_trials(suite), only)}
    return tuple(trial for trial in suite.trials if trial.id in met)


def possible_trials(suite: Suite) -> tuple[TrialSpec, ...]:
    """All trials that a suite may have; of one with `tune`, whichever points are chosen."""
    if suite.tuning is None:
        return suite.trials
    ngrams = (trial for trial in suite.trials if trial.is_ngram)
    return (*(trial for row in suite.tuning.rows for trial in _of_row(row)), *ngrams)


def _of_row(row: TunedRow) -> tuple[TrialSpec, ...]:
    return (*row.tuning_trials, *(trial for each in row.candidates for trial in each.finals))
