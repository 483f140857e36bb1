"""Ray's own folders after `harness run`: none after a good run, the last failed one's, and none of a killed one's."""

import signal
import tempfile
from pathlib import Path

import pytest
from disturbed import TRAIN, wait_for

pytestmark = pytest.mark.timeout(1800)  # Ray starts slowly on a busy machine


@pytest.fixture
def folder():
    """Where Ray makes its folders. A socket's path has at most 107 bytes, so it is not below pytest's folders."""
    with tempfile.TemporaryDirectory(prefix="r") as name:
        yield Path(name)


def sessions(folder) -> list[str]:
    return sorted(each.name for each in (folder / "ray").glob("session_*") if not each.is_symlink())


def test_a_killed_drivers_folder_goes_with_the_next_run_whose_logs_stay_if_it_fails_until_a_good_one(place, folder):
    here = place("softmax", "{faulty: {kind: raise}}", train=TRAIN.replace("epochs: 3", "epochs: 2000"))
    env = {"RAY_TMPDIR": str(folder)}
    driver = here.start("run", "--no-tracking", "--only", "head=softmax", env=env)
    try:
        wait_for(lambda: list(here.runs.glob("*/attempt.json")), 600)
        (left,) = sessions(folder)
        driver.send_signal(signal.SIGKILL)
    finally:
        here.end(driver)
    assert sessions(folder) == [left]
    here.suite.write_text(here.suite.read_text().replace("epochs: 2000", "epochs: 1"))
    failed = here.run("--no-tracking", "--only", "head=faulty", env=env)
    assert failed.returncode == 1
    (kept,) = sessions(folder)
    assert kept != left
    assert (folder / "ray" / kept / "logs").is_dir()
    good = here.run("--no-tracking", "--only", "head=softmax", env=env)
    assert good.returncode == 0, good.stderr
    assert sessions(folder) == []
    assert not (folder / "ray" / "session_latest").is_symlink()
