"""The process that certifies trials: a new Python, which forks a process for each question.

What a component has remembered in a trial's memory is not there when its weights are asked again, and what it learns
from the questions of one trial is gone before those of the next. The process is started beside the first trial of a
command and serves all of them; under Ray it serves the workers of the command's machine. It ends with the process that
started it.
"""

import atexit
import io
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache, lru_cache
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harness.containment import first_line
from harness.errors import ComponentError, HarnessError
from harness.integrity.certify import certify, joined
from harness.records.record import Certificate
from harness.registry import BACKBONES, CORPORA, HEADS, home, use_home
from harness.training.evaluation import FROM_THE_RIGHT
from harness.trial.setup import is_out_of_memory
from harness.trial.task import NotCertified, Task

KINDS = {"head": HEADS, "backbone": BACKBONES}
MOST_SECONDS = 3600.0  # that a trial waits for an answer
SERVE = "import sys; from harness.integrity.certifier import serve; serve(int(sys.argv[1]), *sys.argv[2:])"


def begin(task: Task) -> None:
    """Start the process for a task, unless there is one: it needs some seconds, in which the trial can train."""
    with suppress(Exception):  # which shows again when it is asked
        _address(task)
        _of_session(task)


def start() -> Path:
    """The address of the process for this one, which is started once. Raises OSError."""
    own = home() if any((home() / name).is_dir() for name in ("heads", "backbones")) else None
    return _started(os.getpid(), own, tuple(each or os.getcwd() for each in sys.path))


def certificate(
    task: Task, best: Path, nll: Mapping[str, Tensor], again: Mapping[str, Collection[int]] | None = None
) -> Certificate:
    """`certify` in a process of its own. What is read from the right is asked in one more: who reads a text from the
    left to a position knows what is due from the right before it.

    Raises: ComponentError when a component fails there; NotCertified when there is no answer.
    """
    try:
        classes = _of_session(task)
    except Exception as fault:
        raise NotCertified(
            f"a class of this session cannot be sent to another process ({first_line(fault)})"
        ) from fault
    sent, found = replace(task, data=task.data.resolve()).to_json(), []
    for right in (False, True):
        counted = {name: nll[name].cpu().numpy() for name in nll if name.endswith(FROM_THE_RIGHT) == right}
        if counted:
            found.append(_answered(task, (classes, (sent, best.resolve(), counted, dict(again or {})))))
    return joined(found)


def _answered(task: Task, question: tuple[bytes, tuple]) -> Certificate:
    try:
        with _connected(task) as connection:
            connection.send((os.environ.get("CUDA_VISIBLE_DEVICES"), *question))
            if not connection.poll(MOST_SECONDS):
                raise NotCertified(f"the process that certifies gave no answer in {MOST_SECONDS:.0f} seconds")
            answer = json.loads(connection.recv_bytes())
    except (EOFError, OSError) as gone:
        _started.cache_clear()  # the next trial starts another one
        raise NotCertified(f"the process that certifies has ended ({first_line(gone)})") from gone
    if "raised" in answer:
        raise ComponentError(f"asked again in a process of its own: {answer['raised']}")
    if "refused" in answer:
        raise NotCertified(answer["refused"])
    return Certificate.model_validate(answer)


def serve(number: int, folder: str, home_of_user: str) -> None:
    """Answer each question in a process of its own until standard input is closed, as it is when the process that
    started this one has ended.

    Args:
        number: of the file descriptor of a listening socket.
        folder: in which the socket is; removed at the end.
    """
    listening = socket.socket(fileno=number)
    use_home(Path(home_of_user))  # whose files, as heads and backbones, are imported for each question
    CORPORA.names()  # imported once
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes that answer
    while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:
        line, _ = listening.accept()
        if os.fork() == 0:
            _serve_one(Connection(line.detach()))
        line.close()
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)


def _serve_one(connection: Connection) -> None:
    """Answer one question. Does not return."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.alarm(int(MOST_SECONDS))  # which ends this process
        connection.send_bytes(json.dumps(_answer(*connection.recv())).encode())
        connection.close()
    finally:
        os._exit(0)


def _answer(gpus: str | None, classes: bytes, asked: tuple) -> dict[str, Any]:
    try:
        _register(classes)
    except Exception as fault:
        return {"refused": f"a class of this session cannot be used by another process ({first_line(fault)})"}
    try:
        if gpus is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = gpus
        task, best, counted, again = asked
        nll = {name: torch.from_numpy(nll_N) for name, nll_N in counted.items()}
        return certify(Task.from_json(task), best, nll, again).model_dump(mode="json")
    except BaseException as fault:
        of_machine = isinstance(fault, HarnessError | OSError) or is_out_of_memory(fault)
        return {"refused" if of_machine else "raised": first_line(fault)}


def _address(task: Task) -> Path:
    """That of the command's process, unless this is another machine, or else that of this process."""
    given = task.certifier
    return given if given is not None and given.exists() else start()


def _connected(task: Task) -> Connection:
    try:
        return Client(str(_address(task)), family="AF_UNIX")
    except (ConnectionError, FileNotFoundError):  # it was ended
        _started.cache_clear()
        return Client(str(start()), family="AF_UNIX")


@lru_cache(maxsize=1)
def _started(pid: int, home_of_user: Path | None, paths: tuple[str, ...]) -> Path:
    """The address of a new process that certifies. It ends when its standard input is closed: with this process.

    Args:
        pid: of this process, so that a copy of it starts its own.
        home_of_user: see harness.registry.home; None if there is no component.
        paths: where modules are found.
    """
    folder = tempfile.mkdtemp(prefix="harness-certifier-", dir="/tmp")  # the path of a socket has at most 107 bytes
    address = Path(folder, "socket")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(address))
        listening.listen(socket.SOMAXCONN)
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", SERVE, str(listening.fileno()), folder, str(home_of_user or folder)],
            pass_fds=[listening.fileno()],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the trial
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
    atexit.register(_end, process)
    return address


def _end(process: subprocess.Popen) -> None:
    process.stdin.close()
    process.wait()


def _of_session(task: Task) -> bytes:
    """The classes of a task that are of a notebook or script: no other process can import them."""
    names = {kind: getattr(task.spec, kind).name for kind in KINDS}
    own = [(kind, name, KINDS[kind].get(name)) for kind, name in names.items() if not KINDS[kind].is_importable(name)]
    return _pickled(tuple(own)) if own else b""


@cache
def _pickled(classes: tuple[tuple[str, str, type], ...]) -> bytes:
    """Classes as they were when they were first used: what they remember later is not in it."""
    import cloudpickle

    content = io.BytesIO()
    cloudpickle.dump(classes, content)
    return content.getvalue()


def _register(classes: bytes) -> None:
    if not classes:
        return
    import cloudpickle

    for kind, name, found in cloudpickle.loads(classes):
        KINDS[kind].register(name)(found)
