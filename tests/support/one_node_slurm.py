"""A SLURM of one node: munged, slurmctld and slurmd of Debian's packages, in a folder and on ports of their own."""

import os
import shutil
import socket
import subprocess
import tempfile
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from disturbed import wait_for

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
CPUS = 2
SETTINGS = """\
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmdSpoolDir={folder}/spool
StateSaveLocation={folder}/state
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MailProg=/bin/true
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@contextmanager
def running():
    """Start it; it is the SLURM of this process and its children until the block ends. Skips where that cannot be."""
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        pytest.skip(f"no {', '.join(missing)}: apt-get install slurm-wlm munge")
    if os.getuid() != 0:
        pytest.skip("slurmd runs jobs as root only")
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))  # short, for the path of a socket
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o755)  # munged refuses a folder that others cannot enter
        (folder / "spool").mkdir()
        (folder / "state").mkdir()
        (folder / "munge.key").touch(mode=0o600)
        (folder / "munge.key").write_bytes(os.urandom(128))
        given = {"host": socket.gethostname().partition(".")[0], "ports": free_ports(2), "cpus": CPUS}
        (folder / "slurm.conf").write_text(SETTINGS.format(folder=folder, **given))
        stack.enter_context(pytest.MonkeyPatch.context()).setenv("SLURM_CONF", str(folder / "slurm.conf"))
        files = {
            "key-file": "munge.key",
            "socket": "munge.socket",
            "pid-file": "munged.pid",
            "seed-file": "munged.seed",
        }
        own = [f"--{name}={folder / file}" for name, file in {**files, "log-file": "munged.log"}.items()]
        daemons = [
            stack.enter_context(_daemon(folder, "munged", "--foreground", *own)),
            stack.enter_context(_daemon(folder, "slurmctld", "-D")),
            stack.enter_context(_daemon(folder, "slurmd", "-D")),
        ]
        wait_for(lambda: _asked("sinfo", "--noheader", "--format=%T") == "idle" or any(map(_has_ended, daemons)))
        if any(map(_has_ended, daemons)):
            logs = "\n".join(place.read_text()[-500:] for place in sorted(folder.glob("*.log")))
            pytest.skip(f"SLURM does not start here: {logs}")
        stack.callback(_end_all_jobs)
        yield


def free_ports(number: int) -> list[int]:
    with ExitStack() as stack:
        bound = [stack.enter_context(closing(socket.socket())) for _ in range(number)]
        for each in bound:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in bound]


def jobs(*columns: str) -> list[list[str]]:
    """The columns that squeue shows of each job that has not ended, by the names of `squeue --Format`."""
    shown = _asked("squeue", "--noheader", "--array", f"--Format={','.join(f'{name}:60' for name in columns)}")
    return [line.split() for line in shown.splitlines()]


@contextmanager
def _daemon(folder: Path, name: str, *options: str):
    with (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen([name, *options], stdout=log, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _has_ended(process: subprocess.Popen) -> bool:
    return process.poll() is not None


def _end_all_jobs() -> None:
    subprocess.run(["scancel", "--user=root"], check=True)
    wait_for(lambda: not jobs("JobID"))


def _asked(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()
