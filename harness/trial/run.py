"""One trial from its spec to its record: build -> fit -> evaluate -> time. The one function to read first is `run`."""

import logging
import math
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from harness.containment.calls import contained, first_line, from_outside
from harness.corpora.corpus import Corpus
from harness.errors import CorpusError, StorageError
from harness.kernels import probe
from harness.model import LanguageModel, build, components, count_parameters
from harness.plan.specs import TrialSpec
from harness.printable import sentence
from harness.records import store, token_nll
from harness.records.certificate import Certificate
from harness.records.plausible import most
from harness.records.record import Status, TrialRecord
from harness.training.checkpoint import Checkpoints, weights_sha256
from harness.training.clocks import Clock, peak_memory_mib, reset_peak_memory
from harness.training.cuda_graph import graphed
from harness.training.data_parallel import LostWorker, Workers, parallel
from harness.training.evaluation import TokenNll, evaluate, references, refuse_stride, state_of, text_scores
from harness.training.loop import Diverged, Fitted, Training
from harness.training.progress import Progress
from harness.training.step import refuse_unfit
from harness.trial import attempt, session
from harness.trial.certify import certify, segments_to_sample
from harness.trial.conditions import conditions
from harness.trial.failures import refuse_hopeless, status_of
from harness.trial.inference import inference_times
from harness.trial.log import trial_log
from harness.trial.session import Session
from harness.trial.setting import Setting
from harness.trial.sources import load_planned
from harness.trial.watch import Watch

RESUMABLE = ("timeout", "oom")  # failures that say nothing of the trial itself: its checkpoints stay


def run(
    spec: TrialSpec,
    setting: Setting,
    report: Callable[[Progress], None],
    replaces: str | None = None,
    workers: Workers | None = None,
) -> TrialRecord:
    """Train, evaluate and time one trial, from its newest checkpoint where it has one; its record, which is saved.

    A trial that fails is a record too, with its status, one line of message, and the traceback in its log. Waits while
    another process has the trial, and then takes its record.

    Args:
        replaces: digest of the record that is to be replaced; any other one that is found is the result.
        workers: of which this is the first; the others are in harness.trial.follow.follow.
    Raises: StorageError when the trial's folder cannot be written, as on a full disk, CorpusError when its corpus
        cannot be had where it runs, LostWorker: it goes on from its checkpoint another time; KeyboardInterrupt passes
        through.
    """
    folder = store.folder(setting.runs, spec.id)
    with store.writing(setting.runs, spec.id):
        known, _ = store.load_all(setting.runs, [spec.id])
        if spec.id in known and store.digest(known[spec.id]) != replaces:
            tidy(folder, known[spec.id].status)
            return known[spec.id]
        store.set_aside(setting.runs, spec.id)
        with trial_log(folder) as log:
            record = _attempted(spec, setting, report, folder, log, workers or Workers())
        store.save(record, setting.runs)
        tidy(folder, record.status)
        return record


def tidy(folder: Path, status: Status) -> None:
    """Remove what a finished trial needs no more. `attempt.json` goes last: while it is there, this is not done."""
    if status not in RESUMABLE:
        Checkpoints(folder).remove()
    attempt.end(folder)


def _attempted(
    spec: TrialSpec,
    setting: Setting,
    report: Callable[[Progress], None],
    folder: Path,
    log: logging.Logger,
    workers: Workers,
) -> TrialRecord:
    log.info("trial %s: %s", spec.id, spec)
    checkpoints = Checkpoints(folder, log.warning)
    if setting.fresh and not attempt.follows(folder, setting.driver):
        checkpoints.remove()
    state = _taken_up(checkpoints, spec, log)
    setting = routed(setting, state)
    traces = attempt.stuck(folder) if attempt.follows(folder, setting.driver) else ""
    this = attempt.begin(folder, setting.driver, (state["epoch"], state["step"]) if state else (1, 0))
    current = Session(setting, spec, state)
    for each in current.switched_off:
        log.warning("%s", each)
    metrics: dict[str, float] = {}  # filled as things are measured, so that a trial that fails keeps what it had
    fitted, digest, certificate = Fitted(), None, None
    if state is not None:
        fitted.resume(state["fitted"])
    status, message = "ok", ""
    try:
        refuse_hopeless(this, traces, log)
        workers.first_says(*this.position)
        with Watch(setting, folder, current.elapsed) as watch, contained(components(spec), log.warning):
            digest, certificate = measure(
                spec, current, watch, metrics, fitted, checkpoints, state, report, log, workers
            )
        if (fault := certificate.fault) is not None:
            status, message = "invalid", fault
    except (StorageError, CorpusError) as fault:
        log.error("interrupted: %s", fault)
        raise
    except Exception as error:  # at the trial's edge every failure is a status
        if workers.explains(error):
            log.error("interrupted: another worker of this trial is gone")
            raise LostWorker(sentence(str(error))) from error
        status, message = status_of(error), first_line(error)
        log.error("%s\n%s", status, traceback.format_exc())
    record = TrialRecord(
        suite=setting.suite,
        spec=spec,
        status=status,
        metrics=metrics,
        curve=tuple(fitted.curve),
        environment=current.environment(graphed=fitted.graphed, retries=setting.retries + this.retries),
        message=message,
        weights_sha256=digest,
        contents=setting.contents_of(spec),
        certificate=certificate,
        code=current.code,
    )
    record = store.measured(record)
    log.info("%s %s", record.status, metrics)
    return record


def measure(
    spec: TrialSpec,
    current: Session,
    watch: Watch,
    metrics: dict[str, float],
    fitted: Fitted,
    checkpoints: Checkpoints,
    state: dict[str, Any] | None,
    report: Callable[[Progress], None],
    log: logging.Logger,
    workers: Workers,
) -> tuple[str, Certificate | None]:
    """Fill `metrics` and `fitted`; returns the digest of the best weights and their certificate. Of several workers
    only the first goes on after training.
    """
    setting = current.setting
    refuse_unfit(spec.train, setting.device)
    device = torch.device(setting.device)
    reset_peak_memory(device)
    corpus = load_planned(spec, setting.data, setting.contents)
    model = _built(spec, corpus).to(device)
    metrics |= dict(zip(("params_total", "params_head"), count_parameters(model), strict=True))
    if spec.train.eval_stride is not None:
        refuse_stride(spec.train, state_of(model))  # before an epoch is spent on it
    clocks = {"train": Clock(device, watch.beat), "eval": Clock(device, watch.beat)}
    on_device = corpus.to(device)
    watch.beat()
    with conditions(spec, setting):
        training = Training(
            model,
            on_device,
            spec.train,
            fitted,
            seed=spec.seed,
            clocks=clocks,
            checkpoints=checkpoints,
            pace=setting.checkpoint,
            report=_logged(report, log, watch),
            score_start=setting.measure.start,
            prepare=partial(graphed if workers.number == 1 else partial(parallel, workers=workers), tell=log.info),
            agree=workers.agreed,
            extra=lambda: current.state(watch.elapsed, peak_memory_mib(device)),
        )
        if state is not None:
            training.resume(state)
        training.fit()
        workers.dismissed = True
        if workers.rank:
            return "", None
        scores, tokens = _scores(model, on_device, spec, fitted, checkpoints, clocks["eval"])
        metrics |= scores
        metrics["peak_memory_mib"] = max(peak_memory_mib(device), current.peak_memory_mib)
        if (batch := setting.measure.inference_batch) is not None:
            metrics |= inference_times(model, on_device.test, spec.train, batch=batch, beat=watch.beat)
        certificate = certify(model, tokens, spec, on_device, beat=watch.beat)
        log.info("certificate: %s", certificate)
    metrics |= _costs(fitted, spec, clocks) | references(corpus, spec.train)
    digest = weights_sha256(model.state_dict())
    if setting.measure.token_nll:
        counts_N = corpus.token_counts[corpus.test.long()]
        arrays = {"nll": tokens.nll_N, "count": counts_N, "offset": tokens.offset_N}
        kept = token_nll.TokenScores(**{name: array_N.cpu().numpy() for name, array_N in arrays.items()})
        token_nll.save(kept, digest, checkpoints.folder / token_nll.FILE_NAME)
    return digest, certificate


def _built(spec: TrialSpec, corpus: Corpus) -> LanguageModel:
    words = {"vocab_size": corpus.vocab_size, "token_counts": corpus.token_counts}
    return build(spec.backbone, spec.head, seed=spec.seed, **words)


def _costs(fitted: Fitted, spec: TrialSpec, clocks: dict[str, Clock]) -> dict[str, float]:
    """How long it took, and of what the best weights are."""
    costs = {
        "train_minutes": fitted.train_seconds / 60,
        "best_epoch": min(fitted.best_epoch, spec.train.epochs),
        "context_tokens": spec.train.seq_len,
    }
    for name, clock in clocks.items():
        costs |= clock.summary(name)
    return costs


def _scores(
    model, corpus: Corpus, spec: TrialSpec, fitted: Fitted, checkpoints: Checkpoints, clock: Clock
) -> tuple[dict[str, float], TokenNll]:
    """Test perplexity of the last weights, then of the best; the best ones stay in the model, and become best.pt. And
    what they give each token, with the segments to certify them on.
    """
    empty = partial(TokenNll, len(corpus.test), clock.device, segments_to_sample(corpus.test, spec.train))
    scored = partial(evaluate, model, corpus.test, spec.train, uncounted_id=corpus.uncounted_id, clock=clock)
    test = last = scored(keep=(tokens := empty()))
    if fitted.best_epoch != math.ceil(spec.train.epochs):
        model.load_state_dict(checkpoints.best_weights(fitted.best_epoch, clock.device))
        test = scored(keep=(tokens := empty()))
    checkpoints.publish_best(fitted.best_epoch)
    carried = spec.train.batching == "stream" and state_of(model) is not None
    scores = {
        "valid_ppl": fitted.best.ppl,
        "test_ppl": test.ppl,
        "test_ppl_standard": test.ppl_standard,
        "last_valid_ppl": fitted.last.ppl,
        "last_test_ppl": last.ppl,
        "scored_test_tokens": test.num_scored,
        "state_carried": int(carried),
        **text_scores(test, corpus, spec.train),
    }
    if fitted.start is not None and math.isfinite(fitted.start.ppl):
        scores["start_valid_ppl"] = fitted.start.ppl
    if not all(score <= most(name) for name, score in scores.items()):
        raise Diverged(f"test perplexity is {test.ppl} (last epoch: {last.ppl})")
    return scores, tokens


def _taken_up(checkpoints: Checkpoints, spec: TrialSpec, log: logging.Logger) -> dict[str, Any] | None:
    """The checkpoint to go on from, or None to begin."""
    state = checkpoints.newest()
    if state is None:
        checkpoints.remove()  # damaged ones: by their names they would count as newer than what comes
        return None
    if not session.fits(state, spec.id):
        log.warning("the checkpoints are of another trial or another harness: they are not taken up")
        checkpoints.remove()
        return None
    log.info("goes on from its checkpoint: epoch %d, %d steps done", state["epoch"], state["step"])
    return state


def routed(setting: Setting, state: dict[str, Any] | None) -> Setting:
    """By the route that its checkpoint was made with, where that is exact on this machine."""
    if setting.device != "cpu":
        return setting
    wanted = state["session"]["facts"]["products by"] if state is not None else setting.route
    return replace(setting, route=probe.checked_route("default" if wanted == "cuBLAS" else wanted))


def _logged(report: Callable[[Progress], None], log: logging.Logger, watch: Watch) -> Callable[[Progress], None]:
    def both(progress: Progress) -> None:
        if progress.step == progress.steps:
            log.info("%s", progress)
        with watch.paused(), from_outside():  # the driver takes its time, and may end the trial: Tune's SystemExit
            report(progress)

    return both
