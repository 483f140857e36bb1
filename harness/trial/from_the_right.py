"""The second direction of a bidirectional model: the test split from right to left."""

from collections.abc import Callable

from harness.corpora.corpus import Corpus
from harness.model import LanguageModel
from harness.plan.specs import EvalSpec
from harness.training.clocks import Clock
from harness.training.evaluation import TokenNll, evaluate
from harness.trial.certify import Direction, segments_to_sample


def score_from_the_right(
    model: LanguageModel, corpus: Corpus, spec: EvalSpec, *, beat: Callable[[], None]
) -> tuple[dict[str, float], list[Direction]]:
    """Score the test split from right to left with the weights in `model`: every token but the last, from the tokens
    after it in its segment. No state is carried.

    The last segment of a column may be filled up with the last token of the split, and a model from the right reads
    this filler. A split has less of it than a batch has rows.

    Args:
        corpus: on the model's device.
        beat: called after each segment: a sign of life.
    Returns: metrics, and the direction with what it gave each token; both empty for a model that reads from left to
        right only.
    """
    from_the_right = model.from_the_right()
    if from_the_right is None:
        return {}, []
    test_N, device = corpus.test, corpus.test.device
    tokens = TokenNll(len(test_N), device, segments_to_sample(test_N, spec))
    clock = Clock(device, beat)  # its times are not those of the column eval ms/batch
    score = evaluate(from_the_right, test_N, spec, uncounted_id=corpus.uncounted_id, clock=clock, keep=tokens)
    return {"test_ppl_from_the_right": score.ppl}, [(from_the_right, tokens)]
