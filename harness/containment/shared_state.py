"""State that all trials of a process share and that a component could change.

A change of torch's settings (`QUICK`, `TORCH`) is an error, because they affect the numbers and the speed of every
later trial. Other state of the process (`Process`) is restored without an error.
"""

import os
import sys
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from harness.random_streams import generator_states, set_generator_states

CPU = torch.device("cpu")
PRECISIONS = [(library, "all") for library in ("generic", "mkldnn", "cuda")] + [
    (library, of) for library in ("mkldnn", "cuda") for of in ("matmul", "conv", "rnn")
]
_GUARDS: list[Any] = []  # torch ends an inference mode when its guard is deleted, so the guards are kept


class Switch(NamedTuple):
    """The functions that read and write one setting of torch. `write` is None for the random seed, because `Process`
    restores the whole state of the generators.
    """

    read: Callable[[], Any]
    write: Callable[[Any], Any] | None


def _default_device() -> torch.device | None:
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)  # get_default_device takes 15 us
    return None if context is None else context.device


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _set_deterministic(values: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(values[0], warn_only=values[1])


def _denormals_are_zero() -> bool:
    return sys.float_info.min / 2 == 0  # torch has no function that returns this setting


def _set_inference_mode(mode: bool) -> None:
    _GUARDS.append(torch.inference_mode(mode))
    _GUARDS[-1].__enter__()


def _precisions() -> tuple[str, ...]:
    return tuple(torch._C._get_fp32_precision_getter(*of) for of in PRECISIONS)


def _set_precisions(values: tuple[str, ...]) -> None:
    for of, value in zip(PRECISIONS, values, strict=True):
        torch._C._set_fp32_precision_setter(*of, value)


def _cudnn() -> tuple[bool, bool, bool]:
    return torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic


def _set_cudnn(values: tuple[bool, bool, bool]) -> None:
    torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = values


def _attention() -> tuple[bool, ...]:
    cuda = torch.backends.cuda
    return cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled(), cuda.cudnn_sdp_enabled()


def _set_attention(values: tuple[bool, ...]) -> None:
    cuda = torch.backends.cuda
    setters = (cuda.enable_flash_sdp, cuda.enable_mem_efficient_sdp, cuda.enable_math_sdp, cuda.enable_cudnn_sdp)
    for setter, value in zip(setters, values, strict=True):
        setter(value)


def _fills() -> bool:
    return torch.utils.deterministic.fill_uninitialized_memory


def _set_fills(value: bool) -> None:
    torch.utils.deterministic.fill_uninitialized_memory = value


# Read before and after each call into a component: about 1 us together.
QUICK = {
    "default dtype": Switch(torch.get_default_dtype, torch.set_default_dtype),
    "default device": Switch(_default_device, torch.set_default_device),
    "inference mode": Switch(torch.is_inference_mode_enabled, _set_inference_mode),
    "grad mode": Switch(torch.is_grad_enabled, torch.set_grad_enabled),
    "deterministic algorithms": Switch(_deterministic, _set_deterministic),
    "number of threads": Switch(torch.get_num_threads, torch.set_num_threads),
    "random seed": Switch(torch.default_generator.initial_seed, None),
    "autocast": Switch(partial(torch.is_autocast_enabled, "cpu"), partial(torch.set_autocast_enabled, "cpu")),
    "anomaly mode": Switch(torch.is_anomaly_enabled, torch.set_anomaly_enabled),
    "oneDNN": Switch(torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled),
    "flushing of denormals": Switch(_denormals_are_zero, torch.set_flush_denormal),
}
# Read where models are built, and before and after a trial.
TORCH = QUICK | {
    "autocast on the GPU": Switch(
        partial(torch.is_autocast_enabled, "cuda"), partial(torch.set_autocast_enabled, "cuda")
    ),
    "precision of float32 products": Switch(_precisions, _set_precisions),
    "cuDNN settings (enabled, benchmark, deterministic)": Switch(_cudnn, _set_cudnn),
    "kernels of attention (flash, memory-efficient, math, cuDNN)": Switch(_attention, _set_attention),
    "filling of uninitialised memory": Switch(_fills, _set_fills),
}


def values(switches: Mapping[str, Switch]) -> tuple[Any, ...]:
    """Return the current values, in the order of the switches."""
    return tuple(switch.read() for switch in switches.values())


def put_back(switches: Mapping[str, Switch], before: tuple[Any, ...]) -> list[str]:
    """Restore every setting that has changed; return what changed: 'the default dtype (torch.float32 to
    torch.float64)'.
    """
    changed = []
    for (name, switch), old in zip(switches.items(), before, strict=True):
        new = switch.read()
        if new != old:
            changed.append(f"the {name} ({old} to {new})")
            if switch.write is not None:
                switch.write(old)
    return changed


OUR_VARIABLES = ("CUBLAS_WORKSPACE_CONFIG", "RAY_", "TUNE_")  # the harness and Ray set these while components run


class Process:
    """A copy of the process' state: the current folder, environment variables, warning filters, and the random
    generators of Python, numpy and torch on the CPU.
    """

    def __init__(self):
        self._folder, self._variables = Path.cwd(), dict(os.environ)
        self._filters, self._generators = list(warnings.filters), generator_states(CPU)

    def put_back(self) -> list[str]:
        """Restore the state; return what had changed. The generators are not listed: they change with every draw."""
        changed = []
        if not _is_current(self._folder):
            os.chdir(self._folder)
            changed.append("the current folder")
        old, new = self._variables, dict(os.environ)
        names = sorted(
            name for name in {*old, *new} if old.get(name) != new.get(name) and not name.startswith(OUR_VARIABLES)
        )
        for name in names:
            os.environ.pop(name, None)
            if name in old:
                os.environ[name] = old[name]
        changed += [f"the environment variable {name}" for name in names]
        if warnings.filters != self._filters:
            warnings.resetwarnings()
            warnings.filters.extend(self._filters)
            changed.append("the filters of warnings")
        set_generator_states(self._generators, CPU)
        return changed


def _is_current(folder: Path) -> bool:
    try:
        return Path.cwd() == folder
    except FileNotFoundError:  # the current folder was removed
        return False
