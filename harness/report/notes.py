"""The notes under a table: what changes a reading of this table. Columns, marks and tests are explained in docs/."""

from collections.abc import Iterable

from harness.plan.identity import is_frozen
from harness.plan.names import shown
from harness.plan.parameters import parameters
from harness.plan.specs import DECIDES_NO_RESULT, TrialSpec, value_text
from harness.plan.suite import Suite
from harness.plan.suite_file import DynamicSpec
from harness.plan.tuning import epochs_text, with_setting
from harness.printable import counted
from harness.protocols import Bidirectional
from harness.records.metrics import METRICS
from harness.records.record import UNKNOWN, TrialRecord
from harness.records.replicates import Seeds, result
from harness.records.sidecars import Timing
from harness.registry import BACKBONES
from harness.report import comparison_notes, row_notes, text_notes, versions
from harness.report.comparison_notes import spanned
from harness.report.content import TIME_MARK, UNCERTIFIED_MARK, Note
from harness.report.evidence import Evidence
from harness.report.findings import Findings, all_certified_earlier
from harness.report.grouping import grouped
from harness.report.row_facts import RowFacts, row_name, time_of

LEGEND = "What the columns, marks and tests mean: harness docs tables, harness docs statistics."
NGRAMS = (
    "kneser_ney: n-grams, counted once in the training split, without seed and parameters. The context of a word is "
    "within its line; every token except the first of a split is scored."
)
MANY = 4  # commits or numbers of epochs; so many are counted and not listed
ROUTES = {"default": "its default route", "onednn": "oneDNN"}  # of the products on the CPU

BOTH_DIRECTIONS = (
    "A bidirectional backbone is two language models that share the embedding, the head and the loss; test ppl and the "
    "best epoch are of the one that reads from the left, and compare with no model that is trained in one direction."
)
SHOWN = 5  # of the trials without scores of tokens
ONE_SEED = (
    "One seed: a 95 % interval over blocks of the test text, not over seeds, so that it describes these "
    "trained models and ranks nothing."
)
LAST_EPOCH = "ours - printed: of the weights after the last epoch, which the paper tested."
EARLIER = (
    "certified by earlier rules, in the process that had trained: a head that remembers the text could "
    "pass (harness docs certificates)."
)
ALL_EARLIER = "certified by earlier, weaker rules (harness docs certificates)."
INVALID = (
    "invalid: the certificate of a trial failed, so its perplexity is not computed from probabilities "
    "(harness docs certificates), and its row has no means, no rank and no comparisons."
)
SHARED = f"{TIME_MARK} taken while other work ran on the machine: compare such times within this table only."
OF_STATES = "ms/batch and memory are of the head alone: the states of the frozen backbone are read from files."
NOTED_CORES = 0.05  # other work of fewer cores is rounded to 0.0


def notes_of(findings: Findings, of_shape: Iterable[str] = ()) -> list[str]:
    """A sentence or two each: settings, counting, machine, versions, times, caveats, and where the rest stands."""
    evidence = findings.evidence
    suite, records = evidence.suite, evidence.finished
    return [
        *of_doubt(suite),
        *_training(findings),
        *_backbones(suite, records),
        *(Note(f"{each.text}.", level="warning") for each in suite.notes if each.in_table),
        *(Note(f"{text}.", level="warning") for text in suite.control_notes),
        *text_notes.of_counting(suite, records),
        *text_notes.of_contents(suite, findings.rows),
        *text_notes.of_unknown(findings.rows),
        *text_notes.of_train(suite, findings.rows),
        *of_shape,
        *row_notes.of_match(findings),
        *comparison_notes.of_tuning(findings),
        *row_notes.of_heads(suite),
        *_machines(records),
        *_replicates(evidence),
        *row_notes.of_further(evidence),
        *of_times(findings),
        *_dynamic(findings.rows),
        *comparison_notes.of_comparisons(findings),
        *(Note(f"Printed numbers of {source}.", "printed") for source in evidence.printed.sources),
        *(
            Note(f"Reproduced, {row_name(line, findings.rows)}: {each}.", "reproduced")
            for line, numbers in findings.reproduced.items()
            for each in numbers
        ),
        *caveats(findings, records),
        *(Note(f"The suite's file says: {text}", level="reading") for text in suite.table.notes),
        LEGEND,
    ]


def conditions(findings: Findings) -> str:
    """What a table is of in one line: 'On ptb with lstm; seeds 1 to 8; 28 epochs; tuned over 6 points a row; AMD EPYC,
    1 thread; torch 2.13.0+cpu; harness 0.1.0 at 62ac43ef71aa.'
    """
    suite, records = findings.evidence.suite, findings.evidence.finished
    if not records:
        return ""
    trained = [record.spec for record in records if not record.spec.is_ngram]
    seeds = sorted({trial.seed for trial in trained})
    said = [f"{'seed' if len(seeds) == 1 else 'seeds'} {row_notes.listed(seeds)}"] if seeds else []
    epochs = dict.fromkeys(counted(trial.train.epochs, "epoch") for trial in trained)
    said += [" or ".join(epochs) if len(epochs) < MANY else "epochs as matched"] if epochs else []
    said += _scored(trained, records)
    stages = dict.fromkeys(counted(each.train.finetune.epochs, "epoch") for each in trained if each.train.finetune)
    said += [f"a second stage of at most {' or '.join(stages)}"] if stages else []
    if suite.tune is not None:
        most = max(len(row.candidates) for row in suite.tuned_rows)
        said.append(f"tuned over {counted(most, 'point')} a row")
    elif sum(not row.is_ngram for row in findings.rows) > 1:
        said.append("not tuned")
    where = [record.environment for record in records]
    commits = dict.fromkeys(each.commit for each in where if each.commit != UNKNOWN)
    ours = dict.fromkeys(each.harness for each in where)
    at = f" at {' or '.join(commits)}" if commits else ""
    of = " or ".join(ours) + at if len(commits) < MANY else f"{len(commits)} commits"
    said.append(" or ".join(dict.fromkeys(f"{each.device}, {counted(each.threads, 'thread')}" for each in where)))
    said += [" or ".join(dict.fromkeys(f"torch {each.torch}" for each in where)), f"harness {of}"]
    certified = [ALL_EARLIER.rstrip(".")] if all_certified_earlier(findings.rows) else []
    return "; ".join([_place(findings), *said, *certified]) + "."


def of_doubt(suite: Suite) -> list[str]:
    """Why the numbers of a suite are in doubt, as its file says."""
    doubt = suite.table.doubt.removesuffix(".")
    return [Note(f"These numbers are in doubt: {doubt}.", level="warning")] if doubt else []


def _dynamic(lines: list[RowFacts]) -> list[str]:
    """The settings of dynamic evaluation, which stand in no trial's id."""
    found: dict[str, list[str]] = {}
    for row in lines:
        settings = {DynamicSpec.of_metrics(record.metrics) for record in row.records.values()} - {None}
        texts = set()
        for one in settings:
            texts.add(", ".join(f"{name} {value:g}" for name, value in one))
        for text in sorted(texts):
            found.setdefault(text, []).append(row_name(row, lines))
    if len(found) < 2:
        return [f"Dynamic evaluation: {text}." for text in found]
    several = "; ".join(f"{text}: {', '.join(rows)}" for text, rows in found.items())
    return [
        Note(f"Dynamic evaluation was done with several settings and does not compare: {several}.", level="reading")
    ]


def _place(findings: Findings) -> str:
    """'On ptb and wikitext2 with lstm', 'On 4 corpora': what the rows are trained on, and what is below their heads."""
    corpora = dict.fromkeys(row.corpus for row in findings.rows)
    backbones = dict.fromkeys(row.backbone for row in findings.rows if not row.is_ngram)
    named = ((corpora, "corpora"), (backbones, "backbones"))
    said = [" and ".join(each) if len(each) < MANY else f"{len(each)} {of}" for each, of in named if each]
    return f"On {' with '.join(said)}"


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
    tuned = comparison_notes.tuned_settings(suite)
    for name in tuned:
        settings = with_setting(settings, name, "tuned") if "." in name else settings
    if "schedule" in settings and not any(name.startswith("schedule.") for name in tuned):
        settings["schedule"] = str(trained[0].train.schedule.way)
    if "precision" in settings:
        settings["precision"] += " (products with the output matrix, in training)"
    texts = {name: f"{value:g}" if isinstance(value, float) else value_text(value) for name, value in settings.items()}
    if suite.match is not None and suite.match.by_epochs:
        texts["epochs"] = "as matched" if suite.table.shape == "ladder" else "as in its column"
    if "epochs" in tuned and "schedule" in texts:
        texts["schedule"] += f" (at {epochs_text(trained[0].train.epochs)}; scaled to the epochs of each row)"
    texts |= {name: "tuned" for name in tuned if "." not in name}
    training = ", ".join(f"{name} {text}" for name, text in texts.items())
    return [f"Training: {training}; {_seeds([row for row in findings.rows if not row.is_ngram])}.", *notes]


def _seeds(rows: list[RowFacts]) -> str:
    """'seeds 1, 2, 3'; where not all have run, 'seeds 1, 2, 3; run so far: 1, 2 in all rows; 3 in 2 of 8 rows'."""
    finished = {trial.seed: 0 for row in rows for trial in row.trials}  # a seed -> in how many rows it has a record
    planned = f"seeds {_listed(finished)}"
    for row in rows:
        for seed in row.records:
            finished[seed] += 1
    if all(number == len(rows) for number in finished.values()):
        return planned
    together = grouped((number, seed) for seed, number in finished.items())
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
    label = shown(suite.row_of(trial).backbone.given, BACKBONES)
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
    windows = ""
    if train.batching == "windows":
        windows = f"; in training, windows of {tokens} tokens at random places, no state carried over"
    return f"segments of {tokens} tokens, {carried}{windows}"


def _scored(trained: list[TrialSpec], records: list[TrialRecord]) -> list[str]:
    """How many test tokens were scored, where a setting leaves some out."""
    if all(trial.train.eval_batches is None for trial in trained):
        return []
    numbers = [record.metrics["scored_test_tokens"] for record in records if "scored_test_tokens" in record.metrics]
    return [f"only {min(numbers):,.0f} test tokens scored (`eval_batches`)"] if numbers else []


def _machines(records: list[TrialRecord]) -> list[str]:
    notes = list(dict.fromkeys(map(_machine, records)))
    if notes:
        notes[-1] += f" The last trial finished {max(record.environment.finished for record in records)}."
    return notes


def _replicates(evidence: Evidence) -> list[str]:
    """How the results of trials that were trained more than once agree."""
    if not evidence.replicates:
        return []
    seeds = Seeds(evidence.finished)
    equal, rounded, different = 0, [], []
    for trial, others in evidence.replicates.items():
        record = evidence.records[trial]
        for other in others:
            relation = seeds.relation(record, other)
            if relation == "equal":
                equal += 1
            elif relation == "rounded":
                rounded.append(abs(other.metrics["test_ppl"] / record.metrics["test_ppl"] - 1))
            else:
                name = evidence.suite.trial_name(record.spec)
                different.append(f"{name} ({trial}): {_trained_on(record)}, and {_trained_on(other)}")
    said = [f"{counted(equal, 'time')} with the same bits"] if equal else []
    if rounded:
        most = f"{100 * max(rounded):.2f} %" if max(rounded) >= 1e-4 else "0.01 %"
        within = f"within {most} of the test perplexity"
        said.append(f"{counted(len(rounded), 'time')} {within}, which rounding can cause (harness docs certificates)")
    notes = [f"Trained again elsewhere: {', '.join(said)}."] if said else []
    if different:
        more = f"; and {len(different) - SHOWN} more" if len(different) > SHOWN else ""
        text = (
            f"{counted(len(different), 'other training')} of a trial with a result further apart than rounding explains"
        )
        notes.append(Note(f"{text}: {'; '.join(different[:SHOWN])}{more}.", level="warning"))
    return notes


def _trained_on(record: TrialRecord) -> str:
    e = record.environment
    return f"{result(record)} on {e.device} with {counted(e.threads, 'thread')} and torch {e.torch}"


def _machine(record: TrialRecord) -> str:
    e = record.environment
    products = f", float32 products by {ROUTES[e.matmul_route]}" if e.matmul_route is not None else ""
    graph = ", training steps as a CUDA graph" if e.cuda_graph else ""
    form = ", all logits of a batch stored at once" if "stored" in (e.loss_form or "") else ""
    return (
        f"Measured on {e.device}, {counted(e.threads, 'thread')} a trial, torch {e.torch}{products}{graph}{form}, "
        f"Python {e.python}, harness {e.harness}{_at(e.commit)}, executor {e.executor}."
    )


def caveats(findings: Findings, records: list[TrialRecord]) -> list[str]:
    """What limits the numbers of a table."""
    lines, compared = findings.rows, findings.compared.values()
    found = [Note(INVALID, level="warning")] if any(line.invalid for line in lines) else []
    found += [_compat(line) for line in lines if line.compat is not None]
    if any(each.interval is not None and each.interval.low is not None for each in compared):
        found.append(Note(ONE_SEED, "comparison"))
    if any(cell.weights == "last" for cell in findings.evidence.printed.cells):
        found.append(Note(LAST_EPOCH, "difference"))
    found += [f"{each}." for record in records for each in record.environment.switched_off]
    found += row_notes.of_reading(lines)
    found += row_notes.of_buffers(lines)
    rows = versions.of_rows(((row_name(row, lines), row) for row in lines), findings.evidence.outdated)
    found += [Note(text, level="warning") for text in rows]
    found += _unscored(findings)
    suite = findings.evidence.suite
    failed = [each for each in records if each.status != "ok"]
    texts = [f"{suite.trial_name(each.spec)} ({each.id}): {each.status}: {each.message}" for each in failed]
    found += [Note(text, level="reading") for text in texts]
    found += on_certificates(lines)
    found += _chosen_seeds(records)
    return list(dict.fromkeys(found))


def on_certificates(rows: Iterable[RowFacts]) -> list[str]:
    """What the certificates of rows do not say."""
    rows = list(rows)
    records = [record for row in rows for record in row.ok]
    found = [
        f"{UNCERTIFIED_MARK} {each.spec} ({each.id}): not certified, so its row has no rank: {each.not_certified}."
        for each in records
        if each.not_certified
    ]
    if old := sum(each.uncertified != "" and not each.not_certified for each in records):
        found.append(
            f"{UNCERTIFIED_MARK} {counted(old, 'trial')} of before there were certificates: not certified, so no rank."
        )
    mark = "" if all_certified_earlier(rows) else f"{UNCERTIFIED_MARK} "
    return [*found, *([f"{mark}{EARLIER}"] if any(row.certified_earlier for row in rows) else [])]


def _chosen_seeds(records: list[TrialRecord]) -> list[str]:
    seeds = sorted({each.spec.seed for each in records if not each.tuning})
    if not seeds or seeds[-1] - seeds[0] < len(seeds):
        return []
    text = f"The seeds are {', '.join(map(str, seeds))}, not consecutive numbers: say how they were chosen."
    return [Note(text, level="warning")]


def _compat(row: RowFacts) -> str:
    switches = ", ".join(f"{name}={value_text(value)}" for name, value in row.compat.items())
    return (
        f'{row.head}: compat {switches}, computed as a published code does. Its "probabilities" need not sum to 1: '
        "compare these perplexities with numbers of that code only."
    )


def _unscored(findings: Findings) -> list[str]:
    """Trials whose perplexity cannot be computed again from stored token scores."""
    found, ok = findings.evidence.unscored, findings.evidence.trials.ok
    if not found:
        return []
    ids = sorted(found)
    more = f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
    return [
        f"No token scores: {len(ids)} of {ok} ok trials ({', '.join(ids[:SHOWN])}{more}): test_nll.npz is missing or "
        "does not fit the record."
    ]


def of_times(findings: Findings) -> list[str]:
    """Under which conditions ms/batch was taken: in each exclusive pass, or while trials trained."""
    timings, lines = findings.evidence.timings, findings.rows
    rows_of: dict[str | None, list[RowFacts]] = {}  # the pass that a row's times are of; None: taken while it trained
    threads_of: dict[RowFacts, set[int]] = {}
    left_out: dict[str, int] = {}
    shared = False
    for row in lines:
        timed = [metric.name for metric in METRICS.values() if metric.timed]
        times = [time for name in timed if (time := time_of(row, name, timings)) is not None]
        for pass_id in dict.fromkeys(time.pass_id for time in times):
            rows_of.setdefault(pass_id, []).append(row)
        threads_of[row] = {time.threads for time in times}
        if others := max((time.left_out for time in times), default=0):
            left_out[row_name(row, lines)] = others
        shared = shared or not all(time.exclusive for time in times)
    found = []
    for pass_id, rows in rows_of.items():
        names = "; ".join(row_name(row, lines) for row in rows)
        whose = f"ms/batch of {names}" if len(rows_of) > 1 else "ms/batch"
        how = _while_training(rows, timings) if pass_id is None else _pass(pass_id, rows, timings)
        found.append(f"{whose}: {how}")
    if left_out:
        trials = ", ".join(f"{name} {number}" for name, number in left_out.items())
        found.append(
            "ms/batch leaves out trials of a row that were timed on another device, or with another number of threads, "
            f"than most of it: {trials}."
        )
    backbones = [row.spec.backbone for row in lines if not row.is_ngram]
    frozen = any(is_frozen(each, BACKBONES.get(each.name)) for each in backbones)  # heads trained on kept states
    of_states = [Note(OF_STATES, "time", level="reading")] if frozen else []
    threads = [Note(text, "time", level="reading") for text in _of_threads(threads_of, lines)]
    return [*of_states, *threads, *(Note(text, "time") for text in ([*found, SHARED] if shared else found))]


def _of_threads(threads_of: dict[RowFacts, set[int]], lines: list[RowFacts]) -> list[str]:
    """Which rows were timed with how many threads, where these differ within a corpus and backbone."""
    names: dict[int, list[str]] = {}
    for rows in grouped((row.group, row) for row in threads_of).values():
        if len(set.union(*(threads_of[row] for row in rows))) > 1:
            for row in rows:
                for number in threads_of[row]:
                    names.setdefault(number, []).append(row_name(row, lines))
    said = "; ".join(f"with {counted(number, 'thread')}: {', '.join(names[number])}" for number in sorted(names))
    return [f"{TIME_MARK} times with different numbers of threads do not compare: {said}."] if names else []


def _pass(name: str, rows: list[RowFacts], timings: dict[str, Timing]) -> str:
    taken = [each for each in _timings(rows, timings) if each.pass_id == name]
    one, rounds, batches = taken[0], {each.rounds for each in taken}, {each.batches for each in taken}
    busy = max((each.busy for each in taken if each.busy is not None), default=0.0)
    other_work = f"; other work used {busy:.1f} cores" if busy >= NOTED_CORES else ""
    return (
        f"median ± interquartile range, one model at a time after training, {spanned(rounds)} rounds, "
        f"{spanned(batches)} training batches a model, on {one.device}, {counted(one.threads, 'thread')}, "
        f"torch {one.torch}, harness{_at(one.commit)}, {min(each.taken for each in taken)}{other_work}."
    )


def _at(commit: str) -> str:
    """' at 0123abc'; '' for a harness that is no checkout."""
    return "" if commit == UNKNOWN else f" at {commit}"


def _while_training(rows: list[RowFacts], timings: dict[str, Timing]) -> str:
    """How trials' own times were taken, and whether other work prevented an exclusive pass."""
    disturbed = [each.busy for each in _timings(rows, timings) if each.shared and each.busy is not None]
    why = f" In the exclusive pass, other work used {max(disturbed):.1f} cores." if disturbed else ""
    return f"of each trial while it trained, the mean over seeds.{why}"


def _timings(rows: list[RowFacts], timings: dict[str, Timing]) -> list[Timing]:
    return [timings[trial] for row in rows for trial in row.ids if trial in timings]
