"""Certify: after training, ask the weights in a process of their own for the probability of tokens of the text, and
compare it with what the evaluation counted for them.

Positions are drawn from the system's randomness. For each of them a process in which the model has not seen the text
builds it from best.pt (harness/integrity/certifier.py), and gives it the text up to there, and random tokens after it.
No target is passed. `log_probs` at the position has to sum to 1, and to give the target the nll that the trial counted.
So one comparison finds a loss that is not made of probabilities, a later token that was looked at, and what a component
remembers.

Of a model that carries a state, one row is also read from its beginning with random tokens in all other rows: so a
memory that the rows share is found.

No random stream of the trial is touched: a trial has the same bits with and without its certificate. Letters: see
harness/protocols.py; P positions.
"""

import math
import random
import secrets
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harness.corpora.batching import Segment, with_states
from harness.corpora.corpus import Corpus
from harness.errors import ExecutionError
from harness.model import LanguageModel
from harness.plan.parameters import resolved
from harness.plan.specs import TrialSpec
from harness.protocols import Hidden
from harness.records.record import SUM_ERROR, Certificate
from harness.registry import HEADS
from harness.training.checkpoint import load_weights
from harness.training.evaluation import FROM_THE_RIGHT, scored_segments, state_of
from harness.trial.setup import conditions, load_planned, trained_model
from harness.trial.task import Task

POSITIONS = 256  # of a split, in a direction
ALONE, OF_SEGMENT = 8, 4  # segments in which a row is read with other rows beside it, and positions in each
ROW_TOKENS, LOG_PROBS = 2**13, 2**22  # in memory at the same time: tokens of rows, log-probabilities


@dataclass(frozen=True, slots=True)
class Rows:
    """Texts, each with a position.

    Shapes: inputs (P, T); time (P,) the position in its row; place (P,) that of its target in the split; state: what
    the backbone carries to the start of the rows, or None.
    """

    inputs_PT: Tensor
    time_P: Tensor
    place_P: Tensor
    state: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class Asking:
    """What a model answers about a split.

    Args:
        model: in evaluation mode.
        corpus: with the states of a frozen backbone.
        again: places that are asked beside those that are drawn.
    """

    model: LanguageModel
    corpus: Corpus
    split: str
    spec: TrialSpec
    again: Collection[int] = ()

    def answers(self) -> tuple[Tensor, Tensor, Tensor]:
        """(P,) each: the places of targets, -log_probs of the targets, and |sum of p - 1|."""
        return self._answered(self._with_state() if self.carries else self._without_state())

    def answers_of_a_row(self) -> tuple[Tensor, Tensor, Tensor]:
        """The same of one row, in the first segments, where the other rows are of random tokens: what a row remembers
        is its own text. For a model that carries a state.
        """
        return self._answered(self._beside_others())

    @property
    def carries(self) -> bool:
        """Whether the rows of a segment begin with a state that is carried from the segment before."""
        return self.spec.train.evaluation.batching == "stream" and state_of(self.model) is not None

    def _answered(self, asked: Iterable[Rows]) -> tuple[Tensor, Tensor, Tensor]:
        found = [each for rows in asked for each in self._of(rows)]
        return tuple(map(torch.cat, zip(*found, strict=True)))

    def _segments(self) -> Iterator[Segment]:
        for segment in scored_segments(self.corpus, self.split, self.spec.train.evaluation):
            cut = segment.to(torch.device("cpu"))
            yield cut.reversed() if self.model.reads_from_the_right else cut

    def _drawn(self) -> Iterator[tuple[Segment, Tensor, Tensor]]:
        """Each segment with the rows and times that are asked there."""
        total = sum(int((segment.weight > 0).sum()) for segment in self._segments())
        chosen = torch.tensor(sorted(random.SystemRandom().sample(range(total), min(POSITIONS, total))))
        again, before = torch.tensor(sorted(self.again), dtype=torch.int64), 0
        for segment in self._segments():
            at_A = (segment.weight > 0).nonzero()
            asked_A = torch.isin(torch.arange(before, before + len(at_A)), chosen)
            asked_A |= torch.isin(segment.place[segment.weight > 0], again)
            yield segment, *at_A[asked_A].unbind(1)
            before += len(at_A)
            if before > chosen[-1] and not self.again:
                return

    def _without_state(self) -> Iterator[Rows]:
        """The rows of all segments, in batches of about the same length."""
        found = [
            (int(time), segment.inputs[row], segment.place[row, time])
            for segment, row_P, time_P in self._drawn()
            for row, time in zip(row_P, time_P, strict=True)
        ]
        found.sort(key=lambda each: each[0])
        longest = max(len(inputs_T) for _, inputs_T, _ in found)
        size = max(1, ROW_TOKENS // longest)
        for i in range(0, len(found), size):
            times, rows, places = zip(*found[i : i + size], strict=True)
            inputs_PT = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
            yield Rows(inputs_PT, torch.tensor(times), torch.stack(places))

    def _states_of_one_and_two(self) -> tuple[Any, Any]:
        return tuple(self._read(torch.zeros(rows, 2, dtype=torch.int64), None).state for rows in (1, 2))

    def _beside_others(self) -> Iterator[Rows]:
        one, two = self._states_of_one_and_two()
        state, row = None, None
        for segment in islice(self._segments(), ALONE):
            if row is None:  # one with targets: the last rows of a short text have none
                row = random.SystemRandom().choice((segment.weight > 0).any(1).nonzero()[:, 0].tolist())
            scored_T = (segment.weight[row] > 0).nonzero()[:, 0]
            time_P = scored_T[torch.randperm(len(scored_T))[:OF_SEGMENT]]
            row_P = torch.full_like(time_P, row)
            if len(time_P):
                of_rows = _rows_of(state, one, two, row_P.to(self._device))
                yield Rows(segment.inputs[row_P], time_P, segment.place[row_P, time_P], of_rows)
            inputs_BT = torch.randint(self.corpus.vocab_size, segment.inputs.shape)
            inputs_BT[row] = segment.inputs[row]
            state = self._read(inputs_BT, state).state

    def _with_state(self) -> Iterator[Rows]:
        """The rows of each segment, whose state comes from the text before: all of it is read again."""
        one, two = self._states_of_one_and_two()
        state = None
        for segment, row_P, time_P in self._drawn():
            size = max(1, ROW_TOKENS // segment.inputs.shape[1])
            for row_S, time_S in zip(row_P.split(size), time_P.split(size), strict=True) if len(row_P) else ():
                of_rows = _rows_of(state, one, two, row_S.to(self._device))
                yield Rows(segment.inputs[row_S], time_S, segment.place[row_S, time_S], of_rows)
            state = self._read(segment.inputs, state).state

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    def _read(self, inputs_BT: Tensor, state: Any) -> Hidden:
        return self.model.backbone(inputs_BT.to(self._device), state)

    def _hidden(self, read_PT: Tensor, rows: Rows) -> Hidden:
        """The states of the texts. Those of a frozen backbone are read from its files: what it computes for a token was
        compared with another text after it when they were made.
        """
        states = self.corpus.states.get(self.split)
        if states is None:
            return self._read(read_PT, rows.state)
        place_PT = rows.place_P[:, None] - rows.time_P[:, None] + torch.arange(read_PT.shape[1])
        kept = with_states(Segment(read_PT, read_PT, place=place_PT), states).to(self._device)
        return self.model.hidden(kept)

    def _of(self, rows: Rows) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """The answers for some rows. After its position, each row has another text, drawn at random."""
        inputs_PT = rows.inputs_PT[:, : int(rows.time_P.max()) + 2]
        later_PT = torch.arange(inputs_PT.shape[1]) > rows.time_P[:, None]
        other_PT = torch.randint(1, max(2, self.corpus.vocab_size), later_PT.shape)
        read_PT = torch.where(later_PT, (inputs_PT + other_PT) % self.corpus.vocab_size, inputs_PT)
        hidden = self._hidden(read_PT, rows)
        tokens_N, V = getattr(self.corpus, self.split), self.corpus.vocab_size
        window_P = rows.time_P.clamp(max=getattr(self.model.head, "window", 0)) + 1
        for window in window_P.unique().tolist():
            for part_P in (window_P == window).nonzero()[:, 0].split(max(1, LOG_PROBS // (window * V))):
                time_PW = rows.time_P[part_P, None] + torch.arange(1 - window, 1)
                at = part_P[:, None].to(self._device), time_PW.to(self._device)
                logp_PWV = self.model.head(Hidden(tuple(layer[at] for layer in hidden.layers))).log_probs()
                if tuple(logp_PWV.shape) != (*time_PW.shape, V):
                    shape = tuple(logp_PWV.shape)
                    raise ValueError(f"log_probs has shape {shape}, expected {(*time_PW.shape, V)}")
                logp_PV, place_P = logp_PWV[:, -1].double().cpu(), rows.place_P[part_P]
                due_P = -logp_PV.gather(1, tokens_N[place_P].long()[:, None])[:, 0]
                yield place_P, due_P, (logp_PV.exp().sum(1) - 1).abs()


@torch.no_grad()
def certify(
    task: Task, best: Path, nll: Mapping[str, Tensor], again: Mapping[str, Collection[int]] | None = None
) -> Certificate:
    """The certificate of the weights in `best`. To be called in a process that has not seen the text.

    Args:
        task: the trial; its device, threads and route of products are used.
        nll: split -> (N,) the nats that the trial counted for each token; NaN where none.
        again: split -> places of an earlier certificate, which are asked again.
    """
    began, spec = time.perf_counter(), task.spec
    with conditions(task):
        corpus = load_planned(spec, task.data, task.contents)
        model = trained_model(spec, corpus, load_weights(best, "cpu")).to(task.device).eval()
        torch.manual_seed(secrets.randbits(63))
        places, gaps, means, errors = {}, [], [], []
        for name, nll_N in nll.items():
            reads = model.from_the_right() if name.endswith(FROM_THE_RIGHT) else model
            asking = Asking(reads.eval(), corpus, name.removesuffix(FROM_THE_RIGHT), spec, (again or {}).get(name, ()))
            place_P, due_P, error_P = asking.answers()
            places[name] = tuple(place_P.tolist())
            gaps.append(_gap(nll_N[place_P], due_P))
            means.append(_gap(nll_N[place_P].double().mean(), due_P.mean()))
            errors.append(error_P.max().item())
            if asking.carries:
                place_P, due_P, _ = asking.answers_of_a_row()
                gaps.append(_gap(nll_N[place_P], due_P))
    test_N = torch.cat([nll_N[~nll_N.isnan()] for name, nll_N in nll.items() if name.startswith("test")])
    return Certificate(
        positions=sum(map(len, places.values())),
        sum_error=_largest(errors),
        nll_gap=_largest(gaps),
        mean_gap=_largest(means),
        lowest_nll=test_N.min().item() if test_N.isfinite().all() else None,
        vocab_size=corpus.vocab_size,
        log_epsilon=log_epsilon(spec),
        drawn=places,
        seconds=time.perf_counter() - began,
    )


def joined(found: Sequence[Certificate]) -> Certificate:
    """Several certificates of the same weights as one."""
    largest = {}
    for size in ("sum_error", "nll_gap", "mean_gap"):
        largest[size] = _largest([getattr(each, size) for each in found])
    lowest = [each.lowest_nll for each in found]
    return found[0].model_copy(
        update={
            "positions": sum(each.positions for each in found),
            **largest,
            "lowest_nll": None if None in lowest else min(lowest),
            "drawn": {name: places for each in found for name, places in each.drawn.items()},
            "seconds": sum(each.seconds for each in found),
        }
    )


@torch.no_grad()
def require_sums(spec: TrialSpec, model: LanguageModel, corpus: Corpus) -> None:
    """Require that probabilities sum to 1 at some positions of a batch, as the certificate of the trial will."""
    one_batch = spec.model_copy(update={"train": spec.train.model_copy(update={"eval_batches": 1})})
    _, _, error_P = Asking(model, corpus.to(torch.device("cpu")), "valid", one_batch).answers()
    error, allowed = error_P.max().item(), SUM_ERROR + corpus.vocab_size * log_epsilon(spec)
    if not error <= allowed:  # NaN is a fault, too
        raise ExecutionError(
            f"the probabilities that head {spec.head.name} gives to all words do not sum to 1: at a position of the "
            f"text they are off by {error:.4g} (allowed: {allowed:.4g})"
        )


def log_epsilon(spec: TrialSpec) -> float:
    """What the head adds to each word's probability, as its parameter `compat` says."""
    compat = resolved(HEADS.get(spec.head.name), spec.head.params).get("compat") or {}
    return compat.get("log_epsilon", 0.0)


def _rows_of(state: Any, one: Any, two: Any, row_P: Tensor) -> Any:
    """The state of some rows. `one` and `two` are states of one row and of two: they differ in the axis of the rows."""
    if isinstance(state, tuple):
        return tuple(_rows_of(*parts, row_P) for parts in zip(state, one, two, strict=True))
    if not isinstance(state, Tensor):
        return state
    axes = [axis for axis, sizes in enumerate(zip(one.shape, two.shape, strict=True)) if sizes == (1, 2)]
    return state.index_select(axes[0], row_P) if axes else state


def _gap(found: Tensor, due: Tensor) -> float:
    """The largest |found - due| / max(1, due); 0 where both are the same infinity. NaN where one is NaN."""
    found, due = found.double(), due.double()
    return torch.where(found == due, 0.0, (found - due).abs() / due.clamp(min=1.0)).max().item()


def _largest(values: list[float | None]) -> float | None:
    """The largest value; None when one of them is not finite."""
    return max(values) if all(value is not None and math.isfinite(value) for value in values) else None
