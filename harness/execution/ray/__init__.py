"""Trials under Ray, which is imported in this package only: its settings, and what it needs before it starts.

Ray listens on all network interfaces, and a program that can connect to it can run code. Ray's token, on by default,
keeps other users out. Ray reads settings from the environment when it is imported, so they are made here, before any
module of this package imports it.
"""

import os
import tempfile
from pathlib import Path

from harness.errors import ExecutionError
from harness.machine.files import write_fault

AUTH_MODE = "RAY_AUTH_MODE"
TOKENS = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")  # a token that the user set; otherwise Ray keeps one in the home
TOKEN_FILE = ".ray/auth_token"
FOLDER = "RAY_TMPDIR"  # Ray's variable for the folder of its sessions
OTHER_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")
MOST_BYTES = 107  # of the path of a socket
LONGEST_PATH = "ray/session_2026-11-22_01-02-03_000004_1234567/sockets/plasma_store"  # of a socket, within the folder
# That a data-parallel group has to save its trial when the run ends; SLURM's default leaves a run 30. Tune kills its
# own workers after 10, whatever is set (Ray 2.60, TuneController._cleanup_stopping_actors).
STOP_SECONDS = 20
MAX_FAILURES = 10  # of the workers of one trial in one run; a trial that fails twice in one place ends earlier
SETTINGS = {  # what Ray does with each, and without it: tests/execution/test_ray_settings.py
    AUTH_MODE: "token",  # otherwise no token is sent to a cluster that is joined by its address
    "RAY_AIR_NEW_OUTPUT": "0",  # otherwise Tune prints tables of its own, also with verbose=0
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # otherwise, under `uv run`, Ray uploads the working folder to each worker
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # otherwise workers change to a folder of Tune; a suite's relative paths are of ours
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "300",  # 60 by default, too few for workers that start on a busy machine
    "RAY_USAGE_STATS_ENABLED": "0",  # otherwise a nightly build of Ray sends statistics; a release sends none from here
    "RAY_worker_niceness": "0",  # 15 by default: beside other busy programs trials would hardly get a core
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # otherwise Tune writes CSV, JSON and TensorBoard files of each trial
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # otherwise Ctrl-C ends trials and not the command
    "TUNE_FORCE_TRIAL_CLEANUP_S": str(STOP_SECONDS),  # until a worker that hangs after its trial is killed, not 600
}
for _name, _value in SETTINGS.items():
    os.environ.setdefault(_name, _value)


def refuse_open_ray() -> None:
    """Raises ExecutionError when the environment switches Ray's token off, so that others could run code here."""
    if (mode := os.environ.get(AUTH_MODE, "token")).lower() != "token":
        raise ExecutionError(
            f"{AUTH_MODE}={mode}: anyone who can reach this machine could run code under Ray; unset {AUTH_MODE}, or "
            "use --executor inline"
        )


def refuse_homeless_ray() -> None:
    """Raises ExecutionError when Ray cannot write its token to the home folder: it does not start then."""
    if any(os.environ.get(name) for name in TOKENS):
        return
    home = Path.home()
    if not (home / TOKEN_FILE).is_file() and (fault := write_fault((home / TOKEN_FILE).parent)):
        raise ExecutionError(
            f"the home folder {home} cannot be written ({fault}) and Ray keeps its token there; set HOME to another "
            "folder, or use --executor inline"
        )


def temporary_folder() -> Path:
    """Return the folder of Ray's sessions: RAY_TMPDIR, else TMPDIR where its path is short enough for sockets, else
    another one. Raises ExecutionError when it cannot be used.
    """
    if named := os.environ.get(FOLDER):
        if fault := _folder_fault(Path(named)):
            raise ExecutionError(f"{FOLDER}={named} cannot be used for Ray's sockets: {fault}; name another folder")
        return Path(named).absolute()
    for folder in (tempfile.gettempdir(), *OTHER_FOLDERS):
        if not (fault := _folder_fault(Path(folder))):
            return Path(folder)
    raise ExecutionError(
        f"Ray finds no folder for its sockets: {folder} {fault}; set {FOLDER} to a folder on a local disk "
        "with a short path, or use --executor inline"
    )


def _folder_fault(folder: Path) -> str:
    """Why Ray cannot have its sockets in a folder; '' if it can."""
    if fault := write_fault(folder / "ray"):  # another user's, it may be
        return f"cannot be written ({fault})"
    long = len(os.fsencode(folder.absolute() / LONGEST_PATH)) - MOST_BYTES
    return f"its path is {long} bytes too long" if long > 0 else ""


def exposed_token() -> str:
    """Ray's token file when other users of this machine can read it, else ''. Ray creates it with default rights."""
    place = Path.home() / TOKEN_FILE
    reachable = all(each.exists() and each.stat().st_mode & 0o001 for each in (place.parent, Path.home()))
    return str(place) if reachable and place.is_file() and place.stat().st_mode & 0o004 else ""
