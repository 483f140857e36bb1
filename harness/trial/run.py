"""One trial from its spec to its record: build -> fit -> evaluate -> time. The one function to read first is `run`."""

import logging
import platform
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

import harness
from harness import environment, records
from harness.corpora.corpus import Corpus
from harness.kernels import probe, products
from harness.kernels.products import Products, Route
from harness.plan.specs import TrialSpec
from harness.records import Environment, Status, TrialRecord
from harness.registry import CORPORA
from harness.trial.checkpoint import BEST, load_weights, weights_sha256
from harness.trial.evaluation import evaluate, perplexity, unigram_ppl
from harness.trial.graph import graphed
from harness.trial.model import build, count_parameters
from harness.trial.step import refuse_unfit
from harness.trial.timing import Clock, peak_memory_mib, reset_peak_memory
from harness.trial.training import Diverged, Fitted, Progress, fit

LOG_NAME = "trial.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where and how a trial runs: nothing in it changes the result, but for rounding.

    Args:
        suite: the suite's name, noted in the record.
        runs: absolute folder of the suite's records; the trial writes to <runs>/<id> only.
        data: folder of the corpora's files.
        device: 'auto', 'cpu' or 'cuda'; 'auto' is settled by the executor.
        executor: 'ray' or 'inline'.
        threads: torch threads; the trial's CPU cores, set by the executor.
        shared: other trials can run at the same time, as the executor sees it.
        route: of float32 products on the CPU; torch's default one where the worker does not find this one exact.
    """

    suite: str
    runs: Path
    data: Path
    device: str
    executor: str
    threads: int = 1
    shared: bool = False
    route: Route = "default"


def run(spec: TrialSpec, setting: Setting, report: Callable[[Progress], None]) -> TrialRecord:
    """Train, evaluate and time one trial; its record, whatever happens short of being killed.

    A trial that fails is a record too, with its status, one line of message, and the traceback in its log. A record of
    an earlier run of the trial is set aside first.
    """
    folder = records.folder(setting.runs, spec.id)
    records.set_aside(setting.runs, spec.id)
    started, load = environment.now(), environment.load_average()
    if setting.device == "cpu":
        setting = replace(setting, route=probe.proven(setting.route))
    metrics: dict[str, float] = {}  # filled as things are measured, so that a trial that fails keeps what it had
    fitted, digest = Fitted(), None
    status, message = "ok", ""
    with _log(folder) as log, environment.torch_threads(setting.threads):
        log.info("trial %s: %s", spec.id, spec)
        try:
            digest = _measure(spec, setting, metrics, fitted, folder / BEST, report, log)
        except Exception as error:  # at the trial's edge every failure is a status
            status, message = _status(error), f"{type(error).__name__}: {error}".splitlines()[0]
            log.error("%s\n%s", status, traceback.format_exc())
        log.info("%s %s", status, metrics)
    return TrialRecord(
        suite=setting.suite,
        spec=spec,
        status=status,
        metrics=metrics,
        curve=tuple(fitted.curve),
        environment=_environment(setting, fitted, started, load),
        message=message,
        weights_sha256=digest,
    )


def _measure(
    spec: TrialSpec,
    setting: Setting,
    metrics: dict[str, float],
    fitted: Fitted,
    best: Path,
    report,
    log: logging.Logger,
) -> str:
    """Fill `metrics` and `fitted`; returns the digest of the best weights."""
    refuse_unfit(spec.train, setting.device)
    device, multiplied = torch.device(setting.device), Products(route=setting.route)
    reset_peak_memory(device)
    corpus = CORPORA.get(spec.corpus.name)(**spec.corpus.params).load(setting.data)
    model = build(
        spec.backbone, spec.head, vocab_size=corpus.vocab_size, seed=spec.seed, token_counts=corpus.token_counts
    ).to(device)
    metrics |= dict(zip(("params_total", "params_head"), count_parameters(model), strict=True))
    clocks = {"train": Clock(device), "eval": Clock(device)}
    on_device = _moved(corpus, device)
    with products.using(multiplied), multiplied.switched(device):
        fit(
            model,
            on_device,
            spec.train,
            fitted,
            seed=spec.seed,
            best_weights=best,
            clocks=clocks,
            report=_logged(report, log),
            prepare=partial(graphed, tell=log.info),
        )
        metrics |= _scores(model, on_device, spec, fitted, best, clocks["eval"])
    metrics |= {
        "unigram_test_ppl": unigram_ppl(corpus),
        "train_minutes": fitted.train_seconds / 60,
        "best_epoch": fitted.best_epoch,
        "context_tokens": spec.train.seq_len,
        "peak_memory_mib": peak_memory_mib(device),
    }
    if corpus.source_test_nll is not None:
        metrics["source_test_ppl"] = perplexity(corpus.source_test_nll)
    for name, clock in clocks.items():
        metrics |= clock.summary(name)
    return weights_sha256(model.state_dict())


def _scores(model, corpus: Corpus, spec: TrialSpec, fitted: Fitted, best: Path, clock: Clock) -> dict[str, float]:
    """Test perplexity of the last weights, then of the best; the best ones stay in the model."""
    last = evaluate(model, corpus.test, spec.train, uncounted_id=corpus.uncounted_id, clock=clock)
    test = last
    if fitted.best_epoch != spec.train.epochs:
        model.load_state_dict(load_weights(best, corpus.test.device))
        test = evaluate(model, corpus.test, spec.train, uncounted_id=corpus.uncounted_id, clock=clock)
    with torch.no_grad():
        carried = model.backbone(corpus.test[None, :2]).state is not None
    scores = {
        "valid_ppl": fitted.best.ppl,
        "test_ppl": test.ppl,
        "test_ppl_standard": test.ppl_standard,
        "last_valid_ppl": fitted.last.ppl,
        "last_test_ppl": last.ppl,
        "scored_test_tokens": test.num_scored,
        "state_carried": int(carried),
    }
    if not all(torch.isfinite(torch.tensor(list(scores.values()), dtype=torch.float64))):
        raise Diverged(f"test perplexity is {test.ppl} (last epoch: {last.ppl})")
    return scores


def _status(error: Exception) -> Status:
    if isinstance(error, Diverged):
        return "diverged"
    no_memory = isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)
    return "oom" if no_memory else "error"


def _moved(corpus: Corpus, device: torch.device) -> Corpus:
    return Corpus(
        vocab_size=corpus.vocab_size,
        train=corpus.train.to(device),
        valid=corpus.valid.to(device),
        test=corpus.test.to(device),
        uncounted_id=corpus.uncounted_id,
    )


def _logged(report: Callable[[Progress], None], log: logging.Logger) -> Callable[[Progress], None]:
    def both(progress: Progress) -> None:
        if progress.step == progress.steps:
            log.info("%s", progress)
        report(progress)

    return both


@contextmanager
def _log(folder: Path) -> Iterator[logging.Logger]:
    """The trial's own log file, appended to."""
    folder.mkdir(parents=True, exist_ok=True)
    log = logging.getLogger(f"harness.trial.{folder.name}")
    log.setLevel(logging.INFO)
    log.propagate = False
    handler = logging.FileHandler(folder / LOG_NAME, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    log.addHandler(handler)
    try:
        yield log
    finally:
        log.removeHandler(handler)
        handler.close()


def _environment(setting: Setting, fitted: Fitted, started: str, load: float) -> Environment:
    return Environment(
        device=environment.device_name(torch.device(setting.device)),
        threads=setting.threads,
        load_average=round(load, 2),
        shared=setting.shared,
        python=platform.python_version(),
        torch=torch.__version__,
        harness=harness.__version__,
        commit=environment.commit(),
        executor=setting.executor,
        started=started,
        finished=environment.now(),
        matmul_route=setting.route if setting.device == "cpu" else None,
        cuda_graph=fitted.graphed,
    )
