"""The score of a trained model on a text that no suite reads.

A corpus may have a method `hidden(data) -> Tensor`, which returns the tokens (N,) of such a text, in the vocabulary of
the corpus. Its other splits do not contain them, so that nothing that was tuned or chosen can have seen them.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch

from harness.errors import CorpusError
from harness.plan.specs import TrialSpec
from harness.registry import CORPORA
from harness.training.checkpoint import load_weights
from harness.training.clocks import Clock
from harness.training.evaluation import evaluate
from harness.trial.setup import conditions, load_planned, trained_model, with_exact_route
from harness.trial.task import Task


def fetch(specs: Iterable[TrialSpec], data: Path) -> None:
    """Download the hidden texts of the corpora of some trials, as far as they can be had."""
    for corpus in {str(spec.corpus): spec.corpus for spec in specs}.values():
        source = CORPORA.get(corpus.name)(**corpus.params)
        if hasattr(source, "hidden"):
            with suppress(CorpusError):  # which is reported where the text is scored
                source.hidden(data)


def perplexity(task: Task, best: Path) -> float | None:
    """The perplexity of the weights in `best` on the hidden text of the trial's corpus; None if it has none."""
    source = CORPORA.get(task.spec.corpus.name)(**task.spec.corpus.params)
    if not hasattr(source, "hidden"):
        return None
    task = with_exact_route(task)
    with conditions(task):
        corpus = load_planned(task.spec, task.data, task.contents)
        corpus = replace(corpus, test=source.hidden(task.data), test_bytes=None, test_size=None)
        device = torch.device(task.device)
        model = trained_model(task.spec, corpus, load_weights(best, "cpu")).to(device)
        found, _ = evaluate(model, corpus.to(device), "test", task.spec.train.evaluation, clock=Clock(device))
    return found.ppl
