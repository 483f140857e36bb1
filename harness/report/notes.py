"""What stands under a table: the conditions its numbers were measured under, from the suite and the records."""

from collections.abc import Callable

from harness.plan.specs import Suite
from harness.records import TrialRecord
from harness.report.published import PrintedNumbers
from harness.report.rows import Row


def notes_of(suite: Suite, lines: list[Row], records: dict[str, TrialRecord], printed: PrintedNumbers) -> list[str]:
    """One sentence or two each: budget, counting, what the columns mean, machine, what failed, when."""
    measured = [records[trial.id] for trial in suite.trials if trial.id in records]
    ok = [record for record in measured if record.status == "ok"]
    seeds = ", ".join(str(seed) for seed in dict.fromkeys(trial.seed for trial in suite.trials))
    notes = [
        f"Training: {_training(suite)}; seeds {seeds}.",
        *dict.fromkeys(f"Backbone: {trial.backbone}." for trial in suite.trials),
        "valid ppl and test ppl are of the best epoch by validation; ± is the standard deviation over seeds; n counts "
        "ok trials of planned ones.",
        *(
            f"Counting, {corpus}: {rule}; every token but a split's first is scored."
            for corpus, rule in suite.counting.items()
        ),
    ]
    if any(line.boundary == "sos_eos" for line in lines):
        notes.append("Standard counting: the same summed loss, divided by words and <eos> only.")
    if suite.table.baseline is not None:
        notes.append(
            f"Reduction: ({suite.table.baseline} - head) / {suite.table.baseline}, of mean test ppl over shared seeds."
        )
    notes += _distinct(ok, lambda r: f"Unigram test ppl, {r.spec.corpus}: {r.metrics['unigram_test_ppl']:.2f}.")
    notes += _distinct(
        [r for r in ok if "source_test_ppl" in r.metrics],
        lambda r: (
            f"Test ppl under the process that made the text, {r.spec.corpus}: {r.metrics['source_test_ppl']:.2f}."
        ),
    )
    notes += _distinct(ok, _context)
    notes += _distinct(measured, _machine)
    if any(record.environment.shared for record in measured):
        notes.append("Times were taken while trials shared the machine: compare them within this table only.")
    notes += [f"Printed, {source}." for source in printed.sources]
    if any(cell.weights == "last" for cell in printed.cells):
        notes.append("ours - printed: of the weights after the last epoch, which are those the paper tested.")
    notes += [
        f"{record.spec} ({record.id}): {record.status}: {record.message}"
        for record in measured
        if record.status != "ok"
    ]
    if measured:
        notes.append(f"Last trial finished {max(record.environment.finished for record in measured)}.")
    return notes


def _training(suite: Suite) -> str:
    """'epochs 2, optimizer sgd, lr 7, ...': all that the suite does not leave at its default."""
    settings = suite.trials[0].train.model_dump(exclude_defaults=True)
    if "schedule" in settings:
        settings["schedule"] = f"plateau, lr times {settings['schedule']['plateau']['factor']:.4g}"
    told = {name: f"{value:g}" if isinstance(value, float) else value for name, value in settings.items()}
    return ", ".join(f"{name} {value}" for name, value in told.items())


def _distinct(records: list[TrialRecord], sentence: Callable[[TrialRecord], str]) -> list[str]:
    return list(dict.fromkeys(sentence(record) for record in records))


def _context(record: TrialRecord) -> str:
    tokens = int(record.metrics["context_tokens"])
    carried = record.metrics["state_carried"]
    reach = "state carried from segment to segment" if carried else "nothing carried over: that is all its context"
    return f"Context, {record.spec.backbone.name}: segments of {tokens} tokens, {reach}."


def _machine(record: TrialRecord) -> str:
    e = record.environment
    return (
        f"Measured on {e.device}, {e.threads} thread(s) a trial, torch {e.torch}, Python {e.python}, "
        f"harness {e.harness} at {e.commit}, executor {e.executor}."
    )
