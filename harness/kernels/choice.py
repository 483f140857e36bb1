"""Which form of the loss runs: the fastest on this trial's own batch; on a GPU only one that agreed with the equations.

Training takes the form that was the fastest when its first batch was met (harness/kernels/fastest.py), where that is
asked for, and goes on with it. All else takes the first form that fits.

A form is checked on a GPU when a shape is first met (harness/kernels/agreement.py), never while a CUDA graph is
captured. `check_again` repeats the check of the nll with fewer tokens; each evaluation of a split begins with it.

A form that disagrees or raises is left out from then on, and so is one that stores all logits and runs out of memory.
On the CPU nothing is checked: the tests do that.
"""

import logging
import os
import sys
import traceback
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Literal

import torch
from torch import Tensor

from harness.kernels import products
from harness.kernels.agreement import TOKENS, fault_of
from harness.kernels.fastest import fastest
from harness.kernels.forms import FORMS, Form, differentiates
from harness.kernels.mixture import Tensors, in_sizes_only

FEWER_TOKENS = 64  # when the check of the nll is repeated
UNKNOWN_SHAPE = "a mixture of another shape is evaluated for the first time while a graph is captured"

LOGGER = logging.getLogger(__name__)


class Choice:
    """The forms that a trial takes: which of them agreed on which shape, and which are left out.

    Args:
        left_out: name -> reason, of the parts for GPUs that do not run: those of an earlier part of the trial.
        trying: makes a context within which a part is tried. What it writes down before is there when the process ends
            within it.
        log: receives a sentence when a part is left out.
        forms: in the order in which they are asked.
        devices: types of devices on which forms are checked.
        trained_by: the name of the form that training takes where it fits; "" for the first one.
        pieces: 'auto': the form of training is measured; 'chunked' or 'stored': it is one of these; '': neither.
    """

    def __init__(
        self,
        left_out: Mapping[str, str] | None = None,
        *,
        trying: Callable[[str], AbstractContextManager[None]] = lambda name: nullcontext(),
        log: Callable[[str], None] = LOGGER.warning,
        forms: Sequence[Form] = FORMS,
        devices: Sequence[str] = ("cuda",),
        trained_by: str = "",
        pieces: Literal["", "auto", "chunked", "stored"] = "",
    ):
        self.left_out = dict(left_out or {})
        self.trying, self.log, self.forms, self.devices = trying, log, forms, devices
        self.trained_by, self.pieces = trained_by, pieces
        self._agreed: set[Hashable] = set()
        self._again: set[Hashable] = set()  # what agreed before and is to be checked once more

    def form(self, mixture: Tensors, targets_N: Tensor, z_loss: float) -> Form:
        """Return the first form that fits, is not left out and agrees.

        Raises: RuntimeError for a shape that is first met while a CUDA graph is captured.
        """
        order = self.forms
        if differentiates(mixture) and not in_sizes_only():
            if self.pieces and not self.trained_by:
                self.trained_by = self._form_of_training(mixture, targets_N, z_loss).name
            order = sorted(order, key=lambda form: form.name != self.trained_by)
        return next(self._fitting(order, mixture, targets_N, z_loss))

    def _fitting(self, forms: Sequence[Form], mixture: Tensors, targets_N: Tensor, z_loss: float) -> Iterator[Form]:
        """Yield those of the forms that fit, are not left out and agree."""
        gradients = differentiates(mixture)
        checks = mixture.facets_NFE.device.type in self.devices and not in_sizes_only()
        for form in forms:
            if form.name in self.left_out or not form.fits(mixture, gradients):  # guard: form-left-out first
                continue
            # guard: form-agreed always
            if not (checks and form.checked) or self._agrees(form, mixture, targets_N, z_loss):
                yield form

    def _form_of_training(self, mixture: Tensors, targets_N: Tensor, z_loss: float) -> Form:
        """Return the form with these pieces, or the fastest one.

        Raises: ValueError where no form has the pieces that are asked for; RuntimeError while a CUDA graph is captured.
        """
        asked = [form for form in self.forms if form.pieces and self.pieces in ("auto", form.pieces)]
        fitting = list(self._fitting(asked, mixture, targets_N, z_loss))
        if not fitting and self.pieces == "stored":
            raise ValueError("train.loss_form is stored, which this head, batch or device cannot have; take auto")
        if len(fitting) < 2 or self.pieces != "auto":
            return next(self._fitting([*fitting, *self.forms], mixture, targets_N, z_loss))
        if _captures(mixture):
            raise RuntimeError(UNKNOWN_SHAPE)
        return fastest(fitting, mixture, targets_N, z_loss)

    def check_again(self) -> None:
        """Check the nll of every shape that is evaluated without gradients once more when it is next met."""
        self._again = {key for key in self._agreed if not key[1]}

    def leave_out(self, name: str, reason: str) -> None:
        """Note that a part for GPUs does not run, and why. If it was the form of training, another one is chosen."""
        self.left_out[name] = reason
        if name == self.trained_by:
            self.trained_by = ""
        self.log(self._sentence(name))

    def sentences(self) -> tuple[str, ...]:
        """Return a sentence for each part that is left out: what it is, the reason, and what runs instead."""
        return tuple(map(self._sentence, self.left_out))

    def _sentence(self, name: str) -> str:
        parts = {form.name: (form.what, "another form of it runs instead") for form in reversed(self.forms)}
        parts["graph"] = ("the CUDA graph of the training step", "steps run operation by operation instead")
        what, instead = parts.get(name, (name, "other code runs instead"))
        return f"Left out on this device: {what}, since {self.left_out[name]}; {instead}"

    def tried(self, name: str, attempt: Callable[[], str], device: torch.device) -> str:
        """Return what is wrong with a part, as `attempt` says or raises, and leave the part out; '' when it is right.

        Raises: what is no fault of the part: torch.OutOfMemoryError.
        """
        try:
            with self.trying(name):
                fault = attempt()
                if fault == "" and device.type == "cuda":
                    torch.cuda.synchronize(device)  # an error of a kernel shows when it has run
        except torch.OutOfMemoryError:  # guard: form-out-of-memory
            raise
        except Exception as error:  # any error means that the part does not work here
            fault = f"it raised {type(error).__name__}: {str(error).partition(chr(10))[0]}"
            end_if_lost(device)
        if fault:
            self.leave_out(name, fault)
        return fault

    def _agrees(self, form: Form, mixture: Tensors, targets_N: Tensor, z_loss: float) -> bool:
        key = (form.name, differentiates(mixture), *_shape(mixture, z_loss))
        if key in self._agreed and key not in self._again:
            return True
        if _captures(mixture):
            if key in self._agreed:
                return True
            raise RuntimeError(UNKNOWN_SHAPE)
        whole = key not in self._agreed
        tokens = TOKENS if whole else FEWER_TOKENS

        def attempt() -> str:
            return fault_of(form, mixture, targets_N, z_loss, tokens=tokens, whole=whole)

        try:
            fault = self.tried(form.name, attempt, mixture.facets_NFE.device)
        except torch.OutOfMemoryError:
            if form.pieces != "stored":
                raise
            fault = "all logits at once do not fit into its memory"
            self.leave_out(form.name, fault)
        self._again.discard(key)
        if not fault:
            self._agreed.add(key)
        return not fault


_of_process = Choice()
_current: ContextVar[Choice | None] = ContextVar("choice", default=None)


def current() -> Choice:
    """Return the choice that `using` has set; outside of it one for the whole process."""
    return _current.get() or _of_process


@contextmanager
def using(choice: Choice) -> Iterator[None]:
    """Choose forms by `choice` within the block."""
    token = _current.set(choice)
    try:
        yield
    finally:
        _current.reset(token)


def chosen(mixture: Tensors, targets_N: Tensor, z_loss: float) -> Form:
    """Return the form that computes the loss of a mixture."""
    return current().form(mixture, targets_N, z_loss)


def check_again() -> None:
    """Check the nll of every shape that is evaluated without gradients once more when it is next met, on a GPU."""
    current().check_again()


def _shape(mixture: Tensors, z_loss: float) -> tuple[Hashable, ...]:
    """All that decides which code runs."""
    tensors = (
        each if each is None else (each.shape, each.dtype, each.device, each.requires_grad) for each in mixture.given
    )
    return (*tensors, mixture.partitions, mixture.logit_map, mixture.log_epsilon, bool(z_loss), products.current())


def _captures(mixture: Tensors) -> bool:
    return mixture.facets_NFE.is_cuda and torch.cuda.is_current_stream_capturing()


def end_if_lost(device: torch.device) -> None:
    """End this process if its GPU cannot be used any more: an error of a GPU persists in its process. The next one
    finds the name of the part that was tried, and leaves it out.
    """
    if device.type != "cuda":
        return
    try:
        torch.cuda.synchronize(device)
    except Exception:
        traceback.print_exc()
        print("the GPU cannot be used by this process any more, which ends here", file=sys.stderr)
        os._exit(1)  # guard: gpu-lost
