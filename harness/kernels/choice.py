"""Which form of the loss runs: the first that fits, by a rule (`FORMS` of harness/kernels/forms.py).

On a GPU the form that trains is compared with the equations in float64 at the first batch of a trial
(harness/kernels/agreement.py). One that differs or raises is left out: the next form runs, and the record says so. On
the CPU nothing is checked: the tests do that.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

import torch
from torch import Tensor

from harness.kernels.agreement import fault_of
from harness.kernels.forms import FORMS, Form, differentiates
from harness.kernels.mixture import Tensors

LOGGER = logging.getLogger(__name__)


class FormChoice:
    """The forms that a trial takes, and which are left out.

    Args:
        pieces: which forms train, as `train.loss_form` has it.
        left_out: name -> reason, of the parts for GPUs that do not run: those of an earlier part of the trial.
        log: receives a sentence when a part is left out.
        forms: in the order in which they are asked.
        devices: types of devices on which the form that trains is checked.

    `trained_by`: the name of the form of the first batch; "" before it.
    """

    def __init__(
        self,
        pieces: Literal["auto", "chunked", "stored"] = "auto",
        *,
        left_out: Mapping[str, str] | None = None,
        log: Callable[[str], None] = LOGGER.warning,
        forms: Sequence[Form] = FORMS,
        devices: Sequence[str] = ("cuda",),
    ):
        self.pieces, self.log, self.forms, self.devices = pieces, log, forms, devices
        self.left_out = dict(left_out or {})
        self.trained_by = ""

    def form(self, mixture: Tensors, targets_N: Tensor, z_loss: float) -> Form:
        """Return the first form that fits and is not left out.

        Raises: ValueError where `pieces` asks for a form that the mixture cannot have.
        """
        if not differentiates(mixture):
            return next(self._fitting(mixture, gradients=False))
        first = not self.trained_by
        checks = first and mixture.facets_NFE.device.type in self.devices
        for form in self._fitting(mixture, gradients=True):
            fault = self.fault(form, mixture, targets_N, z_loss) if checks and form.checked else ""
            if not fault:
                if first:
                    self.trained_by = form.name
                return form
            self.leave_out(form.name, fault)
        raise AssertionError("the equations fit every mixture")

    def _fitting(self, mixture: Tensors, *, gradients: bool) -> Iterator[Form]:
        fitting = [form for form in self.forms if form.fits(mixture, gradients)]
        if gradients and self.pieces == "stored" and not any(form.pieces == "stored" for form in fitting):
            raise ValueError("train.loss_form is stored, which this head, batch or device cannot have; take auto")
        for form in fitting:
            pinned = not gradients or self.pieces == "auto" or form.pieces in ("", self.pieces)
            if pinned and form.name not in self.left_out:
                yield form

    def fault(self, form: Form, mixture: Tensors, targets_N: Tensor, z_loss: float) -> str:
        """Return what is wrong with a form on a batch; '' when it is right.

        Raises: torch.OutOfMemoryError, which is no fault of a form that computes in chunks.
        """
        try:
            return fault_of(form, mixture, targets_N, z_loss)
        except torch.OutOfMemoryError:
            if form.pieces != "stored":
                raise
            return "all logits at once do not fit into its memory"
        except Exception as error:  # any error means that the form does not work here
            return f"it raised {type(error).__name__}: {str(error).partition(chr(10))[0]}"

    def leave_out(self, name: str, reason: str) -> None:
        """Note that a part for GPUs does not run, and why."""
        self.left_out[name] = reason
        self.log(self._sentence(name))

    def sentences(self) -> tuple[str, ...]:
        """Return a sentence for each part that is left out: what it is, the reason, and what runs instead."""
        return tuple(map(self._sentence, self.left_out))

    def _sentence(self, name: str) -> str:
        parts = {form.name: (form.what, "another form of it runs instead") for form in reversed(self.forms)}
        parts["graph"] = ("the CUDA graph of the training step", "steps run operation by operation instead")
        what, instead = parts.get(name, (name, "other code runs instead"))
        return f"Left out on this device: {what}, since {self.left_out[name]}; {instead}"


_of_process = FormChoice()
_current: ContextVar[FormChoice | None] = ContextVar("choice", default=None)


def current() -> FormChoice:
    """Return the choice that `using` has set; outside of it one for the whole process."""
    return _current.get() or _of_process


@contextmanager
def using(choice: FormChoice) -> Iterator[None]:
    """Choose forms by `choice` within the block."""
    token = _current.set(choice)
    try:
        yield
    finally:
        _current.reset(token)


def chosen(mixture: Tensors, targets_N: Tensor, z_loss: float) -> Form:
    """Return the form that computes the loss of a mixture."""
    return current().form(mixture, targets_N, z_loss)
