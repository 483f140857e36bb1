"""Six tiny trials, and records made by hand: no trial is run for a test of tracking."""

import shutil

import pytest
from six_trials import place, record_of, suite

__all__ = ["empty", "place", "record_of", "results", "suite"]


@pytest.fixture(scope="session")
def empty(tmp_path_factory):
    """A results folder with an empty database; making one takes seconds, copying it none."""
    from harness.tracking.sync import Mirror

    results = tmp_path_factory.mktemp("empty")
    Mirror(results)
    return results


@pytest.fixture
def results(empty, tmp_path):
    return shutil.copytree(empty, tmp_path / "results")
