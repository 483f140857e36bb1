"""A plug-in that cheats, found by its entry point, in workers of Ray and in the command's own process."""

from pathlib import Path

import pytest

HOSTILE = Path(__file__).parent.parent / "support" / "hostile"


@pytest.mark.parametrize("executor", ["ray", "inline"])
def test_a_head_that_cheats_is_invalid_under_every_executor(executor, place):
    here = place("softmax", "cheating: {kind: honest_alone}")
    done = here.run("--no-tracking", "--executor", executor, env={"PYTHONPATH": str(HOSTILE)})
    assert done.returncode == 1, done.stderr
    statuses = {label: (record["status"], record["message"]) for label, record in here.by_head().items()}
    assert statuses["softmax"] == ("ok", "")
    assert statuses["cheating kind=honest_alone"] == (
        "invalid",
        "the nll of a test token is not -log_probs of its target: the gap is 0.7 (allowed: 0.001)",
    )
    assert "invalid: the nll of a test token" in done.stdout
