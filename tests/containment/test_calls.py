"""Around components: what passes, what becomes a ComponentError, what is put back."""

import os
import signal
import threading

import pytest
import torch

from harness.containment import (
    SETTINGS,
    contained,
    first_line,
    from_outside,
    guarded,
    marked_signals,
    put_back,
    values,
)
from harness.errors import ComponentError
from harness.machine.stop_request import Interrupted


class Unprintable(Exception):
    def __str__(self):
        raise SystemExit(0)


def test_an_ordinary_exception_passes_as_it_is():
    error = ValueError("no such width")
    with pytest.raises(ValueError, match="no such width") as raised, contained("head x"):
        raise error
    assert raised.value is error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (SystemExit(0), "SystemExit: 0"),
        (SystemExit(), "SystemExit"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (GeneratorExit("done"), "GeneratorExit: done"),
        (BaseException("beyond"), "BaseException: beyond"),
        (Unprintable(), "Unprintable, whose text cannot be shown: its __str__ raises SystemExit"),
    ],
)
def test_what_would_end_the_program_names_the_component_and_the_place(error, said):
    with pytest.raises(ComponentError) as raised, guarded("head x", "its constructor"):
        raise error
    assert str(raised.value).startswith(f"head x raised {said} in its constructor (test_calls.py, line ")
    assert raised.value.__cause__ is error


def test_around_a_trial_an_interrupt_that_no_component_raised_is_the_users():
    with pytest.raises(Interrupted), contained("head x"):
        raise Interrupted
    with pytest.raises(ComponentError, match="head x raised KeyboardInterrupt"), contained("head x"):
        raise KeyboardInterrupt


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGALRM])
def test_what_a_signals_handler_raises_passes_through_a_component(number):
    class Rung(BaseException):
        pass

    def ring(*_):
        raise Rung

    before = signal.signal(number, ring)
    try:
        with pytest.raises(Rung), contained("head x"):
            signal.raise_signal(number)
        assert signal.getsignal(number) is ring
    finally:
        signal.signal(number, before)


def test_what_the_driver_raises_passes_through_as_tunes_own_exit_does():
    with pytest.raises(SystemExit), contained("head x"), from_outside():
        raise SystemExit(0)


def test_off_the_main_thread_no_interrupt_is_the_users():
    found = []

    def work():
        try:
            with contained("head x"):
                raise KeyboardInterrupt
        except ComponentError as error:
            found.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    (said,) = found
    assert said.startswith("head x raised KeyboardInterrupt (test_calls.py, line ")


def test_signal_handlers_are_put_back():
    before = signal.getsignal(signal.SIGINT)
    with marked_signals():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_change_that_makes_the_call_fail_is_what_is_told():
    def nll():
        torch.set_default_dtype(torch.float64)
        raise RuntimeError("expected Float but found Double")

    with pytest.raises(ComponentError, match="head x changed the default dtype") as raised, contained("head x"):
        nll()
    assert torch.get_default_dtype() is torch.float32
    assert isinstance(raised.value.__cause__, RuntimeError)


def test_several_changes_are_one_sentence():
    def forward():
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)

    with pytest.raises(ComponentError) as raised, guarded("head x", "forward"):
        forward()
    told = "the default dtype (torch.float32 to torch.float64), the grad mode (True to False)"
    wanted = "a component must leave torch's settings as they are"
    assert str(raised.value) == f"head x changed {told} in forward; {wanted}"
    assert torch.is_grad_enabled()


def test_settings_changed_for_a_while_and_draws_are_allowed():
    with contained("head x"):
        with torch.no_grad(), torch.autocast("cpu"), torch.random.fork_rng(devices=[]), torch.device("meta"):
            torch.manual_seed(3)
            torch.rand(3)
        torch.rand(3)


def test_every_setting_is_put_back_to_what_it_was():
    before = values()
    assert put_back(before) == []
    turned = {
        "default dtype": torch.float64,
        "default device": torch.device("meta"),
        "inference mode": True,
        "grad mode": False,
        "deterministic algorithms": (True, True),
        "number of threads": torch.get_num_threads() + 1,
        "autocast": True,
        "anomaly mode": True,
        "oneDNN": False,
        "flushing of denormals": True,
        "autocast on the GPU": True,
        "precision of float32 products": ("none", "none", "none", "bf16", "none", "none", "tf32", "none", "none"),
        "cuDNN settings (enabled, benchmark, deterministic)": (False, True, True),
        "kernels of attention (flash, memory-efficient, math, cuDNN)": (False, False, True, False),
        "filling of uninitialised memory": False,
    }
    assert turned.keys() == SETTINGS.keys()
    for name, value in turned.items():
        SETTINGS[name].write(value)
        if name != "flushing of denormals" or torch.set_flush_denormal(True):  # not every processor can
            assert SETTINGS[name].read() == value, name
    put_back(before)
    assert values() == before


def test_the_current_folder_is_put_back_also_from_one_that_was_removed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gone = tmp_path / "gone"
    gone.mkdir()
    with contained("head x"):
        os.chdir(gone)
        gone.rmdir()
    assert os.getcwd() == str(tmp_path)


def test_an_exception_is_one_line_of_bounded_length():
    assert first_line(ValueError("one\ntwo")) == "ValueError: one"
    assert first_line(ValueError("one:\n\ttwo\nthree")) == "ValueError: one: two"
    assert first_line(ValueError()) == "ValueError"
    assert first_line(ValueError("\x1b[31mred \udce9")) == r"ValueError: \x1b[31mred \udce9"
    assert len(first_line(ValueError("x" * 10_000_000))) < 2_100
