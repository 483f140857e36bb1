"""A plug-in that cheats, found by its entry point, in workers of Ray and in the command's own process."""

from pathlib import Path

import pytest

HOSTILE = Path(__file__).parent.parent / "support" / "hostile"


ASKED = "the nll that was counted for a token is not -log_probs of its target, asked in a process of its own"
CHEATS = ["honest_alone", "remembers", "most_segments", "told"]


@pytest.mark.parametrize(("executor", "cheats"), [("ray", CHEATS[-1:]), ("inline", CHEATS)], ids=["ray", "inline"])
def test_what_cheats_is_invalid_under_every_executor(executor, cheats, place):
    here = place(
        "softmax", f"cheating: {{kind: [{', '.join(cheats)}]}}", backbones="backbones: [telling: {d_model: 8}]"
    )
    done = here.run("--no-tracking", "--executor", executor, env={"PYTHONPATH": str(HOSTILE)})
    assert done.returncode == 1, done.stderr
    statuses = {label: (record["status"], record["message"][: len(ASKED)]) for label, record in here.by_head().items()}
    assert statuses == {"softmax": ("ok", "")} | {f"cheating kind={kind}": ("invalid", ASKED) for kind in cheats}
    assert "invalid: the nll that was counted" in done.stdout
