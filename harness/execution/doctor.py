"""Checks whether this machine can run trials: each check examines one thing and returns a Finding.

Neither Ray nor MLflow is imported, and no file is left behind. It belongs to execution/ because it checks what
`harness run` needs, and so reads what most other packages write.
"""

import importlib.metadata
import os
import platform
import shutil
import socket
import sqlite3
import sys
import tempfile
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

import psutil
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from harness.errors import ExecutionError
from harness.execution.ray import cluster
from harness.machine.environment import cpus_available
from harness.machine.files import existing, write_fault
from harness.machine.processes import abandoned_scratch
from harness.printable import counted
from harness.records.store import FILE_NAME
from harness.tracking import database

DISTRIBUTION = "output-head-harness"
SHOWN_PACKAGES = ("torch", "ray", "mlflow", "pydantic", "scipy", "transformers")
NOT_NEEDED_TO_RUN = ("mlflow",)  # without it a run prints a warning
NEWEST_TESTED = {"torch": "2.15"}
GIB = 2**30
DISK_NEEDED, DISK_WANTED = 0.1 * GIB, 2 * GIB
MEMORY_WANTED = 1 * GIB
UI_PORT = 5000
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check found: a `value` to show, problems that prevent `harness run`, and notes that do not."""

    name: str
    value: str
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def examine(results: Path, data: Path) -> list[Finding]:
    """Make all checks."""
    return [
        versions(),
        results_folder(results),
        data_folder(data),
        memory(),
        threads(),
        sqlite(results),
        mlflow(results),
        ray(),
        unfinished(results),
    ]


def versions() -> Finding:
    """Python and the packages: do they meet the requirements of this package?"""
    shown = ", ".join(f"{name} {_version(name) or 'missing'}" for name in SHOWN_PACKAGES)
    try:
        needed_python = importlib.metadata.metadata(DISTRIBUTION)["Requires-Python"] or ""
        needed = [Requirement(line) for line in importlib.metadata.requires(DISTRIBUTION) or []]
    except importlib.metadata.PackageNotFoundError:
        return Finding(name="packages", value=shown, problems=(f"{DISTRIBUTION} is not installed in {sys.executable}",))
    problems, notes = [], []
    if not SpecifierSet(needed_python).contains(python := platform.python_version()):
        problems.append(f"Python {python} is not supported; needed: {needed_python}")
    for requirement in needed:
        if requirement.marker is None and (fault := _version_fault(requirement)):
            (notes if requirement.name in NOT_NEEDED_TO_RUN else problems).append(fault)
    for name, newest in NEWEST_TESTED.items():
        if (found := _version(name)) and SpecifierSet(f">{newest},!={newest}.*").contains(found):
            notes.append(f"{name} {found} is newer than the newest that is tested, {newest}")
    return Finding(name="packages", value=shown, problems=tuple(problems), notes=tuple(notes))


def results_folder(results: Path) -> Finding:
    """Can the results folder be written, and has its disk enough space?"""
    if fault := write_fault(results):
        problem = f"the results folder {results} cannot be written ({fault}); name another with --results"
        return Finding(name="results", value=str(results), problems=(problem,))
    free = shutil.disk_usage(existing(results)).free
    return Finding(
        name="results",
        value=f"{results.resolve()}, {_gib(free)} free",
        problems=(
            f"the disk of {results} is full: {_gib(free)} are left; free some, or name another folder with --results",
        )
        if free < DISK_NEEDED
        else (),
        notes=(f"only {_gib(free)} are left on the disk of {results}",) if DISK_NEEDED <= free < DISK_WANTED else (),
    )


def data_folder(data: Path) -> Finding:
    """Can corpora be downloaded to the data folder? Corpora that it already contains can be read in any case."""
    fault = write_fault(data)
    note = f"the data folder {data} cannot be written ({fault}): corpora that it does not contain cannot be downloaded"
    return Finding(name="data", value=str(data.resolve()), notes=(note,) if fault else ())


def memory() -> Finding:
    """How much memory is free for this process, with the limit of its control group."""
    free = psutil.virtual_memory().available
    limit, used = (_number(CGROUP / name) for name in ("memory.max", "memory.current"))
    if limit is not None and used is not None:
        free = min(free, max(limit - used, 0))
    low = (f"only {_gib(free)} of memory are free",) if free < MEMORY_WANTED else ()
    return Finding(name="memory", value=f"{_gib(free)} free", notes=low)


def threads() -> Finding:
    """Do environment variables make libraries start more threads than this process has cores?"""
    cores = cpus_available()
    given = {name: os.environ[name] for name in THREADS if name in os.environ}
    return Finding(
        name="thread settings",
        value=", ".join(f"{name}={value}" for name, value in given.items()) or "none in the environment",
        notes=tuple(
            f"{name}={value} is more than the {cores} cores of this process: trials are slower"
            for name, value in given.items()
            if value.isdecimal() and int(value) > cores
        ),
    )


def sqlite(results: Path) -> Finding:
    """Does SQLite work in the results folder? Some network file systems have no locks."""
    problems = ()
    if not write_fault(results):
        try:
            with tempfile.TemporaryDirectory(dir=existing(results), prefix=".doctor-") as scratch:
                with closing(sqlite3.connect(Path(scratch) / "probe.db", timeout=1)) as probe:
                    probe.execute("CREATE TABLE probe (number)")
        except (sqlite3.Error, OSError) as fault:
            sentence = f"SQLite does not work in {results} ({fault}) and MLflow needs it; name another with --results"
            problems = (sentence,)
    return Finding(name="SQLite", value=sqlite3.sqlite_version, problems=problems)


def mlflow(results: Path) -> Finding:
    """MLflow's database, incomplete runs, stores of older versions, and the port of the UI."""
    problems, notes = [], list(_old_stores(results))
    value = f"no {results / database.DATABASE} yet"
    if database.exists(results):
        value = str(results / database.DATABASE)
        try:
            database.refuse_unusable(results)
            notes += _database_notes(results)
        except database.UnusableDatabase as fault:
            problems.append(f"{fault}; `harness sync` writes it again from the records")
        except ExecutionError as fault:
            notes.append(f"{fault}; runs work without MLflow until `harness sync`")
    if _taken(UI_PORT):
        notes.append(f"port {UI_PORT} is taken: use `harness ui --port`")
    return Finding(name="MLflow", value=value, problems=tuple(problems), notes=tuple(notes))


def ray() -> Finding:
    """Ray's token, the home folder that keeps it, and the addresses of clusters that no longer run."""
    problems = []
    for refuse in (cluster.refuse_open_ray, cluster.refuse_homeless_ray):
        try:
            refuse()
        except ExecutionError as fault:
            problems.append(str(fault))
    notes = []
    if stale := cluster.stale_address():
        notes.append(
            f"{stale} names a Ray cluster that does not answer; `harness run` does not use it, and it can be deleted"
        )
    if token := cluster.exposed_token():
        notes.append(f"Ray's token {token} can be read by every user of this machine: chmod 600 {token}")
    value = "cannot start" if problems else f"its token is on; home {Path.home()}"
    return Finding(name="Ray", value=value, problems=tuple(problems), notes=tuple(notes))


def unfinished(results: Path) -> Finding:
    """Interrupted trials, and temporary folders of drivers that no longer run."""
    runs = results / "runs"
    folders = [each for each in runs.glob("*/*/") if not each.name.startswith(".")]
    trials = [each for each in folders if any(each.glob("*.pt")) and not (each / FILE_NAME).exists()]
    notes = [
        f"{number} of the trials of {suite} were started and have no record: `harness run` continues them"
        for suite, number in sorted(Counter(each.parent.name for each in trials).items())
    ]
    scratch = [left for suite in sorted(runs.glob("*/")) for left in abandoned_scratch(suite)]
    notes += [f"{each} was left by a driver that no longer runs on this machine; delete it" for each in scratch]
    return Finding(name="interrupted", value=f"{counted(len(trials), 'trial')} without a record", notes=tuple(notes))


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _version_fault(needed: Requirement) -> str:
    found = _version(needed.name)
    if found is None:
        return f"{needed.name} is not installed; needed: {needed}"
    return "" if needed.specifier.contains(found, prereleases=True) else f"{needed.name} is {found}; needed: {needed}"


def _old_stores(results: Path) -> list[str]:
    """A note for each store of MLflow 2, which MLflow 3 refuses to read."""
    uri = os.environ.get("MLFLOW_TRACKING_URI", "")
    notes = [f"MLFLOW_TRACKING_URI={uri} is not used: runs are shown from {results / database.DATABASE}"] if uri else []
    places = [results / "mlruns"]
    if uri and urlparse(uri).scheme in ("", "file"):
        places.append(Path(unquote(urlparse(uri).path)))
    return notes + [
        f"{place} is a file store, which this MLflow refuses; to keep its runs: mlflow migrate-filestore --source "
        f"{place} --target sqlite:///{place.resolve().parent / 'mlruns.db'}"
        for place in places
        if place.is_dir()
    ]


def _database_notes(results: Path) -> list[str]:
    notes = []
    if before := database.made_elsewhere(results):
        notes.append(
            f"{results / database.DATABASE} was made for {before}; `harness sync` writes it again from the records"
        )
    if left := database.left_running(results):
        notes.append(f"{len(left)} MLflow runs are incomplete: their driver was killed; `harness sync` replaces them")
    return notes


def _taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def _number(place: Path) -> int | None:
    """The number in a file of the kernel; None when it is 'max' or the file does not exist."""
    try:
        return int(place.read_text())
    except (OSError, ValueError):
        return None


def _gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB"
