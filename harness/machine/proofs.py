"""Proofs that the GPU code of the harness computes correctly on this machine's GPU. Parts that fail are switched off.

The parts of the harness that are made for GPUs are used on a device only after a proof on this device. A separate
process (harness/trial/prove.py) runs each part on small cases and compares its numbers with known ones. The outcome is
kept in the cache folder for this GPU model, driver, version of torch, Triton and the harness, and source code. A part
that fails is not used on this machine, and slower code runs instead. On the CPU there is nothing to prove.
"""

import contextlib
import hashlib
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import pooch
import torch
from filelock import FileLock

import harness
from harness.machine.environment import device_name, now
from harness.machine.files import write_atomically
from harness.printable import sentence

Part = Literal["lean", "rows", "log_sum_exp", "graph"]
PARTS: dict[Part, tuple[str, str]] = {  # in the order of the proofs: what it is, and what runs if it is switched off
    "lean": ("the evaluation of mixtures in chunks", "mixtures are evaluated by the plain equations instead"),
    "rows": ("the Triton kernel for training", "torch's own operations run instead"),
    "log_sum_exp": ("the Triton kernel for evaluation", "torch's own operations run instead"),
    "graph": ("the CUDA graph of the training step", "steps run operation by operation instead"),
}
CACHE = Path(pooch.os_cache("output-head-harness")) / "proofs"
DRIVER = Path("/proc/driver/nvidia/version")
SOURCES = (  # below harness/
    "kernels/*.py",
    "training/cuda_graph.py",
    "training/step.py",
    "trial/prov*.py",
    "distributions.py",
)
SECONDS = 300  # time limit for one process of a proof; most of its time is the compilation of Triton's kernels
MARK = "proof: "  # the beginning of each line that the process reports
MODULE = "harness.trial.prove"

_known: dict[torch.device, "Proof"] = {}
_one_at_a_time = threading.RLock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The outcome of a proof for one device.

    Args:
        failed: part -> what was wrong.
        seconds: the time that the proof took.
        made: when it was made.
    """

    device: str
    failed: dict[str, str]
    seconds: float
    made: str

    def sentence(self, part: str) -> str:
        """Return a sentence for a part that failed: it is switched off, the reason, and what runs instead."""
        what, instead = PARTS[part]
        return f"Switched off on this machine ({self.device}): {what}, since {self.failed[part]}; {instead}"


def proof_for(device: torch.device, *, again: bool = False) -> Proof:
    """Return the proof for a device, from the cache or made now, which takes seconds.

    `again`: make it now in any case.
    """
    if device.type != "cuda":
        return Proof(device=device_name(device), failed={}, seconds=0.0, made=now())
    device = _indexed(device)
    with _one_at_a_time:
        if again or device not in _known:
            _known[device] = _kept_or_made(device, again)
        return _known[device]


def may_use(part: Part, device: torch.device) -> bool:
    """Return whether a part may be used on a device."""
    return device.type != "cuda" or part not in proof_for(device).failed


def switched_off(device: torch.device) -> tuple[str, ...]:
    """Return a sentence for each part that is switched off on a device."""
    proof = proof_for(device)
    return tuple(proof.sentence(part) for part in PARTS if part in proof.failed)


@contextmanager
def assume_failed(device: torch.device, failed: dict[str, str]) -> Iterator[None]:
    """Switch off exactly `failed` on a device within the block, for all threads. For the proof itself and for tests."""
    device = _indexed(device)
    before = _known.get(device)
    _known[device] = Proof(device=str(device), failed=failed, seconds=0.0, made=now())
    try:
        yield
    finally:
        _known.pop(device)
        if before is not None:
            _known[device] = before


def proof_file(device: torch.device) -> Path:
    """Return the file for the proof of a device. Its name depends on everything that the numbers can depend on."""
    machine = {
        "device": device_name(device),
        "driver": _driver(),
        "torch": torch.__version__,
        "Triton": _triton(),
        "harness": harness.__version__,
        "source": _source(),
    }
    return CACHE / f"{hashlib.sha256(json.dumps(machine).encode()).hexdigest()[:12]}.json"


def make_proof(device: torch.device) -> tuple[Proof, bool]:
    """Make the proof for a device now.

    A part that raises an exception or ends its process has failed. Then another process continues with the remaining
    parts, because an error of a GPU may affect all later work of the same process.

    Returns: the proof, and whether all parts could be tried.
    """
    began, failed, left, tried = time.monotonic(), {}, list(PARTS), True
    while left:
        lines, ended = _reported(device, left, failed)
        if not lines or "tried" in lines[-1]:  # the device cannot be used, for example because its memory is in use
            cause = lines[-1]["tried"] if lines else ended
            failed |= dict.fromkeys(left, f"it could not be tried: {cause}")
            tried = False
            break
        for line in lines[1:]:
            left.remove(line["part"])
            failed |= {line["part"]: line["fault"]} if line["fault"] else {}
        if left and not (len(lines) > 1 and lines[-1]["fault"]):
            failed[left.pop(0)] = ended
    seconds = round(time.monotonic() - began, 1)
    return Proof(device=device_name(device), failed=failed, seconds=seconds, made=now()), tried


def _kept_or_made(device: torch.device, again: bool) -> Proof:
    kept = proof_file(device)
    with contextlib.suppress(OSError):  # a cache that cannot be written: each process makes its own proof
        kept.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(kept.with_suffix(".lock")):
            if not again:
                with contextlib.suppress(OSError, ValueError, TypeError):  # no file yet, or a file of another format
                    return _read(kept)
            proof, tried = make_proof(device)
            if tried:
                with contextlib.suppress(OSError):
                    write_atomically(kept, json.dumps(asdict(proof), indent=1).encode())
            return proof
    return make_proof(device)[0]


def _read(kept: Path) -> Proof:
    proof = Proof(**json.loads(kept.read_bytes()))
    if not isinstance(proof.failed, dict) or not set(proof.failed) <= set(PARTS):
        raise ValueError(f"{kept} is no proof")
    return proof


def _reported(device: torch.device, left: list[str], failed: dict[str, str]) -> tuple[list[dict[str, str]], str]:
    """Run a process that proves the remaining parts; return what it reports, line by line, and how it ended."""
    root = str(Path(harness.__file__).parent.parent)
    paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    try:
        done = subprocess.run(
            _command(device, left, failed),
            env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
        out, ended = done.stdout, f"its process ended with {_way(done.returncode)}"
    except subprocess.TimeoutExpired as late:
        out, ended = late.stdout or b"", f"its process took more than {SECONDS} s"
    except OSError as cause:
        out, ended = b"", f"no process could be started ({cause})"
    lines = out.decode(errors="replace").splitlines()
    whole = (line for line in lines if line.startswith(MARK) and line.endswith("}"))
    return [json.loads(line.removeprefix(MARK)) for line in whole], sentence(ended)


def _command(device: torch.device, left: list[str], failed: dict[str, str]) -> list[str]:
    return [sys.executable, "-m", MODULE, str(device), ",".join(left), ",".join(failed)]


def _way(code: int) -> str:
    return signal.Signals(-code).name if -code in set(signal.Signals) else f"exit code {code}"


def _indexed(device: torch.device) -> torch.device:
    if device.type != "cuda" or device.index is not None:
        return device
    return torch.device("cuda", torch.cuda.current_device() if torch.cuda.is_available() else 0)


def _driver() -> str:
    """Return the driver's version on Linux; on other systems the CUDA version that the driver is made for."""
    if DRIVER.exists():
        return DRIVER.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    version = getattr(torch._C, "_cuda_getDriverVersion", None)
    return str(version()) if version is not None else "unknown"


def _triton() -> str:
    for name in ("triton", "pytorch-triton"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    return "none"


def _source() -> str:
    """Return a hash of the code that is proved: after a change of a kernel the proof is made again."""
    folder = Path(harness.__file__).parent
    found = sorted(path for pattern in SOURCES for path in folder.glob(pattern))
    return hashlib.sha256(b"".join(path.read_bytes() for path in found)).hexdigest()
