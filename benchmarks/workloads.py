"""The workloads that are timed: the forward and backward pass of a head, its evaluation, a training step, inference."""

from collections.abc import Iterable, Iterator
from copy import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor

from harness.benchmarks.implementations import EPSILON, Evaluation
from harness.benchmarks.settings import BACKBONE_SIZES, Setting, head, inputs
from harness.corpora.batching import Segment
from harness.distributions import Mixture
from harness.errors import ExecutionError
from harness.kernels import products, reference
from harness.model import LanguageModel
from harness.plan.specs import TrainSpec
from harness.registry import BACKBONES
from harness.training.optimizers import make_optimizer
from harness.training.step import EagerStep

# As in suites/, but the learning rate is small, so weights hardly change between rounds.
SEQ_LEN = 35
TRAIN = TrainSpec(optimizer="sgd", lr=0.01, epochs=1, batch_size=20, seq_len=SEQ_LEN, clip=0.25)


class HeadPass:
    """The forward pass of a head, the loss, and the backward pass to its parameters and to the hidden states.

    Every workload has its methods `distribution` and `run`, and `targets_BT`. Cells that share a workload differ only
    in the evaluation, a baseline, or None for the methods of the Mixture.
    """

    def __init__(self, setting: Setting, name: str, device: torch.device):
        self.head = head(name, setting, device)
        self.hidden, self.targets_BT = inputs(setting, device)

    def distribution(self) -> Mixture:
        return self.head(self.hidden)

    def run(self, evaluation: Evaluation | None) -> Tensor:
        """Run a pass, drop its gradients, as a training loop does after the update, and return the mean loss."""
        value = self.accumulate(evaluation)
        for tensor in self.leaves():
            tensor.grad = None
        return value

    def accumulate(self, evaluation: Evaluation | None) -> Tensor:
        """Run the forward and backward pass, and add to existing gradients."""
        value = _loss(evaluation, self.distribution(), self.targets_BT)
        value.backward()
        return value.detach()

    def leaves(self) -> list[Tensor]:
        return [*self.head.parameters(), *self.hidden.layers]


class Evaluated(HeadPass):
    """The loss of every token, without gradients."""

    def __init__(self, setting: Setting, name: str, device: torch.device):
        super().__init__(setting, name, device)
        for tensor in self.leaves():
            tensor.requires_grad_(False)

    @torch.no_grad()
    def run(self, evaluation: Evaluation | None) -> Tensor:
        mixture = self.distribution()
        if evaluation is None:
            return mixture.nll(self.targets_BT).float().mean()
        return evaluation(mixture, self.targets_BT.flatten()).float().mean()


class Step:
    """The training step of the harness, with the backbone of the setting and random tokens."""

    def __init__(self, setting: Setting, name: str, device: torch.device):
        if setting.tokens % SEQ_LEN or setting.name == "gpt2-small":
            sizes = f"setting {setting.name} of {setting.tokens} tokens"
            raise ExecutionError(f"bench step: {sizes}: expected ptb, wt2 or tiny and a multiple of {SEQ_LEN} tokens")
        torch.manual_seed(0)
        sizes = BACKBONE_SIZES[setting.backbone]
        backbone = BACKBONES.get(setting.backbone)(setting.vocab, d_model=setting.width, **sizes)
        self.model = _Measured(backbone, head(name, setting, device)).to(device)
        self.optimizer = make_optimizer(self.model, TRAIN)
        self.segment = _segment(setting, setting.tokens // SEQ_LEN, device)
        self.targets_BT = self.segment.targets

    def distribution(self) -> Mixture:
        return self.model(self.segment)[0]

    def run(self, evaluation: Evaluation | None) -> Tensor:
        """Run forward pass, loss, backward pass, clipping and SGD; return the mean loss."""
        self.model.evaluation = evaluation
        train = TRAIN.model_copy(update={"precision": products.current().precision})
        step = EagerStep(self.model, self.optimizer, train)
        step.advance(self.segment, None)
        return step.loss_sum / self.targets_BT.numel()


class Inference(Evaluated):
    """A GPT-2 with a head: forward pass with loss for 4 sequences, without gradients and dropout, as in the table of
    the multi-facet poster.
    """

    BATCH = 4

    def __init__(self, setting: Setting, name: str, device: torch.device):
        if setting.num_layers is None or setting.tokens % self.BATCH:
            sizes = f"setting {setting.name} of {setting.tokens} tokens"
            raise ExecutionError(f"bench inference: {sizes}: expected gpt2-small or tiny and a multiple of 4 tokens")
        torch.manual_seed(0)
        layers = {"num_layers": setting.num_layers, "num_heads": setting.num_heads}
        backbone = BACKBONES.get("gpt2")(setting.vocab, d_model=setting.width, **layers)
        self.head = head(name, setting, torch.device("cpu"))
        self.model = LanguageModel(backbone, self.head).to(device).eval().requires_grad_(False)
        self.segment = _segment(setting, self.BATCH, device)
        self.targets_BT = self.segment.targets

    def distribution(self) -> Mixture:
        return self.model(self.segment)[0]


WORKLOADS = {"head": HeadPass, "eval": Evaluated, "step": Step, "inference": Inference}
Workload = HeadPass | Step


def workloads(
    kind: str, setting: Setting, heads: Iterable[str], device: torch.device
) -> Iterator[tuple[str, Workload]]:
    """Yield each head's name and workload. Unless a step changes them, heads share the output matrix of the first: with
    128,256 words and a width of 4,096 it has 2 GB, and four of them would leave too little of 24 GB for a loss.
    """
    first: HeadPass | None = None
    for name in heads:
        made = WORKLOADS[kind](setting, name, device)
        if isinstance(made, HeadPass):
            first = first or made
            made.head.output.weight = first.head.output.weight
        yield name, made


class _Measured(LanguageModel):
    """A model whose training loss is computed by `evaluation`: a baseline, or None for the method of the Mixture."""

    evaluation: Evaluation | None = None

    def forward(self, segment: Segment, state: Any = None) -> tuple[Mixture, Any]:
        distribution, state = super().forward(segment, state)
        if self.evaluation is not None:
            # of a copy: a cycle would keep the graph of autograd, whose nodes stay on a stream that is not captured
            distribution.training_loss = partial(_loss, self.evaluation, copy(distribution))
        return distribution, state


def _loss(evaluation: Evaluation | None, distribution: Mixture, targets_BT: Tensor) -> Tensor:
    """() the mean loss by a baseline, or by the method of the distribution."""
    if evaluation is None:
        return distribution.mean_nll(targets_BT)
    return evaluation(distribution, targets_BT.flatten()).float().mean()


def _segment(setting: Setting, rows: int, device: torch.device) -> Segment:
    generator = torch.Generator().manual_seed(1)
    shape = (rows, setting.tokens // rows)
    return Segment(*(torch.randint(setting.vocab, shape, generator=generator).to(device) for _ in range(2)))


@torch.no_grad()
def expected_loss(workload: Workload, *, with_epsilon: bool) -> float:
    """Return the mean loss by the reference in float32; `with_epsilon`: that of log(p + 1e-8), as in published code."""
    nll_N = reference.nll(workload.distribution(), workload.targets_BT.flatten())
    if with_epsilon:
        nll_N = -torch.log(torch.exp(-nll_N.double()) + EPSILON)
    return nll_N.mean().item()
