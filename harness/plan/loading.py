"""Read a suite file: apply overrides, check everything, expand it to trials. All problems are reported together."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from harness.corpora.corpus import CorpusFacts
from harness.errors import ComponentError, CorpusError, SuiteError, nearest
from harness.plan import tuned_rows
from harness.plan.components import LABEL, MAX_TRIALS, Component, Construction, components
from harness.plan.controls import Role, control_notes, roles
from harness.plan.expansion import Texts, combined, counted, ngram_components, with_seeds
from harness.plan.identity import is_frozen, starting_content
from harness.plan.kept_models import Body
from harness.plan.labels import disguise, known_names
from harness.plan.labels import problems as label_problems
from harness.plan.lengths import in_tokens
from harness.plan.match import in_equal_time, matched
from harness.plan.model_notes import model_notes
from harness.plan.names import names_of, shown
from harness.plan.parameters import resolved, sentence
from harness.plan.reader import MAX_DEPTH, Place, Source, assignment, namesake, read, suite_file, text_of, value_of
from harness.plan.specs import DECIDES_NO_RESULT, NGRAM_HEAD, SUITE_NAME
from harness.plan.suite import Row, Suite, chosen_parameters
from harness.plan.suite_file import OF_TRAINING, NgramSuiteFile, SuiteFile, TableSpec
from harness.registry import BACKBONES, CORPORA, HEADS

PLAIN = "softmax"
REGISTRIES = {"corpus": CORPORA, "backbone": BACKBONES, "head": HEADS}
Answer = TypeVar("Answer")
MAX_DIGITS = 9  # of a list index in --set; a longer number is read as a key


def load(given: str | Path, overrides: tuple[str, ...] = ()) -> Suite:
    """Return the suite of a file, with overrides from the command line ('train.epochs=2') applied.

    Args:
        given: the path of the file, or the name of a suite in the folder suites (harness/plan/reader.py).
    Raises: SuiteError with every problem as 'file:line:column: path: what is wrong'. No trial was started.
    """
    data, source = read(path := suite_file(given))
    settings = _settings(data, source, overrides)
    unnamed = give_name(data, path)
    file, problems = _checked_file(data, source)
    problems += unnamed
    if file is not None and (other := namesake(path, file.name)) is not None:
        message = f"'{file.name}' is the name of {other}, and both would write the same table; rename it: {path.stem}"
        problems.append(source.problem(("name",), message))
    corpora, wrong_corpora = components(data.get("corpora"), CORPORA, "corpora", source)
    backbones, wrong_backbones = components(data.get("backbones"), BACKBONES, "backbones", source)
    heads, wrong_heads = components(data.get("heads"), HEADS, "heads", source)
    problems += wrong_corpora + wrong_backbones + wrong_heads
    facts, wrong_facts = _asked(corpora, lambda corpus: corpus.cls(**corpus.spec.params).facts(), source)
    construction = Construction(source)
    grid = len(backbones) * len(heads) * len(file.seeds if file else "1") + len(file.ngrams if file else "")
    if len(corpora) * grid > MAX_TRIALS:
        problems.append(source.problem((), f"expands to more than {MAX_TRIALS} trials"))
    else:
        construction.check([fact.vocab_size for fact in facts], backbones, [] if wrong_backbones else heads, keep=True)
    problems += wrong_facts + construction.problems
    if file is not None:
        complete = not (wrong_backbones or wrong_heads)
        problems += tuned_rows.problems(file, backbones, heads, source, complete=complete)
    if file is not None and not problems:
        of_ngrams = ngram_components(file.ngrams)
        corpora, wrong_corpora = _named("corpus", corpora, file, source)
        every_backbone, wrong_backbones = _named("backbone", [*backbones, *of_ngrams[0]], file, source)
        every_head, wrong_heads = _named("head", [*heads, *of_ngrams[1]], file, source)
        backbones, of_ngrams = every_backbone[: len(backbones)], (every_backbone[len(backbones) :], of_ngrams[1])
        heads, of_ngrams = every_head[: len(heads)], (of_ngrams[0], every_head[len(heads) :])
        problems = wrong_corpora + wrong_backbones + wrong_heads
    if file is not None and not problems:
        names = {head.written: head.name for head in every_head}
        file = file.model_copy(update={"table": with_baseline(file.table, heads, names)})
        problems += _combination_problems(file, backbones, heads, names, facts, source)
        problems += _too_long(file, backbones, construction.bodies, source)
    # Weights are read completely, so last. Without a vocabulary no backbone was built: a missing one is found here.
    if not problems or not facts:
        contents, missing = _asked([*backbones, *heads], lambda each: starting_content(each.spec, each.cls), source)
        problems += missing
    if problems:
        raise SuiteError(_in_file_order(problems))
    parts = [replace(each, content=found) for each, found in zip([*backbones, *heads], contents, strict=True)]
    backbones, heads = parts[: len(backbones)], parts[len(backbones) :]
    texts = _trained(file, corpora, facts, source)
    known = roles(heads)
    declares_none = "baseline" in data.get("table", {}) and data["table"]["baseline"] is None
    said: list[str] = []
    if file.table.baseline is not None or not declares_none:
        said = control_notes(heads, known, [head.name for head in heads], construction.bodies.values())
    kept = ("name", "version", "core_minutes", "resources", "checkpoint", "timeout", "measure", "table", "match")
    return Suite(
        **{key: getattr(file, key) for key in kept},
        rows=(
            *_rows(file, texts, backbones, heads, known, construction, source),
            *counted(texts, *of_ngrams, source),
        ),
        tune=file.tune,
        overrides=tuple(settings),
        source=source,
        notes=model_notes(facts, backbones, heads, construction),
        control_notes=tuple(said),
    )


def _rows(
    file: SuiteFile,
    texts: Texts,
    backbones: list[Component],
    heads: list[Component],
    known: list[Role],
    construction: Construction,
    source: Source,
) -> list[Row]:
    """Return the rows that are trained: corpora x backbones x heads, matched, then with their points and trials.

    Args:
        known: the role of each head.
    """
    controls = {head.written for head, role in zip(heads, known, strict=True) if role.is_control}
    rows = [
        replace(row, is_control=row.head.written in controls) for row in combined(texts, backbones, heads, construction)
    ]
    if file.match is not None and file.match.time is None:
        rows = matched(file.match, rows, source)
    elif file.match is not None:
        rows = in_equal_time(file.match, rows, source)
    if file.tune is not None:
        return tuned_rows.with_candidates(file, rows, source)
    return with_seeds(rows, file.seeds, source)


def _settings(data: dict[str, Any], source: Source, texts: tuple[str, ...]) -> list[tuple[str, str, str | None]]:
    """Apply every --set, and set `train.data_parallel` for trials on several GPUs: one worker for each GPU.

    Returns: the changes of settings that are part of a trial, as (key, new value, old value).
    """
    before = _workers(data)
    changes = _overrides(data, source, texts)
    workers = _workers(data)
    if workers > 1:
        data["train"].setdefault("data_parallel", workers)
    if workers != before and all(key != "train.data_parallel" for key, *_ in changes):
        changes.append(("train.data_parallel", str(workers), str(before)))
    return changes


def _workers(data: dict[str, Any]) -> int:
    """Return `train.data_parallel`, or else the number of GPUs, as a number of workers; 1 if invalid."""
    resources, train = data.get("resources"), data.get("train")
    gpus = resources.get("gpus") if isinstance(resources, dict) else None
    workers = train.get("data_parallel", gpus) if isinstance(train, dict) else None
    return int(workers) if isinstance(workers, int | float) and workers > 1 and workers % 1 == 0 else 1


def _overrides(data: dict[str, Any], source: Source, texts: tuple[str, ...]) -> list[tuple[str, str, str | None]]:
    """Apply every --set and return the changes of settings that are part of a trial, as (key, new value, old value).

    For a key that is set twice the last value counts. A value that equals the old one and a setting that changes no
    result are not returned.
    """
    of_the_run = {f"train.{name}" for name in DECIDES_NO_RESULT}
    changes: dict[str, tuple[str, str | None]] = {}
    for text in texts:
        key, value, before = _override(data, source, text)
        changes[key] = (value, changes[key][1] if key in changes else before)
    return [
        (key, value, before)
        for key, (value, before) in changes.items()
        if not key.startswith(("resources.", "checkpoint.", "timeout.", "measure."))
        and key not in of_the_run
        and before not in (value, str(value_of(value)))
    ]


def _override(data: dict[str, Any], source: Source, text: str) -> tuple[str, str, str | None]:
    """Apply 'path.to.key=value' to the data; return the key, the new value and the old value."""
    key, value = assignment(text)
    parts = key.split(".")
    if len(parts) > MAX_DEPTH:
        raise SuiteError([f"--set {text}: a key nested more than {MAX_DEPTH} levels deep"])
    target, place = data, ()
    while parts:
        length = _length_of_key(target, parts, place)
        name, parts = ".".join(parts[:length]), parts[length:]
        part = int(name) if name.isdecimal() and len(name) <= MAX_DIGITS else name
        inside = isinstance(part, int) and isinstance(target, list) and part < len(target)
        if not (inside or (isinstance(target, dict) and isinstance(part, str))):
            where = ".".join(map(str, place)) or "the suite"
            known = f", but entries 0 to {len(target) - 1}" if isinstance(target, list) and target else ""
            raise SuiteError([f"--set {text}: {where} has no key '{part}'{known}"])
        place = (*place, part)
        if parts:
            target = target[part] if isinstance(target, list) else target.setdefault(part, {})
    before = target[place[-1]] if isinstance(target, list) else target.get(place[-1])
    target[place[-1]] = value
    source.overridden[place] = text
    if key == "seeds":
        return key, _seeds_text(value), _seeds_text(before)
    return key, text.partition("=")[2], None if before is None else str(before)


def _seeds_text(seeds: Any) -> str:
    """The shortest text that means these seeds: '6' for [1, 2, 3, 4, 5, 6], '[1,5]'."""
    if isinstance(seeds, list):
        return str(len(seeds)) if seeds == list(range(1, len(seeds) + 1)) else f"[{','.join(map(str, seeds))}]"
    return str(seeds)


def _length_of_key(target: Any, parts: list[str], place: Place) -> int:
    """Return how many parts are the next key: keys of tune.space have dots, and the longest one there counts."""
    lengths = range(len(parts), 1, -1) if isinstance(target, dict) else ()
    found = next((length for length in lengths if ".".join(parts[:length]) in target), 1)
    return len(parts) if found == 1 and place == ("tune", "space") and parts[0] not in target else found


def give_name(data: dict[str, Any], path: Path) -> list[str]:
    """Give a suite without a name that of its file, without the ending. Return the problem if there is one."""
    if data.get("name") is not None:
        return []
    if re.fullmatch(SUITE_NAME, path.stem):
        data["name"] = path.stem
        return []
    return [
        f"{path}:1:1: the key 'name' is missing, and the name of the file, '{path.stem}', cannot take its place: "
        "expected lower-case letters, digits, _ and -, at most 64"
    ]


def _named(kind: str, listed: list[Component], file: SuiteFile, source: Source) -> tuple[list[Component], list[str]]:
    """Return all components of a kind with their names in views, and what is wrong with labels."""
    registry, chosen = REGISTRIES[kind], chosen_parameters(kind, file.match, file.tune)
    specs = [each.spec if each.spec.name == NGRAM_HEAD else each.spec.without(chosen) for each in listed]
    problems = label_problems(listed, specs, registry, source, chosen=chosen)
    labels = {str(spec): each.label for each, spec in zip(listed, specs, strict=True) if each.label}
    names = names_of(specs, registry, labels=labels, chosen=chosen)
    pairs = zip(listed, specs, strict=True)
    return [replace(each, name=names[str(spec)], given=spec) for each, spec in pairs], problems


def labels(path: Path) -> dict[str, dict[str, str]]:
    """Return the labels that a suite gives to components: kind -> str(component) as views show it -> label.

    {} where the file cannot be read. A label that a suite may not give is none.
    """
    try:
        if LABEL not in text_of(path):
            return {}  # reading the YAML of a suite takes 20 ms
        data, source = read(path)
    except SuiteError:
        return {}
    found = {}
    sections = {"corpora": ("corpus", CORPORA), "backbones": ("backbone", BACKBONES), "heads": ("head", HEADS)}
    for section, (kind, registry) in sections.items():
        listed, _ = components(data.get(section), registry, section, source)
        own = [each for each in listed if each.label]
        known = known_names(registry) if own else {}
        kept = [each for each in own if not disguise(each, each.spec, registry, known)]
        found[kind] = {str(shown(each.spec, registry)): each.label for each in kept}
    return found


def with_baseline(table: TableSpec, heads: list[Component], names: dict[str, str]) -> TableSpec:
    """Return the settings of the table with the baseline of a suite that gives it by its name in the table, as the plan
    prints it; and of a suite that does not give one.

    Then it is the head that the plan prints as `softmax`; without one, the only softmax without a projection. A softmax
    with a projection is a head of its own in the papers, and of several softmaxes with other parameters none is the
    obvious one: these suites have no baseline until they name it. Neither has a suite of one head.
    """
    if "baseline" in table.model_fields_set:
        named = [text for text, name in names.items() if name == table.baseline]
        return table.model_copy(update={"baseline": named[0]}) if named else table
    texts = list(dict.fromkeys(str(each.spec) for each in heads))
    plain = {
        str(each.spec): None
        for each in heads
        if each.spec.name == PLAIN and not resolved(each.cls, each.spec.params).get("projection")
    }
    only = next(iter(plain)) if len(plain) == 1 else None
    found = PLAIN if PLAIN in plain else only
    return table.model_copy(update={"baseline": found if len(texts) > 1 else None})


def _checked_file(data: dict[str, Any], source: Source) -> tuple[SuiteFile | None, list[str]]:
    problems = []
    try:
        kind = NgramSuiteFile if "ngrams" in data and not OF_TRAINING & data.keys() else SuiteFile
        file = kind.model_validate_json(json.dumps(data))
    except ValidationError as invalid:
        for error in invalid.errors():
            place = tuple(error["loc"])
            if error["type"] == "extra_forbidden":
                others = [key for key in _known_keys(place[:-1]) if key != place[-1]]  # of another tuning method
                message = f"unknown key '{place[-1]}'{nearest(place[-1], others)}"
                problems.append(source.problem(place, message, at_key=True))
            elif error["type"] == "missing":
                problems.append(source.problem(place[:-1], f"the key '{place[-1]}' is missing"))
            elif error["type"] == "string_pattern_mismatch" and place == ("name",):
                shown = json.dumps(error["input"][:64], ensure_ascii=False)
                rule = "expected up to 64 small letters, digits, '_' and '-', with a letter or digit first"
                problems.append(source.problem(place, f"{rule}, got {shown}"))
            else:
                problems.append(source.problem(source.nearest_place(place), sentence(error)))
        return None, list(dict.fromkeys(problems))
    repeated = [i for i, seed in enumerate(file.seeds) if seed in file.seeds[:i]]
    return file, [source.problem(("seeds", i), f"the seed {file.seeds[i]} appears twice") for i in repeated]


def _known_keys(place: Place) -> list[str]:
    """Return the keys that a mapping of the suite file may have."""
    schema = SuiteFile.model_json_schema()
    node = schema
    for part in place:
        named = node.get("properties", {}).get(part) or node.get("additionalProperties") or {}
        node = node.get("items", {}) if isinstance(part, int) else named
        for option in [node, *node.get("anyOf", [])]:
            if "$ref" in option:
                node = schema["$defs"][option["$ref"].rpartition("/")[2]]
    return [key for option in [node, *node.get("anyOf", [])] for key in option.get("properties", {})]


def _asked(
    components: list[Component], question: Callable[[Component], Answer], source: Source
) -> tuple[list[Answer], list[str]]:
    """Return what each component answers, and the problems of those that cannot."""
    answers, problems = [], []
    for component in components:
        try:
            answers.append(question(component))
        except (OSError, ValueError, ComponentError, CorpusError) as error:
            problems.append(component.problem(source, str(error)))
    return answers, problems


def _trained(file: SuiteFile, corpora: list[Component], facts: list[CorpusFacts], source: Source) -> Texts:
    """Return each corpus with its facts, and with how models are trained on it: for epochs or for a number of tokens.

    Raises: SuiteError when a number of tokens does not fit a corpus.
    """
    found, problems, tokens = [], [], file.train.tokens
    for corpus, fact in zip(corpora, facts, strict=True):
        train = file.train.with_epochs(file.train.epochs or 0.0)
        try:
            train = train if tokens is None else in_tokens(tokens, train, fact)
            found.append((replace(corpus, content=fact.content), fact, train))
        except ValueError as error:
            problems.append(source.problem(("train", "tokens"), f"{corpus.spec}: {error}"))
    if problems:
        raise SuiteError(problems)
    return found


def _combination_problems(
    file: SuiteFile,
    backbones: list[Component],
    heads: list[Component],
    named: dict[str, str],
    facts: list[CorpusFacts],
    source: Source,
) -> list[str]:
    problems = []
    if file.train.batching != "blocks" and (frozen := [each for each in backbones if is_frozen(each.spec, each.cls)]):
        message = (
            f"the states of the frozen backbone {frozen[0].spec.name} are kept for blocks of seq_len tokens; set "
            "batching to blocks"
        )
        problems.append(source.problem(source.nearest_place(("train", "batching")), message))
    counted = [fact.num_tokens["train"] for fact in facts if fact.num_tokens is not None]
    smallest = min(counted, default=None)
    if file.train.epochs != 0 and smallest is not None and smallest < 2 * file.train.batch_size:
        message = (
            f"{file.train.batch_size} rows need {2 * file.train.batch_size} training tokens, the corpus has {smallest}"
        )
        problems.append(source.problem(("train", "batch_size"), message))
    gpus, workers = file.resources.gpus, file.train.data_parallel
    if gpus and (gpus if gpus > 1 else 1) != workers:
        message = f"{gpus:g} GPUs do not fit train.data_parallel {workers}: expected one GPU for each worker, or none"
        problems.append(source.problem(("resources", "gpus"), message))
    written = [name for head in heads for name in dict.fromkeys((head.spec.name, str(head.spec)))]
    names = list(dict.fromkeys([*written, *named, *named.values()]))
    if file.table.baseline is not None and file.table.baseline not in names:
        message = f"'{file.table.baseline}' is not a head of this suite{nearest(file.table.baseline, names)}"
        problems.append(source.problem(("table", "baseline"), message))
    return problems


def _too_long(file: SuiteFile, backbones: list[Component], bodies: dict[str, Body], source: Source) -> list[str]:
    """A problem for each backbone that has fewer positions than it reads tokens at a time. The last token of a block is
    only read for the states of a frozen backbone.
    """
    found, place = [], source.nearest_place(("train", "seq_len"))
    for each in backbones:
        blocks = file.train.batching == "blocks" and not is_frozen(each.spec, each.cls)
        read, most = file.train.seq_len - blocks, bodies[str(each.spec)].positions or math.inf
        if read > most:
            found.append(source.problem(place, f"{each.spec} has {most} positions, and reads {read} tokens"))
    return found


def _in_file_order(problems: list[str]) -> list[str]:
    def line_and_column(problem: str) -> tuple[int, ...]:
        numbers = problem.split(": ")[0].split(":")[-2:]
        return tuple(int(number) for number in numbers) if all(part.isdecimal() for part in numbers) else (0, 0)

    return sorted(dict.fromkeys(problems), key=line_and_column)
