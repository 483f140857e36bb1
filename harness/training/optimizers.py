"""The optimizers of a suite: torch's, Muon beside AdamW, and AdamW as the transformers library had it until 2024."""

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from harness.errors import ExecutionError
from harness.plan.specs import GroupSpec, TrainSpec


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
    Source: Hugging Face transformers, optimization.py, class AdamW with correct_bias=True, which the multi-facet code
        (laksh-ag/Multi-facet_softmax) trains with; Loshchilov and Hutter (2019), arXiv:1711.05101, algorithm 2.
    Differs: the number of steps is a tensor, so that the step can be captured as a CUDA graph.
    """

    def __init__(self, parameters, *, lr: Tensor, betas: tuple[float, float], eps: float, weight_decay: float):
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
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


class Several(Optimizer):
    """Several optimizers as one: each makes the step of its own groups. They share `state`, and the groups of the first
    one come first.
    """

    def __init__(self, optimizers: list[Optimizer]):
        self.optimizers = optimizers
        super().__init__([group for each in optimizers for group in each.param_groups], {})
        self._share()

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for each in self.optimizers:
            each.step()

    def load_state_dict(self, state_dict) -> None:
        super().load_state_dict(state_dict)
        self._share()

    def _share(self) -> None:
        first = 0
        for each in self.optimizers:
            last = first + len(each.param_groups)
            each.param_groups, each.state = self.param_groups[first:last], self.state
            first = last


def make_optimizer(model: nn.Module, train: TrainSpec) -> Optimizer:
    """The optimizer of the suite with its settings, for a model's parameters, or several, where `muon` or a group asks
    for more than one. The learning rate of a group is a tensor on the parameters' device, where a captured step reads
    it; its `initial_lr` is what a schedule scales.

    Muon is for the matrices of hidden layers, as its authors have it, and AdamW beside it for all else. Muon's update
    of a matrix (A, B) has 0.2 sqrt(max(A, B)) times the rate, so that its root mean square is that of AdamW's and both
    take the same learning rate and weight decay. Momentum 0.95, Nesterov.

    Raises: ExecutionError where the backbone has no matrix for muon.
    Source: Jordan et al. (2024), kellerjordan.github.io/posts/muon; the factor: Liu et al. (2025), arXiv:2502.16982,
        section 2.2.
    """
    matrices = _inner_matrices(model) if train.optimizer == "muon" else set()
    if train.optimizer == "muon" and not matrices:
        raise ExecutionError("train.optimizer is muon, and the backbone has no matrices that are trained; take adamw")
    of_kind: dict[str, list[dict]] = {}
    for group in _groups(model, train, matrices):
        of_kind.setdefault(group.pop("optimizer"), []).append(group)
    # Muon's first, as in checkpoints of before.
    kinds = sorted(of_kind, key=lambda kind: kind != "muon")
    made = [_optimizer(kind, of_kind[kind], train) for kind in kinds]
    return made[0] if len(made) == 1 else Several(made)


def _optimizer(kind: str, groups: list[dict], train: TrainSpec) -> Optimizer:
    """torch's are in their fused form."""
    shared = {"lr": groups[0]["lr"], "weight_decay": train.weight_decay}
    if kind == "muon":
        return torch.optim.Muon(groups, weight_decay=train.weight_decay, adjust_lr_fn="match_rms_adamw")
    if kind == "sgd":
        momentum = train.momentum if train.optimizer == "sgd" else 0.0
        return torch.optim.SGD(groups, momentum=momentum, fused=True, **shared)
    shared |= {"betas": train.betas, "eps": train.eps}
    if kind == "adamw_huggingface":
        return HuggingFaceAdamW(groups, **shared)
    on_gpu = groups[0]["lr"].device.type == "cuda"
    captured = on_gpu and train.cuda_graph != "off" and train.optimizer != "muon"  # a step of Muon is never captured
    cls = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[kind]
    return cls(groups, capturable=captured, fused=True, **shared)


def _groups(model: nn.Module, train: TrainSpec, matrices: set[int]) -> list[dict]:
    """The groups of parameters, each with its own rate and the name of its optimizer; one group where neither the suite
    nor a head names more.

    Args:
        matrices: the ids of the parameters that Muon moves.
    """
    found: dict[tuple[str, float, str], list[nn.Parameter]] = {}
    factors = {}
    for module in model.modules():
        for name, factor in getattr(module, "learning_rates", {}).items():
            factors[id(module.get_parameter(name))] = factor
    for parameter in model.parameters():
        name = _group_of(parameter, model, train)
        others = "adamw" if train.optimizer == "muon" else train.optimizer
        kind = "muon" if id(parameter) in matrices else train.groups.get(name, GroupSpec()).optimizer or others
        found.setdefault((name, factors.get(id(parameter), 1.0), kind), []).append(parameter)
    groups = []
    for (name, factor, kind), parameters in found.items():
        given, device = train.groups.get(name, GroupSpec()), parameters[0].device
        rate = factor * given.rate(train.lr)
        lr = torch.tensor(rate, dtype=torch.float32 if device.type == "cuda" else torch.float64, device=device)
        group = {"params": parameters, "initial_lr": rate, "lr": lr, "optimizer": kind}
        if given.weight_decay is not None:
            group["weight_decay"] = given.weight_decay
        if given.betas is not None and kind != "muon":
            group["betas"] = given.betas
        groups.append(group)
    return groups


def _group_of(parameter: nn.Parameter, model: nn.Module, train: TrainSpec) -> str:
    """The name of a parameter's group in `train.groups`; '' for one that nothing is said of."""
    if "vectors" in train.groups and parameter.dim() < 2:
        return "vectors"
    if not train.groups.keys() - {"vectors"}:
        return ""
    if all(parameter is not each for each in model.backbone.parameters()):
        name = "head"
    else:
        name = "embedding" if parameter is model.backbone.embedding.weight else "backbone"
    return name if name in train.groups else ""


def _inner_matrices(model: nn.Module) -> set[int]:
    """The ids of the backbone's weight matrices, as torch names them; without those of embeddings and those that the
    head shares. Other parameters with two axes, as `A_log` of Mamba, do not multiply a state.
    """
    left = {id(each) for each in model.head.parameters()}
    left |= {id(m.weight) for m in model.backbone.modules() if isinstance(m, nn.Embedding)}
    named = model.backbone.named_parameters()
    return {id(each) for name, each in named if each.dim() == 2 and "weight" in name} - left


def clear_momentum(optimizer: Optimizer) -> None:
    """Set the momentum of torch's SGD to zero, in place. The next step is then that of a new optimizer."""
    for state in optimizer.state.values():
        if state.get("momentum_buffer") is not None:
            state["momentum_buffer"].zero_()
