"""Every head of the repository can be diagnosed in float64, or says in a sentence why not."""

import math

import pytest
import torch
from commands import EVERY_HEAD
from head_table import rows
from subjects import DEEP, head_of, subject

from harness.diagnostics import calibrated, gates, spectrum
from harness.diagnostics.diagnostic import NotDefined, Settings

WITH_GATES = {name for name, _ in rows("gates")}


@pytest.mark.parametrize("head", [head_of(line) for line in EVERY_HEAD], ids=str)
def test_a_head_is_diagnosed(head):
    of, settings = subject(DEEP, head=head, tokens=60), Settings(contexts=40)
    found = spectrum.compute(of, settings)
    assert (found.contexts, found.vocabulary) == (40, 12)
    logp = torch.cat(list(spectrum.contexts(of, 40).log_probs()))
    torch.testing.assert_close(logp.logsumexp(1), torch.zeros(40, dtype=torch.float64), rtol=0, atol=1e-9)
    assert found.raw.values[0] == pytest.approx(float(torch.linalg.matrix_norm(logp, 2)), rel=1e-12)
    calibration = calibrated.compute(of, settings)
    assert 0 <= calibration.error <= 1
    assert 0 < calibration.entropy <= math.log(12) + 1e-6
    if head.name in WITH_GATES:
        assert sum(gates.compute(of, settings).nll_share) == pytest.approx(1)
    else:
        with pytest.raises(NotDefined):
            gates.compute(of, settings)
