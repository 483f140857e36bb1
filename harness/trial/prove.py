"""The process that proves parts of the harness on a device: `python -m harness.trial.prove DEVICE LEFT FAILED`.

harness/machine/proofs.py starts it and reads its lines. LEFT: the parts to prove, separated by commas; FAILED: the
parts that are known to be wrong. The process ends after the first part that raises, since an error of a GPU may persist
in its process.
"""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from harness.kernels import devices
from harness.kernels.devices import Kernels
from harness.kernels.proving import fault_of_evaluation, fault_of_training
from harness.machine import proofs
from harness.printable import sentence
from harness.training.cuda_graph import Record, captured
from harness.training.cuda_graph_proof import fault_of_graph

TORCHS = Kernels()


@dataclass(frozen=True, slots=True)
class Accelerators:
    """What is proved on a device: kernels, and the function that records a step as a graph; None where not used."""

    kernels: Kernels | None
    record: Record | None


def accelerators(device: torch.device) -> Accelerators:
    """What the harness would use on a device; nothing on the CPU."""
    if device.type != "cuda":
        return Accelerators(None, None)
    return Accelerators(devices.triton_kernels() if devices.has_triton() else None, captured)


def proved(
    device: torch.device, given: Accelerators, left: list[str], failed: dict[str, str]
) -> Iterator[tuple[str, str, bool]]:
    """For each part that is left: its name, what is wrong with it ('' when it is right), and whether it raised.

    Args:
        failed: the parts that are switched off from the start; parts that fail are added. The graph is proved with the
            kernels that training will use.
    """
    with proofs.assume_failed(device, failed):
        for part in left:
            fault, raised = _tried(lambda part=part: _fault(part, device, given, failed))
            if fault:
                failed[part] = fault
            yield part, fault, raised


def _fault(part: str, device: torch.device, given: Accelerators, failed: dict[str, str]) -> str:
    kernels = given.kernels
    if part == "lean":
        return fault_of_training(device, TORCHS)
    if part == "graph":
        trusted = kernels if kernels is not None and "rows" not in failed else TORCHS
        with devices.use_kernels(trusted):
            return "" if given.record is None else fault_of_graph(device, given.record)
    if kernels is None or "lean" in failed:  # they run within the lean evaluation only
        return ""
    return fault_of_training(device, kernels) if part == "rows" else fault_of_evaluation(device, kernels)


def _tried(attempt: Callable[[], str]) -> tuple[str, bool]:
    try:
        return attempt(), False
    except torch.OutOfMemoryError:
        raise  # no fault of the part
    except Exception as error:  # any error means that the part does not work here
        return _line(error), True


def _report(**fields: str) -> None:
    print(proofs.MARK + json.dumps(fields), flush=True)


def main(name: str, left: str, failed: str) -> None:
    """Prove the parts, and print a line for each."""
    device = torch.device(name)
    torch.set_num_threads(1)
    try:
        torch.zeros(1, device=device).item()
    except Exception as cause:  # the device cannot be used: no part was tried
        _report(tried=_line(cause))
        return
    _report(begun=name)
    known = dict.fromkeys(filter(None, failed.split(",")), "failed before")
    try:
        for part, fault, raised in proved(device, accelerators(device), left.split(","), known):
            _report(part=part, fault=fault)
            if raised:
                return
    except torch.OutOfMemoryError as cause:
        _report(tried=_line(cause))


def _line(error: Exception) -> str:
    return sentence(f"{type(error).__name__}: {error}".splitlines()[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
