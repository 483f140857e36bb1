"""What a suite's label may not say: a name of the harness for something else, and what a reader takes for it."""

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from harness.errors import HarnessError
from harness.plan.components import LABEL, Component
from harness.plan.controls import computes_softmax
from harness.plan.names import automatic, names_of
from harness.plan.parameters import REQUIRED, parameters
from harness.plan.reader import Problems
from harness.plan.specs import ComponentSpec, value_text
from harness.protocols import StartsFromFiles
from harness.registry import Registry

# Letters and digits that are drawn like others, and these: a selection from the table `confusables.txt` of Unicode
# Technical Standard 39, Cyrillic, Greek and Latin. Small letters also stand for the small form of capitals that are
# drawn alike, because names are compared without regard to case.
_ALIKE = (
    ("АВЕЅІЈКМНОРСТУХԚԜ", "ABESIJKMHOPCTYXQW"),
    ("авеѕіјкмнорстухһԁԛԝ", "abesijkmhopctyxhdqw"),
    ("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "ABEZHIKMNOPTYX"),  # noqa: RUF001
    ("αικνορτυχ", "aikvoptux"),
    ("ɑɡı01", "agiol"),  # noqa: RUF001
)
_LATIN = str.maketrans(dict(pair for each in _ALIKE for pair in zip(*each, strict=True)))
_INVISIBLE = re.compile(r"FILLER|BLANK|JOINER|SELECTOR")  # in the name of a character that is drawn as nothing
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_LAST_NUMBER = re.compile(r"[\s\d.,]+$")
_PRAISE = {"plain", "standard", "baseline", "vanilla", "ordinary", "normal", "the", "our", "ours"}
INSTEAD = "write another label, which says what differs"

Known = Mapping[str, Mapping[str, bool]]  # a name, as `_word` -> whose it is -> whether it is that of a plain softmax


def known_names(registry: Registry) -> Known:
    """Return what the harness calls the components of a kind: by their names, and by those of their classes, with the
    defaults and with each switch.
    """
    found: dict[str, dict[str, bool]] = {_word(name): {name: False} for name in registry.names()}
    for name, cls in registry.imported().items():
        # A fault of a component that the suite may not have is reported where it is used.
        with suppress(HarnessError, TypeError, NameError):
            switches = [each for each in parameters(cls).values() if isinstance(each.default, bool)]
            for params in ({}, *({each.name: not each.default} for each in switches)):
                spec = ComponentSpec(name=name, params=params)
                said = found.setdefault(_word(_without_number(automatic(spec, registry), registry)), {})
                is_plain = _has_all(cls, params) and computes_softmax(Component(spec, cls))
                said[name] = said.get(name, False) or is_plain
    return found


def check_labels(
    listed: Sequence[Component],
    specs: Sequence[ComponentSpec],
    registry: Registry,
    problems: Problems,
    *,
    chosen: Collection[str] = (),
) -> None:
    """Add what is wrong with the labels of the components of a kind, at their places in the suite file.

    Args:
        specs: of the components, without the parameters `chosen` by matching and tuning; then of others of the kind.
    """
    if not any(each.label for each in listed):
        return
    known, before = known_names(registry), {}
    names = names_of(specs, registry, chosen=chosen)
    for each, spec in zip(listed, specs, strict=False):
        if not each.label:
            continue
        seen = _seen(each.label)
        others = [text for text, name in names.items() if text != str(spec) and _seen(name) == seen]
        wrong = disguise(each, spec, registry, known, chosen)
        if not wrong and others:
            wrong = f"'{each.label}' is what the harness calls {others[0]}, another row of this suite; {INSTEAD}"
        elif not wrong and each.label == before.get(seen):
            wrong = f"'{each.label}' is the label of two components"
        elif not wrong and seen in before:
            wrong = f"'{each.label}' looks like the label '{before[seen]}' of another component; {INSTEAD}"
        before.setdefault(seen, each.label)
        if wrong:
            problems.add((*each.place, each.spec.name, LABEL), wrong)


def disguise(
    each: Component, spec: ComponentSpec, registry: Registry, known: Known, chosen: Collection[str] = ()
) -> str:
    """Return why a component may not have its label, whatever else the suite has; '' where it may.

    A name of its own class is its own, but for other numbers than the harness says of it, and for that of a plain
    softmax where it is none, or one of a rank.
    """
    label, own = each.label, automatic(spec, registry, chosen)
    if registry.kind == "backbone" and isinstance(each.cls, StartsFromFiles):
        return ""  # a folder with a model may hold the model of any name
    first, comma, _ = label.partition(",")  # after a comma it may say what differs
    whose = known.get(_word(first), {}) | known.get(_word(_without_number(first, registry)), {})
    whose = whose | known.get(_without_praise(first), {})
    if spec.name not in whose:
        begins = _seen(own).startswith(_seen(label))  # 'DOC' for 'DOC 3, poster'
        taken = [name for name, is_plain in whose.items() if is_plain or not begins]
        if not taken:
            return ""
        return f"'{first}' is what the harness calls another {registry.kind}, '{taken[0]}'; {INSTEAD}"
    is_plain = whose[spec.name] and not comma
    said, numbers = (set(map(float, _NUMBER.findall(text))) for text in (first, own))
    if numbers and (said - numbers or (is_plain and not said)):
        return f"the harness calls this {registry.kind} '{own}', and its label says another one, '{label}'; {INSTEAD}"
    if is_plain and not computes_softmax(each):
        given = ", ".join(f"{name}={value_text(value)}" for name, value in each.spec.params.items())
        return f"'{label}' is what the harness calls a plain softmax, and this head is none ({given}); {INSTEAD}"
    return ""


def _without_praise(label: str) -> str:
    """'softmax' of 'plain softmax', 'the baseline softmax (ours)': words that say nothing of what a head computes."""
    return "".join(word for word in re.findall(r"\w+", _seen(label)) if word not in _PRAISE)


def _without_number(label: str, registry: Registry) -> str:
    """'MoS' of 'MoS 5', since a head's name has a number of its settings at the end; of 'GPT-2' nothing is left out."""
    return _LAST_NUMBER.sub("", label) if registry.kind == "head" else label


def _has_all(cls: type, params: Iterable[str]) -> bool:
    return all(name in params for name, each in parameters(cls).items() if each.default is REQUIRED)


def _seen(label: str) -> str:
    """What a reader sees in a label, without regard to case: two that are alike give the same."""
    text = unicodedata.normalize("NFKC", label).translate(_LATIN).casefold()
    letters = unicodedata.normalize("NFKD", text.translate(_LATIN))
    kept = [each for each in letters if unicodedata.category(each)[0] != "M" and not _is_invisible(each)]
    return " ".join("".join(kept).split())


def _word(label: str) -> str:
    """The same, without what separates words, and without marks around it."""
    return re.sub(r"[\s_-]+", "", _seen(label)).strip(".,;:!?*'\"`")


def _is_invisible(character: str) -> bool:
    return bool(_INVISIBLE.search(unicodedata.name(character, "")))
