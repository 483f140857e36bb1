"""All finished trials of a results folder, in groups of trials that can be compared.

Trials of one group agree in all that decides what a perplexity means, and in the budget:

    corpus      its name and parameters, and the hash of its text, which implies the counting rule
    compat      the switches by which a head computes what a published code does, which is no probability
    pretrained  whether training began at pretrained weights
    bidirectional  whether the model was trained in both directions of reading
    train       every setting except those of COMPARED, which are known not to change what a perplexity means. So
                context, evaluation and epochs separate groups, and so does any setting that is added to `train`

What is compared is in the rows of a group: backbone, head, and the settings of COMPARED. Trials of one row differ in
their seed only; a trial of several suites counts once.
"""

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.errors import RecordError
from harness.plan.identity import described
from harness.plan.names import names_of, shown, with_settings
from harness.plan.parameters import resolved
from harness.plan.specs import (
    COMPARED,
    DECIDES_NO_RESULT,
    ComponentSpec,
    Contents,
    TrainSpec,
    TrialSpec,
    canonical,
    value_text,
)
from harness.protocols import Bidirectional
from harness.records import sidecars, store
from harness.records.contents import confirmed, facts_of, recomputed
from harness.records.record import TrialRecord
from harness.records.replicates import Seeds, result
from harness.records.sidecars import Timing
from harness.registry import BACKBONES, CORPORA, HEADS, Registry
from harness.report import history
from harness.report.convergence import collapsed
from harness.report.grouping import grouped
from harness.report.ranks import rankable
from harness.report.row_facts import RowFacts, sizes, trial_facts
from harness.report.versions import changed

Labels = Mapping[str, Mapping[str, Mapping[str, str]]]  # suite -> what harness.plan.loading.labels returns
TITLED = ("epochs", "seq_len", "batching", "eval_stride", "eval_batches")  # settings that every title says


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A trial with its record: of several, from several suites, the newest that is ok, or else the newest. Those that
    are ok agree: they differ in their times only.

    Args:
        timing: of an exclusive pass; None if it has none.
    """

    record: TrialRecord
    contents: Contents
    timing: Timing | None
    suites: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One row of a group.

    Args:
        training: the settings of training in which the group's rows differ: 'lr=7, batch_size=20'.
        finished: the day of the last of its trials, as in ISO 8601.
    """

    row: RowFacts
    training: str
    suites: tuple[str, ...]
    finished: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Group:
    """Rows that compare, by their mean test perplexity: those that can be ranked, then the others, then collapsed rows,
    then n-grams, then those without an ok trial.

    Args:
        invalid: rows that are left out, since the certificate of a trial failed.
        corpus, content, train: of its trials; in `train` the settings of COMPARED are those of one trial.
        name: of its corpus, among all corpora that trials have.
        compat: the switches of its heads, None where they have none.
        labels: the labels that suites give to its backbones and heads, and what they stand for.
        counting: the counting rule of its corpus; '' where this harness does not know it.
        apart: what differs between this group and others whose titles would be the same without it:
            'eval_batch_size=20'.
    """

    corpus: ComponentSpec
    name: str
    content: str
    train: TrainSpec
    pretrained: bool
    bidirectional: bool
    compat: str | None
    entries: tuple[Entry, ...]
    invalid: tuple[Entry, ...]
    timings: dict[str, Timing]
    counting: str
    labels: Mapping[str, str] = field(default_factory=dict)
    apart: tuple[str, ...] = ()


def gather(
    results: Path, warn: Callable[[str], None], known: Mapping[Path, Mapping[str, TrialRecord]] | None = None
) -> tuple[list[Finished], int, list[str]]:
    """Read all records below a results folder, except those of tuning trials.

    Args:
        warn: called with a sentence for each file that does not verify, each record that is not of its trial, and each
            trial of which two suites have different results.
        known: folder of a suite's records -> those that are in hand, by id: they are not read again.
    Returns: the trials whose text is known; the number of others (records of plug-ins that are not installed, or of
        other versions); and the trials of which two suites have different results, with both. The last two are not
        among the first.
    """
    unknown: set[str] = set()
    found: dict[str, list[Finished]] = {}
    for runs in sorted({place.parent.parent for place in (results.resolve() / "runs").glob(f"*/*/{store.FILE_NAME}")}):
        in_hand = {} if known is None else known.get(runs, {})
        verified, warnings = store.load_all(runs, [each for each in history.trial_ids(runs) if each not in in_hand])
        verified = dict(sorted({**verified, **in_hand}.items()))
        timed, more = sidecars.TIMING.load_all(runs, verified)
        for warning in (*warnings, *more):
            warn(warning)
        for record in (each for each in verified.values() if not each.tuning):
            try:
                contents = confirmed(record)
            except RecordError as misfit:
                warn(str(misfit))
                continue
            if contents is None:
                unknown.add(record.id)
                continue
            timing, suites = timed.get(record.id), (record.suite,)
            each = Finished(record=record, contents=contents, timing=timing, suites=suites)
            found.setdefault(record.id, []).append(each)
    chosen, differing = [], []
    seeds = Seeds(each.record for several in found.values() for each in several)
    for trial, several in found.items():
        two = seeds.contradiction([each.record for each in several])
        if two is None:
            chosen.append(_newest(several))
        else:
            named = [f"{store.folder(store.runs_folder(results, each.suite), trial)} ({result(each)})" for each in two]
            warn(f"trial {trial} has different results in {' and '.join(named)}: it is left out")
            differing.append(f"{trial} ({' and '.join(f'{result(each)} in {each.suite}' for each in two)})")
    return chosen, len(unknown - found.keys()), sorted(differing)


def _newest(found: list[Finished]) -> Finished:
    newest = max(
        found, key=lambda each: (each.record.status == "ok", each.record.environment.finished, each.record.suite)
    )
    return replace(newest, suites=tuple(sorted({each.record.suite for each in found})))


def groups(finished: Iterable[Finished], labels: Labels | None = None) -> tuple[Group, ...]:
    """The trials in groups, by corpus and budget; `labels` are those of their suites."""
    finished, labels = list(finished), labels or {}
    together = grouped((canonical(_conditions(each)), each) for each in finished)
    corpora = {str(trials[0].record.spec.corpus): trials[0].record.spec.corpus for trials in together.values()}
    facts = {name: facts_of(shown(corpus, CORPORA)) for name, corpus in corpora.items()}
    counting = {name: "" if found is None else found.counting for name, found in facts.items()}
    names = names_of(corpora.values(), CORPORA, labels=_given(finished, "corpus", CORPORA, labels))
    made = [_group(trials, counting, names, labels) for _, trials in sorted(together.items())]
    return tuple(sorted(_distinguished(made), key=_place))


def _place(group: Group) -> tuple:
    """The place of a group: by corpus; what is not trained, such as n-grams, comes last."""
    return group.corpus.name, not group.train.epochs, str(group.corpus), group.train.epochs, group.apart


def _conditions(finished: Finished) -> dict[str, object]:
    """What must agree between trials that are compared. A setting separates groups unless it is known not to matter."""
    spec = finished.record.spec
    switches = resolved(HEADS.get(spec.head.name), spec.head.params).get("compat")
    return {
        "corpus": described(spec.corpus, CORPORA.get(spec.corpus.name)),
        "content": finished.contents.corpus,
        "pretrained": is_pretrained(spec, finished.contents),
        "bidirectional": issubclass(BACKBONES.get(spec.backbone.name), Bidirectional),
        "compat": None if switches is None else value_text(switches),
        **spec.train.model_dump(exclude=COMPARED | DECIDES_NO_RESULT),
    }


def _distinguished(made: list[Group]) -> list[Group]:
    """The groups; among those whose titles would be the same each names the settings and the text that differ."""

    def said(group: Group) -> str:
        about = {"pretrained": group.pretrained, "bidirectional": group.bidirectional, "compat": group.compat}
        return canonical({**group.train.model_dump(include=set(TITLED)), **about, "corpus": str(group.corpus)})

    alike = grouped((said(group), group) for group in made)
    named = []
    for together in alike.values():
        known = [_untitled(group) for group in together]
        differing = _differing(known)
        for group, each in zip(together, known, strict=True):
            named.append(replace(group, apart=tuple(f"{name}={each[name]}" for name in differing)))
    return named


def _differing(found: list[Mapping[str, object]]) -> list[str]:
    """The names whose values are not the same in all of them."""
    names = []
    for name in found[0]:
        texts = {value_text(each[name]) for each in found}  # as texts: a set takes no lists
        if len(texts) > 1:
            names.append(name)
    return names


def _untitled(group: Group) -> dict[str, str]:
    """What separates a group from others and is not in every title, as text."""
    train = group.train.model_dump(exclude=COMPARED | DECIDES_NO_RESULT | set(TITLED))
    return {**{name: value_text(value) for name, value in train.items()}, "text": group.content[:12]}


def is_pretrained(spec: TrialSpec, contents: Contents) -> bool:
    """Whether training began at pretrained weights, and not at random ones of an architecture in files."""
    weights = resolved(BACKBONES.get(spec.backbone.name), spec.backbone.params).get("weights")
    return contents.backbone is not None and weights != "random"


def _group(finished: list[Finished], counting: Mapping[str, str], corpora: Mapping[str, str], labels: Labels) -> Group:
    by_seed = sorted(finished, key=lambda each: each.record.spec.seed)
    alike = [recomputed(each.record.spec.model_copy(update={"seed": 0}), each.contents) for each in by_seed]
    lines = grouped(zip(alike, by_seed, strict=True))
    specs = [each.record.spec for each in finished]
    names, of_labels = {"corpus": corpora}, {}
    for kind, registry in {"backbone": BACKBONES, "head": HEADS}.items():
        components = [getattr(spec, kind) for spec in specs]
        known = {str(component): component for component in components}
        given = _given(finished, kind, registry, labels)
        names[kind] = names_of(known.values(), registry, labels=given)
        used = {text: label for text, label in given.items() if names[kind][text] == label}
        of_labels |= {label: with_settings(known[text], registry) for text, label in used.items()}
    differing = _differing([spec.train.model_dump(include=COMPARED) for spec in specs])
    entries = [_entry_of(line, names, differing) for line in lines.values()]
    conditions = _conditions(finished[0])
    return Group(
        corpus=shown(specs[0].corpus, CORPORA),
        name=corpora[str(specs[0].corpus)],
        train=specs[0].train,
        **{name: conditions[name] for name in ("content", "pretrained", "bidirectional", "compat")},
        entries=tuple(sorted((each for each in entries if not each.row.invalid), key=_order)),
        invalid=tuple(sorted((each for each in entries if each.row.invalid), key=_order)),
        timings={each.record.id: each.timing for each in finished if each.timing is not None},
        counting=counting[str(specs[0].corpus)],
        labels=of_labels,
    )


def _given(finished: Iterable[Finished], kind: str, registry: Registry, labels: Labels) -> dict[str, str]:
    """str(spec) -> the label that the last suite of its trials gives, where one does."""
    specs, suites = {}, set()
    for each in finished:
        spec = getattr(each.record.spec, kind)
        specs[str(spec)] = spec
        suites |= {(suite, str(spec)) for suite in each.suites}
    given = {}
    for suite, spec in sorted(suites):
        if label := labels.get(suite, {}).get(kind, {}).get(str(shown(specs[spec], registry))):
            given[spec] = label
    return given


def _entry_of(line: list[Finished], names: Mapping[str, Mapping[str, str]], differing: list[str]) -> Entry:
    found = [each.record for each in line]
    spec, outdated = found[0].spec, changed(found)
    counts = next((each.metrics for each in found if "params_total" in each.metrics), {})
    counted = (int(counts.get("params_total", 0)), int(counts.get("params_head", 0)))
    trials = trial_facts((each.spec for each in found), {each.id: each for each in found}, outdated)
    row = RowFacts(
        **{kind: of[str(getattr(spec, kind))] for kind, of in names.items()},
        trials=trials,
        **sizes(counted, trials),
    )
    train = spec.train.model_dump(include=COMPARED)
    return Entry(
        row=row,
        training=", ".join(f"{name}={value_text(train[name])}" for name in differing),
        suites=tuple(sorted({suite for each in line for suite in each.suites})),
        finished=max(record.environment.finished for record in found)[:10],
    )


def _order(entry: Entry) -> tuple[bool, bool, bool, bool, float, str]:
    """Lowest mean test perplexity first, of rows with a rank, then of rows without; then collapsed rows, n-grams, and
    rows without a finished trial.
    """
    row, values = entry.row, entry.row.values("test_ppl")
    return (
        not values,
        row.is_ngram,
        collapsed(row),
        not rankable(row),
        statistics.fmean(values) if values else 0.0,
        f"{row.backbone} {row.head}",
    )
