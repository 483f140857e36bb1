"""Read a suite file: apply overrides, check everything, expand it to trials.

All problems are collected and reported together, so that a file is not mended one error at a time.
A later check runs only where its answer would not be a consequence of an earlier problem.
"""

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError

from harness.corpora.corpus import CorpusFacts
from harness.corpora.token_files import TextSource
from harness.errors import ComponentError, CorpusError, SuiteError, nearest
from harness.extensions import KEYS, lack_of
from harness.plan import tuned_rows
from harness.plan.components import MAX_TRIALS, Component, Construction, components
from harness.plan.controls import Role, control_notes, roles
from harness.plan.expansion import (
    Texts,
    combined,
    counted,
    for_tokens,
    ngram_components,
    notes_on_passes,
    with_seeds,
)
from harness.plan.identity import is_frozen, starting_content
from harness.plan.labels import check_labels, disguise, known_names
from harness.plan.ladder_rows import check as check_ladder
from harness.plan.ladder_rows import seeds_of, sized, with_shape, with_size_names
from harness.plan.lengths import in_tokens
from harness.plan.match import in_equal_flops, in_equal_time, matched
from harness.plan.model_notes import model_notes
from harness.plan.names import names_of, shown
from harness.plan.overrides import overridden
from harness.plan.parameters import resolved, sentence
from harness.plan.reader import (
    Place,
    Problems,
    namesake,
    read,
    suite_file,
)
from harness.plan.specs import NGRAM_HEAD, SUITE_NAME
from harness.plan.suite import Row, Suite, chosen_parameters
from harness.plan.suite_file import OF_TRAINING, NgramSuiteFile, SuiteFile, TableSpec
from harness.registry import BACKBONES, CORPORA, HEADS, Registry

PLAIN = "softmax"
SECTIONS = {"corpora": CORPORA, "backbones": BACKBONES, "heads": HEADS}
OF_SUITE = (  # keys of the file that a loaded suite has as they are
    "name",
    "version",
    "core_minutes",
    "resources",
    "checkpoint",
    "timeout",
    "measure",
    "table",
    "match",
    "tune",
    "ladder",
)
MATCHES = {"parameters": matched, "FLOPs": in_equal_flops, "training time": in_equal_time}
Answer = TypeVar("Answer")


class Parts(NamedTuple):
    """The components of a suite, each with its place in the file.

    Args:
        faulty: the sections with problems; their lists may lack an entry.
        ngrams: of the n-gram models, which have their own backbones and heads.
    """

    corpora: list[Component]
    backbones: list[Component]
    heads: list[Component]
    faulty: frozenset[str]
    ngrams: tuple[list[Component], list[Component]] = ([], [])


def load(given: str | Path, overrides: tuple[str, ...] = ()) -> Suite:
    """Return the suite of a file, with overrides from the command line ('train.epochs=2') applied.

    Args:
        given: the path of the file, or the name of a suite in the folder suites
            (harness/plan/reader.py).
    Raises: SuiteError with every problem as 'file:line:column: path: what is wrong'. No trial was
        started.
    """
    path = suite_file(given)
    data, source = read(path)
    problems = Problems(source)
    changes = overridden(data, source, overrides)
    file = _parsed(data, path, problems)
    parts = _components(data, problems)
    facts = _asked(parts.corpora, _facts_of, problems)
    construction = _constructed(file, parts, facts, problems)
    if file is not None:
        complete = not parts.faulty & {"backbones", "heads"}
        tuned_rows.check(file, parts.backbones, parts.heads, problems, complete=complete)
    if not problems:  # names need valid parameters
        backbones = with_size_names(parts.backbones, construction, problems)
        parts = parts._replace(backbones=backbones)
    if not problems:
        parts = _named(file, parts, problems)
    if not problems:  # the baseline is given by its name
        file = file.model_copy(update={"table": _with_baseline(with_shape(file), parts)})
        _check_together(file, parts, facts, construction, problems)
    # Weights are read completely, so last. Without a vocabulary no backbone was built: that its
    # files are missing is found here.
    if not problems or not facts:
        parts = _with_contents(parts, problems)
    problems.raise_if_any(in_file_order=True)
    texts = _trained(file, parts.corpora, facts, problems)
    known = roles(parts.heads)
    trained = _rows(file, texts, parts, known, construction, problems)
    return Suite(
        **{key: getattr(file, key) for key in OF_SUITE},
        rows=(*trained, *counted(texts, *parts.ngrams, problems)),
        overrides=tuple(changes),
        source=source,
        notes=(*model_notes(facts, parts.backbones, parts.heads, construction), *notes_on_passes(file, trained)),
        control_notes=tuple(_notes_on_controls(data, parts.heads, known, construction)),
    )


def _rows(
    file: SuiteFile,
    texts: Texts,
    parts: Parts,
    known: list[Role],
    construction: Construction,
    problems: Problems,
) -> list[Row]:
    """Return the rows that are trained: corpora x backbones x heads, matched, then with their
    points and trials.

    Args:
        known: the role of each head.
    """
    pairs = zip(parts.heads, known, strict=True)
    controls = {head.written for head, role in pairs if role.is_control}
    rows = []
    for row in combined(texts, parts.backbones, parts.heads, construction):
        rows.append(replace(row, is_control=row.head.written in controls))
    rows = for_tokens(file.train.tokens, rows, problems)
    if file.match is not None:
        match = MATCHES[file.match.kind]
        rows = match(file.match, rows, problems)
    if file.tune is not None:
        return tuned_rows.with_candidates(file, rows, problems)
    return with_seeds(rows, partial(seeds_of, file), problems)


def _notes_on_controls(
    data: dict[str, Any],
    heads: list[Component],
    known: list[Role],
    construction: Construction,
) -> list[str]:
    # `baseline: null` says that nothing is to be compared: then no control is missing.
    table = data.get("table", {})
    if "baseline" in table and table["baseline"] is None:
        return []
    names = [head.name for head in heads]
    return control_notes(heads, known, names, construction.bodies.values())


def _parsed(data: dict[str, Any], path: Path, problems: Problems) -> SuiteFile | None:
    """Return the checked content of a suite file; None where it is not valid."""
    if data.get("name") is None and re.fullmatch(SUITE_NAME, path.stem):
        data["name"] = path.stem
    file = _checked_file(data, problems)
    if data.get("name") is None:
        fault = f"the name of the file, '{path.stem}', cannot take its place"
        expected = "expected lower-case letters, digits, _ and -, at most 64"
        problems.add((), f"the key 'name' is missing, and {fault}: {expected}")
    if file is None:
        return None
    for index, seed in enumerate(file.seeds):
        if seed in file.seeds[:index]:
            problems.add(("seeds", index), f"the seed {seed} appears twice")
    if (other := namesake(path, file.name)) is not None:
        fault = f"'{file.name}' is the name of {other}, and both would write the same table"
        problems.add(("name",), f"{fault}; rename it: {path.stem}")
    return file


def _checked_file(data: dict[str, Any], problems: Problems) -> SuiteFile | None:
    only_ngrams = "ngrams" in data and not OF_TRAINING & data.keys()
    try:
        # As JSON, which has no types of Python: strict fields take the list of a file for a tuple.
        kind = NgramSuiteFile if only_ngrams else SuiteFile
        return kind.model_validate_json(json.dumps(data))
    except ValidationError as invalid:
        for error in invalid.errors():
            _add_error(error, problems)
        return None


def _add_error(error: dict[str, Any], problems: Problems) -> None:
    """Add one of pydantic's errors, in the words of this project."""
    place = tuple(error["loc"])
    if error["type"] == "extra_forbidden":
        # A key of another tuning method is known, and no proposal for itself.
        others = [key for key in _known_keys(place[:-1]) if key != place[-1]]
        message = f"unknown key '{place[-1]}'{nearest(place[-1], others)}"
        problems.add(place, message, at_key=True)
    elif error["type"] == "missing":
        problems.add(place[:-1], f"the key '{place[-1]}' is missing")
    elif error["type"] == "string_pattern_mismatch" and place == ("name",):
        shown = json.dumps(error["input"][:64], ensure_ascii=False)
        rule = "expected up to 64 small letters, digits, '_' and '-', with a letter or digit first"
        problems.add(place, f"{rule}, got {shown}")
    else:
        problems.add(problems.source.nearest_place(place), sentence(error))


def _known_keys(place: Place) -> list[str]:
    """Return the keys that a mapping of the suite file may have."""
    schema = SuiteFile.model_json_schema()
    node = schema
    for part in place:
        named = node.get("properties", {}).get(part) or node.get("additionalProperties") or {}
        node = node.get("items", {}) if isinstance(part, int) else named
        # `anyOf` is an optional key's: itself or null
        for option in [node, *node.get("anyOf", [])]:
            if "$ref" in option:
                node = schema["$defs"][option["$ref"].rpartition("/")[2]]
    keys = []
    for option in [node, *node.get("anyOf", [])]:
        keys += option.get("properties", {})
    return keys


def _components(data: dict[str, Any], problems: Problems) -> Parts:
    """Return the components that the file names."""
    found, faulty = [], set()
    for section, registry in SECTIONS.items():
        before = len(problems)
        found.append(components(data.get(section), registry, section, problems))
        if registry is BACKBONES and len(problems) == before:
            found[-1] = sized(found[-1], data.get("ladder"), problems)
        if len(problems) > before:
            faulty.add(section)
    return Parts(*found, faulty=frozenset(faulty))


def _facts_of(corpus: Component) -> CorpusFacts:
    return corpus.cls(**corpus.spec.params).facts()


def _asked(
    components: list[Component],
    question: Callable[[Component], Answer],
    problems: Problems,
) -> list[Answer]:
    """Return what each component answers; those that cannot have a problem and no answer."""
    answers = []
    for component in components:
        try:
            answers.append(question(component))
        except (OSError, ValueError, ComponentError, CorpusError) as error:
            component.report(problems, str(error))
    return answers


def _constructed(
    file: SuiteFile | None,
    parts: Parts,
    facts: list[CorpusFacts],
    problems: Problems,
) -> Construction:
    """Build every combination of components once, unless there are too many."""
    asks = file is not None and (file.ladder or (file.match and file.match.flops))
    construction = Construction(problems, batch=file.train.batch_shape if asks else None)
    seeds, ngrams = (len(file.seeds), len(file.ngrams)) if file is not None else (1, 0)
    models = len(parts.backbones) * len(parts.heads)
    if len(parts.corpora) * (models * seeds + ngrams) > MAX_TRIALS:
        problems.add((), f"expands to more than {MAX_TRIALS} trials")
        return construction
    # A backbone with a problem has lost a parameter, and no head is judged by what is built then.
    heads = [] if "backbones" in parts.faulty else parts.heads
    sizes = [fact.vocab_size for fact in facts]
    construction.check(sizes, parts.backbones, heads, keep=True)
    return construction


def _named(file: SuiteFile, parts: Parts, problems: Problems) -> Parts:
    """Return the components with their names in views, those of n-gram models with them."""
    backbones, heads = ngram_components(file.ngrams)
    # No two rows of a table have the same name, so all of a kind are named together.
    every_backbone = _with_names([*parts.backbones, *backbones], BACKBONES, file, problems)
    every_head = _with_names([*parts.heads, *heads], HEADS, file, problems)
    trained_backbones, trained_heads = len(parts.backbones), len(parts.heads)
    return parts._replace(
        corpora=_with_names(parts.corpora, CORPORA, file, problems),
        backbones=every_backbone[:trained_backbones],
        heads=every_head[:trained_heads],
        ngrams=(every_backbone[trained_backbones:], every_head[trained_heads:]),
    )


def _with_names(
    listed: list[Component],
    registry: Registry,
    file: SuiteFile,
    problems: Problems,
) -> list[Component]:
    """Return components of a kind with their names, and check their labels."""
    chosen = chosen_parameters(registry.kind, file.match, file.tune)
    specs, labels = [], {}
    for each in listed:
        # Matching and tuning choose nothing of an n-gram model, whatever its parameters are called.
        spec = each.spec if each.spec.name == NGRAM_HEAD else each.spec.without(chosen)
        specs.append(spec)
        if each.label:
            labels[str(spec)] = each.label
    check_labels(listed, specs, registry, problems, chosen=chosen)
    names = names_of(specs, registry, labels=labels, chosen=chosen)
    pairs = zip(listed, specs, strict=True)
    return [replace(each, name=names[str(spec)], given=spec) for each, spec in pairs]


def labels(path: Path) -> dict[str, dict[str, str]]:
    """Return the labels that a suite gives: kind -> str(component) as views show it -> label.

    {} where the file cannot be read. A label that a suite may not give is none.
    """
    try:
        data, source = read(path)
    except SuiteError:
        return {}
    found = {}
    for section, registry in SECTIONS.items():
        of_kind = found[registry.kind] = {}
        listed = components(data.get(section), registry, section, Problems(source))
        labelled = [each for each in listed if each.label]
        if not labelled:  # the names of the harness take long to find
            continue
        known = known_names(registry)
        for each in labelled:
            if not disguise(each, each.spec, registry, known):
                of_kind[str(shown(each.spec, registry))] = each.label
    return found


def _with_baseline(table: TableSpec, parts: Parts) -> TableSpec:
    """Return the settings of the table with the baseline as the suite writes its head, where the
    file gives it by its name in the table; and with one where the file gives none.

    Then it is the head that the plan prints as `softmax`; without one, the only softmax without a
    projection. A softmax with a projection is a head of its own in the papers, and of several
    softmaxes with other parameters none is the obvious one: these suites have no baseline until
    they name it. Neither has a suite of one head.
    """
    if "baseline" in table.model_fields_set:
        for head in (*parts.heads, *parts.ngrams[1]):
            if head.name == table.baseline:
                return table.model_copy(update={"baseline": head.written})
        return table
    written, plain = set(), set()
    for head in parts.heads:
        written.add(str(head.spec))
        has_projection = resolved(head.cls, head.spec.params).get("projection")
        if head.spec.name == PLAIN and not has_projection:
            plain.add(str(head.spec))
    found = None
    if PLAIN in plain:
        found = PLAIN
    elif len(plain) == 1:
        (found,) = plain
    return table.model_copy(update={"baseline": found if len(written) > 1 else None})


def _check_together(
    file: SuiteFile,
    parts: Parts,
    facts: list[CorpusFacts],
    construction: Construction,
    problems: Problems,
) -> None:
    """Check settings that are valid alone against the components and against each other."""
    train = file.train
    for (section, key), module in KEYS.items():
        part = getattr(file, section)
        is_asked = getattr(part, key) != type(part).model_fields[key].default
        if is_asked and (lack := lack_of(module)):
            problems.add((section, key), f"it {lack}")
    frozen = [each for each in parts.backbones if is_frozen(each.spec, each.cls)]
    if frozen and train.batching != "blocks":
        states = f"the states of the frozen backbone {frozen[0].spec.name}"
        message = f"{states} are kept for blocks of seq_len tokens; set batching to blocks"
        problems.add(problems.source.nearest_place(("train", "batching")), message)
    counted = [fact.num_tokens["train"] for fact in facts if fact.num_tokens is not None]
    smallest, fewest = min(counted, default=math.inf), 2 * train.batch_size
    if train.epochs != 0 and smallest < fewest:  # a column needs a token to read and one to predict
        need = f"{train.batch_size} rows need {fewest} training tokens"
        problems.add(("train", "batch_size"), f"{need}, the corpus has {smallest}")
    gpus, workers = file.resources.gpus, train.data_parallel
    if gpus and max(gpus, 1) != workers:  # several trials may share a GPU, but no two workers
        fault = f"{gpus:g} GPUs do not fit train.data_parallel {workers}"
        problems.add(("resources", "gpus"), f"{fault}: expected one GPU for each worker, or none")
    _check_baseline(file.table.baseline, parts, problems)
    check_ladder(file, problems)
    place = problems.source.nearest_place(("train", "seq_len"))
    for each in parts.backbones:
        # The last token of a block is a target only, but the states of a frozen backbone have it.
        is_short = train.batching == "blocks" and each not in frozen
        tokens = train.seq_len - 1 if is_short else train.seq_len
        most = construction.bodies[str(each.spec)].positions or math.inf
        if tokens > most:
            problems.add(place, f"{each.spec} has {most} positions, and reads {tokens} tokens")


def _check_baseline(baseline: str | None, parts: Parts, problems: Problems) -> None:
    """A baseline may be given as a head is registered, as the plan prints it, or by its name."""
    every = [*parts.heads, *parts.ngrams[1]]
    names: list[str] = []
    for head in parts.heads:
        names += head.spec.name, str(head.spec)
    names += [head.written for head in every]
    names += [head.name for head in every]
    if baseline is not None and baseline not in names:
        near = nearest(baseline, list(dict.fromkeys(names)))
        problems.add(("table", "baseline"), f"'{baseline}' is not a head of this suite{near}")


def _with_contents(parts: Parts, problems: Problems) -> Parts:
    """Return the parts with the hashes of the files that they start from."""
    trained = [*parts.backbones, *parts.heads]
    contents = _asked(trained, lambda each: starting_content(each.spec, each.cls), problems)
    if problems:
        return parts
    pairs = zip(trained, contents, strict=True)
    found = [replace(each, content=content) for each, content in pairs]
    number = len(parts.backbones)
    return parts._replace(backbones=found[:number], heads=found[number:])


def _counts_of(corpus: Component) -> dict[str, int] | None:
    return corpus.cls(**corpus.spec.params).count_tokens()


def _with_counts(
    corpora: list[Component],
    facts: list[CorpusFacts],
    problems: Problems,
) -> list[CorpusFacts]:
    """Return the facts with the number of tokens of texts that have to be tokenised for it."""
    found = []
    for corpus, fact in zip(corpora, facts, strict=True):
        if fact.num_tokens is None and issubclass(corpus.cls, TextSource):
            counts = _asked([corpus], _counts_of, problems)
            fact = replace(fact, num_tokens=counts[0] if counts else None)
        found.append(fact)
    problems.raise_if_any()
    return found


def _trained(
    file: SuiteFile,
    corpora: list[Component],
    facts: list[CorpusFacts],
    problems: Problems,
) -> Texts:
    """Return each corpus with its facts, and with how models are trained on it: for epochs or for a
    number of tokens.

    Raises: SuiteError when a number of tokens does not fit a corpus.
    """
    found, tokens = [], file.train.tokens
    if tokens is not None:
        facts = _with_counts(corpora, facts, problems)
    for corpus, fact in zip(corpora, facts, strict=True):
        train = file.train.with_epochs(file.train.epochs or 0.0)
        try:
            train = in_tokens(tokens, train, fact) if isinstance(tokens, int) else train
        except ValueError as error:
            problems.add(("train", "tokens"), f"{corpus.spec}: {error}")
        found.append((replace(corpus, content=fact.content), fact, train))
    problems.raise_if_any()
    return found
