"""Evaluate: exact negative log-likelihoods, summed in float64, the perplexities they give, and the calibration."""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from harness.corpora.batching import Segment, evaluation_blocks, evaluation_segments, strided_segments, with_states
from harness.corpora.corpus import Corpus
from harness.corpora.overlap import documents_in_train, split_facts
from harness.errors import ComponentError, ExecutionError
from harness.model import LanguageModel, changed_since, fingerprint
from harness.plan.specs import EvalSpec
from harness.protocols import HasStatistics
from harness.training.clocks import Clock


@dataclass(frozen=True, slots=True)
class Score:
    """The loss of a split: nats, targets that were scored, and of them those that standard counting divides by."""

    nll_sum: float
    num_scored: int
    num_counted: int

    @property
    def mean_nll(self) -> float:
        return self.nll_sum / self.num_scored

    @property
    def ppl(self) -> float:
        """exp(nats per scored token); inf where that overflows."""
        return perplexity(self.mean_nll)

    @property
    def ppl_standard(self) -> float:
        """exp(nats per token of standard counting): the same sum, divided by the number of tokens without <sos>."""
        return perplexity(self.nll_sum / self.num_counted)


def perplexity(nats: float) -> float:
    """exp(nats); inf where that overflows a float."""
    try:
        return math.exp(nats)
    except OverflowError:
        return math.inf


def scored_segments(corpus: Corpus, split: str, spec: EvalSpec) -> Iterator[Segment]:
    """The segments of a split that are scored: of columns, windows or blocks. With kept states they bring them."""
    tokens_N = getattr(corpus, split)
    sizes = {"batch_size": spec.eval_batch_size, "seq_len": spec.seq_len}
    if spec.batching == "blocks":
        segments = evaluation_blocks(tokens_N, **sizes)
    elif spec.eval_stride is not None:
        segments = strided_segments(tokens_N, **sizes, stride=spec.eval_stride)
    else:
        segments = evaluation_segments(tokens_N, **sizes)
    for segment in islice(segments, spec.eval_batches):
        yield with_states(segment, corpus.states.get(split))


class TokenNll:
    """Each token's nats and its offset in its segment, gathered while a split is scored.

    Shapes: nll_N (N,) float32, NaN where a token is not scored; offset_N (N,) int32, there -1.
    """

    def __init__(self, num_tokens: int, device: torch.device):
        self.nll_N = torch.full((num_tokens,), math.nan, device=device)
        self.offset_N = torch.full((num_tokens,), -1, dtype=torch.int32, device=device)

    @property
    def counted_N(self) -> Tensor:
        """(N,) nll_N, with inf for a scored token whose nll is no number, so that NaN means: not scored."""
        return self.nll_N.masked_fill((self.offset_N >= 0) & self.nll_N.isnan(), math.inf)

    def add(self, nll_BT: Tensor, segment: Segment) -> None:
        """Add the nats of a segment's tokens that are scored."""
        counts_BT = segment.weight > 0
        places = segment.place[counts_BT]
        offset_BT = torch.arange(nll_BT.shape[1], dtype=torch.int32, device=nll_BT.device).expand_as(nll_BT)
        self.nll_N[places], self.offset_N[places] = nll_BT[counts_BT].float(), offset_BT[counts_BT]


@torch.no_grad()
def evaluate(
    model: LanguageModel,
    corpus: Corpus,
    split: str,
    spec: EvalSpec,
    *,
    clock: Clock,
    check: Callable[[], None] = lambda: None,
) -> tuple[Score, TokenNll]:
    """Score a split: every token but the first (with blocks: but the first of each block), of all batches or of the
    first `eval_batches`. A backbone with state carries it from segment to segment of a column, so its context is the
    column so far; one without state sees the segment only. The state is empty where a column starts, and for every
    block.

    A model that reads from the right (LanguageModel.from_the_right) scores every token but the last of the split, each
    from the tokens after it in its segment.

    Args:
        check: called after each batch; what it raises ends the evaluation.
    Returns: the score, and what each token costs.
    Raises: ExecutionError for windows by `eval_stride` with a backbone that carries state; ComponentError when the
        model learns while it is scored, or has parameters that nobody trains.
    """
    model.eval()
    before = fingerprint(model)
    tokens, uncounted_id = TokenNll(len(getattr(corpus, split)), clock.device), corpus.uncounted_id
    totals = torch.zeros(3, dtype=torch.float64, device=clock.device)  # nats, scored tokens, those that do not count
    state: Any = None
    for cut in scored_segments(corpus, split, spec):
        segment = cut.to(clock.device)
        if model.reads_from_the_right:
            segment = segment.reversed()
        with clock.lap():
            distribution, state = model(segment, state)
            nll_BT = distribution.nll(segment.targets)
            totals[0] += (nll_BT.double() * segment.weight).sum()
        check()
        tokens.add(nll_BT, segment)
        totals[1] += segment.weight.sum()
        if uncounted_id is not None:
            totals[2] += (segment.weight * (segment.targets == uncounted_id)).sum()
        refuse_stride(spec, state)
        state = None if spec.batching == "blocks" else state
    clock.settle()
    if model.made_late:
        raise ComponentError(
            f"{model.made_late} was made after the model was built, so it is not counted and not trained; a component "
            "makes its parameters in its constructor"
        )
    if changed := changed_since(before, model):
        raise ComponentError(
            f"{model.head_name} or {model.backbone_name} changed {changed} while the {split} split was scored; where "
            "`self.training` is False a component must leave its weights and buffers as they are"
        )
    nll_sum, num_scored, num_uncounted = totals.tolist()
    return Score(nll_sum, int(num_scored), int(num_scored - num_uncounted)), tokens


FROM_THE_RIGHT = " from the right"  # in the name of a split for the direction in which it is read


def score_from_the_right(
    model: LanguageModel, corpus: Corpus, spec: EvalSpec, *, beat: Callable[[], None]
) -> tuple[Score, TokenNll] | None:
    """Score the test split from right to left with the weights in `model`: every token but the last, from the tokens
    after it in its segment. No state is carried. None for a model that reads from left to right only.

    The last segment of a column may be filled up with the last token of the split, and a model from the right reads
    this filler. A split has less of it than a batch has rows. `corpus` is on the model's device.
    """
    from_the_right = model.from_the_right()
    if from_the_right is None:
        return None
    clock = Clock(corpus.test.device, beat)  # its times are not those of the column eval ms/batch
    return evaluate(from_the_right, corpus, "test", spec, clock=clock)


def refuse_stride(spec: EvalSpec, state: Any) -> None:
    """Raises ExecutionError when windows overlap and the backbone carries state, since its state is the context."""
    if spec.eval_stride is not None and state is not None:
        raise ExecutionError(
            "train.eval_stride is for backbones without state: this one carries its state from segment to segment, "
            "so that all tokens before are its context; leave eval_stride out"
        )


@torch.no_grad()
def state_of(model: LanguageModel) -> Any:
    """The state that the backbone returns to be carried; None when it carries none."""
    tokens_BT = torch.zeros(1, 2, dtype=torch.int64, device=next(model.parameters()).device)
    model.eval()
    return model.backbone(tokens_BT).state


def text_scores(score: Score, tokens: TokenNll, corpus: Corpus, spec: EvalSpec) -> dict[str, float]:
    """The summed loss of the test split by words, bytes and characters of its text, as metrics. {} when a token is a
    word, where the tokens do not give back every byte of the text, or where a scored token is <unk>, which does not say
    what its text is. A perplexity that overflows is left out.

    Bits per byte are of the text of the scored tokens, with blocks and `eval_batches`, too, if the bytes of each token
    are known (Corpus.test_bytes). The others need the size of the whole text, so that every token but the first must be
    scored. Then bits per byte are log2 of the perplexity per byte.
    """
    if corpus.unknown_id is not None and known_scores(tokens, corpus)["test_unknown_share"] > 0:
        return {}
    is_whole = spec.batching == "stream" and spec.eval_batches is None
    size = corpus.test_size if is_whole else None
    if size is not None:
        num_bytes = size.bytes
    else:
        num_bytes = 0 if corpus.test_bytes is None else int(corpus.test_bytes[tokens.offset_N.cpu() >= 0].sum())
    scores = {}
    if size is not None:
        words, byte, characters = (_per(score.nll_sum, each) for each in (size.words, size.bytes, size.characters))
        scores |= {"test_ppl_word": perplexity(words), "test_ppl_byte": perplexity(byte)}
        scores |= {"test_bits_per_character": characters / math.log(2)}
    scores |= {"test_bits_per_byte": _per(score.nll_sum, num_bytes) / math.log(2)}
    return {name: value for name, value in scores.items() if math.isfinite(value)}


def known_scores(tokens: TokenNll, corpus: Corpus) -> dict[str, float]:
    """The share of unknown tokens in the scored test tokens, and the perplexity of the others, as metrics (their
    definitions: harness/records/metrics.py). {} for a corpus without such a token.
    """
    if corpus.unknown_id is None:
        return {}
    scored_N = tokens.offset_N.cpu() >= 0
    known_N = scored_N & (corpus.test.cpu() != corpus.unknown_id)
    scored, known = scored_N.sum().item(), known_N.sum().item()
    scores = {"test_unknown_share": 1 - known / scored}
    if 0 < known < scored:
        nats = tokens.counted_N.cpu()[known_N].double().mean().item()
        scores["test_ppl_known"] = perplexity(nats)
    return scores


def _per(nll_sum: float, count: int) -> float:
    return nll_sum / count if count else math.inf


def unigram_ppl(corpus: Corpus, spec: EvalSpec) -> float | None:
    """Perplexity of the scored test tokens under the training counts, each plus one; None without a training split."""
    if not len(corpus.train):
        return None
    probability_V = (corpus.token_counts.double() + 1) / (len(corpus.train) + corpus.vocab_size)
    counts_V = torch.zeros_like(probability_V)
    for segment in scored_segments(corpus, "test", spec):
        counts_V.index_put_((segment.targets,), segment.weight.double(), accumulate=True)
    return perplexity(-(counts_V * probability_V.log()).sum().item() / counts_V.sum().item())


def references(corpus: Corpus, spec: EvalSpec) -> dict[str, float]:
    """What depends on the text only, as metrics, each where it exists: the test perplexity of the unigram, and of the
    process that generated the text; what is in each split, and how much of it also stands in another.
    """
    found = {"unigram_test_ppl": unigram_ppl(corpus, spec)}
    for split, facts in split_facts(corpus).items():
        found |= {f"{split}_{name}": value for name, value in asdict(facts).items()}
    lines = corpus.lines_in_train or documents_in_train(corpus)
    found |= {f"{split}_lines_in_train": share for split, share in lines.items()}
    del found["train_unseen_types"], found["test_unknown_share"]  # 0; known_scores has that of the scored tokens
    if corpus.source_test_nll is not None:
        found["source_test_ppl"] = perplexity(corpus.source_test_nll)
    return {name: value for name, value in found.items() if value is not None}


NUM_BINS = 15


@torch.no_grad()
def calibration(
    model: LanguageModel, corpus: Corpus, spec: EvalSpec, *, beat: Callable[[], None] = lambda: None
) -> dict[str, float]:
    """The expected calibration error and the mean entropy of the test split, as metrics.

    ECE = sum_b n_b / n |accuracy_b - confidence_b|

    The n scored tokens are put into 15 bins of equal width, (0, 1/15] .. (14/15, 1], by the probability of the most
    probable word. accuracy_b is the share of the tokens of a bin whose target is that word, confidence_b the mean of
    the probabilities. The split is scored as by `evaluate`: the same tokens with the same contexts.

    Raises: ExecutionError when the head's distribution has no `statistics`.
    Source: Guo, Pleiss, Sun and Weinberger (2017), arXiv:1706.04599, section 2, with its M = 15.
    """
    model.eval()
    device = next(model.parameters()).device
    sums_3M = torch.zeros(3, NUM_BINS, dtype=torch.float64, device=device)  # tokens, confidence, right ones
    entropy = torch.zeros((), dtype=torch.float64, device=device)
    state: Any = None
    for cut in scored_segments(corpus, "test", spec):
        segment = cut.to(device)
        distribution, state = model(segment, state)
        if not isinstance(distribution, HasStatistics):
            raise ExecutionError(
                f"measure.calibration: {model.head_name} returns a {type(distribution).__name__}, which has no method "
                "statistics (harness/protocols.py); leave calibration out"
            )
        found = distribution.statistics()
        weight_N = segment.weight.double().flatten()
        confidence_N = found.top_logp.double().exp().flatten()
        right_N = (found.top == segment.targets).double().flatten()
        bin_N = (confidence_N * NUM_BINS).ceil().long().clamp(1, NUM_BINS) - 1
        for row_M, values_N in zip(sums_3M, (torch.ones_like(weight_N), confidence_N, right_N), strict=True):
            row_M.index_add_(0, bin_N, weight_N * values_N)
        entropy += (weight_N * found.entropy.double().flatten()).sum()
        state = None if spec.batching == "blocks" else state
        beat()
    count_M, confidence_M, right_M = sums_3M
    error = (right_M - confidence_M).abs().sum() / count_M.sum()
    return {"test_calibration_error": error.item(), "test_entropy": (entropy / count_M.sum()).item()}
