"""Synthetic finished trials for `benchmarks.scale`, with valid records and plausible numbers. No trial is trained.

Every trial has a curve of 40 epochs and the scores of its test tokens. The first trial of each row has an exclusive
timing.
"""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from harness import plan
from harness.plan.loaded_suite import Suite
from harness.plan.specs import TrialSpec
from harness.records import sidecars, store
from harness.records.record import Contents, CurvePoint, Environment, TrialRecord
from harness.records.sidecars import Timing, TokenScores
from harness.registry import CORPORA

EPOCHS, ROWS = 40, 20
SUITE = """\
name: scale
version: 1
corpora: [embedded]
backbones:
  - lstm: {d_model: 48, num_layers: 1, dropout: 0.1}
  - transformer_encoder: {d_model: 64, num_layers: 1, num_heads: 4, d_ff: 64, dropout: 0.1}
heads:
  - softmax
  - sigsoftmax
  - mos: {num_mixtures: [2, 3, 4, 5, 6, 8, 10, 15]}
train: {optimizer: sgd, lr: 7, schedule: {plateau: {factor: 0.5714}}, epochs: EPOCHS, batch_size: 20, seq_len: 35}
seeds: [SEEDS]
table: {baseline: softmax}
"""


def make(folder: Path, trials: int) -> Suite:
    """Make a project folder with a suite of finished trials and its results.

    Raises: ValueError if the number of trials is not a multiple of ROWS.
    """
    seeds, over = divmod(trials, ROWS)
    if over or not seeds:
        raise ValueError(f"{trials} trials are not {ROWS} rows of equally many seeds")
    place = folder / "suites" / "scale.yaml"
    place.parent.mkdir(parents=True)
    text = SUITE.replace("SEEDS", ", ".join(map(str, range(1, seeds + 1)))).replace("EPOCHS", str(EPOCHS))
    place.write_text(text, encoding="utf-8")
    suite = plan.load(place)
    runs = store.runs_folder(folder / "results", suite.name)
    scored = _scored_tokens(suite)
    for spec in suite.trials:
        _finish(suite, spec, runs, scored)
    return suite


def _finish(suite: Suite, spec: TrialSpec, runs: Path, scored: int) -> None:
    """Save a record with plausible numbers, its token scores and its timing."""
    random = np.random.default_rng(int(spec.id, 16))
    total, head = suite.params[spec.id]
    weights = random.bytes(32).hex()
    nll_N = random.gamma(1.5, 3.2, size=scored + 1).astype(np.float32)
    nll_N[0] = math.nan
    ppl = math.exp(nll_N[1:].astype(np.float64).mean())
    curve = tuple(_points(ppl, random))
    record = TrialRecord(
        suite=suite.name,
        spec=spec,
        status="ok",
        metrics={
            "valid_ppl": curve[-1].valid_ppl,
            "test_ppl": ppl,
            "last_valid_ppl": curve[-1].valid_ppl,
            "last_test_ppl": ppl,
            "unigram_test_ppl": 278.08,
            "params_total": total,
            "params_head": head,
            "train_ms_per_batch": random.uniform(5, 20),
            "eval_ms_per_batch": random.uniform(1, 4),
            "train_minutes": sum(point.seconds for point in curve) / 60,
            "peak_memory_mib": random.uniform(400, 600),
            "best_epoch": EPOCHS,
            "scored_test_tokens": scored,
            "context_tokens": spec.train.seq_len,
            "state_carried": int(spec.backbone.name == "lstm"),
        },
        curve=curve,
        environment=_environment(),
        weights_sha256=weights,
        contents=Contents(corpus=suite.contents[str(spec.corpus)]),
    )
    place = store.save(record, runs).with_name(sidecars.TOKEN_NLL.file)
    count_N, offset_N = random.integers(0, 6_000, scored + 1), np.arange(-1, scored) % spec.train.seq_len
    offset_N[0] = -1
    sidecars.save_token_scores(TokenScores(nll=nll_N, count=count_N, offset=offset_N), weights, place)
    if spec.seed == 1:
        sidecars.save_timing(_timing(record), runs)


def _points(ppl: float, random: np.random.Generator) -> Iterator[CurvePoint]:
    """Yield a curve that decreases to a few percent above a perplexity."""
    for epoch in range(1, EPOCHS + 1):
        valid = ppl * (0.9 + 2.0 / epoch) * random.uniform(0.995, 1.005)
        yield CurvePoint(
            epoch=epoch, train_loss=math.log(valid) - 0.1, valid_ppl=valid, lr=7.0, seconds=random.uniform(5, 6)
        )


def _scored_tokens(suite: Suite) -> int:
    """Return the number of scored tokens of the test split."""
    corpus = suite.trials[0].corpus
    return CORPORA.get(corpus.name)(**corpus.params).facts().num_tokens["test"] - 1


def _environment() -> Environment:
    return Environment(
        device="a processor",
        threads=1,
        load_average=0.5,
        shared=True,
        python="3.11.7",
        torch="2.13.0",
        harness="0.1.0",
        commit="0123456789ab",
        executor="ray",
        started="2026-01-02T03:04:05+00:00",
        finished="2026-01-02T03:08:05+00:00",
        matmul_route="onednn",
    )


def _timing(record: TrialRecord) -> Timing:
    names = ("train_ms_per_batch", "eval_ms_per_batch")
    return Timing(
        trial=record.id,
        weights_sha256=record.weights_sha256,
        metrics={name: 0.9 * record.metrics[name] for name in names} | {f"{name}_iqr": 0.1 for name in names},
        batches=60,
        rounds=3,
        pass_id="synthetic",
        device="a processor",
        threads=1,
        torch="2.13.0",
        commit="0123456789ab",
        taken="2026-01-02T04:04:05+00:00",
        busy=0.0,
        shared=False,
    )
