"""What stands under a table: the conditions its numbers were measured under, from the suite and the records."""

from collections.abc import Callable, Iterable

from harness.plan.parameters import parameters
from harness.plan.specs import DECIDES_NO_RESULT, ComponentSpec, Suite, TrialSpec, value_text
from harness.records.record import TrialRecord
from harness.registry import BACKBONES, CORPORA, Registry
from harness.report.evidence.findings import COMPAT_MARK, UNCERTIFIED_MARK, Findings
from harness.report.evidence.table_rows import Row, shown
from harness.report.table import legend

SHOWN = 5  # of the trials without scores of tokens
ROUTES = {"default": "its default route", "onednn": "oneDNN"}  # of the products on the CPU

UNCERTIFIED = (
    f"{UNCERTIFIED_MARK} not certified: these records were made before trials checked that their perplexity is made of "
    "probabilities (docs/certificates.md). harness run SUITE --force makes them again."
)
INVALID = (
    "invalid: the trial's certificate failed, so its perplexity is not made of probabilities (docs/certificates.md). "
    "A row with such a trial has no means, no rank and no comparisons; the numbers stay in its records."
)


def notes_of(findings: Findings, of_shape: Iterable[str] = ()) -> list[str]:
    """One sentence or two each: budget, counting, what columns and heads mean, machine, what failed, when.

    Args:
        of_shape: those on the table's own shape.
    """
    suite, lines, printed = findings.evidence.suite, findings.lines, findings.evidence.printed
    records = findings.evidence.records
    measured = [records[trial.id] for trial in suite.trials if trial.id in records]
    ok = [record for record in measured if record.status == "ok"]
    seeds = ", ".join(str(seed) for seed in dict.fromkeys(trial.seed for trial in suite.trials))
    corpora = {str(trial.corpus): _told(trial.corpus, CORPORA) for trial in suite.trials}
    notes = [
        f"Training: {_training(suite)}; seeds {seeds}.",
        *dict.fromkeys(_backbone(suite, trial) for trial in suite.trials),
        "valid ppl and test ppl are of the best epoch by validation; ± is the standard deviation over seeds; n counts "
        "ok trials of planned ones.",
        *(f"Counting, {name}: {suite.counting[key]}; {_scored(suite)}." for key, name in corpora.items()),
        *_columns(lines),
    ]
    if any(line.boundary == "sos_eos" for line in lines):
        notes.append("Standard counting: the same summed loss, divided by words and <eos> only.")
    notes += [*legend.of_comparisons(findings), *of_shape]
    if suite.match is not None:
        notes.append(
            f"Parameters matched: {suite.match}, within each corpus and backbone. "
            "Parthiban et al. (2021, main table 5) asked for such comparisons."
        )
    notes += _heads(suite, lines)
    notes += _distinct(
        [r for r in ok if "unigram_test_ppl" in r.metrics],  # not where nothing is trained on
        lambda r: f"Unigram test ppl, {_told(r.spec.corpus, CORPORA)}: {r.metrics['unigram_test_ppl']:.2f}.",
    )
    notes += _distinct(
        [r for r in ok if "source_test_ppl" in r.metrics],
        lambda r: (
            f"Test ppl under the process that made the text, {_told(r.spec.corpus, CORPORA)}: "
            f"{r.metrics['source_test_ppl']:.2f}."
        ),
    )
    notes += _distinct(ok, _context)
    notes += _distinct(measured, _machine)
    notes += dict.fromkeys(f"{each}." for record in measured for each in record.environment.switched_off)
    notes += legend.of_times(findings)
    notes += legend.of_code(findings)
    notes += [
        f"{record.spec} ({record.id}) was trained in {record.environment.sessions} sessions, of which earlier ones ran "
        f"with: {', '.join(record.environment.changed)}."
        for record in measured
        if record.environment.changed
    ]
    notes += _unscored(findings)
    notes += [f"Printed, {source}." for source in printed.sources]
    if any(cell.weights == "last" for cell in printed.cells):
        notes.append("ours - printed: of the weights after the last epoch, which are those the paper tested.")
    notes += [
        f"{record.spec} ({record.id}): {record.status}: {record.message}"
        for record in measured
        if record.status != "ok"
    ]
    if any(line.uncertified for line in lines):
        notes.append(UNCERTIFIED)
    if any(line.invalid for line in lines):
        notes.append(INVALID)
    if measured:
        notes.append(f"Last trial finished {max(record.environment.finished for record in measured)}.")
    return notes


def _unscored(findings: Findings) -> list[str]:
    """Which trials' perplexities nothing beside the record adds up to."""
    found, ok = findings.evidence.unscored, findings.evidence.trials.ok
    if not found:
        return []
    ids = sorted(found)
    more = f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
    return [
        f"No token scores: {len(ids)} of {ok} ok trials ({', '.join(ids[:SHOWN])}{more}): their test_nll.npz is "
        "missing or does not fit, from which test ppl could be computed again."
    ]


def _scored(suite: Suite) -> str:
    """Which tokens are targets in evaluation."""
    train = suite.trials[0].train
    first = "block's" if train.batching == "blocks" else "split's"
    part = f", of the first {train.eval_batches} batches of a split" if train.eval_batches is not None else ""
    return f"every token but a {first} first is scored{part}"


def _columns(lines: list[Row]) -> list[str]:
    """What the columns mean that not every table has."""
    notes, words = [], [line for line in lines if line.values("test_bits_per_character")]
    if any(line.values("start_valid_ppl") for line in lines):
        notes.append("valid ppl before training: of the model as it was built, before the first update.")
    if words:
        notes.append(
            "test ppl/word, test ppl/byte and bits/char: the summed loss behind test ppl, divided by the words, the "
            "bytes (UTF-8) and the characters (in bits) of the same text instead of its tokens."
        )
    if any(line.values("inference_batch") for line in lines):
        notes.append(
            "inference ms/batch: forward with loss, without gradients, of b segments of the test split, the device "
            "synchronised around each; median after warm-up."
        )
    return notes


def _training(suite: Suite) -> str:
    """'epochs 2, optimizer sgd, lr 7, ...': all that decides the result and is not at its default."""
    settings = suite.trials[0].train.model_dump(exclude_defaults=True, exclude=set(DECIDES_NO_RESULT))
    if "schedule" in settings:
        settings["schedule"] = f"plateau, lr times {settings['schedule']['plateau']['factor']:.4g}"
    if "precision" in settings:
        settings["precision"] += " (products with the output matrix, in training)"
    told = {name: f"{value:g}" if isinstance(value, float) else value for name, value in settings.items()}
    return ", ".join(f"{name} {value}" for name, value in told.items())


def _told(spec: ComponentSpec, registry: Registry) -> str:
    return str(shown(spec, registry))


def _backbone(suite: Suite, trial: TrialSpec) -> str:
    varied = suite.match is not None and suite.match.vary in parameters(BACKBONES.get(trial.backbone.name))
    told = _told(suite.compared(trial.backbone), BACKBONES)
    return f"Backbone: {told}{f', {suite.match.vary} as in its column' if varied else ''}."


def _heads(suite: Suite, lines: list[Row]) -> list[str]:
    """What the labels of heads leave out or mark."""
    notes = _shared(suite)
    partitions = [line.head_params.get("num_partitions") for line in lines]
    if any(isinstance(number, int) and number > 1 for number in partitions):
        notes.append(
            "num_partitions P: word x of the first softmax is scored by facet x mod P, x the token id. Ids follow the "
            "first appearance in the training split, a BPE's its merges: both spread frequent words evenly."
        )
    switches = dict.fromkeys(_switches(line) for line in lines if line.compat is not None)
    return notes + [
        f'{COMPAT_MARK} compat {each}: computed as a published code does. Its "probabilities" need not sum to 1: '
        "compare these perplexities with that code's numbers only."
        for each in switches
    ]


def _shared(suite: Suite) -> list[str]:
    """'Every mos: num_mixtures=3.': what the suite gives to all of several entries, whose labels show what differs."""
    entries: dict[str, dict[str, ComponentSpec]] = {}
    for spec in (suite.compared(trial.head) for trial in suite.trials):
        entries.setdefault(spec.name, {})[str(spec)] = spec
    notes = []
    for name, specs in entries.items():
        given = [{key: value_text(value) for key, value in spec.params.items()} for spec in specs.values()]
        common = [f"{key}={text}" for key, text in given[0].items() if all(each.get(key) == text for each in given)]
        if len(given) > 1 and common:
            notes.append(f"Every {name}: {', '.join(common)}.")
    return notes


def _switches(line: Row) -> str:
    """'log_epsilon=1e-08'."""
    return ", ".join(f"{name}={value_text(value)}" for name, value in line.compat.items())


def _distinct(records: list[TrialRecord], sentence: Callable[[TrialRecord], str]) -> list[str]:
    return list(dict.fromkeys(sentence(record) for record in records))


def _context(record: TrialRecord) -> str:
    tokens, train, name = int(record.metrics["context_tokens"]), record.spec.train, record.spec.backbone.name
    if train.batching == "blocks":
        return (
            f"Context, {name}: blocks of {tokens} tokens that do not overlap, nothing carried over: that is all its "
            "context. In training, what fills no block or no batch is dropped."
        )
    if train.eval_stride is not None:
        return (
            f"Context, {name}: windows of {tokens} tokens that move by {train.eval_stride} and score their last "
            f"{train.eval_stride}: context at least {tokens - train.eval_stride} tokens, but where a split begins. "
            f"In training, segments of {tokens} tokens, nothing carried over."
        )
    carried = record.metrics["state_carried"]
    reach = "state carried from segment to segment" if carried else "nothing carried over: that is all its context"
    return f"Context, {name}: segments of {tokens} tokens, {reach}."


def _machine(record: TrialRecord) -> str:
    e = record.environment
    products = f", float32 products by {ROUTES[e.matmul_route]}" if e.matmul_route is not None else ""
    graph = ", training steps as a CUDA graph" if e.cuda_graph else ""
    return (
        f"Measured on {e.device}, {e.threads} thread(s) a trial, torch {e.torch}{products}{graph}, Python {e.python}, "
        f"harness {e.harness} at {e.commit}, executor {e.executor}."
    )
