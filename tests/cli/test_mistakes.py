"""A user's mistake in the arguments is a sentence and exit code 2, and nothing is written."""

import shlex

import pytest
from commands import files, mistakes

NOT_RUN = "1 problem; nothing was run"  # the last line where the mistake is one of the suite
CASES = [
    pytest.param(of, *each, marks=[pytest.mark.needs("integrity")] if each[0].startswith("site") else [])
    for of in ("fresh", "finished", "typer")
    for each in mistakes(of)
]


@pytest.mark.parametrize(("of", "command", "says"), CASES)
def test_a_mistake_is_one_sentence_and_nothing_is_written(of, command, says, request, harness):
    folder = request.getfixturevalue("fresh" if of == "fresh" else "finished")
    before = files(folder)
    done = harness(*shlex.split(command))
    assert (done.code, done.out) == (2, "")
    if of == "typer":  # drawn in a box
        assert says in " ".join(done.err.replace("│", " ").split())
    else:
        first, *others = done.err.splitlines()
        assert says in first
        assert others in ([], [NOT_RUN])
    assert files(folder) == before
