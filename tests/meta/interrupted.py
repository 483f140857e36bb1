"""A trial that is interrupted several times within its training ends with the bits of an undisturbed one.

    python tests/meta/interrupted.py SUITE --only seed=1 --set train.epochs=2 --times 3

It runs the chosen trial undisturbed, and once more in another folder, where SIGTERM comes after an equal part of the
training time in each session. Each time the trial must save a checkpoint and end with exit code 143. Then results,
curves and weights are compared. Exit code 0: they are equal, bit for bit.

Two epochs of a ground truth on Penn Treebank take 15 minutes on a core (two times the training):

    HARNESS_DATA=DIR python tests/meta/interrupted.py suites/ground_truth_pytorch.yaml --set train.epochs=2 \
        --only seed=1,tie_weights=false
"""

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

import psutil
from golden import PATIENCE, command, finish, results_of, started

from harness.report import history

SHARE = 0.6  # of the time that would spread the signals evenly: a machine that is less busy now must not finish before
INTERRUPTED = 143  # exit code after SIGTERM
BEGIN = (1, 0)  # epoch and steps done, before the first step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("suite", type=Path)
    parser.add_argument("--only", action="append", default=[], metavar="KEY=VALUE[,...]")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--times", type=int, default=3, help="how often the training is interrupted")
    given = parser.parse_args()
    options = ["--executor", "inline"]
    options += [part for text in given.only for part in ("--only", text)]
    options += [part for text in given.set for part in ("--set", text)]
    with tempfile.TemporaryDirectory() as folder:
        undisturbed, disturbed = Path(folder) / "undisturbed", Path(folder) / "disturbed"
        finish(started(command(given.suite, undisturbed, *options)))
        (trial,) = trials_of(undisturbed)
        pause = SHARE * 60 * trial.minutes / (given.times + 1)
        print(f"undisturbed: {trial.minutes:.2f} minutes of training, test ppl {trial.test_ppl}", flush=True)
        number, before = 0, BEGIN
        while number < given.times:
            where = interrupt(command(given.suite, disturbed, *options), disturbed, pause)
            if where == before:  # the machine is busy: the session has made no step, and counts as none
                pause *= 2
                continue
            number, before = number + 1, where
            print(f"interruption {number}: saved in epoch {where[0]}, {where[1]} steps done", flush=True)
        finish(started(command(given.suite, disturbed, *options)))
        expected, found = (results_of(next((each / "runs").iterdir())) for each in (undisturbed, disturbed))
    if expected != found:
        sys.exit(f"the results differ:\n{expected}\n{found}")
    print(f"equal after {given.times} interruptions: weights {found[trial.id]['weights_sha256']}")


def trials_of(results: Path) -> list[history.TrialHistory]:
    """The finished trials of a results folder with one suite."""
    (suite,) = history.suites(results)
    return history.of_trials(results, suite, lambda sentence: None)


def interrupt(arguments: list[str], results: Path, pause: float) -> tuple[int, int]:
    """Run a command, and send it SIGTERM `pause` seconds after its trial has begun a session.

    Returns: epoch, and steps of it that are done, of the checkpoint. Raises SystemExit when the run ends otherwise.
    """
    sessions = begun(results)
    process = started(arguments)
    until = time.monotonic() + PATIENCE
    while begun(results) == sessions and process.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(pause)
    if process.poll() is None:
        psutil.Process(process.pid).send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=PATIENCE)
    if process.returncode != INTERRUPTED:
        sys.exit(f"expected exit code {INTERRUPTED} after SIGTERM, got {process.returncode}: {err.decode()}")
    newest = max(results.glob("runs/*/*/checkpoint-*.pt"), default=None)
    if newest is None:
        return BEGIN
    _, epoch, step, _ = newest.stem.split("-")
    return int(epoch), int(step)


def begun(results: Path) -> int:
    """How many sessions the logs of trials name; each begins with 'trial <id>: ' and its settings."""
    logs = results.glob("runs/*/*/trial.log")
    return sum(place.read_text().count(f" trial {place.parent.name}: ") for place in logs)


if __name__ == "__main__":
    main()
