"""A head that fails as it is told to: a plug-in, so that nothing of the harness knows of faults made for tests."""

import faulthandler
import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from torch._subclasses import FakeTensor

from harness.heads.softmax import Softmax

pause = time.sleep  # of a step that takes `ms`: nothing where the steps of a test need not be slow
Kind = Literal["none", "raise", "sigkill", "hang", "oom", "nan", "eat", "slow", "held", "mlflow"]


class Faulty(Softmax):
    """A softmax but for what happens in one training step. Adds a letter to the mark `steps` in each, where
    HARNESS_TEST_MARKS names a folder.

    Args:
        kind: what happens.
        at: in which training step of the process, from 1.
        times: how often in all, over all processes; counted in the folder HARNESS_TEST_MARKS.
        ms: of every step, for 'slow'.
    """

    def __init__(self, dims, embedding, *, kind: Kind = "none", at: int = 1, times: int = 1_000_000, ms: float = 0.0):
        super().__init__(dims, embedding)
        self.kind, self.at, self.times, self.ms = kind, at, times, ms
        self.steps, self.eaten = 0, []
        self.watchdog = None
        if kind == "hang":
            self._note_watchdog()

    def forward(self, hidden):
        counted = isinstance(hidden.layers[-1], FakeTensor)  # its FLOPs, before it is trained
        if self.training and torch.is_grad_enabled() and not counted:
            self.steps += 1
            if folder := os.environ.get("HARNESS_TEST_MARKS"):  # the nodes of a cluster have none
                with (Path(folder) / "steps").open("a") as marks:
                    marks.write("x")
            pause(self.ms / 1e3)
            if self.steps >= self.at and self.kind not in ("none", "slow") and self._again():
                getattr(self, f"_{self.kind}")()
        distribution = super().forward(hidden)
        if self.kind == "nan" and self.training and not counted:
            distribution.facets_NFE.data.fill_(float("nan"))
        return distribution

    def _again(self) -> bool:
        place = Path(os.environ["HARNESS_TEST_MARKS"]) / f"{self.kind}-{self.at}-{self.times}"
        if self.kind in ("eat", "nan"):
            return True
        done = len(place.read_text()) if place.exists() else 0
        if done < self.times and self.steps == self.at:
            place.write_text("x" * (done + 1))
            return True
        return False

    def _raise(self):
        raise RuntimeError("planted | with `marks`\nand a second line")

    def _sigkill(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def _note_watchdog(self):
        """Keep with which arguments the harness sets the interpreter's watchdog, which it does anew with each epoch."""
        set_watchdog = faulthandler.dump_traceback_later

        def noted(seconds, **options):
            self.watchdog = partial(set_watchdog, **options)
            set_watchdog(seconds, **options)

        faulthandler.dump_traceback_later = noted

    def _hang(self):
        if self.watchdog is not None:
            self.watchdog(0.5)  # as if the time that the suite allows were nearly over
        time.sleep(10_000)

    def _held(self):
        """Waits for the file `go` among the marks: a test says when the trial goes on."""
        go, until = Path(os.environ["HARNESS_TEST_MARKS"]) / "go", time.monotonic() + 1000
        while not go.exists() and time.monotonic() < until:  # no worker stays for ever that a test lost sight of
            time.sleep(0.01)

    def _oom(self):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB")

    def _nan(self):
        pass

    def _eat(self):
        self.eaten.append(torch.ones(64 * 2**20))  # 256 MiB a step

    def _mlflow(self):
        import sys

        place = Path(os.environ["HARNESS_TEST_MARKS"]) / f"imported-{os.getpid()}"
        place.write_text(" ".join(name for name in ("mlflow", "ray") if name in sys.modules))
