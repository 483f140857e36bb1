"""The stages of a trial: build -> fit -> evaluate -> time -> check. harness/trial/run.py calls all of them, and
harness/trial/follow.py the first two. Each fills `trial.outcome`.
"""

import math
from functools import partial

from harness.containment.calls import calling, from_outside
from harness.corpora.vocabulary import line_end
from harness.model import build as build_model
from harness.model import count_parameters
from harness.protocols import CountsText
from harness.records import sidecars
from harness.records.plausible import most
from harness.training import evaluation
from harness.training.checkpoint import Saving, weights_sha256
from harness.training.clocks import peak_memory_mib, reset_peak_memory
from harness.training.cuda_graph import graphed
from harness.training.data_parallel import parallel
from harness.training.evaluation import Score, TokenNll, calibration, references, refuse_stride, state_of, text_scores
from harness.training.loop import Hooks, Progress, Training
from harness.training.step import Diverged, refuse_unfit, refuse_z_loss
from harness.trial.certify import Direction, certify, segments_to_sample
from harness.trial.context import Built, TrialContext
from harness.trial.from_the_right import score_from_the_right
from harness.trial.inference import inference_times
from harness.trial.sources import load_planned


def build(trial: TrialContext) -> Built:
    """The corpus and the initialised model, on the trial's device. Counts the parameters.

    Raises: ExecutionError for settings that the device, or the model, does not allow; CorpusError; what a component
    raises.
    """
    task, spec = trial.task, trial.task.spec
    refuse_unfit(spec.train, task.device)
    reset_peak_memory(trial.device)
    corpus = load_planned(spec, task.data, task.contents)
    words = {"vocab_size": corpus.vocab_size, "token_counts": corpus.token_counts}
    model = build_model(spec.backbone, spec.head, seed=spec.seed, **words).to(trial.device)
    trial.outcome.metrics |= dict(zip(("params_total", "params_head"), count_parameters(model), strict=True))
    if spec.train.eval_stride is not None:
        refuse_stride(spec.train.evaluation, state_of(model))  # before an epoch is trained
    if spec.train.z_loss:
        refuse_z_loss(model)
    built = Built(model=model, corpus=corpus, on_device=corpus.to(trial.device))
    trial.watch.beat()
    return built


def fit(trial: TrialContext, built: Built) -> None:
    """Train from the checkpoint, or from the beginning. Afterwards the model has the weights of the last epoch.

    Raises: Diverged; StorageError; ExecutionError when the training split is too small; KeyboardInterrupt after a
    signal or another request to stop, which waits for the end of a step so that its state can be saved.
    """
    _count(trial, built)
    session = trial.session
    several = trial.workers.number > 1
    hooks = Hooks(
        saving=Saving(
            trial.checkpoints,
            trial.task.checkpoint,
            trial=trial.task.spec.id,
            session=lambda: session.info(trial.watch.elapsed, peak_memory_mib(trial.device)),
        ),
        clocks=trial.clocks,
        fitted=trial.outcome.fitted,
        report=partial(_report, trial),
        prepare=partial(partial(parallel, workers=trial.workers) if several else graphed, log=trial.log.info),
        agree=trial.workers.agreed,
        score_start=trial.task.measure.start,
        stop=trial.stop,
    )
    training = Training(built.model, built.on_device, trial.task.spec.train, seed=trial.task.spec.seed, hooks=hooks)
    with trial.stop.deferring():
        training.fit(trial.resumed)
    trial.workers.dismissed = True


def evaluate(trial: TrialContext, built: Built) -> list[Direction]:
    """Score the test split with the last weights, then with the best. The best ones stay in the model, and are saved
    as best.pt.

    Returns: the directions in which the model reads, from left to right first, with what the best weights give each
        token and the segments that `check` samples.
    Raises: Diverged when a score is too large for a record.
    """
    fitted, train = trial.outcome.fitted, trial.task.spec.train
    last = test = _test_score(trial, built, tokens := _new_tokens(trial, built))
    if fitted.best_epoch != math.ceil(train.epochs):
        built.model.load_state_dict(trial.checkpoints.best_weights(fitted.best_epoch, trial.device))
        test = _test_score(trial, built, tokens := _new_tokens(trial, built))
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
    if not all(score <= most(name) for name, score in scores.items()):
        raise Diverged(
            f"test perplexity is {test.ppl} with the weights of the best epoch, {last.ppl} with those of the last"
        )
    if trial.task.measure.calibration:
        split_N, spec = built.on_device.test, train.evaluation
        scores |= calibration(built.model, split_N, spec, beat=trial.watch.beat)
    more, others = score_from_the_right(built.model, built.on_device, train.evaluation, beat=trial.watch.beat)
    peak = max(peak_memory_mib(trial.device), trial.session.peak_memory_mib)
    trial.outcome.metrics |= {**scores, **more, "peak_memory_mib": peak}
    return [(built.model, tokens), *others]


def time(trial: TrialContext, built: Built) -> None:
    """Time the forward pass with loss, where the suite asks for it. Steps and evaluation were timed as they ran."""
    if (batch := trial.task.measure.inference_batch) is not None:
        tokens_N, spec = built.on_device.test, trial.task.spec.train.evaluation
        trial.outcome.metrics |= inference_times(built.model, tokens_N, spec, batch=batch, beat=trial.watch.beat)


def check(trial: TrialContext, built: Built, directions: list[Direction]) -> None:
    """Check that the test perplexity is made of probabilities: the certificate. The trial is invalid where it is not.

    Args:
        directions: what `evaluate` returned.
    """
    outcome = trial.outcome
    outcome.certificate = certify(directions, trial.task.spec, built.on_device, beat=trial.watch.beat)
    trial.log.info("certificate: %s", outcome.certificate)
    if (fault := outcome.certificate.fault) is not None:
        outcome.status, outcome.message = "invalid", fault


def complete(trial: TrialContext, built: Built, directions: list[Direction]) -> None:
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
        (_, tokens), counts_N = directions[0], built.corpus.token_counts[built.corpus.test.long()]
        arrays = {"nll": tokens.nll_N, "count": counts_N, "offset": tokens.offset_N}
        scores = sidecars.TokenScores(**{name: array_N.cpu().numpy() for name, array_N in arrays.items()})
        sidecars.save_token_scores(scores, digest, trial.checkpoints.folder / sidecars.TOKEN_NLL.file)
    outcome.weights_sha256 = digest


def _count(trial: TrialContext, built: Built) -> None:
    """Let a head that counts read the text; it is counted again when a trial is resumed."""
    head, corpus = built.model.head, built.corpus
    if isinstance(head, CountsText):
        with calling(built.model.head_name, "count"):
            trial.outcome.metrics |= head.count(corpus.train, corpus.valid, line_end(corpus))
        trial.watch.beat()


def _new_tokens(trial: TrialContext, built: Built) -> TokenNll:
    sample = segments_to_sample(built.on_device.test, trial.task.spec.train.evaluation)
    return TokenNll(len(built.on_device.test), trial.device, sample)


def _test_score(trial: TrialContext, built: Built, keep: TokenNll) -> Score:
    corpus, spec, clock = built.on_device, trial.task.spec.train.evaluation, trial.clocks.eval
    return evaluation.evaluate(built.model, corpus.test, spec, uncounted_id=corpus.uncounted_id, clock=clock, keep=keep)


def _report(trial: TrialContext, progress: Progress) -> None:
    if progress.step == progress.steps:
        trial.log.info("%s", progress)
    with trial.watch.paused(), from_outside():  # the driver may take long, and may end the trial by Tune's SystemExit
        trial.report(progress)
