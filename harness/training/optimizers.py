"""The optimizers of a suite, with AdamW as the transformers library had it until 2024."""

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from harness.plan.specs import TrainSpec


class HuggingFaceAdamW(Optimizer):
    """AdamW that adds eps before bias correction and decays weights after the update. Step t, from 1, with gradient g:

        m <- beta1 m + (1 - beta1) g
        v <- beta2 v + (1 - beta2) g^2
        p <- p - lr sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + eps)
        p <- p - lr weight_decay p

    torch's AdamW divides by sqrt(v / (1 - beta2^t)) + eps, so that eps counts sqrt(1 - beta2^t) times as much, and
    decays before the update. The first steps of small gradients are shorter here.

    Args:
        lr: a tensor on the parameters' device, which a captured step reads.
        betas, eps, weight_decay: as in the equations.
    Source: Hugging Face transformers, optimization.py, class AdamW with correct_bias=True, which the multi-facet code
        (laksh-ag/Multi-facet_softmax) trains with; Loshchilov and Hutter (2019), arXiv:1711.05101, algorithm 2.
    Differs: the number of steps is a tensor, so that the step can be captured as a CUDA graph.
    """

    def __init__(self, parameters, *, lr: Tensor, betas: tuple[float, float], eps: float, weight_decay: float):
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    _update(parameter, self._state(parameter), group)

    def _state(self, parameter: Tensor) -> dict[str, Tensor]:
        """Its averages and number of steps, in its type, as torch loads it: exact to 2^24 steps in float32."""
        state = self.state[parameter]
        if not state:
            state["steps_done"] = torch.zeros((), dtype=parameter.dtype, device=parameter.device)
            state["mean"] = torch.zeros_like(parameter)
            state["mean_square"] = torch.zeros_like(parameter)
        return state


def _update(parameter: Tensor, state: dict[str, Tensor], group: dict) -> None:
    beta1, beta2 = group["betas"]
    mean, mean_square = state["mean"], state["mean_square"]
    t = state["steps_done"].add_(1).double()  # in float64: 1 - beta2^t loses four digits in float32
    mean.mul_(beta1).add_(parameter.grad, alpha=1 - beta1)
    mean_square.mul_(beta2).addcmul_(parameter.grad, parameter.grad, value=1 - beta2)
    size = group["lr"] * (1 - beta2**t).sqrt() / (1 - beta1**t)
    parameter.sub_(mean / mean_square.sqrt().add_(group["eps"]) * size)
    if group["weight_decay"]:
        parameter.mul_(1 - group["lr"] * group["weight_decay"])


def make_optimizer(model: nn.Module, train: TrainSpec) -> Optimizer:
    """The optimizer of the suite with its settings, for a model's parameters; torch's are in their fused form. The
    learning rate of a group is a tensor on the parameters' device, where a captured step reads it; its `initial_lr` is
    what a schedule scales.
    """
    parameters = [{"params": list(model.parameters()), "initial_lr": train.lr}]
    device = parameters[0]["params"][0].device
    on_gpu = device.type == "cuda"
    lr = torch.tensor(train.lr, dtype=torch.float32 if on_gpu else torch.float64, device=device)  # what fused takes
    if train.optimizer == "adamw_huggingface":
        return HuggingFaceAdamW(parameters, lr=lr, betas=train.betas, eps=train.eps, weight_decay=train.weight_decay)
    shared = {"lr": lr, "weight_decay": train.weight_decay, "fused": True}
    if train.optimizer == "sgd":
        return torch.optim.SGD(parameters, momentum=train.momentum, **shared)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[train.optimizer]
    capturable = on_gpu and train.cuda_graph != "off"
    return kind(parameters, betas=train.betas, eps=train.eps, capturable=capturable, **shared)


def clear_momentum(optimizer: Optimizer) -> None:
    """Set the momentum of torch's SGD to zero, in place. The next step is then that of a new optimizer."""
    for state in optimizer.state.values():
        if state.get("momentum_buffer") is not None:
            state["momentum_buffer"].zero_()
