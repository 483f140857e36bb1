"""What is done with components (heads, backbones, corpora, which may be anyone's code) cannot end the program or change
torch for those that follow.

`contained` is used around a trial, and around whatever else builds or calls components. It raises a ComponentError
instead of

- SystemExit, KeyboardInterrupt, GeneratorExit and any other exception that would end the program,
- an exception whose text cannot be shown,
- a change of torch's settings, which are compared at the end of the block. The old settings are restored.

The current folder, the handlers of signals, and the random generators of Python, numpy and torch on the CPU are
restored without an error. Any other exception is not changed. Neither is one that no component raised: the user's
Ctrl-C, a SIGTERM, a request to stop, the alarm of a time limit, and exceptions raised within `from_outside`.
"""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from harness.errors import ComponentError
from harness.machine.stop_request import Interrupted
from harness.printable import sentence
from harness.random_streams import generator_states, set_generator_states

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)  # Ctrl-C, a request to end, the alarm of a time limit
OUTSIDE = "raised_outside_of_components"  # attribute of an exception
CPU = torch.device("cpu")
PRECISIONS = [(library, "all") for library in ("generic", "mkldnn", "cuda")] + [
    (library, of) for library in ("mkldnn", "cuda") for of in ("matmul", "conv", "rnn")
]
_GUARDS: list[Any] = []  # torch ends an inference mode when its guard is deleted, so the guards are kept


@contextmanager
def contained(who: str) -> Iterator[None]:
    """Check and restore everything; see the module's docstring.

    Args:
        who: the components in messages: 'head mos on backbone lstm'.
    """
    folder, generators = Path.cwd(), generator_states(CPU)
    try:
        with guarded(who):
            yield
    finally:
        os.chdir(folder)
        set_generator_states(generators, CPU)


@contextmanager
def guarded(who: str, where: str = "") -> Iterator[None]:
    """`contained` without the current folder and the random generators, which an import, for example, may change.

    Args:
        where: what the component does, in messages: 'its constructor'.
    """
    before, place = values(), f" in {where}" if where else ""
    try:
        with marked_signals():
            yield
    except BaseException as error:
        changed = put_back(before)
        if is_from_outside(error) or isinstance(error, ComponentError):
            raise
        if changed:
            raise ComponentError(_changes(who, changed, place)) from error
        if not isinstance(error, Exception) or not _can_be_shown(error):
            raise ComponentError(f"{who} raised {first_line(error)}{place}{_line_of(error)}") from error
        raise
    else:
        if changed := put_back(before):
            raise ComponentError(_changes(who, changed, place))


@contextmanager
def from_outside() -> Iterator[None]:
    """Mark exceptions that are raised within the block as not raised by a component."""
    try:
        yield
    except BaseException as error:
        setattr(error, OUTSIDE, True)
        raise


@contextmanager
def marked_signals() -> Iterator[None]:
    """Mark exceptions that the handlers of SIGNALS raise within the block as not raised by a component.

    Afterwards the old handlers are restored, also if a component replaced them. Python runs signal handlers in the main
    thread only, so nothing is done in other threads.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        for number, handler in before.items():
            if callable(handler):
                signal.signal(number, _marking(handler))
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # None: the handler was not set from Python
                signal.signal(number, handler)


def first_line(error: BaseException) -> str:
    """Return 'ValueError: its text', one line of limited length, also for an exception whose text cannot be
    computed. A first line that ends with a colon has the second one after it.
    """
    name = type(error).__name__
    try:
        text = str(error)
    except BaseException as second:
        if is_from_outside(second):
            raise
        return f"{name}, whose text cannot be shown: its __str__ raises {type(second).__name__}"
    first, *more = f"{name}: {text}".splitlines() if text else [name]
    return sentence(f"{first} {more[0].strip()}" if first.endswith(":") and more else first)


def is_from_outside(error: BaseException) -> bool:
    """Return whether an exception was not raised by a component: it is marked, or is a request to stop."""
    return getattr(error, OUTSIDE, False) or isinstance(error, Interrupted)


def _can_be_shown(error: BaseException) -> bool:
    try:
        return isinstance(str(error), str)
    except BaseException as second:
        if is_from_outside(second):
            raise
        return False


def _line_of(error: BaseException) -> str:
    """Where an exception was raised: ' (mos.py, line 52)'."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def _changes(who: str, changed: list[str], place: str) -> str:
    return f"{who} changed {', '.join(changed)}{place}; a component must leave torch's settings as they are"


def _marking(handler: Callable[..., Any]) -> Callable[..., Any]:
    def marked(*arguments: Any) -> Any:
        with from_outside():
            return handler(*arguments)

    return marked


class Switch(NamedTuple):
    """The functions that read and write one setting of torch."""

    read: Callable[[], Any]
    write: Callable[[Any], Any]


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


SETTINGS = {
    "default dtype": Switch(torch.get_default_dtype, torch.set_default_dtype),
    "default device": Switch(_default_device, torch.set_default_device),
    "inference mode": Switch(torch.is_inference_mode_enabled, _set_inference_mode),
    "grad mode": Switch(torch.is_grad_enabled, torch.set_grad_enabled),
    "deterministic algorithms": Switch(_deterministic, _set_deterministic),
    "number of threads": Switch(torch.get_num_threads, torch.set_num_threads),
    "autocast": Switch(partial(torch.is_autocast_enabled, "cpu"), partial(torch.set_autocast_enabled, "cpu")),
    "anomaly mode": Switch(torch.is_anomaly_enabled, torch.set_anomaly_enabled),
    "oneDNN": Switch(torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled),
    "flushing of denormals": Switch(_denormals_are_zero, torch.set_flush_denormal),
    "autocast on the GPU": Switch(
        partial(torch.is_autocast_enabled, "cuda"), partial(torch.set_autocast_enabled, "cuda")
    ),
    "precision of float32 products": Switch(_precisions, _set_precisions),
    "cuDNN settings (enabled, benchmark, deterministic)": Switch(_cudnn, _set_cudnn),
    "kernels of attention (flash, memory-efficient, math, cuDNN)": Switch(_attention, _set_attention),
    "filling of uninitialised memory": Switch(_fills, _set_fills),
}


def values() -> tuple[Any, ...]:
    """Return the current values of torch's settings, in the order of SETTINGS."""
    return tuple(switch.read() for switch in SETTINGS.values())


def put_back(before: tuple[Any, ...]) -> list[str]:
    """Restore every setting that has changed; return what changed: 'the default dtype (torch.float32 to
    torch.float64)'.
    """
    changed = []
    for (name, switch), old in zip(SETTINGS.items(), before, strict=True):
        new = switch.read()
        if new != old:
            changed.append(f"the {name} ({old} to {new})")
            switch.write(old)
    return changed
