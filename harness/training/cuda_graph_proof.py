"""Prove the training step as a graph: small models trained twice, by the eager step and by replays of a recorded one.

After every step the summed loss, the weights, the optimizer's state, the carried state and the next numbers of the
random stream are compared. The models have dropout; one carries its state. Some steps begin a random stream, as in
training, and some go on with the one before, so that a replay must advance it. The learning rate changes between
epochs, and the last segment is shorter.
"""

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from harness.corpora.batching import Segments, training_segments
from harness.kernels.products import Products
from harness.model import build
from harness.plan.specs import ComponentSpec, TrainSpec
from harness.random_streams import own_generators, stream_seed
from harness.training.cuda_graph import GraphStep, Record, tensors_of
from harness.training.optimization import make_optimizer
from harness.training.step import EagerStep, Step

V, SEED = 13, 1
SAME = 1e-4  # relative to the largest entry: a GPU adds up in any order, 1e-6 a step; other inputs or masks are 1e-2
STREAM = "the random stream"
SHARED = {"epochs": 2, "batch_size": 3, "seq_len": 5, "clip": 1.0}
CASES = {
    "lstm": (
        ComponentSpec(name="lstm", params={"d_model": 9, "num_layers": 2, "dropout": 0.3}),
        ComponentSpec(name="mos", params={"num_mixtures": 2, "dropout": 0.3}),
        TrainSpec(optimizer="sgd", lr=0.5, momentum=0.9, **SHARED),
    ),
    "transformer": (
        ComponentSpec(
            name="transformer_encoder",
            params={"d_model": 10, "num_layers": 1, "num_heads": 2, "d_ff": 7, "dropout": 0.3},
        ),
        ComponentSpec(name="softmax"),
        TrainSpec(optimizer="adam", lr=0.05, eps=1e-2, **SHARED),  # this eps keeps rounding small where gradients are
    ),
}


def fault_of_graph(device: torch.device, record: Record) -> str:
    """What is wrong with replays of what `record` records: a phrase, or '' when all is right. Raises what it raises."""
    for name in CASES:
        with own_generators(SEED, device), Products().switched(device):
            eager = list(_trained(name, device, None))
            graph = list(_trained(name, device, record))
        for number, (expected, found) in enumerate(zip(eager, graph, strict=True), start=1):
            for what in expected:
                if not _same(what, found[what], expected[what]):
                    return f"after {number} steps of a small {name} {what} is not that of eager steps"
    return ""


def _trained(name: str, device: torch.device, record: Record | None) -> Iterator[dict[str, list[Tensor]]]:
    """What there is after each step."""
    backbone, head, train = CASES[name]
    model = build(backbone, head, vocab_size=V, seed=SEED).to(device)
    eager = EagerStep(model, make_optimizer(model.parameters(), train), train)
    segments = _segments(train, device)
    step = eager if record is None else GraphStep(eager, segments[0], record)
    for epoch, number in itertools.product((1, 2), range(len(segments))):
        if number == 0:
            step.begin_epoch()
            for group in eager.optimizer.param_groups:
                group["lr"].fill_(train.lr / epoch)
        if number % 2 == 0:
            torch.manual_seed(stream_seed(SEED, "dropout", epoch, number))
        step(segments[number].inputs, segments[number].targets)
        yield _snapshot(step, eager)


def _segments(train: TrainSpec, device: torch.device) -> Segments:
    """Six, the last one shorter."""
    tokens_N = torch.randint(V, (train.batch_size * 29,), generator=torch.Generator().manual_seed(SEED))
    return training_segments(tokens_N, batch_size=train.batch_size, seq_len=train.seq_len, device=device)


def _snapshot(step: Step, eager: EagerStep) -> dict[str, list[Tensor]]:
    states = (value for state in eager.optimizer.state.values() for value in state.values())
    found = {
        "the summed loss": [step.loss_sum],
        "a weight": eager.parameters,
        "the optimizer's state": [value for value in states if isinstance(value, Tensor)],
        "the carried state": tensors_of(step.state_dict()["carried"]),
        STREAM: [torch.rand(3, device=step.loss_sum.device)],
    }
    return {what: [tensor.detach().clone() for tensor in tensors] for what, tensors in found.items()}


def _same(what: str, found: list[Tensor], expected: list[Tensor]) -> bool:
    if what == STREAM:
        return all(map(torch.equal, found, expected))
    largest = (SAME * tensor.abs().max().clamp(min=SAME) for tensor in expected)
    return len(found) == len(expected) and all(
        bool((a - b).abs().max() <= bound) for a, b, bound in zip(found, expected, largest, strict=True)
    )
