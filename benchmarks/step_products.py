"""The matrix products of a training step, which are the least time that it can take: they are recorded in one step, and
then computed alone.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
PRODUCTS = (
    *(aten.mm.default, aten.mm.out, aten.addmm.default, aten.addmm.out, aten.addmm_.default),
    *(aten.bmm.default, aten.bmm.out, aten.baddbmm.default, aten.baddbmm.out, aten.baddbmm_.default),
)
IN_PLACE = (aten.addmm_.default, aten.baddbmm_.default)
LSTM, LSTM_BACKWARD = aten.mkldnn_rnn_layer.default, aten.mkldnn_rnn_layer_backward.default
Call = Callable[[], Any]


def recorded(step: Call) -> Call:
    """Run a step; return a function that computes its matrix products and nothing else, in the order of the step.

    Each product has the shapes, strides and types that it had in the step, and what is added in the same operation (a
    bias, or the sum of earlier products). oneDNN's LSTM layer is represented by its products: that with the inputs, of
    all positions at once, and that with the previous state, one for each position. Equal tensors of different products
    share their memory, those that are written apart from those that are read. The caller sets the route of products
    and the number of threads, as for the step.
    """
    recorder = _Recorder()
    with recorder:
        step()

    def multiply() -> None:
        for call in recorder.calls:
            call()

    return multiply


class _Recorder(TorchDispatchMode):
    """Keeps a call for each product that is computed within it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self._tensors: dict[tuple, Tensor] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in PRODUCTS:
            first, *others = args
            given = [self._like(first, written=func in IN_PLACE), *map(self._like, others)]
            self._keep(func, given, {name: self._like(value, written=True) for name, value in kwargs.items()})
        elif func == LSTM:
            self._keep_lstm(*args[:4], h=args[5])
        elif func == LSTM_BACKWARD:
            self._keep_lstm_backward(*args[:3], h=args[5])
        return func(*args, **kwargs)

    def _keep(self, func: Callable, args: list, kwargs: dict | None = None) -> None:
        self.calls.append(lambda: func(*args, **(kwargs or {})))

    def _keep_lstm(self, x, w_input, w_state, bias, *, h) -> None:
        """x W^T + b for all positions; h W^T for each."""
        size, rows, x = w_input.shape[1], h.numel() // h.shape[-1], self._like(x)
        self._keep(aten.addmm.default, [self._like(bias), x.reshape(-1, size), self._like(w_input).t()])
        state_rH = self._matrix(x, rows, h.shape[-1])
        for _ in range(x.numel() // size // rows):
            self._keep(aten.mm.default, [state_rH, self._like(w_state).t()])

    def _keep_lstm_backward(self, x, w_input, w_state, *, h) -> None:
        """With G the gradients of the gates: G W for each position; then G W, G^T x and G^T h for all positions."""
        size, rows, x = w_input.shape[1], h.numel() // h.shape[-1], self._like(x)
        num = x.numel() // size
        gates_nG, states_nH = self._matrix(x, num, len(w_input)), self._matrix(x, num, h.shape[-1])
        for _ in range(num // rows):
            self._keep(aten.mm.default, [gates_nG[:rows], self._like(w_state)])
        self._keep(aten.mm.default, [gates_nG, self._like(w_input)])
        self._keep(aten.mm.default, [gates_nG.t(), x.reshape(-1, size)])
        self._keep(aten.mm.default, [gates_nG.t(), states_nH])

    def _matrix(self, like: Tensor, num_rows: int, num_columns: int) -> Tensor:
        return self._like(like.new_empty(num_rows, num_columns))

    def _like(self, value: Any, *, written: bool = False) -> Any:
        """Return random numbers in the layout of a tensor; any other value itself."""
        if not isinstance(value, Tensor):
            return value
        key = (written, value.shape, value.stride(), value.dtype)
        if key not in self._tensors:
            last = sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
            numbers = torch.empty(last + 1, dtype=value.dtype, device=value.device).uniform_(-1, 1)
            self._tensors[key] = numbers.as_strided(value.shape, value.stride())
        return self._tensors[key]
