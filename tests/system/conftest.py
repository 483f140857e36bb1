"""Places in which commands are run as processes of their own."""

import pytest
from disturbed import Place, suite_text


@pytest.fixture
def place(tmp_path):
    """A function: heads and more -> Place."""
    return lambda *heads, **more: Place(tmp_path / "place", suite_text(*heads, **more))


@pytest.fixture(scope="module")
def module_place(tmp_path_factory):
    """The same for all tests of a module; each has a folder of its own."""
    return lambda *heads, **more: Place(tmp_path_factory.mktemp("faults") / "place", suite_text(*heads, **more))
