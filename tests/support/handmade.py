"""Objects made by hand that several tests start from."""

import html
import math
import re
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn

from harness.extensions import is_there
from harness.machine.stop_request import Interrupted, StopRequest
from harness.plan.specs import ComponentSpec, TrainSpec, TrialSpec
from harness.plan.suite_file import CheckpointSpec
from harness.records.record import Certificate, CurvePoint, Environment, Fingerprints, TrialRecord
from harness.training import loop
from harness.training.checkpoint import Checkpoint, Checkpoints, SessionInfo
from harness.training.clocks import Clocks
from harness.training.loop import Training
from harness.training.step import EagerStep
from harness.trial.task import Task

SMALL = """\
name: small
version: 1
corpora:
  - markov: {vocab_size: 12, num_tokens: 400, branching: 3}
backbones:
  - lstm: {d_model: 8, num_layers: 1, dropout: 0.1}
heads:
  - softmax
  - mos: {num_mixtures: 2}
train: {optimizer: adam, lr: 0.01, epochs: 2, batch_size: 4, seq_len: 7}
seeds: [1, 2]
table: {baseline: softmax}
measure: {exclusive: false}
"""
MATCH = "match: {params: softmax, vary: d_model}\n"
MATCHED_VOCAB = 5000
TO_MATCH = f"""\
name: small
version: 1
corpora:
  - markov: {{vocab_size: {MATCHED_VOCAB}, num_tokens: 4000, branching: 3}}
backbones:
  - lstm: {{d_model: 250, num_layers: 1, dropout: 0.1}}
heads:
  - softmax
  - mos: {{num_mixtures: [2, 15]}}
train: {{optimizer: adam, lr: 0.01, epochs: 2, batch_size: 4, seq_len: 7}}
seeds: [1, 2]
"""


SUITE = {
    "name": "suite",
    "version": "1",
    "corpora": "[{markov: {vocab_size: 12, num_tokens: 400, branching: 3}}]",
    "backbones": "[{lstm: {d_model: 8, num_layers: 1}}]",
    "heads": "[softmax]",
    "train": "{optimizer: sgd, lr: 0.5, epochs: 2, batch_size: 4, seq_len: 7}",
    "seeds": "[1]",
}


def suite_text(**keys: str) -> str:
    """The text of a suite of one trial, with what a test gives for its keys, and further keys."""
    return "".join(f"{key}: {value}\n" for key, value in {**SUITE, **keys}.items())


def environment(**changes) -> Environment:
    """Where and by what a trial was run, with what a test changes."""
    values = {
        "device": "a processor",
        "threads": 1,
        "load_average": 0.25,
        "shared": False,
        "python": "3.11.7",
        "torch": "2.13.0",
        "harness": "0.1.0",
        "commit": "abc",
        "executor": "inline",
        "started": "2026-01-02T03:04:05+00:00",
        "finished": "2026-01-02T03:05:05+00:00",
    }
    return Environment(**{**values, **changes})


MEASURED = {  # what every trial that is ok has
    "valid_ppl": 12.0,
    "test_ppl": 11.0,
    "last_valid_ppl": 12.0,
    "last_test_ppl": 11.0,
    "params_total": 780.0,
    "params_head": 108.0,
    "best_epoch": 1.0,
    "scored_test_tokens": 3.0,
    "context_tokens": 7.0,
    "state_carried": 1.0,
}


def curve(epochs: float) -> tuple[CurvePoint, ...]:
    """Of a trial of so many epochs."""
    return tuple(
        CurvePoint(epoch=min(number, epochs), train_loss=3.0 / number, valid_ppl=12.0, lr=0.01, seconds=1.5)
        for number in range(1, math.ceil(epochs) + 1)
    )


def measured(train: TrainSpec, **metrics: float) -> dict[str, float]:
    """The metrics of a trial that is ok, with what a test changes."""
    return {**MEASURED, "best_epoch": min(1.0, train.epochs), **metrics}


def certificate(**changes) -> Certificate:
    """One that holds, with what a test changes."""
    values = {"positions": 64, "sum_error": 2e-7, "nll_gap": 3e-7, "mean_gap": 1e-8, "lowest_nll": 0.0}
    values["drawn"] = {"test": (1, 2)}
    return Certificate(**{**values, "vocab_size": 12, **changes})


def without_certifier(patch: pytest.MonkeyPatch) -> None:
    """Let no process be asked for certificates: each trial has one that holds."""
    if is_there("harness.integrity"):
        patch.setattr("harness.integrity.certifier.certificate", lambda *given, **more: certificate())


def code(**changes) -> Fingerprints:
    """The code of a trial: three hashes of 64 equal digits, with what a test changes."""
    hashes = {"head": "1" * 64, "backbone": "2" * 64, "corpus": "3" * 64}
    return Fingerprints(**{**hashes, **changes})


def record(**changes) -> TrialRecord:
    """A finished trial's record, with what a test changes. One that is ok has all that every such record has."""
    spec = TrialSpec(
        id="0123456789ab",
        corpus=ComponentSpec(name="markov"),
        backbone=ComponentSpec(name="lstm"),
        head=ComponentSpec(name="softmax"),
        train=TrainSpec(optimizer="sgd", lr=1.0, epochs=1, batch_size=2, seq_len=4),
        seed=1,
    )
    values = {"suite": "small", "spec": spec, "status": "ok", "metrics": {}, "weights_sha256": "ab" * 32, **changes}
    train, ok = values["spec"].train, values["status"] == "ok"
    values["metrics"] = measured(train, **values["metrics"]) if ok else values["metrics"]
    made = {"curve": curve(train.epochs) if ok else (), "environment": environment(), "certificate": certificate()}
    return TrialRecord(**{**made, **values})


def task(spec: TrialSpec, runs: Path, **changes) -> Task:
    """A trial on the CPU, in this process."""
    about = {"suite": "tiny", "runs": runs, "data": runs, "device": "cpu", "executor": "inline"}
    return Task(spec=spec, **{**about, **changes})


def matched_suite(*replacements: tuple[str, str], match: str = MATCH) -> str:
    """The text of a suite whose heads are to be matched, with what a test replaces in it."""
    return _replaced(TO_MATCH, replacements) + match


def changed(*replacements: tuple[str, str]) -> str:
    """The text of SMALL with what a test replaces in it."""
    return _replaced(SMALL, replacements)


def _replaced(text: str, replacements) -> str:
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    return text


def count(module: nn.Module) -> int:
    """Scalars in the parameters of a module."""
    return sum(parameter.numel() for parameter in module.parameters())


class SaysCuda(torch.Tensor):
    """A tensor of the CPU that says it is on a GPU, as all that is made of it does: tensor.as_subclass(SaysCuda)."""

    is_cuda = property(lambda self: True)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if wide := kwargs.pop("out_dtype", None):  # no product of the CPU has it
            args = [arg.to(wide) for arg in args]
        return super().__torch_function__(func, types, args, kwargs)


class Host(loop.Host):
    """A model is trained without a trial. Its checkpoints are in a folder; each method may be another one."""

    def __init__(self, folder: Path, **more):
        self.clocks, self.fitted, self.stop = Clocks(torch.device("cpu")), loop.Fitted(), StopRequest()
        self.pace, self.score_start, self.folder = CheckpointSpec(), False, folder
        vars(self).update(more)

    def save(self, position, parts):
        """See harness.training.loop.Host."""
        about = SessionInfo(number=1, started="", elapsed=0.0, peak_memory_mib=0.0, route="default", facts={})
        best = None if self.fitted.best is None else self.fitted.best_epoch
        states = {name: part.state_dict() for name, part in parts.items()}
        made = Checkpoint(trial="0" * 12, position=position, best_epoch=best, session=about, parts=states)
        Checkpoints(self.folder).save(made)

    def save_best(self, weights, epoch, tokens):
        """See harness.training.loop.Host."""
        Checkpoints(self.folder).save_best(weights, epoch)

    def best_weights(self):
        """See harness.training.loop.Host."""
        return Checkpoints(self.folder).best_weights(self.fitted.best_epoch, "cpu")


def training(model, corpus, train: TrainSpec, folder: Path, **host) -> Training:
    """A model that is to be trained, without a trial."""
    return Training(model, corpus, train, seed=1, host=Host(folder, **host))


@contextmanager
def interrupted_before(number: int):
    """Within it the process is interrupted before a training step, counted from 0, which must happen."""
    step, done = EagerStep.advance, []

    def advance(self, *arguments):
        if len(done) == number:
            raise Interrupted
        done.append(1)
        return step(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EagerStep, "advance", advance)
        try:
            yield
        except KeyboardInterrupt:
            return
    raise AssertionError(f"there was no step {number}")


def cells(markdown: str) -> list[dict[str, str]]:
    """The cells of a table by the names of their columns, as a reader of markdown sees them: split at bars that no
    backslash escapes.
    """
    lines = [line.removeprefix("|") for line in markdown.splitlines() if line.startswith("|")]
    parts = [[part.strip() for part in re.findall(r"((?:[^|\\]|\\.)*)\|", line)] for line in lines]
    header, rule, *body = [[html.unescape(re.sub(r"\\(.)", r"\1", part)) for part in row] for row in parts]
    assert all(re.fullmatch(r":?-+:?", part) for part in rule)
    return [dict(zip(header, row, strict=True)) for row in body]


def notes(markdown: str, start: str) -> list[str]:
    """The notes of a table that begin so."""
    return [line.removeprefix("- ") for line in markdown.splitlines() if line.startswith(f"- {start}")]


def printed_cell(**changes):
    """The test perplexity that a paper printed of the softmax, with what a test changes."""
    from harness.report.printed_numbers import PrintedCell

    about = {"corpus": "markov", "backbone": "lstm", "head": "softmax", "params": {}, "metric": "test_ppl"}
    return PrintedCell(**{**about, "value": "100", "weights": "best", "counting": "", "note": "", **changes})


def learned(made: TrialRecord, *valid: float, rates=None, loss: float = 5.0) -> TrialRecord:
    """A record with this curve: a validation perplexity for each epoch, and learning rates."""
    points = (
        CurvePoint(epoch=float(n), train_loss=loss, valid_ppl=ppl, lr=rates[n - 1] if rates else 1.0, seconds=2.0)
        for n, ppl in enumerate(valid, 1)
    )
    return made.model_copy(update={"curve": tuple(points)})


def choice(row, ppl: list[float | None]):
    """The choice of a row whose tuning trials have these validation perplexities; None: the trial failed."""
    return row.choose(dict(zip([each.id for each in row.tuning_trials], ppl, strict=True)))


def chosen(suite, *found: list[float | None] | None):
    """The suite whose rows are tuned, with the validation perplexities of each row's points; None: not finished."""
    from harness.plan.suite import with_choices

    pairs = zip(suite.tuned_rows, found, strict=True)
    return with_choices(suite, [None if ppl is None else choice(row, ppl) for row, ppl in pairs])


def evidence(suite, made=(), printed=None, **more):
    """What is known of a suite: records, printed numbers, and what a test gives more (timings, interrupted)."""
    from harness.report.evidence import Evidence  # here: scipy, which few tests need, takes a second to import
    from harness.report.printed_numbers import PrintedNumbers

    known = {"runs": Path("nowhere"), "timings": {}, "interrupted": frozenset(), "warn": pytest.fail, **more}
    numbers = printed or PrintedNumbers((), ())
    return Evidence(suite=suite, records={record.id: record for record in made}, printed=numbers, **known)


def by_place(lines, found) -> dict:
    """What is known of some rows, by their places among the lines of a table."""
    return {lines.index(row): each for row, each in found.items()}


def findings(suite, made=(), printed=None, **more):
    """What `evidence` of the same arguments says: rows and comparisons."""
    from harness.report.findings import find

    return find(evidence(suite, made, printed, **more))


def tabulated(suite, made=(), printed=None, **more) -> str:
    """The suite's table as markdown."""
    from harness.report import suite_table

    return suite_table.text(suite_table.build(findings(suite, made, printed, **more)))
