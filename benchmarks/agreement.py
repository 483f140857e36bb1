"""Compare training with the lean loss and with the reference for one epoch of one seed: `python -m
benchmarks.agreement`.

It uses the training of trials: their steps, optimizer, order of segments, carried state and dropout. It prints as JSON
the relative differences of the losses of the first steps, and both validation perplexities. For comparison it also
prints the differences of the reference from itself with the other route of float32 products, which rounds differently.
"""

import argparse
import contextlib
import json
from itertools import pairwise
from pathlib import Path

import torch

from harness import kernels
from harness.corpora.batching import training_segments
from harness.corpora.corpus import Corpus
from harness.kernels import products
from harness.kernels.products import Products, Route, using
from harness.machine.environment import torch_threads
from harness.model import LanguageModel, build
from harness.plan import load
from harness.plan.specs import TrialSpec
from harness.registry import CORPORA
from harness.training.clocks import Clock
from harness.training.evaluation import evaluate
from harness.training.optimizers import make_optimizer
from harness.training.step import EagerStep, Epoch, train_epoch

CLOSE_STEPS = 50
CPU = torch.device("cpu")


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m harness.benchmarks.agreement", description=__doc__.splitlines()[0])
    parser.add_argument("--suite", type=Path, default=Path("suites/ptb_mixtures.yaml"))
    parser.add_argument("--trial", type=int, default=6, help="index of the trial in the suite, from 0")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--steps", type=int, help="number of steps, if less than an epoch")
    parser.add_argument("--set", action="append", default=[], dest="overrides", help="as in harness run: train.lr=1")
    given = parser.parse_args(arguments)
    trials = load(given.suite, tuple(given.overrides)).trials
    if given.trial not in range(len(trials)):
        parser.error(f"--trial {given.trial}: {given.suite} has {len(trials)} trials, 0 to {len(trials) - 1}")
    spec = trials[given.trial]
    corpus = CORPORA.get(spec.corpus.name)(**spec.corpus.params).load(given.data)
    with torch_threads(1):
        found = _compared(spec, corpus, given.steps)
    print(json.dumps({"trial": str(spec), "set": given.overrides, **found}, indent=1))


def _compared(spec: TrialSpec, corpus: Corpus, steps: int | None) -> dict:
    route = products.chosen_route()
    other = "default" if route == "onednn" else "onednn"
    lean, lean_ppl = _trained(spec, corpus, steps, route, contextlib.nullcontext())
    reference, reference_ppl = _trained(spec, corpus, steps, route, kernels.reference_only())
    yardstick, _ = _trained(spec, corpus, min(CLOSE_STEPS, len(lean)), other, kernels.reference_only())
    return {
        "steps": len(lean),
        "route": route,
        "loss, lean against reference, after 1 10 25 50 steps and at most": _differences(lean, reference),
        f"loss, reference against itself by {other}": _differences(yardstick, reference),
        "valid ppl, lean": lean_ppl,
        "valid ppl, reference": reference_ppl,
    }


def _differences(losses: list[float], others: list[float]) -> list[float]:
    """Return the largest relative difference up to each of some steps, and of all steps."""
    apart = [abs(a - b) / b for a, b in zip(losses, others, strict=False)]
    return [float(f"{max(apart[:step]):.2g}") for step in (1, 10, 25, CLOSE_STEPS, len(apart))]


def _trained(spec: TrialSpec, corpus: Corpus, steps: int | None, route: Route, form) -> tuple[list[float], float]:
    """Train one epoch, or fewer steps, within `form`. Return (losses of the steps, validation perplexity)."""
    products = Products(route=route)
    with form, using(products), products.switched(CPU):
        model = build(spec.backbone, spec.head, vocab_size=corpus.vocab_size, seed=spec.seed)
        losses = _losses(model, spec, corpus, steps)
        how = {"uncounted_id": corpus.uncounted_id, "clock": Clock(CPU)}
        score, _ = evaluate(model, corpus.valid, spec.train.evaluation, **how)
        return losses, score.ppl


def _losses(model: LanguageModel, spec: TrialSpec, corpus: Corpus, steps: int | None) -> list[float]:
    """Return the loss of every step of the first epoch, in nats summed over its tokens."""
    train = spec.train
    step = EagerStep(model, make_optimizer(model, train), train)
    segments = training_segments(
        corpus.train, batch_size=train.batch_size, seq_len=train.seq_len, batching=train.batching
    )
    steps, sums = min(steps or len(segments), len(segments)), [0.0]

    def after_step(number: int) -> None:
        sums.append(step.loss_sum.item())

    epoch = Epoch(number=1, segments=segments, seed=spec.seed, shuffle=train.shuffle, steps=steps)
    train_epoch(step, epoch, Clock(CPU), after_step)
    return [after - before for before, after in pairwise(sums)]


if __name__ == "__main__":
    main()
