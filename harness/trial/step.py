"""A training step: the loss of a segment, its gradients, clipping, the update. Here as torch runs it, operation by
operation; in harness/trial/graph.py as a CUDA graph with the same interface and the same result.
"""

from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from harness.errors import ExecutionError
from harness.kernels import products
from harness.plan.specs import TrainSpec
from harness.trial.model import LanguageModel


class Step(Protocol):
    """What an epoch is made of. `loss_sum`: () float64 on the device, nats since `begin_epoch`, summed over tokens."""

    loss_sum: Tensor

    def begin_epoch(self) -> None:
        """Forget the carried state and the summed loss; the model is to be trained."""

    def __call__(self, inputs_BT: Tensor, targets_BT: Tensor) -> None:
        """Train on one segment. Waits for nothing on a GPU."""

    def state(self) -> dict[str, Any]:
        """What the next call depends on beside model and optimiser: tensors, nested tuples of them, None."""

    def resume(self, state: dict[str, Any]) -> None:
        """Go on within an epoch from what `state` gave."""


class EagerStep:
    """The step, operation by operation. The backbone's state is carried to the next call, unless
    segments do not continue each other, shuffled ones and blocks: `carries`."""

    def __init__(self, model: LanguageModel, optimizer: Optimizer, train: TrainSpec):
        self.model, self.optimizer, self.train = model, optimizer, train
        self.parameters = list(model.parameters())
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=self.parameters[0].device)
        self.carries = train.batching == "stream" and not train.shuffle
        self._state: Any = None

    def begin_epoch(self) -> None:
        """See Step."""
        self.model.train()
        self.loss_sum.zero_()
        self._state = None

    def __call__(self, inputs_BT: Tensor, targets_BT: Tensor) -> None:
        """See Step."""
        state = self.advance(inputs_BT, targets_BT, self._state)
        self._state = state if self.carries else None

    def state(self) -> dict[str, Any]:
        """See Step."""
        return {"loss_sum": self.loss_sum, "carried": self._state}

    def resume(self, state: dict[str, Any]) -> None:
        """See Step."""
        self.model.train()
        self.loss_sum.copy_(state["loss_sum"])
        self._state = moved(state["carried"], self.loss_sum.device)

    def advance(self, inputs_BT: Tensor, targets_BT: Tensor, state: Any) -> Any:
        """One step from a given state; the state after the segment, cut off from the graph that made it."""
        with products.using(replace(products.current(), precision=self.train.precision)):
            distribution, state = self.model(inputs_BT, state)
            loss = distribution.training_loss(targets_BT)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
        if self.train.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.train.clip)
        self.optimizer.step()
        self.loss_sum += loss.detach().double() * targets_BT.numel()
        return detached(state)


def detached(state: Any) -> Any:
    """A carried state cut off from the graph that made it: a tensor, nested tuples of tensors, or None."""
    if isinstance(state, tuple):
        return tuple(detached(part) for part in state)
    return state.detach() if isinstance(state, Tensor) else state


def moved(state: Any, device: torch.device) -> Any:
    """A carried state on a device."""
    if isinstance(state, tuple):
        return tuple(moved(part, device) for part in state)
    return state.to(device) if isinstance(state, Tensor) else state


def refuse_unfit(train: TrainSpec, device: str) -> None:
    """Raises ExecutionError when the device cannot do what `train` asks for."""
    if device == "cuda":
        return
    if train.precision == "tf32":
        raise ExecutionError("train.precision is tf32, which only a GPU has: on the CPU it is fp32 or bf16")
    if train.cuda_graph == "on":
        raise ExecutionError("train.cuda_graph is on, and the trials run on the CPU: set it to auto or off")
