"""The contents that trials read (text, pretrained weights), and whether the ids of trials agree with them.

The id of a trial is a hash of its settings and its contents. A record holds both.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from harness.corpora.corpus import CorpusFacts
from harness.errors import HarnessError, RecordError
from harness.plan.identity import Identified, trial_id
from harness.plan.parameters import checked, parameters, paths, with_paths
from harness.plan.specs import ComponentSpec, Contents, TrialSpec
from harness.plan.suite import Suite
from harness.printable import counted
from harness.records import store
from harness.records.record import TrialRecord
from harness.registry import BACKBONES, CORPORA, HEADS


def recomputed(spec: TrialSpec, contents: Contents) -> str:
    """The id of a trial that read these contents, computed with the components of this harness.

    Raises: HarnessError when this harness has no such component, KeyError when it has no such parameter.
    """
    return trial_id(
        corpus=Identified(spec.corpus, CORPORA.get(spec.corpus.name), contents.corpus),
        backbone=Identified(spec.backbone, BACKBONES.get(spec.backbone.name), contents.backbone),
        head=Identified(spec.head, HEADS.get(spec.head.name), contents.head),
        train=spec.train,
        seed=spec.seed,
    )


def confirmed(record: TrialRecord) -> Contents | None:
    """The contents in a record; None if this harness lacks a component or parameter of the trial.

    Raises: RecordError when the record has no contents, or its id does not agree with its settings and contents.
    """
    if record.contents is None:
        raise RecordError(
            f"the record of trial {record.id} does not say what it read, so its id cannot be confirmed; train it again "
            "(--force)"
        )
    try:
        found = recomputed(record.spec, record.contents)
    except (HarnessError, KeyError):
        return None
    if found != record.id:
        raise RecordError(
            f"the record of trial {record.id} is not of that trial: its content ({record.spec}) has id {found}; it was "
            "edited: train it again (--force), or import it again from where it was made"
        )
    return record.contents


def without_folders(record: TrialRecord) -> TrialRecord:
    """The record with the last part of each absolute path alone, as others get it: where files lie on a machine may
    name its user. The id has the content of the files. What this harness does not have stays as it is.
    """

    def last_part(path: str) -> str:
        return Path(path).name if Path(path).is_absolute() else path

    changed = {}
    for kind, registry in {"corpus": CORPORA, "backbone": BACKBONES, "head": HEADS}.items():
        component = getattr(record.spec, kind)
        try:
            params = with_paths(registry.get(component.name), component.params, last_part)
        except (HarnessError, KeyError):
            continue
        changed[kind] = component.model_copy(update={"params": params})
    return record.model_copy(update={"spec": record.spec.model_copy(update=changed)})


def of_suite(
    found: dict[str, TrialRecord], suite: Suite, trials: Iterable[TrialSpec]
) -> tuple[dict[str, TrialRecord], list[str]]:
    """The records with the settings of these trials of a suite, by id, and a sentence for each other record: it has the
    id of a trial and the settings of another, or it was made as a tuning trial and the suite plans it for its table.
    Such a record has no scores of tokens and is not on the leaderboard.
    """
    tuning = {trial.id for trial in suite.tuning_trials}
    fitting, sentences = {}, []
    for trial in trials:
        record = found.get(trial.id)
        if record is None:
            continue
        if record.tuning and trial.id not in tuning:
            sentences.append(
                f"the record of trial {trial.id} does not count: it was made as a tuning trial, and is now one of the "
                "table; `harness run` trains it as such"
            )
            continue
        if record.spec == trial or _has_id(record.spec, trial, suite):
            fitting[trial.id] = record
        else:
            sentences.append(
                f"the record of trial {trial.id} does not count: it is of {record.spec}, not of {trial}; `harness run` "
                "trains it again"
            )
    return fitting, sentences


def of_others(suite: Suite, runs: Path) -> str:
    """A sentence about the records in a suite's folder that are of none of its trials; '' if there are none.

    They are read to see whether they have the settings of a trial: then the text has changed, or the weights that the
    backbone starts from.
    """
    trials = {trial.id: trial for trial in suite.possible_trials}
    others = sorted({place.parent.name for place in runs.glob(f"*/{store.FILE_NAME}")} - trials.keys())
    if not others:
        return ""
    settings, found = {_settings(trial) for trial in trials.values()}, 0
    for other in others:
        with suppress(RecordError):
            found += _settings(store.load(runs, other).spec) in settings
    of = f" ({found} of the same settings: their text or weights have changed since)" if found else ""
    are = "is" if len(others) == 1 else "are"
    return (
        f"{counted(len(others), 'record')} here {are} of other settings or texts than the suite has now{of}; "
        f"`harness runs {suite.name}` lists all"
    )


def _settings(spec: TrialSpec) -> str:
    return spec.model_dump_json(exclude={"id"})


def _has_id(spec: TrialSpec, trial: TrialSpec, suite: Suite) -> bool:
    """Whether settings have the id of a planned trial. Paths of files may differ."""
    try:
        return recomputed(spec, suite.contents_of(trial)) == trial.id
    except (HarnessError, KeyError):
        return False


def facts_of(corpus: ComponentSpec) -> CorpusFacts | None:
    """The facts of a corpus; None if this harness does not have it.

    None, too, for one that is read from a file: records may come from other people, and no file is opened because a
    record names it.
    """
    try:
        cls = CORPORA.get(corpus.name)
        if paths(cls, corpus.params):
            return None
        known = parameters(cls)
        return cls(**{name: checked(known[name], value) for name, value in corpus.params.items()}).facts()
    except (HarnessError, KeyError, TypeError, ValueError, OSError):
        return None


def files_named(spec: TrialSpec) -> list[str]:
    """The files and folders with the user's own texts and weights that a trial reads, as its spec names them.

    Raises: HarnessError when this harness has no such component.
    """
    read = (spec.corpus, CORPORA), (spec.backbone, BACKBONES), (spec.head, HEADS)
    named = [(each.name, paths(registry.get(each.name), each.params)) for each, registry in read]
    return [f"{owner}.{name}: {path}" for owner, found in named for name, path in sorted(found.items())]
