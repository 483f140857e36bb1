"""Mutated suites and records, the same 50 of each every time; `make fuzz` tries thousands of others."""

import fuzz
import pytest

pytestmark = pytest.mark.system


@pytest.mark.parametrize("kind", ["suites", "records"])
def test_mutants_are_read_or_refused_with_a_place(kind, tmp_path):
    ends = fuzz.run(kind, 50, tmp_path, repeatable=True)
    assert ends.total() >= 50
    assert set(ends) == {"read", "refused"}
    assert ends["read"] >= 0.3 * ends.total()  # or only the front door would be tested


def test_a_problem_without_a_place_and_any_other_error_are_faults(tmp_path, monkeypatch):
    def load(*arguments):
        raise raised

    monkeypatch.setattr(fuzz.plan, "load", load)
    monkeypatch.setattr(fuzz.store, "load", load)
    raised = fuzz.SuiteError(["something is wrong"])
    with pytest.raises(AssertionError):
        fuzz.read_suite(tmp_path, "", ())
    raised = KeyError("not expected")
    with pytest.raises(KeyError):
        fuzz.read_suite(tmp_path, "", ())
    with pytest.raises(KeyError):
        fuzz.read_record(tmp_path, b"")


def test_a_mutant_that_takes_too_long_is_a_fault(monkeypatch):
    monkeypatch.setattr(fuzz, "SECONDS", 0.0)
    with pytest.raises(AssertionError, match="too slow"):
        fuzz.timed(lambda: "read")
