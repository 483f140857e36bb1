"""Hundreds of trials whose workers and drivers are killed at random until all are finished, and what must hold then.

    make soak       200 trials, a SIGKILL every 5 to 15 s, the same command again and again; about 20 minutes on 2 cores

A kill falls inside a live epoch when the worker, held still for the look, has the log of a trial open that has a
checkpoint of its own epochs, has not trained its last, and has no record.
"""

import argparse
import copy
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from disturbed import Place, suite_text, workers
from shown import dump

EPOCHS = 6
HEADS = ("softmax", "mos: {num_mixtures: [2, 3], dropout: 0.1}", "faulty: {kind: slow, ms: [40, 60]}")
BACKBONES = """backbones:
  - lstm: {d_model: 8, num_layers: 1, dropout: 0.1}
  - transformer_encoder: {d_model: 8, num_layers: 1, num_heads: 2, d_ff: 8, dropout: 0.1}"""
TRAIN = f"train: {{optimizer: adam, lr: 0.01, epochs: {EPOCHS}, batch_size: 4, seq_len: 7}}"
TRIALS_A_SEED = 10  # five heads on two backbones
PAUSE = (5.0, 15.0)  # seconds between kills
DRIVERS = 0.2  # of the kills
LAST = 8  # trials at the end, for which no driver is killed: a command with nothing to run does not look at MLflow
LIVE_SHARE = 0.15  # kills inside live epochs that a soak needs, for each trial
LEFT_SECONDS = 90  # that Ray's agents outlive a driver which was killed
# The suite in one process that nothing disturbs and that never sleeps.
UNDISTURBED = """
import sys, time
time.sleep = lambda seconds: None
from harness import cli
sys.argv = ["harness", *"run suites/tiny.yaml --executor inline --no-tracking --results undisturbed".split()]
cli.main()
"""


class Soak:
    """The kills, and what they hit."""

    def __init__(self, place: Place, seed: int):
        self.place, self.rng = place, random.Random(seed)
        self.temporary = place.folder / "t"  # short: the paths of Ray's sockets are limited
        self.temporary.mkdir()
        self.planned = [trial["id"] for trial in json.loads(self._ended("plan", "--json"))["trials"]]
        self.figures, self.hits = Counter(), Counter()  # what was done; trial -> kills that it lived through

    def run(self, kill_until: float, end_at: float) -> str:
        """Start, kill and start again until the command leaves with 0; why it did not, or ''."""
        driver = self._driver()
        while time.monotonic() < end_at:
            try:
                code = driver.wait(self.rng.uniform(*PAUSE))
            except subprocess.TimeoutExpired:
                if time.monotonic() < kill_until:
                    self._strike(driver)
            else:
                if code == 0:
                    return ""
                self.figures["sessions that ended with failed trials"] += code > 0
                driver = self._driver()
        driver.kill()
        return f"not finished in time: {len(self.place.records())} of {len(self.planned)} trials have a record"

    def _strike(self, driver: subprocess.Popen) -> None:
        unfinished = len(self.planned) - len(self.place.records())
        found = workers(driver.pid)
        if unfinished > LAST and self.rng.random() < DRIVERS:
            victims, name = found, "drivers"
        elif busy := [worker for worker in found if self._trials(worker)]:
            victims, name = [self.rng.choice(busy)], "workers"
        else:  # all are starting: on a busy machine none would ever get through
            return
        with still(victims) as held:
            trials = [trial for worker in held for trial in self._trials(worker)]
            live = [trial for trial in trials if self._in_live_epoch(trial)]
            for each in held if name == "workers" else [driver]:
                each.kill()
        driver.poll()
        self.hits.update(trials)
        self.figures[f"{name} killed"] += 1
        self.figures["kills inside live epochs"] += bool(live)

    def _trials(self, worker: psutil.Process) -> list[str]:
        """The trial whose log a worker has open, if it has one."""
        try:
            places = [Path(each.path) for each in worker.open_files()]
        except psutil.Error:
            return []
        return [each.parent.name for each in places if each.name == "trial.log"]

    def _in_live_epoch(self, trial: str) -> bool:
        folder = self.place.runs / trial
        epochs = [int(each.name.split("-")[1]) for each in folder.glob("checkpoint-*.pt")]
        return not (folder / "record.json").exists() and max(epochs, default=0) in range(2, EPOCHS + 1)

    def _driver(self) -> subprocess.Popen:
        self.figures["sessions"] += 1
        with (self.place.folder / "drivers.log").open("a") as log:
            return self.place.start(
                "run", "--retry-failed", env={"TMPDIR": str(self.temporary)}, stdout=log, stderr=subprocess.STDOUT
            )

    def _ended(self, command: str, *options) -> str:
        done = self.place.end(self.place.start(command, *options), 600)
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextmanager
def still(processes: list[psutil.Process]) -> Iterator[list[psutil.Process]]:
    """Those of the processes that are there, stopped for the length of a block."""
    held = []
    for each in processes:
        try:
            each.suspend()
            held.append(each)
        except psutil.Error:
            continue
    try:
        yield held
    finally:
        for each in held:
            try:
                each.resume()
            except psutil.Error:
                continue


def violations(soak: Soak) -> Iterator[str]:
    """What does not hold of all that RELIABILITY promises of a soak, in sentences."""
    yield from wrong_records(soak)
    yield from wrong_epochs(soak)
    yield from wrong_tracking(soak)
    if left := soak.place.leftovers():
        yield f"left beside the records: {left[:10]}"
    if left := list((soak.place.folder / "results").rglob(".*.tmp")):
        yield f"temporary files: {left[:10]}"
    if left := list(soak.temporary.glob(".harness-tune-*")):
        yield f"Tune's folders of dead drivers: {left}"
    if left := left_processes(soak.place):
        yield f"processes: {[(each.pid, each.info['name']) for each in left]}"


def wrong_records(soak: Soak) -> Iterator[str]:
    """One record a planned trial, ok, with the bits of an undisturbed run."""
    found = soak.place.records()
    if sorted(found) != sorted(soak.planned) or len(set(soak.planned)) != len(soak.planned):
        yield f"{len(found)} records of {len(soak.planned)} trials"
    if failed := [trial for trial, record in found.items() if record["status"] != "ok"]:
        yield f"not ok: {failed}"
    soak.figures["workers' deaths that the last command made good"] = sum(
        record["environment"]["retries"] for record in found.values()
    )
    soak.figures["times a trial went on from a checkpoint"] = sum(
        record["environment"]["sessions"] - 1 for record in found.values()
    )
    done = soak.place.end(soak.place.script(UNDISTURBED), 3600)
    undisturbed = copy.copy(soak.place)
    undisturbed.runs = soak.place.folder / "undisturbed" / "runs" / "tiny"
    if done.returncode != 0:
        yield f"the undisturbed run ended with {done.returncode}: {done.stderr[-500:]}"
    expected, results = undisturbed.results(), soak.place.results()
    if other := [trial for trial in results if results[trial] != expected.get(trial)]:
        yield f"other bits than undisturbed: {other}"
    soak.figures["trials with the bits of the undisturbed run"] = len(results) - len(other)


def wrong_epochs(soak: Soak) -> Iterator[str]:
    """Every epoch was trained, and once more at most for each kill that its trial lived through."""
    for trial in soak.place.records():
        epochs = Counter(soak.place.epochs(trial))
        if sorted(epochs) != list(range(1, EPOCHS + 1)):
            yield f"{trial}: epochs {sorted(epochs)}"
        if max(epochs.values()) > 1 + soak.hits[trial]:
            yield f"{trial}: an epoch was trained {max(epochs.values())} times, kills: {soak.hits[trial]}"
        soak.figures["epochs trained again"] += epochs.total() - EPOCHS
        soak.figures["times that one epoch was trained, at most"] = max(
            soak.figures["times that one epoch was trained, at most"], *epochs.values()
        )


def wrong_tracking(soak: Soak) -> Iterator[str]:
    """MLflow shows each trial once, and what `harness sync` builds of the records alone is the same."""
    results, rebuilt = soak.place.folder / "results", soak.place.folder / "rebuilt"
    for part in ("runs", "tables", "artifacts"):
        shutil.copytree(results / part, rebuilt / part)
    done = soak.place.end(soak.place.command("sync", "--results", rebuilt), 600)
    if done.returncode != 0:
        yield f"`harness sync` ended with {done.returncode}: {done.stderr[-500:]}"
    tags, runs = dump(results)["tiny"]
    shown = [json.loads(run) for run in runs]
    if sorted(run[2]["harness.trial_id"] for run in shown) != sorted(soak.planned):
        yield f"{len(shown)} runs in MLflow of {len(soak.planned)} trials"
    if running := [run[0][0] for run in shown if run[0][1] != "FINISHED"]:
        yield f"runs that are not FINISHED: {running}"
    if (tags, runs) != dump(rebuilt)["tiny"]:
        yield "MLflow rebuilt from the records is not what it was"
    soak.figures["runs in MLflow"] = len(shown)


def left_processes(place: Place) -> list[psutil.Process]:
    """What still runs of the place, a while after the last kill; they know it by a variable."""
    deadline = time.monotonic() + LEFT_SECONDS
    while left := [each for each in psutil.process_iter(["name", "environ"]) if _is_of(each, place)]:
        if time.monotonic() > deadline:
            return left
        time.sleep(1)
    return []


def _is_of(process: psutil.Process, place: Place) -> bool:
    return (process.info["environ"] or {}).get("HARNESS_TEST_MARKS") == str(place.marks)


def main() -> int:
    """0 when all holds."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=200, help=f"rounded up to a multiple of {TRIALS_A_SEED}")
    parser.add_argument("--minutes", type=float, default=15.0, help="after which nothing is killed any more")
    parser.add_argument("--seed", type=int, default=1, help="of the moments and the victims")
    parser.add_argument("--keep", action="store_true", help="leave the folder of it all where it is")
    arguments = parser.parse_args()
    seeds = list(range(1, -(-arguments.trials // TRIALS_A_SEED) + 1))
    folder = Path(tempfile.mkdtemp(prefix="soak-", dir="/tmp"))
    place = Place(folder / "p", suite_text(*HEADS, seeds=str(seeds), backbones=BACKBONES, train=TRAIN))
    began = time.monotonic()
    try:
        soak = Soak(place, arguments.seed)
        kill_until = began + 60 * arguments.minutes
        wrong = [fault] if (fault := soak.run(kill_until, kill_until + 1200)) else []
        soak.figures["minutes until all were finished"] = round((time.monotonic() - began) / 60, 1)
        wrong += violations(soak)
        if soak.figures["kills inside live epochs"] < LIVE_SHARE * len(soak.planned):
            wrong.append("too few kills fell inside live epochs")
    finally:
        if not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)
    soak.figures["minutes in all"] = round((time.monotonic() - began) / 60, 1)
    print(f"{len(soak.planned)} trials of {EPOCHS} epochs, seed {arguments.seed}")
    print("\n".join(f"{value:>8} {name}" for name, value in soak.figures.items()))
    print("\n".join(f"VIOLATED: {each}" for each in wrong) or "all invariants hold")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
