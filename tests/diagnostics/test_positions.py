"""The contexts of diagnostics: scored positions of the validation split, each with the context that validation had."""

import copy

import pytest
import torch
from subjects import LSTM, TRANSFORMER, V, subject

from harness.diagnostics import positions as module
from harness.diagnostics.positions import contexts, segments_with
from harness.errors import ExecutionError
from harness.plan.specs import ComponentSpec
from harness.training.clocks import Clock
from harness.training.evaluation import evaluate

MFS = {"head": ComponentSpec(name="mfs")}


@pytest.mark.parametrize(
    ("backbone", "more"),
    [
        (LSTM, {}),
        (LSTM, {"batching": "blocks"}),
        (TRANSFORMER, {}),
        (TRANSFORMER, {"eval_stride": 3}),
        (TRANSFORMER, MFS),
    ],
)
def test_all_contexts_have_the_losses_of_the_evaluation(backbone, more):
    # the losses of all scored positions, of the evaluation of the same weights in float64
    of = subject(backbone, **more)
    found = contexts(of, 1000)
    nll = torch.cat(
        [
            -logp_NV.gather(1, part.targets[part.chosen][:, None])[:, 0]
            for logp_NV, part in zip(found.log_probs(), found.parts, strict=True)
        ]
    )
    spec = of.spec.train.evaluation
    wide = copy.deepcopy(of.model).double()
    _, keep = evaluate(wide, of.corpus, "valid", spec, clock=Clock(of.device))
    expected = keep.nll_N[~keep.nll_N.isnan()].double()  # kept in float32
    assert len(found) == len(expected) == len(nll)
    torch.testing.assert_close(nll.sort().values, expected.sort().values, rtol=0, atol=1e-5)
    assert nll.dtype == torch.float64


def test_fewer_contexts_are_the_first_of_every_column():
    # 102 targets in 4 columns of 26; segments of 7 have 28 positions: 30 contexts are one segment and 2 positions
    of = subject(LSTM)
    found = contexts(of, 30)
    assert len(found) == 30
    first, second = found.parts
    assert first.chosen.all()
    assert second.chosen.nonzero().tolist() == [[0, 0], [0, 1]]
    columns = [of.corpus.valid[26 * row + 1 : 26 * row + 8].tolist() for row in range(4)]
    assert first.targets.tolist() == columns


def test_the_rows_of_a_segment_are_parted_where_they_have_too_many_words(monkeypatch):
    whole = contexts(subject(TRANSFORMER), 50)
    monkeypatch.setattr(module, "BLOCK_BYTES", 8 * V * 14)  # 14 positions: two rows of a segment
    parted = contexts(subject(TRANSFORMER), 50)
    assert max(part.targets.numel() for part in parted.parts) == 14
    torch.testing.assert_close(
        torch.cat(list(parted.log_probs())), torch.cat(list(whole.log_probs())), rtol=0, atol=1e-12
    )


def test_a_split_without_a_scored_position_is_refused():
    of = subject(LSTM, tokens=1)
    with pytest.raises(ExecutionError, match="the validation split of markov has no scored position"):
        contexts(of, 10)


def test_segments_are_the_first_or_evenly_spaced():
    assert segments_with([10, 10, 10, 10, 10], 25, evenly=False) == {0: 10, 1: 10, 2: 5}
    assert segments_with([10] * 9, 25, evenly=True) == {0: 10, 3: 10, 6: 5}
    assert segments_with([10, 0, 3], 100, evenly=True) == {0: 10, 2: 3}
