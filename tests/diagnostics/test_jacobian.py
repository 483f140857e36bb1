"""The Jacobian of a head against differences, and the one of a softmax against its equation."""

import pytest
import torch
from subjects import DEEP, LSTM, head_of, subject

from harness.diagnostics import jacobian
from harness.diagnostics.diagnostic import Settings
from harness.diagnostics.jacobian import Jacobian, compute
from harness.diagnostics.positions import contexts
from harness.protocols import Hidden


@pytest.mark.parametrize("head", ["softmax", "{mos: {num_mixtures: 2}}", "{mfs: {window: 1}}", "mixtape", "adaptive"])
def test_it_is_that_of_central_differences(head):
    of = subject(DEEP, head=head_of(head), tokens=60)
    part = contexts(of, 40).parts[0]
    row, at = 1, int(part.chosen[1].nonzero()[-1])
    found, columns, step = jacobian._jacobian(of.wide, part, row), [], 1e-6
    for d in range(8):
        ends = []
        for sign in (1, -1):
            layers = [h_BTD.clone() for h_BTD in part.hidden.layers]
            layers[-1][row, at, d] += sign * step
            with torch.no_grad():
                ends.append(of.wide.head(Hidden(tuple(layers))).log_probs()[row, at])
        columns.append((ends[0] - ends[1]) / (2 * step))
    torch.testing.assert_close(found, torch.stack(columns, dim=1), rtol=0, atol=1e-7)


def test_a_softmax_has_its_equation_and_the_mean_over_contexts(monkeypatch):
    of = subject(LSTM, tokens=60)
    W, expected = of.wide.head.output.weight.detach(), []
    with torch.no_grad():
        for part in contexts(of, 40).parts:
            p_BTV = of.wide.head(part.hidden).log_probs().exp()
            for row in part.chosen.any(1).nonzero()[:, 0].tolist():
                p_V = p_BTV[row, int(part.chosen[row].nonzero()[-1])]
                expected.append(torch.linalg.svdvals(W - p_V @ W))
    made = compute(of, Settings(contexts=40))
    assert made.contexts == len(expected) > 1
    torch.testing.assert_close(
        torch.tensor(made.values, dtype=torch.float64), torch.stack(expected).mean(0), rtol=0, atol=1e-9
    )
    few = Jacobian(contexts=3, values=(4.0, 2.0, 0.3, 0.03))
    assert (few.below(0.01), few.below(0.1)) == (0.25, 0.5)
    monkeypatch.setattr(jacobian, "POSITIONS", 2)
    assert compute(of, Settings(contexts=40)).contexts == 2
