"""The process that certifies trials: started before the first of them, it starts a process of its own for each.

So what a component has remembered of the text, in a trial or for a certificate, is not there when it is asked again.
The first process has the imports already, so each of the others begins in milliseconds. It is a copy of this process;
on a GPU, and where a process cannot be copied safely, it is a new Python.
"""

import io
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from harness.containment import first_line
from harness.errors import ComponentError, HarnessError
from harness.records.record import Certificate
from harness.registry import BACKBONES, HEADS, home, use_home
from harness.trial.certify import certify
from harness.trial.task import Task

POLL_SECONDS = 0.01
END_SECONDS = 10.0  # in which a process has ended after it has answered
MOST_SECONDS = 3600.0  # that a trial waits for its certificate
NEW_PYTHON = "import sys; from harness.trial.certifier import serve; serve(int(sys.argv[1]))"


class NotCertified(Exception):
    """No certificate can be had; the message says why."""


class Certifier:
    """Certifies trials in other processes.

    Args:
        copy: whether the process that starts them is a copy of this one. A copy computes in one thread: it has lost the
            others.
    """

    def __init__(self, *, copy: bool):
        self.copy = copy
        self._connection, theirs = Pipe()
        if copy:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of other threads, which it does not need
                pid = os.fork()
            if pid == 0:
                self._connection.close()
                torch.set_num_threads(1)
                torch.set_num_threads = lambda number: None  # more would wait for threads that the copy has not got
                serve(theirs.fileno())
            self._wait = partial(os.waitpid, pid, 0)
        else:
            command = [sys.executable, "-c", NEW_PYTHON, str(theirs.fileno())]
            self._wait = subprocess.Popen(command, pass_fds=[theirs.fileno()]).wait
        theirs.close()

    def certificate(
        self, task: Task, best: Path, nll: Mapping[str, Tensor], again: Mapping[str, Collection[int]] | None = None
    ) -> Certificate:
        """See `certify`.

        Raises: ComponentError when a component fails there; NotCertified when there is no answer.
        """
        asked = {"task": (replace(task, threads=1) if self.copy else task).to_json(), "home": str(home())}
        asked |= {"best": str(best.resolve()), "again": dict(again or {})}
        counted = io.BytesIO()
        np.savez(counted, **{name: nll_N.cpu().numpy() for name, nll_N in nll.items()})
        try:
            self._connection.send_bytes(json.dumps(asked).encode())
            self._connection.send_bytes(counted.getbuffer())
            if not self._connection.poll(MOST_SECONDS):
                raise NotCertified(f"the process that certifies gave no answer in {MOST_SECONDS:.0f} seconds")
            answer = json.loads(self._connection.recv_bytes())
        except (EOFError, OSError) as gone:
            self.end()
            raise NotCertified("the process that certifies has ended") from gone
        except BaseException:  # its answer would be taken for that to the next question
            self.end()
            raise
        if "raised" in answer:
            raise ComponentError(f"asked again in a process of its own: {answer['raised']}")
        if "refused" in answer:
            raise NotCertified(answer["refused"])
        return Certificate.model_validate(answer)

    def end(self) -> None:
        """End the process. The next trial starts another one."""
        self._connection.close()  # which ends what it is doing, too
        self._wait()
        _shared.cache_clear()


@contextmanager
def certifying(task: Task) -> Iterator[Certifier]:
    """The certifier for a trial. Entered before the trial begins, it has seen nothing of it.

    All trials of this process share one, except those of a class that was registered in a notebook or script, perhaps
    after the shared one began.
    """
    copy = task.device == "cpu" and sys.platform == "linux"
    if HEADS.is_importable(task.spec.head.name) and BACKBONES.is_importable(task.spec.backbone.name):
        yield _shared(os.getpid(), copy)
        return
    own = Certifier(copy=copy)
    try:
        yield own
    finally:
        own.end()


@cache
def _shared(pid: int, copy: bool) -> Certifier:
    """That of a process."""
    return Certifier(copy=copy)


def serve(number: int) -> None:
    """Answer each question on a connection in a process of its own, until the other end is closed. Does not return."""
    try:
        os.setsid()  # Ctrl-C is for the trial, whose end closes the connection
        connection = Connection(number)
        while True:
            asked, counted = connection.recv_bytes(), connection.recv_bytes()
            pid = os.fork()
            if pid == 0:
                connection.send_bytes(_answer(json.loads(asked), counted))
                os._exit(0)
            asked_again = 0.0
            while (ended := os.waitpid(pid, os.WNOHANG)) == (0, 0):
                if not connection.poll(POLL_SECONDS):
                    continue
                asked_again = asked_again or time.monotonic()  # or the other end is closed
                time.sleep(POLL_SECONDS)
                if time.monotonic() > asked_again + END_SECONDS:
                    os.kill(pid, signal.SIGKILL)
            if ended[1]:
                died = {"refused": f"the process that asked the weights again ended with status {ended[1]}"}
                connection.send_bytes(json.dumps(died).encode())
    finally:
        os._exit(1)


def _answer(asked: dict, counted: bytes) -> bytes:
    try:
        use_home(Path(asked["home"]))
        with np.load(io.BytesIO(counted)) as arrays:
            nll = {name: torch.from_numpy(array) for name, array in arrays.items()}
        found = certify(Task.from_json(asked["task"]), Path(asked["best"]), nll, asked["again"])
        return found.model_dump_json().encode()
    except HarnessError as fault:
        return json.dumps({"refused": str(fault)}).encode()
    except BaseException as fault:
        return json.dumps({"raised": first_line(fault)}).encode()
