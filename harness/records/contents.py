"""What trials read, text and weights, and whether their ids say so: an id is a hash, of which a record holds all but at
most these.
"""

from typing import Any

from harness.corpora.corpus import CorpusFacts
from harness.errors import HarnessError, RecordError
from harness.plan.identity import Identified, starting_content, trial_id
from harness.plan.parameters import checked, parameters, places
from harness.plan.specs import ComponentSpec, Suite, TrialSpec
from harness.records.record import Contents, TrialRecord
from harness.registry import BACKBONES, CORPORA, HEADS, Registry


def recomputed(spec: TrialSpec, contents: Contents) -> str:
    """The id of a trial on what it read, by the components of this harness.

    Raises: HarnessError when this harness has no such component, KeyError when it has no such parameter.
    """
    return trial_id(
        corpus=Identified(spec.corpus, CORPORA.get(spec.corpus.name), contents.corpus),
        backbone=Identified(spec.backbone, BACKBONES.get(spec.backbone.name), contents.backbone),
        head=Identified(spec.head, HEADS.get(spec.head.name)),
        train=spec.train,
        seed=spec.seed,
    )


class KnownContents:
    """What records' trials read, confirmed by their ids. Each corpus and backbone is asked once."""

    def __init__(self):
        self._told: dict[tuple[str, str], Contents | None] = {}

    def of(self, record: TrialRecord) -> Contents | None:
        """As the record says, or as its components do where it is from before records said it; None where neither
        tells, or where this harness lacks a component or parameter of it.

        Raises: RecordError when its id is not that of what it holds.
        """
        spec = record.spec
        contents = record.contents
        if contents is None:
            key = str(spec.corpus), str(spec.backbone)
            if key not in self._told:
                self._told[key] = _told(spec.corpus, spec.backbone)
            contents = self._told[key]
        if contents is None:
            return None
        try:
            found = recomputed(spec, contents)
        except (HarnessError, KeyError):
            return None
        if found != record.id:
            raise RecordError(
                f"the record of trial {record.id} is not of that trial: its content ({spec}) has id {found}"
            )
        return contents


def of_suite(found: dict[str, TrialRecord], suite: Suite) -> tuple[dict[str, TrialRecord], list[str]]:
    """The records whose settings are those of the suite's trials, by id, and a sentence for each other: it has a
    trial's id and holds another one's settings.
    """
    fitting, sentences = {}, []
    for trial in suite.trials:
        record = found.get(trial.id)
        if record is None:
            continue
        if record.spec == trial or _has_id(record.spec, trial, suite):
            fitting[trial.id] = record
        else:
            sentences.append(f"the record of trial {trial.id} does not count: it is of {record.spec}, not of {trial}")
    return fitting, sentences


def _has_id(spec: TrialSpec, trial: TrialSpec, suite: Suite) -> bool:
    """Whether settings have the id of a planned trial: places of files may differ."""
    read = Contents(corpus=suite.contents[str(trial.corpus)], backbone=suite.contents.get(str(trial.backbone)))
    try:
        return recomputed(spec, read) == trial.id
    except (HarnessError, KeyError):
        return False


def facts_of(corpus: ComponentSpec) -> CorpusFacts | None:
    """What a corpus says of itself; None where this harness has none such, or it lies in a file."""
    try:
        return CORPORA.get(corpus.name)(**_typed(corpus, CORPORA)).facts()
    except (HarnessError, KeyError, TypeError, ValueError, OSError):
        return None


def files_named(spec: TrialSpec) -> list[str]:
    """The files and folders that a trial reads and only its spec names: texts and weights of somebody's own.

    Raises: HarnessError when this harness has no such component.
    """
    read = (spec.corpus, CORPORA), (spec.backbone, BACKBONES), (spec.head, HEADS)
    named = [(each, name) for each, registry in read for name in sorted(places(registry.get(each.name)))]
    return [f"{each.name}.{name}: {each.params[name]}" for each, name in named if each.params.get(name) is not None]


def _told(corpus: ComponentSpec, backbone: ComponentSpec) -> Contents | None:
    facts = facts_of(corpus)
    try:
        start = ComponentSpec(name=backbone.name, params=_typed(backbone, BACKBONES))
        content = starting_content(start, BACKBONES.get(start.name))
    except (HarnessError, KeyError, TypeError, ValueError, OSError):
        return None
    return None if facts is None else Contents(corpus=facts.content, backbone=content)


def _typed(spec: ComponentSpec, registry: Registry) -> dict[str, Any]:
    """A component's parameters in their own types. Raises ValueError for a place: records come from anywhere, and no
    file is opened on their word.
    """
    known = parameters(registry.get(spec.name))
    if any(spec.params.get(name) is not None for name in places(registry.get(spec.name))):
        raise ValueError(f"{spec} lies in a file")
    return {name: checked(known[name], value) for name, value in spec.params.items()}
