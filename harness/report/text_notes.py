"""Notes on the texts of a table: how tokens are counted, what is unknown, what training has read of other splits."""

from harness.corpora.corpus import MANY_UNKNOWN, SPLITS
from harness.corpora.overlap import MANY_SHARED, NOT_APART, NOT_NEW
from harness.plan.names import shown
from harness.plan.specs import ComponentSpec
from harness.plan.suite import Suite
from harness.records.record import TrialRecord
from harness.registry import CORPORA
from harness.report.content import Note
from harness.report.row_facts import RowFacts

_OF_SPLIT = {  # metrics of a split, after its name -> what is said of them
    "tokens": "{:,.0f} tokens",
    "types": "{:,.0f} different",
    "unseen_types": "{:,.0f} of them not in train",
    "unknown_share": "{:.1%} <unk>",
    "in_train": "{:.1%} also in train in runs",
    "lines_in_train": "{:.1%} in whole lines or documents",
    "in_valid": "{:.1%} also in valid in runs",
}
_OF_TEXT = {"unigram_test_ppl": "a unigram model", "source_test_ppl": "the process that made the text"}


def of_counting(suite: Suite, records: list[TrialRecord]) -> list[str]:
    """How the tokens of each text are counted, what simple models reach on it, and why it has no bits per byte."""
    if not suite.trials:
        return []  # no row is tuned yet
    train, notes = suite.trials[0].train, []
    first = "block" if train.batching == "blocks" else "split"
    part = f", of the first {train.eval_batches} batches of a split" if train.eval_batches is not None else ""
    for key, trial in {str(trial.corpus): trial for trial in suite.trials}.items():
        scored = f"every token except the first of a {first} is scored{part}"
        note = f"Counting, {shown(trial.corpus, CORPORA)}: {suite.row_of(trial).facts.counting}; {scored}."
        ok = [record.metrics for record in records if record.status == "ok" and str(record.spec.corpus) == key]
        for metric, model in _OF_TEXT.items():
            values = dict.fromkeys(f"{metrics[metric]:.2f}" for metrics in ok if metric in metrics)
            note += f" Test ppl of {model}: {', '.join(values)}." if values else ""
        if ok and not any("test_bits_per_byte" in metrics for metrics in ok):
            note += _no_bits(trial.corpus, has_unknown=any(metrics.get("test_unknown_share") for metrics in ok))
        notes.append(note)
    return notes


def of_contents(suite: Suite, lines: list[RowFacts]) -> list[str]:
    """What trials found in each split of a text, which is the same in all rows; nothing of older records."""
    notes = []
    for name, facts in suite.corpora.items():
        records = [record for row in lines if row.corpus == name for record in row.records.values()]
        found = next((each.metrics for each in records if "train_tokens" in each.metrics), None)
        if found is not None:
            splits = []
            for split in SPLITS:
                said = [text.format(found[at]) for key, text in _OF_SPLIT.items() if (at := f"{split}_{key}") in found]
                splits.append(f"{split} {', '.join(said)}".replace("%", " %"))
            notes.append(f"Text of {name}: V = {facts.vocab_size:,}; {'; '.join(splits)}.")
    return notes


def _no_bits(corpus: ComponentSpec, *, has_unknown: bool) -> str:
    """Why the trials of a text have no bits per byte; '' for words, and where it is not known, as of older records."""
    has_tokenizer = corpus.params.get("tokenizer") is not None
    if has_unknown and (has_tokenizer or corpus.params.get("level") == "char"):
        return " No bits per byte: some test tokens are unknown."
    if has_tokenizer:
        return " No bits per byte: its tokens do not give back every byte of the text."
    return ""


def of_unknown(lines: list[RowFacts]) -> list[str]:
    """A note on each corpus with many unknown test tokens: all of them are one token."""
    shares: dict[str, float] = {}
    for row in lines:
        shares[row.corpus] = max([shares.get(row.corpus, 0.0), *row.values("test_unknown_share")])
    return [
        Note(
            f"{100 * share:.1f} % of the test tokens of {corpus} are unknown: one token for all that the "
            "vocabulary does not have. test ppl and its comparisons include it; the wide table also has those on "
            "known words.",
            level="reading",
        )
        for corpus, share in shares.items()
        if share > MANY_UNKNOWN
    ]


def of_train(suite: Suite, lines: list[RowFacts]) -> list[str]:
    """A note on each text of a user's own of which training has read a part of the validation or test split, or whose
    validation split has a part of the test split.
    """
    notes = []
    for name, facts in suite.corpora.items():
        if facts.text is None:
            continue  # what published corpora have of it is known
        rows, said = [row for row in lines if row.corpus == name], []
        for split in ("valid", "test"):
            runs = max([*_measured(rows, f"{split}_in_train"), facts.in_train.get(split, 0.0)])
            of_lines = facts.text.lines_in_train.get(split, 0.0)
            if runs > MANY_SHARED:
                said.append(f"{100 * runs:.1f} % of the tokens of {split}, in runs as long as 13 words")
            elif of_lines > MANY_SHARED:
                said.append(f"{100 * of_lines:.1f} % of the text of {split}, in whole lines or documents")
        if said:
            notes.append(Note(f"Also in the training split of {name}: {'; '.join(said)}: {NOT_NEW}.", level="reading"))
        planned = 0.0 if facts.text.of_splits is None else facts.text.of_splits["test"].in_valid or 0.0
        shared = max([*_measured(rows, "test_in_valid"), planned])
        if shared > MANY_SHARED:
            said = f"Also in the validation split of {name}: {100 * shared:.1f} % of the tokens of test, in runs"
            notes.append(Note(f"{said} as long as 13 words: {NOT_APART}.", level="reading"))
    return notes


def _measured(rows: list[RowFacts], metric: str) -> list[float]:
    return [each for row in rows for each in row.values(metric)]
