"""The notes under a table: what changes a reading of this table. Columns, marks and tests are explained in docs/."""

from collections.abc import Callable, Iterable

from harness.plan.loaded_suite import Suite
from harness.plan.names import shown
from harness.plan.parameters import parameters
from harness.plan.specs import DECIDES_NO_RESULT, ComponentSpec, TrialSpec, value_text
from harness.plan.tuning import epochs_text
from harness.printable import counted
from harness.protocols import Bidirectional
from harness.records.record import TrialRecord
from harness.registry import BACKBONES, CORPORA, Registry
from harness.report.evidence.findings import Findings
from harness.report.evidence.table_rows import Row
from harness.report.table import caveats, comparison_notes, time_notes, tuning_notes
from harness.report.table.content import Note

LEGEND = "What the columns, marks and tests mean: harness docs tables, harness docs statistics."
NGRAMS = (
    "kneser_ney: n-grams, counted once in the training split, without seed and parameters. The context of a word is "
    "within its line; every token except the first of a split is scored."
)
MANY = 4  # commits or numbers of epochs; so many are counted and not listed
ROUTES = {"default": "its default route", "onednn": "oneDNN"}  # of the products on the CPU

BOTH_DIRECTIONS = (
    "A bidirectional backbone is trained as two language models that share the embedding and the head; the loss is the "
    "mean of both. test ppl is of the one that reads from the left, and the best epoch is chosen by it. Neither "
    "perplexity compares with that of a model that is trained in one direction."
)


def notes_of(findings: Findings, of_shape: Iterable[str] = ()) -> list[str]:
    """A sentence or two each: settings, counting, machine, versions, times, caveats, and where the rest is explained.

    Args:
        of_shape: notes on the layout of the table.
    """
    evidence = findings.evidence
    suite, records = evidence.suite, [evidence.records[trial.id] for trial in _finished(findings)]
    return [
        *_training(findings),
        *_backbones(suite, records),
        *_counting(suite, records),
        *of_shape,
        *_matched(suite),
        *tuning_notes.notes(findings),
        *_heads(suite),
        *_machines(records),
        *time_notes.notes(findings),
        *comparison_notes.notes(findings),
        *(Note(f"Printed numbers of {source}.", ("printed",)) for source in evidence.printed.sources),
        *_reproduced(findings),
        *caveats.notes(findings, records),
        *(Note(f"The suite's file says: {text}", level="reading") for text in suite.table.notes),
        LEGEND,
    ]


def conditions(findings: Findings) -> str:
    """Seeds, budget, devices and versions of a table in one line: 'Seeds 1 to 8; 28 epochs; tuned over 6 points a row;
    AMD EPYC, 1 thread; torch 2.13.0+cpu; harness 0.1.0 at 62ac43ef71aa.'
    """
    suite = findings.evidence.suite
    trials = _finished(findings)
    records = [findings.evidence.records[trial.id] for trial in trials]
    if not records:
        return ""
    trained = [trial for trial in trials if not trial.is_ngram]
    seeds = sorted({trial.seed for trial in trained})
    run = len(seeds) > 2 and seeds[-1] - seeds[0] == len(seeds) - 1
    listed = f"{seeds[0]} to {seeds[-1]}" if run else _listed(seeds)
    said = [f"{'Seed' if len(seeds) == 1 else 'Seeds'} {listed}"] if seeds else []
    epochs = dict.fromkeys(counted(trial.train.epochs, "epoch") for trial in trained)
    said += [" or ".join(epochs) if len(epochs) < MANY else "epochs as matched"] if epochs else []
    if suite.tuning is not None:
        most = max(len(row.candidates) for row in suite.tuning.rows)
        said.append(f"tuned over {counted(most, 'point')} a row")
    devices = dict.fromkeys(f"{e.device}, {counted(e.threads, 'thread')}" for e in (r.environment for r in records))
    versions = dict.fromkeys(f"torch {record.environment.torch}" for record in records)
    commits = dict.fromkeys(record.environment.commit for record in records)
    ours = dict.fromkeys(record.environment.harness for record in records)
    of = " or ".join(ours) + f" at {' or '.join(commits)}" if len(commits) < MANY else f"{len(commits)} commits"
    return "; ".join([*said, " or ".join(devices), " or ".join(versions), f"harness {of}"]) + "."


def _finished(findings: Findings) -> list[TrialSpec]:
    """The trials that have a record."""
    return [trial for trial in findings.evidence.suite.trials if trial.id in findings.evidence.records]


def _training(findings: Findings) -> list[str]:
    """'Training: epochs 2, optimizer sgd, lr 7, ...': all settings that decide the result and are not at their default;
    the seeds; and how n-grams are made.
    """
    suite = findings.evidence.suite
    trained = [trial for trial in suite.trials if not trial.is_ngram]
    notes = [] if len(trained) == len(suite.trials) else [NGRAMS]
    if not trained:
        return notes
    settings = trained[0].train.model_dump(exclude_defaults=True, exclude=set(DECIDES_NO_RESULT))
    if "schedule" in settings:
        settings["schedule"] = str(trained[0].train.schedule.way)
    if "precision" in settings:
        settings["precision"] += " (products with the output matrix, in training)"
    texts = {name: f"{value:g}" if isinstance(value, float) else value for name, value in settings.items()}
    if suite.match is not None and suite.match.time is not None:
        texts["epochs"] = "as in its column"
    tuned = tuning_notes.tuned_settings(suite)
    if "epochs" in tuned and "schedule" in texts:
        texts["schedule"] += f" (at {epochs_text(trained[0].train.epochs)}; scaled to the epochs of each row)"
    texts |= dict.fromkeys(tuned, "tuned")
    training = ", ".join(f"{name} {text}" for name, text in texts.items())
    return [f"Training: {training}; {_seeds([row for row in findings.lines if not row.is_ngram])}.", *notes]


def _seeds(rows: list[Row]) -> str:
    """'seeds 1, 2, 3'; where not all have run, 'seeds 1, 2, 3; run so far: 1, 2 in all rows; 3 in 2 of 8 rows'."""
    finished = {trial.seed: 0 for row in rows for trial in row.trials}  # a seed -> in how many rows it has a record
    planned = f"seeds {_listed(finished)}"
    for row in rows:
        for seed in row.records:
            finished[seed] += 1
    if all(number == len(rows) for number in finished.values()):
        return planned
    together: dict[int, list[int]] = {}
    for seed, number in finished.items():
        together.setdefault(number, []).append(seed)
    where = {number: "all rows" if number == len(rows) else f"{number} of {len(rows)} rows" for number in together}
    ran = [f"{_listed(seeds)} in {where[number]}" for number, seeds in together.items() if number]
    return f"{planned}; run so far: {'; '.join(ran) or 'none'}"


def _listed(seeds: Iterable[int]) -> str:
    return ", ".join(map(str, seeds))


def _backbones(suite: Suite, records: list[TrialRecord]) -> list[str]:
    """Each backbone with its parameters and, where a trial has measured it, its context."""
    contexts = {record.id: _context(record) for record in records if record.status == "ok"}
    found: dict[str, dict[str, None]] = {}
    for trial in (trial for trial in suite.trials if not trial.is_ngram):
        of_backbone = found.setdefault(_backbone(suite, trial), {})
        if trial.id in contexts:
            of_backbone[contexts[trial.id]] = None
    notes = [f"{'. Context: '.join([f'Backbone: {name}', *of_backbone])}." for name, of_backbone in found.items()]
    both = any(issubclass(BACKBONES.get(trial.backbone.name), Bidirectional) for trial in suite.trials)
    return [*notes, *([Note(BOTH_DIRECTIONS, level="reading")] if both else [])]


def _backbone(suite: Suite, trial: TrialSpec) -> str:
    varied = suite.match is not None and suite.match.vary in parameters(BACKBONES.get(trial.backbone.name))
    label = _label(suite.compared("backbone", trial), BACKBONES)
    return f"{label}{f', {suite.match.vary} as in its column' if varied else ''}"


def _context(record: TrialRecord) -> str:
    """Which tokens a prediction can depend on."""
    tokens, train = int(record.metrics["context_tokens"]), record.spec.train
    if train.batching == "blocks":
        return f"blocks of {tokens} tokens that do not overlap, no state carried over"
    if train.eval_stride is not None:
        return (
            f"windows of {tokens} tokens that move by {train.eval_stride} and score their last {train.eval_stride}; in "
            f"training, segments of {tokens} tokens, no state carried over"
        )
    carried = "state carried from segment to segment" if record.metrics["state_carried"] else "no state carried over"
    return f"segments of {tokens} tokens, {carried}"


def _counting(suite: Suite, records: list[TrialRecord]) -> list[str]:
    """How the tokens of each corpus are counted, and perplexities that depend on the text only."""
    if not suite.trials:
        return []  # no row is tuned yet
    train, notes = suite.trials[0].train, []
    first = "block" if train.batching == "blocks" else "split"
    part = f", of the first {train.eval_batches} batches of a split" if train.eval_batches is not None else ""
    for key, corpus in {str(trial.corpus): trial.corpus for trial in suite.trials}.items():
        scored = f"every token except the first of a {first} is scored{part}"
        note = f"Counting, {_label(corpus, CORPORA)}: {suite.counting[key]}; {scored}."
        ok = [record.metrics for record in records if record.status == "ok" and str(record.spec.corpus) == key]
        for metric, model in _OF_TEXT.items():
            values = dict.fromkeys(f"{metrics[metric]:.2f}" for metrics in ok if metric in metrics)
            note += f" Test ppl of {model}: {', '.join(values)}." if values else ""
        notes.append(note)
    return notes


_OF_TEXT = {"unigram_test_ppl": "a unigram model", "source_test_ppl": "the process that made the text"}


def _matched(suite: Suite) -> list[str]:
    if suite.match is None:
        return []
    where = "" if suite.match.measured is None else f" The steps were timed on {suite.match.measured}."
    return [f"{suite.match.kind.capitalize()} matched: {suite.match}, within each corpus and backbone.{where}"]


def _heads(suite: Suite) -> list[str]:
    """'Every mos: num_mixtures=3.': what all entries of one head share, because labels show only what differs."""
    entries: dict[str, dict[str, ComponentSpec]] = {}
    for spec in (suite.compared("head", trial) for trial in suite.trials):
        entries.setdefault(spec.name, {})[str(spec)] = spec
    notes = []
    for name, specs in entries.items():
        given = [{key: value_text(value) for key, value in spec.params.items()} for spec in specs.values()]
        common = [f"{key}={text}" for key, text in given[0].items() if all(each.get(key) == text for each in given)]
        if len(given) > 1 and common:
            notes.append(f"Every {name}: {', '.join(common)}.")
    return notes


def _machines(records: list[TrialRecord]) -> list[str]:
    """Device and versions, and when the last trial finished."""
    notes = _distinct(records, _machine)
    if notes:
        notes[-1] += f" The last trial finished {max(record.environment.finished for record in records)}."
    return notes


def _machine(record: TrialRecord) -> str:
    e = record.environment
    products = f", float32 products by {ROUTES[e.matmul_route]}" if e.matmul_route is not None else ""
    graph = ", training steps as a CUDA graph" if e.cuda_graph else ""
    return (
        f"Measured on {e.device}, {counted(e.threads, 'thread')} a trial, torch {e.torch}{products}{graph}, "
        f"Python {e.python}, harness {e.harness} at {e.commit}, executor {e.executor}."
    )


def _reproduced(findings: Findings) -> list[str]:
    """Each printed number that has a tolerance: how far ours is, and why if it is too far."""
    return [
        Note(f"Reproduced, {time_notes.row_name(line, findings.lines)}: {each}.", ("reproduced",))
        for line, numbers in zip(findings.lines, findings.reproduced, strict=True)
        for each in numbers
    ]


def _distinct(records: list[TrialRecord], sentence: Callable[[TrialRecord], str]) -> list[str]:
    return list(dict.fromkeys(sentence(record) for record in records))


def _label(spec: ComponentSpec, registry: Registry) -> str:
    return str(shown(spec, registry))
