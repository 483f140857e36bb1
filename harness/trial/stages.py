"""The stages of a trial, build -> fit -> evaluate -> time -> check, and what they share: the Trial, whose outcome they
fill. harness/trial/run.py calls them.
"""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from harness.containment import from_outside
from harness.corpora.batching import Segment
from harness.corpora.corpus import Corpus
from harness.machine.stop_request import StopRequest
from harness.model import LanguageModel, count_parameters
from harness.plan.specs import EvalSpec
from harness.plan.suite_file import CheckpointSpec
from harness.records import sidecars
from harness.records.plausible import most
from harness.records.record import Behaviour, Certificate, Status
from harness.records.sidecars import TokenScores
from harness.training import evaluation
from harness.training.checkpoint import Checkpoint, Checkpoints, Position, weights_sha256
from harness.training.clocks import Clock, Clocks, peak_memory_mib, reset_peak_memory
from harness.training.cuda_graph import graphed
from harness.training.data_parallel import Workers, parallel
from harness.training.evaluation import (
    Direction,
    Score,
    TokenNll,
    calibration,
    references,
    score_from_the_right,
    state_of,
    text_scores,
)
from harness.training.loop import Fitted, Host, Progress, Training
from harness.training.parts import Parts
from harness.training.step import Diverged, EagerStep, Step, refuse_unfit
from harness.trial.certify import certify, segments_to_sample
from harness.trial.sessions import History
from harness.trial.setup import built_model, count_text, load_planned
from harness.trial.task import Task
from harness.trial.turns import inference_times
from harness.trial.watch import Watch


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a trial has so far. It is filled while the trial runs, so that one that fails keeps what it had.

    Args:
        message: one line about a status that is not 'ok'.
        fitted: what training leaves.
        weights_sha256: of the best weights.
        behaviour: what its components compute on small inputs.
    """

    status: Status = "ok"
    message: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    fitted: Fitted = field(default_factory=Fitted)
    weights_sha256: str | None = None
    certificate: Certificate | None = None
    behaviour: Behaviour | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What a trial trains and evaluates.

    Args:
        model: on the trial's device.
        corpus: with its tokens where they were read to.
        on_device: the same corpus on the trial's device.
    """

    model: LanguageModel
    corpus: Corpus
    on_device: Corpus


@dataclass(slots=True, kw_only=True)
class Trial(Host):
    """One trial in one process: what a trial holds, and the Host of its training.

    Args:
        task: with its route of products that is exact on this machine.
        workers: of which this process is one; only the first of them writes.
        listener: receives the progress.
        stop: whether its training is to stop.
    """

    task: Task
    history: History
    watch: Watch
    log: logging.Logger
    workers: Workers
    checkpoints: Checkpoints
    listener: Callable[[Progress], None]
    stop: StopRequest = field(default_factory=StopRequest)
    outcome: Outcome = field(default_factory=Outcome)
    clocks: Clocks = field(init=False)

    def __post_init__(self) -> None:
        self.clocks = Clocks(self.device, self.watch.beat)
        if self.history.resumed is not None:
            self.fitted.load_state_dict(self.history.resumed.parts["fitted"])  # guard: curve-of-failed-trial

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return torch.device(self.task.device)

    @property
    def fitted(self) -> Fitted:
        return self.outcome.fitted

    @property
    def pace(self) -> CheckpointSpec:
        return self.task.checkpoint

    @property
    def score_start(self) -> bool:
        return self.task.measure.start

    def report(self, progress: Progress) -> None:
        if progress.step == progress.steps:
            self.log.info("%s", progress)
        # guard: driver-waits-no-silence self.watch.paused(), ->
        # guard: tune-exit-is-no-components , from_outside() ->
        with self.watch.paused(), from_outside():  # the driver may take long, and may end the trial by a SystemExit
            self.listener(progress)

    def prepare(self, step: EagerStep, segment: Segment, parts: Parts) -> Step:
        if self.workers.number > 1:
            return parallel(step, segment, workers=self.workers, log=self.log.info)
        return graphed(step, segment, parts, log=self.log.info)

    def agree(self, score: Score) -> Score:
        return self.workers.agreed(score)

    def save(self, position: Position, parts: Parts) -> None:
        if self.workers.rank:
            return
        checkpoint = Checkpoint(
            trial=self.task.id,
            position=position,
            best_epoch=None if self.fitted.best is None else self.fitted.best_epoch,
            session=self.history.info(self.watch.elapsed, peak_memory_mib(self.device)),
            parts={name: part.state_dict() for name, part in parts.items()},
        )
        self.checkpoints.save(checkpoint)

    def save_best(self, weights: dict[str, Tensor], epoch: int) -> None:
        if not self.workers.rank:
            self.checkpoints.save_best(weights, epoch)


def build(trial: Trial) -> Built:
    """The corpus and the initialised model, on the trial's device. Counts the parameters.

    Raises: ExecutionError for settings that the device, or the model, does not allow; CorpusError; what a component
    raises.
    """
    task, spec = trial.task, trial.task.spec
    refuse_unfit(spec.train, task.device)
    reset_peak_memory(trial.device)
    corpus = load_planned(spec, task.data, task.contents)
    model = built_model(spec, corpus, trial.device)
    trial.outcome.metrics |= dict(zip(("params_total", "params_head"), count_parameters(model), strict=True))
    built = Built(model=model, corpus=corpus, on_device=corpus.to(trial.device))
    trial.watch.beat()
    return built


def fit(trial: Trial, built: Built) -> None:
    """Train from the checkpoint, or from the beginning. Afterwards the model has the weights of the last epoch.

    Raises: Diverged; StorageError; ExecutionError when the training split is too small; KeyboardInterrupt after a
    signal or another request to stop, which waits for the end of a step so that its state can be saved.
    """
    trial.outcome.metrics |= count_text(built.model, built.corpus)  # again when the trial is resumed
    trial.watch.beat()
    training = Training(built.model, built.on_device, trial.task.spec.train, seed=trial.task.spec.seed, host=trial)
    with trial.stop.deferring():
        training.fit(trial.history.resumed)
    trial.workers.dismissed = True


def evaluate(trial: Trial, built: Built) -> list[Direction]:
    """Score the test split with the last weights, then with the best. The best ones stay in the model, and are saved
    as best.pt.

    Returns: the directions in which the model reads, from left to right first, with what the best weights give each
        token and the segments that `check` samples.
    Raises: Diverged when a score is too large for a record.
    """
    fitted, train = trial.outcome.fitted, trial.task.spec.train
    last, tokens = score_test(built.model, built.on_device, train.evaluation, trial.clocks.eval)
    test = last
    if fitted.best_epoch != math.ceil(train.epochs):
        built.model.load_state_dict(trial.checkpoints.best_weights(fitted.best_epoch, trial.device))
        test, tokens = score_test(built.model, built.on_device, train.evaluation, trial.clocks.eval)
    trial.checkpoints.publish_best(fitted.best_epoch)
    carried = train.batching == "stream" and state_of(built.model) is not None
    scores = {
        "valid_ppl": fitted.best.ppl,
        "test_ppl": test.ppl,
        "test_ppl_standard": test.ppl_standard,
        "last_valid_ppl": fitted.last.ppl,
        "last_test_ppl": last.ppl,
        "scored_test_tokens": test.num_scored,
        "state_carried": int(carried),
        **text_scores(test, built.corpus, train.evaluation),
    }
    if fitted.start is not None and math.isfinite(fitted.start.ppl):
        scores["start_valid_ppl"] = fitted.start.ppl
    if not all(score <= most(name) for name, score in scores.items()):  # guard: perplexity-of-record
        raise Diverged(
            f"test perplexity is {test.ppl} with the weights of the best epoch, {last.ppl} with those of the last"
        )
    if trial.task.measure.calibration:
        split_N, spec = built.on_device.test, train.evaluation
        scores |= calibration(built.model, split_N, spec, beat=trial.watch.beat)
    more, others = score_from_the_right(
        built.model, built.on_device, train.evaluation, sample=tokens.sample, beat=trial.watch.beat
    )
    peak = max(peak_memory_mib(trial.device), trial.history.peak_memory_mib)
    trial.outcome.metrics |= {**scores, **more, "peak_memory_mib": peak}
    return [(built.model, tokens), *others]


def time(trial: Trial, built: Built) -> None:
    """Time the forward pass with loss, where the suite asks for it. Steps and evaluation were timed as they ran."""
    if (batch := trial.task.measure.inference_batch) is not None:
        tokens_N, spec = built.on_device.test, trial.task.spec.train.evaluation
        trial.outcome.metrics |= inference_times(built.model, tokens_N, spec, batch=batch, beat=trial.watch.beat)


def check(trial: Trial, built: Built, directions: list[Direction]) -> None:
    """Check that the test perplexity is made of probabilities: the certificate. The trial is invalid where it is not.

    Args:
        directions: what `evaluate` returned.
    """
    outcome = trial.outcome
    outcome.certificate = certify(directions, trial.task.spec, built.on_device, beat=trial.watch.beat)
    trial.log.info("certificate: %s", outcome.certificate)
    if (fault := outcome.certificate.fault) is not None:  # guard: certificate-decides
        outcome.status, outcome.message = "invalid", fault


def complete(trial: Trial, built: Built, directions: list[Direction]) -> None:
    """Add the costs, the reference perplexities and the digest of the best weights; write the scores of tokens."""
    fitted, train, outcome = trial.outcome.fitted, trial.task.spec.train, trial.outcome
    outcome.metrics |= {
        "train_minutes": fitted.train_seconds / 60,
        "best_epoch": min(fitted.best_epoch, train.epochs),
        "context_tokens": train.seq_len,
        **trial.clocks.summary(),
        **references(built.corpus, train.evaluation),
    }
    digest = weights_sha256(built.model.state_dict())
    if trial.task.measure.token_nll:
        (_, tokens), *_ = directions
        place = trial.task.folder / sidecars.TOKEN_NLL.file
        sidecars.save_token_scores(scores_of(tokens, built.corpus), digest, place)
    outcome.weights_sha256 = digest


def score_test(model: LanguageModel, corpus: Corpus, spec: EvalSpec, clock: Clock) -> tuple[Score, TokenNll]:
    """Score the test split with the weights in the model.

    Args:
        corpus: on the model's device.
    Returns: the score, and what each token costs, with the segments that a certificate is measured on.
    """
    tokens = TokenNll(len(corpus.test), clock.device, segments_to_sample(corpus.test, spec))
    uncounted_id = corpus.uncounted_id
    score = evaluation.evaluate(model, corpus.test, spec, uncounted_id=uncounted_id, clock=clock, keep=tokens)
    return score, tokens


def scores_of(tokens: TokenNll, corpus: Corpus) -> TokenScores:
    """What each token of the test split costs, as the file beside a record has it."""
    counts_N = corpus.token_counts[corpus.test.long()]
    arrays = {"nll": tokens.nll_N, "count": counts_N, "offset": tokens.offset_N}
    return TokenScores(**{name: array_N.cpu().numpy() for name, array_N in arrays.items()})
