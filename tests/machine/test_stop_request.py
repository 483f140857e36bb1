"""Signals as requests: the first one is kept until the end of the block, the second one is handled at once."""

import signal
import subprocess
import sys
import threading

import pytest

from harness.machine.stop_request import Interrupted, StopRequest


class Ended(BaseException):
    """What a handler of ours raises."""


def within(stop, *acts):
    """Do some acts, one after the other, in the block."""
    with stop.deferring():
        for act in acts:
            act()


@pytest.fixture(params=[signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def number(request):
    """A signal whose handler raises Ended."""

    def handler(*_):
        raise Ended

    before = signal.signal(request.param, handler)
    yield request.param
    signal.signal(request.param, before)


def test_the_first_signal_is_kept_until_the_end_of_the_block_and_then_handled_as_before(number):
    stop, handler, done = StopRequest(), signal.getsignal(number), []
    note = lambda: done.append(stop.asked)  # noqa: E731
    with pytest.raises(Ended):
        within(stop, note, lambda: signal.raise_signal(number), note)
    assert done == [False, True]
    assert signal.getsignal(number) is handler


def test_the_second_signal_is_handled_at_once(number):
    stop, done = StopRequest(), []
    with pytest.raises(Ended):
        within(stop, *2 * (lambda: signal.raise_signal(number), lambda: done.append("after it")))
    assert done == ["after it"]


def test_without_a_signal_the_handlers_are_put_back(number):
    handlers = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    with StopRequest().deferring():
        assert signal.getsignal(number) != handlers[0]
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == handlers


def test_an_ignored_signal_stays_ignored(number):
    signal.signal(number, signal.SIG_IGN)
    stop = StopRequest()
    with stop.deferring():
        signal.raise_signal(number)
        assert signal.getsignal(number) == signal.SIG_IGN
    assert not stop.asked


def test_a_handler_that_returns_does_not_end_the_interruption(number):
    heard = []
    signal.signal(number, lambda *_: heard.append("former"))
    with pytest.raises(Interrupted):
        within(StopRequest(), lambda: signal.raise_signal(number), lambda: heard.append("the block's"))
    assert heard == ["the block's", "former"]


def test_outside_of_the_block_a_listener_hands_signals_on(number):
    stop, handlers = StopRequest(), [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    stop.listen()
    try:
        with pytest.raises(Ended):
            signal.raise_signal(number)
        with pytest.raises(Interrupted):
            within(stop, lambda: signal.raise_signal(number))
        assert stop.asked
    finally:
        for each, handler in zip((signal.SIGTERM, signal.SIGINT), handlers, strict=True):
            signal.signal(each, handler)


def test_a_request_by_a_call_raises_at_the_end_of_the_block():
    stop = StopRequest()
    stop.check()
    done = []
    with pytest.raises(Interrupted):
        within(stop, stop.ask, lambda: done.append(stop.asked))
    assert done == [True]
    with pytest.raises(Interrupted):
        stop.check()


def test_the_first_signal_after_a_call_does_not_end_the_block(number):
    stop, done = StopRequest(), []
    with pytest.raises(Ended):
        within(stop, stop.ask, lambda: signal.raise_signal(number), lambda: done.append(True))
    assert done == [True]


def test_another_thread_sets_no_handler():
    handler, seen = signal.getsignal(signal.SIGTERM), []

    def work():
        with StopRequest().deferring():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [handler]


def test_a_process_without_a_handler_ends_by_the_signal():
    text = (
        "import signal\nfrom harness.machine.stop_request import StopRequest\n"
        "signal.signal(signal.SIGTERM, signal.SIG_DFL)\n"
        "with StopRequest().deferring():\n    signal.raise_signal(signal.SIGTERM)\n    print('saved', flush=True)\n"
        "print('not reached')\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "saved\n")
