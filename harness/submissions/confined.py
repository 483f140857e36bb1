"""Runs what executes a submitted source in a process of its own, with limits and without network.

The process has limits of time, memory, file size and number of processes; no variables of the user; a folder of its own
as home and cache; an audit hook (harness/submissions/stops.py); and, on Linux where users may make namespaces, no
network device. What this cannot stop is in docs/submitting.md.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import psutil

import harness
from harness import bundled
from harness.errors import ExecutionError
from harness.machine.files import read_end
from harness.machine.limits import cpus_available
from harness.printable import printable
from harness.submissions.outcomes import CHECKS, Check

MODULE = "harness.submissions.inside"
MEMORY = 16 * 2**30  # bytes of addresses; torch alone takes some 5 GiB of them
FILE_SIZE = 2**30  # bytes of a file that it writes
PROCESSES = 256  # and threads, beyond those that the user has
MAX_REPORT = 2**20
KEPT = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "SYSTEMROOT", "VIRTUAL_ENV", "TMPDIR")  # variables
LIMITS = "limits"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the process is asked to do.

    Args:
        kind: 'examine': all checks that need the source but the training; 'train': a trial again.
        folder: of the unpacked submission, which becomes its current folder.
        suite: the file of the suite.
        head: its entry in the list of heads; head_name: the name in it.
        own_source: the source of the head is in the submission.
    """

    kind: str
    folder: str
    suite: str
    head: str
    head_name: str
    own_source: bool
    data: str
    trial: str = ""
    minutes: float | None = None


Run = Callable[[Job, float], list[Check]]


def run(job: Job, seconds: float) -> list[Check]:
    """Run a job, and return what it has found; a refusal where it was ended or left no report."""
    folder = Path(job.folder)
    report, stopped, log = folder / "report.json", folder / "stopped.txt", folder / "log.txt"
    for each in (report, stopped):
        each.unlink(missing_ok=True)
    (folder / "job.json").write_text(json.dumps(asdict(job)), encoding="utf-8")
    command = [*_without_network(), sys.executable, "-m", MODULE, str(folder / "job.json")]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=_environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=partial(_limit, seconds, _threads_of_user()),
        )
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return [Check(LIMITS, "refused", f"{job.kind} was not finished after {seconds:.0f} seconds")]
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if stopped.exists():
        said = printable(_end(stopped)[:200])
        return [Check(LIMITS, "refused", f"the source was stopped at what a head does not do: {said}")]
    return _read(report, log, process.returncode)


def _read(report: Path, log: Path, code: int) -> list[Check]:
    """The report of the process; a refusal without one."""
    try:
        if not report.is_file() or report.stat().st_size > MAX_REPORT:
            raise ValueError("no report, or too large a one")
        return CHECKS.validate_python(json.loads(report.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError):
        last = _end(log).strip().splitlines()
        said = f": {printable(last[-1][:300])}" if last else ""
        return [Check(LIMITS, "refused", f"the process that runs the source ended with code {code}{said}")]


def _end(place: Path) -> str:
    """The last 2,000 bytes of a file, as text."""
    try:
        return read_end(place, 2000).decode(errors="replace")
    except OSError:
        return ""


@cache
def _without_network() -> tuple[str, ...]:
    """A command that runs another one without network devices; () where that is not allowed."""
    command = ("unshare", "--map-root-user", "--net")
    if shutil.which(command[0]) is None:
        return ()
    done = subprocess.run([*command, "true"], capture_output=True, check=False)
    return command if done.returncode == 0 else ()


def has_network() -> bool:
    """Whether the process keeps a network, since no namespace without one can be made here."""
    return not _without_network()


def _environment(folder: Path) -> dict[str, str]:
    """The variables of the process, and the files that make each Python in it install the hook."""
    site, home = folder / "site", folder / "home"
    for each in (site, home):
        each.mkdir(exist_ok=True)
    code = [sys.prefix, sys.base_prefix, harness.FOLDER, bundled("heads"), bundled("backbones")]
    readable = tuple(str(Path(each).resolve()) for each in code)
    arguments = (str(folder.resolve() / "heads"), readable, str(folder / "stopped.txt"))
    text = f"from harness.submissions.stops import install\n\ninstall(*{arguments!r})\n"
    (site / "sitecustomize.py").write_text(text, encoding="utf-8")
    in_a_clone = not (harness.FOLDER / "heads").is_dir()
    paths = [str(site), *([str(harness.FOLDER.parent)] if in_a_clone else [])]
    return {
        **{name: os.environ[name] for name in KEPT if name in os.environ},
        **{"HOME": str(home), "HARNESS_CACHE": str(home), "XDG_CACHE_HOME": str(home)},
        **{"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1", "CUDA_VISIBLE_DEVICES": ""},
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(cpus_available())),
    }


def _threads_of_user() -> int:
    """How many threads the user of this process has, which count for the limit."""
    found = 0
    for process in psutil.process_iter():
        with suppress(psutil.Error, AttributeError):
            if process.uids().real == os.getuid():
                found += process.num_threads()
    return found


def _limit(seconds: float, threads: int) -> None:
    """Set the limits of the process. Those of the number of processes do not hold for root."""
    import resource

    cpu = int(seconds * cpus_available()) + 60
    wanted: dict[int, Any] = {
        resource.RLIMIT_CPU: cpu,
        resource.RLIMIT_AS: MEMORY,
        resource.RLIMIT_FSIZE: FILE_SIZE,
        resource.RLIMIT_NPROC: threads + PROCESSES,
        resource.RLIMIT_CORE: 0,
    }
    for kind, value in wanted.items():
        _, most = resource.getrlimit(kind)
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(kind, (value, value))


def refuse_elsewhere() -> None:
    """Raises ExecutionError on a system without these limits."""
    if not sys.platform.startswith("linux"):
        raise ExecutionError("a submission is checked on Linux only: elsewhere its source cannot be limited")
