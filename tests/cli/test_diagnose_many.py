"""`harness diagnose` on twenty trials: one progress bar, resumed after an interruption, nothing computed twice."""

import signal
from collections import Counter

import handmade
import pytest
import torch
from rich.progress import Progress

from harness import plan
from harness.cli import models
from harness.diagnostics import catalogue
from harness.diagnostics.diagnostic import Diagnostic
from harness.model import build
from harness.records import store
from harness.training import checkpoint

pytestmark = pytest.mark.system
SUITE = """\
name: twenty
version: 1
corpora: [{markov: {vocab_size: 12, num_tokens: 400, branching: 3}}]
backbones: [{lstm: {d_model: 8, num_layers: 1}}]
heads: [softmax, {mos: {num_mixtures: 2}}]
train: {optimizer: adam, lr: 0.01, epochs: 1, batch_size: 4, seq_len: 7}
seeds: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
"""
NAMES = ("gates", "gradients", "calibration")  # these have no plots
ASK = ("diagnose", "suites/twenty.yaml", *(word for name in NAMES for word in ("--diagnostic", name)))
ALL = 20 * len(NAMES)
STOP = 25  # results before the interruption: eight trials, and one of three of the ninth


@pytest.fixture
def twenty(tmp_path, monkeypatch):
    """Twenty trials with records and the weights that training starts from: nothing is trained."""
    path = tmp_path / "suites" / "twenty.yaml"
    path.parent.mkdir()
    path.write_text(SUITE)
    runs = store.runs_folder(tmp_path / "results", "twenty")
    for spec in plan.load(path).trials:
        model = build(spec.backbone, spec.head, vocab_size=12, seed=spec.seed, token_counts=torch.ones(12))
        weights = model.state_dict()
        store.save(handmade.record(suite="twenty", spec=spec, weights_sha256=checkpoint.weights_sha256(weights)), runs)
        checkpoint.save({"weights": weights}, store.folder(runs, spec.id) / checkpoint.BEST)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def bars(monkeypatch):
    """The progress bars that are made, each with the (completed, total) that it was given."""
    made = []

    class Kept(Progress):
        def __init__(self, *columns, **options):
            super().__init__(*columns, **options)
            made.append([])

        def update(self, task, *, completed, total, description):
            made[-1].append((completed, total))
            super().update(task, completed=completed, total=total, description=description)

    monkeypatch.setattr(models, "Progress", Kept)
    return made


def test_an_interrupted_run_goes_on_and_computes_each_result_once(twenty, harness, bars, monkeypatch):
    computed, asked = Counter(), []
    for name in NAMES:
        each = catalogue.DIAGNOSTICS[name]

        def compute(subject, settings, each=each):
            asked.append(each.name)
            if len(asked) == STOP + 1:
                signal.raise_signal(signal.SIGINT)  # Ctrl-C
            computed[each.name, subject.spec.head.name, subject.spec.seed] += 1
            return each.compute(subject, settings)

        fields = {field: getattr(each, field) for field in Diagnostic.__slots__}
        monkeypatch.setitem(catalogue.DIAGNOSTICS, name, Diagnostic(**{**fields, "compute": compute}))

    stopped = harness(*ASK)
    assert stopped.code == 130
    assert stopped.err == f"interrupted: {STOP} new results stored; the same command goes on\n"
    done = harness(*ASK)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{ALL - STOP} results computed, {STOP} known already\n")
    again = harness(*ASK)
    assert again.out.startswith(f"0 results computed, {ALL} known already\n")

    every = [(name, head, seed) for name in NAMES for head in ("softmax", "mos") for seed in range(1, 11)]
    assert computed == Counter(every)
    first, second, nothing = bars  # one for each command
    assert {total for _, total in first} == {ALL}
    assert max(completed for completed, _ in first) == STOP
    assert {total for _, total in second} == {ALL - STOP}
    assert second[-1] == (ALL - STOP, ALL - STOP)
    assert nothing == []
