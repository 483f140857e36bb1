"""What was removed is refused with one sentence that says what to use instead."""

import pytest

from harness.cli.commands import COMMANDS
from harness.removed import INSTEAD

TYPED = {each: each.removeprefix("harness ").split() for each in INSTEAD if each.startswith(("harness ", "--"))}


@pytest.mark.parametrize("removed", TYPED)
def test_what_was_removed_is_refused_with_what_to_use_instead(removed, harness):
    words = TYPED[removed]
    done = harness(*(["run", "quickstart", *words] if removed.startswith("--") else words))
    assert (done.code, done.out) == (2, "")
    assert done.err == f"'{removed}' was removed: {INSTEAD[removed]}\n"


def test_no_command_that_exists_is_refused():
    assert not {f"harness {name}" for name in COMMANDS} & set(INSTEAD)
