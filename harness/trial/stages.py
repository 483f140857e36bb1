"""The stages of a trial, build -> fit -> evaluate -> time -> check, and what they share: the Trial,
whose outcome they fill. harness/trial/run.py calls them.
"""

import hashlib
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from harness.containment import from_outside
from harness.corpora.batching import Segment
from harness.corpora.corpus import SPLITS, Corpus
from harness.extensions import needed
from harness.flops import training_flops
from harness.machine.environment import OtherWork
from harness.machine.stop_request import StopRequest
from harness.model import LanguageModel, buffers_of, count_changed, count_parameters
from harness.plan.specs import EvalSpec
from harness.plan.suite_file import CheckpointSpec, DynamicSpec
from harness.records import sidecars
from harness.records.metrics import METRICS
from harness.records.record import MEAN_GAP, Certificate, Status
from harness.records.sidecars import TokenScores
from harness.training import evaluation
from harness.training.checkpoint import BEST, Checkpoint, Checkpoints, Position, weights_sha256
from harness.training.clocks import Clock, Clocks, peak_memory_mib, reset_peak_memory
from harness.training.evaluation import FROM_THE_RIGHT, Score, TokenNll
from harness.training.loop import Fitted, Host, Progress, Training
from harness.training.parts import Parts
from harness.training.step import Diverged, EagerStep, Step, graphed, refuse_unfit
from harness.trial.sessions import History
from harness.trial.setup import built_model, count_text, load_planned
from harness.trial.task import NotCertified, Task
from harness.trial.timing import BUSY_CORES, inference_times
from harness.trial.watch import Watch
from harness.trial.workers import Workers

DIGESTED = 2**24  # tokens of a split
CERTIFICATE = "harness.integrity.certifier:certificate"
DYNAMIC = "harness.training.dynamic_evaluation"
FEW_NUMBERS = 16  # in buffers that training changed: counters and averages of a whole batch


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a trial has so far. It is filled while the trial runs, so that one that fails keeps what
    it had.

    Args:
        message: one line about a status that is not 'ok'.
        weights_sha256: of the best weights.
        not_certified: why there is no certificate.
        unsaved: a buffer that fitting has changed, and that is not among the saved weights; ''
            for none.
    """

    status: Status = "ok"
    message: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    fitted: Fitted = field(default_factory=Fitted)
    weights_sha256: str | None = None
    certificate: Certificate | None = None
    not_certified: str = ""
    unsaved: str = ""

    def make_invalid(self, fault: str) -> None:
        """The perplexities do not count. The first reason stays: others may follow from it."""
        if self.status == "ok":
            self.status, self.message = "invalid", fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What a trial trains and evaluates.

    Args:
        model: on the trial's device.
        corpus: with its tokens where they were read to.
        on_device: the same corpus on the trial's device.
        digest: of its splits before training; '' where nothing is trained.
    """

    model: LanguageModel
    corpus: Corpus
    on_device: Corpus
    digest: str = ""


@dataclass(slots=True, kw_only=True)
class Trial(Host):
    """One trial in one process: what a trial holds, and the Host of its training.

    Args:
        task: with its route of products that is exact on this machine.
        workers: of which this process is one; only the first of them writes.
        valid_tokens: what the best weights gave the validation split; None where an earlier session
            validated them.
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
    other_work: OtherWork = field(default_factory=OtherWork)
    valid_tokens: TokenNll | None = None

    def __post_init__(self) -> None:
        self.clocks = Clocks(self.device, self.watch.beat)
        if self.history.resumed is not None:
            self.fitted.load_state_dict(self.history.resumed.parts["fitted"])

    @property
    def device(self) -> torch.device:
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
        # The driver may take long, and may end the trial by a SystemExit.
        with self.watch.paused(), from_outside():
            self.listener(progress)

    def prepare(self, step: EagerStep, segment: Segment, parts: Parts) -> Step:
        if self.workers.number > 1:
            parallel = needed("harness.gpu.data_parallel:parallel", "train.data_parallel")
            return parallel(step, segment, workers=self.workers, log=self.log.info)
        return graphed(step, segment, parts, log=self.log.info)

    def agree(self, score: Score) -> Score:
        return self.workers.agreed(score)

    def notice_other_work(self) -> None:
        """The times are not exclusive where other programs used BUSY_CORES or more since the trial
        began. Further workers of the trial are other processes, too: with them it is not known.
        """
        if self.workers.number == 1 and self.other_work.cores() >= BUSY_CORES:
            self.history.shared = True

    def save(self, position: Position, parts: Parts) -> None:
        if self.workers.rank:  # all have the same parts, and one folder
            return
        self.notice_other_work()
        checkpoint = Checkpoint(
            trial=self.task.id,
            position=position,
            best_epoch=None if self.fitted.best is None else self.fitted.best_epoch,
            session=self.history.info(self.watch.elapsed, peak_memory_mib(self.device)),
            parts={name: part.state_dict() for name, part in parts.items()},
        )
        self.checkpoints.save(checkpoint)

    def save_best(self, weights: dict[str, Tensor], epoch: int, tokens: TokenNll) -> None:
        self.valid_tokens = tokens
        if not self.workers.rank:
            self.checkpoints.save_best(weights, epoch)

    def best_weights(self) -> dict[str, Tensor]:
        return self.checkpoints.best_weights(self.fitted.best_epoch, self.device)


def build(trial: Trial) -> Built:
    """The corpus and the initialised model, on the trial's device. Counts the parameters.

    Raises: ExecutionError for settings that the device, or the model, does not allow; CorpusError;
    what a component raises.
    """
    task, spec = trial.task, trial.task.spec
    refuse_unfit(spec.train, task.device)
    # A process may train several trials; the peak is to be of this one.
    reset_peak_memory(trial.device)
    corpus = load_planned(spec, task.data, task.contents)
    digest = digest_of(corpus)  # before a component's code has seen the text
    model = built_model(spec, corpus, trial.device)
    if (dynamic := _dynamic(task)) is not None:
        needed(f"{DYNAMIC}:refuse_dynamic", "measure.dynamic")(model, corpus, dynamic)
    total, of_head = count_parameters(model)
    trial.outcome.metrics |= {"params_total": total, "params_head": of_head}
    trial.outcome.metrics |= _flops(task, corpus.vocab_size)
    built = Built(model=model, corpus=corpus, on_device=corpus.to(trial.device), digest=digest)
    trial.watch.beat()
    return built


def _flops(task: Task, vocab_size: int) -> dict[str, float]:
    """The FLOPs of a training token, in millions; {} where they are not known from shapes."""
    spec = task.spec
    if spec.is_ngram:
        return {}
    try:
        found = training_flops(spec.backbone, spec.head, vocab_size, *spec.train.batch_shape)
    except ValueError:
        return {}
    return {"mflop_per_token": found.total / 1e6, "mflop_per_token_head": found.head / 1e6}


def _dynamic(task: Task) -> DynamicSpec | None:
    """The dynamic evaluation that is asked for; an n-gram model has no gradients for it."""
    return None if task.spec.is_ngram else task.measure.dynamic


def digest_of(corpus: Corpus) -> str:
    """SHA-256 of the token ids of all splits; of a split of more than DIGESTED tokens, of so many
    or half as many.
    """
    digest = hashlib.sha256()
    for split in SPLITS:
        tokens_N = getattr(corpus, split)
        step = 1 + len(tokens_N) // DIGESTED  # a large text by a sample: it is read twice
        digest.update(tokens_N[::step].contiguous().cpu().numpy())
    return digest.hexdigest()


def fit(trial: Trial, built: Built) -> None:
    """Train from the checkpoint, or from the beginning. Afterwards the model has the weights of the
    last epoch.

    Raises: Diverged; StorageError; ExecutionError when the training split is too small;
    KeyboardInterrupt after a signal or another request to stop, which waits for the end of a step
    so that its state can be saved.
    """
    # Of a resumed trial, too, those of the untrained model.
    before, unsaved = buffers_of(built.model), buffers_of(built.model, saved=False)
    # Counted again when the trial is resumed.
    trial.outcome.metrics |= count_text(built.model, built.corpus)
    trial.watch.beat()
    spec = trial.task.spec
    training = Training(built.model, built.on_device, spec.train, seed=spec.seed, host=trial)
    with trial.stop.deferring():
        training.fit(trial.history.resumed)
    after = buffers_of(built.model)
    changed = count_changed(before, after)
    if changed > FEW_NUMBERS and not spec.is_ngram:  # n-grams say how many they have stored
        of_head = {name: each for name, each in after.items() if name.startswith("head.")}
        trial.outcome.metrics["changed_buffers"] = changed
        trial.outcome.metrics["changed_buffers_head"] = count_changed(before, of_head)
    for name, buffer in buffers_of(built.model, saved=False).items():
        if count_changed(unsaved, {name: buffer}):
            trial.outcome.unsaved = name
    trial.workers.dismissed = True  # the others are at their end, too, and no longer needed


def evaluate(trial: Trial, built: Built) -> dict[str, TokenNll]:
    """Score the test split with the last weights, then with the best. The best ones stay in the
    model, and are saved as best.pt.

    Returns: what the best weights give each token of a split: of test, of valid, and of test from
        the right where the model reads in both directions.
    Raises: Diverged when a score is too large for a record.
    """
    fitted, train, corpus = trial.outcome.fitted, trial.task.spec.train, built.on_device
    last, tokens = score(trial, built, "test", trial.clocks.eval)
    test = last
    # Scored once where the last epoch is the best one: its weights are in the model.
    if fitted.best_epoch != len(fitted.curve):
        built.model.load_state_dict(trial.checkpoints.best_weights(fitted.best_epoch, trial.device))
        test, tokens = score(trial, built, "test", trial.clocks.eval)
    trial.checkpoints.publish_best(fitted.best_epoch)
    carried = train.evaluation.batching == "stream" and evaluation.state_of(built.model) is not None
    of_test, counted = scores_of_test(built, train.evaluation, test, tokens, beat=trial.watch.beat)
    scores = {
        "valid_ppl": fitted.best.ppl,
        **of_test,
        "last_valid_ppl": fitted.last.ppl,
        "last_test_ppl": last.ppl,
        "state_carried": int(carried),
    }
    if fitted.start is not None and math.isfinite(fitted.start.ppl):
        scores["start_valid_ppl"] = fitted.start.ppl
    # Negated, so that nan, which is above and below no number, is caught, too.
    if not all(score <= METRICS[name].high for name, score in scores.items()):
        of_best = f"test perplexity is {test.ppl} with the weights of the best epoch"
        raise Diverged(f"{of_best}, {last.ppl} with those of the last")
    model, beat = built.model, trial.watch.beat
    if trial.task.measure.calibration:
        scores |= evaluation.calibration(model, corpus, train.evaluation, beat=beat)
    if (dynamic := _dynamic(trial.task)) is not None:
        evaluated = needed(f"{DYNAMIC}:dynamic_evaluation", "measure.dynamic")
        scores |= evaluated(model, corpus, dynamic, beat=beat) | dynamic.as_metrics()
    if trial.valid_tokens is not None:
        counted["valid"] = trial.valid_tokens
    else:  # with a clock of its own: the validation of an earlier session is counted already
        clock = Clock(trial.device, trial.watch.beat)
        _, counted["valid"] = score(trial, built, "valid", clock)
    nats = counted["valid"].counted_N
    # The best epoch must have been chosen by the weights that are saved: no head may give another
    # loss while it is trained.
    mean = nats[~nats.isnan()].double().mean().item()
    if not math.isclose(mean, fitted.best.mean_nll, rel_tol=MEAN_GAP, abs_tol=MEAN_GAP):
        claimed, found = f"{fitted.best.ppl:.4f}", f"{evaluation.perplexity(mean):.4f}"
        chosen = f"epoch {fitted.best_epoch} was chosen by the validation perplexity {claimed}"
        trial.outcome.make_invalid(f"{chosen}, and its weights give {found}")
    peak = max(peak_memory_mib(trial.device), trial.history.peak_memory_mib)
    trial.outcome.metrics |= {**scores, "peak_memory_mib": peak}
    return counted


def time(trial: Trial, built: Built) -> None:
    """Time the forward pass with loss, where the suite asks for it. Steps and evaluation were timed
    as they ran.
    """
    if (batch := trial.task.measure.inference_batch) is not None:
        spec = trial.task.spec.train.evaluation
        beat = trial.watch.beat
        times = inference_times(built.model, built.on_device, spec, batch=batch, beat=beat)
        trial.outcome.metrics |= times
    trial.notice_other_work()


def check(trial: Trial, built: Built, counted: dict[str, TokenNll]) -> None:
    """Check that the perplexities are made of probabilities: the certificate. The trial is invalid
    where they are not.

    Args:
        counted: what `evaluate` returned.
    """
    outcome, task = trial.outcome, trial.task
    if digest_of(built.on_device) != built.digest:
        outcome.make_invalid("the text was changed in memory while the trial ran")
    if built.model.taken_over:
        outcome.make_invalid(built.model.taken_over)
    nll = {name: tokens.counted_N for name, tokens in counted.items()}
    if trial.device.type == "cuda":
        torch.cuda.empty_cache()  # for the other process
    with trial.watch.paused():
        try:
            certificate = needed(CERTIFICATE, "the certificate", NotCertified)
            outcome.certificate = certificate(task, task.folder / BEST, nll)
        except NotCertified as reason:
            outcome.not_certified = str(reason)
            trial.log.warning("not certified: %s", reason)
            return
    trial.log.info("certificate: %s", outcome.certificate.model_dump(exclude={"drawn"}))
    if (fault := outcome.certificate.fault) is not None:
        outcome.make_invalid(fault)
    if outcome.status == "invalid" and outcome.unsaved:
        outcome.message = (
            f"training or counting changed the buffer {outcome.unsaved}, which is not among the "
            "saved weights, so that these may be of another model: register it without "
            f"persistent=False ({outcome.message})"
        )


def complete(trial: Trial, built: Built, counted: dict[str, TokenNll]) -> None:
    """Add the costs, the reference perplexities and the digest of the best weights; write the
    scores of tokens.
    """
    fitted, train, outcome = trial.outcome.fitted, trial.task.spec.train, trial.outcome
    averaged = {"averaged_from_epoch": fitted.averaged_from} if fitted.averaged_from else {}
    outcome.metrics |= {
        "train_minutes": fitted.train_seconds / 60,
        "best_epoch": min(fitted.best_epoch, train.most_epochs),  # 1.4 and not 2 of 1.4 epochs
        "context_tokens": train.seq_len,
        **averaged,
        **trial.clocks.summary(),
        **evaluation.references(built.corpus, train.evaluation),
    }
    digest = weights_sha256(built.model.state_dict())
    if trial.task.measure.token_nll:
        place = trial.task.folder / sidecars.TOKEN_NLL.file
        sidecars.save_token_scores(scores_of(counted["test"], built.corpus), digest, place)
    outcome.weights_sha256 = digest


def score(trial: Trial, built: Built, split: str, clock: Clock) -> tuple[Score, TokenNll]:
    spec = trial.task.spec.train.evaluation
    return evaluation.evaluate(built.model, built.on_device, split, spec, clock=clock)


def scores_of_test(
    built: Built, spec: EvalSpec, test: Score, tokens: TokenNll, *, beat: Callable[[], None]
) -> tuple[dict[str, float], dict[str, TokenNll]]:
    """What the weights in the model give the test split, as metrics, and by token in each direction
    that is read.

    Args:
        test, tokens: from left to right; from right to left it is scored here, where the model
            reads so.
    """
    metrics = {
        "test_ppl": test.ppl,
        "test_ppl_standard": test.ppl_standard,
        "scored_test_tokens": test.num_scored,
    }
    metrics |= evaluation.text_scores(test, tokens, built.corpus, spec)
    metrics |= evaluation.known_scores(tokens, built.corpus)
    counted = {"test": tokens}
    right = evaluation.score_from_the_right(built.model, built.on_device, spec, beat=beat)
    if right is not None:
        from_the_right, counted["test" + FROM_THE_RIGHT] = right
        metrics["test_ppl_from_the_right"] = from_the_right.ppl
    return metrics, counted


def scores_of(tokens: TokenNll, corpus: Corpus) -> TokenScores:
    """What each token of the test split costs, as the file beside a record has it."""
    counts_N = corpus.token_counts[corpus.test.long()]
    arrays = {"nll": tokens.nll_N, "count": counts_N, "offset": tokens.offset_N}
    return TokenScores(**{name: array_N.cpu().numpy() for name, array_N in arrays.items()})
