"""What the tests of plans share: writing a suite and collecting what is wrong with it."""

from pathlib import Path

import pytest

from harness.errors import SuiteError
from harness.plan import load


@pytest.fixture
def write(tmp_path):
    """Writes a suite's text or bytes to suite.yaml."""

    def to_file(content: str | bytes) -> Path:
        path = tmp_path / "suite.yaml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return to_file


@pytest.fixture
def problems(write):
    """What is wrong with a suite, the file's path left out: ['7:5: heads.0: unknown head ...']."""

    def of(text: str, *overrides: str, call=load) -> list[str]:
        path = write(text)
        with pytest.raises(SuiteError) as caught:
            call(path, overrides) if call is load else call(path)
        assert str(caught.value) == "\n".join(caught.value.problems)
        return [problem.removeprefix(f"{path}:") for problem in caught.value.problems]

    return of
