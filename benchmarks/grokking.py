"""Whether StableMax generalises on modular addition where softmax does not: `python benchmarks/grokking.py`.

Trains the head `softmax` in float32, without weight decay, with `logit_map` identity and stablemax, from the same
weights and on the same pairs for each seed. Prints a table, and for each number of steps `yes` or `no`: `verdict` has
the rule. The answer depends on the steps: a softmax learns more slowly, but had not stopped after 6,000.

Source: Prieto et al. (2025), arXiv:2501.04697; settings from LucasPrietoAl/grokking-at-the-edge-of-numerical-stability
    at commit 0cc9e8d, run_main_experiments.sh (figures 2 and 4), models.py and utils.py. The paper itself was not read.
Differs: their figure of a softmax that collapses (2; here its share of 70 %) has a rate of 0.0005 and 20,000 steps, and
    one in float64 beside it, which shows that rounding is the cause. Their figure of StableMax (4) has 40 % of the
    pairs, 100,000 steps and beta2 = 0.999. Here both have the rate of figure 4, 0.01, fewer steps, and beta2 = 0.99,
    their default. Their StableMax is computed in float64,
    this one in float32 in log space. One order of the pairs in all steps; theirs is shuffled.

Letters: N pairs, V = P classes, D width of the hidden layers.
"""

import argparse
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from measure import names, run
from tabulate import tabulate
from torch import Tensor, nn

from harness.distributions import Mixture
from harness.errors import ExecutionError
from harness.machine import environment
from harness.machine.environment import OtherWork, torch_threads
from harness.protocols import HeadDims, Hidden
from harness.registry import HEADS

P = 113
TRAIN_SHARE = 0.7
WIDTH = 200
MAPS = {"softmax": "identity", "StableMax": "stablemax"}  # name in the table -> logit_map
ADAM = {"lr": 0.01, "betas": (0.9, 0.99), "eps": 1e-25, "weight_decay": 0.0}
LEARNT, GENERALISES, FAILS = 0.99, 0.95, 0.5  # accuracies, see verdict


class Network(nn.Module):
    """Two ReLU layers without biases over the one-hot codes of both numbers, and the head."""

    def __init__(self, logit_map: str, p: int = P, width: int = WIDTH):
        super().__init__()
        self.p = p
        self.first = nn.EmbeddingBag(2 * p, width, mode="sum")  # as a Linear over two one-hot codes of length p
        nn.init.uniform_(self.first.weight, -((2 * p) ** -0.5), (2 * p) ** -0.5)  # the start of that Linear
        self.second = nn.Linear(width, width, bias=False)
        dims = HeadDims(vocab_size=p, layer_dims=(width,), d_embed=width)
        params = {"bias": False, "init_range": width**-0.5, "logit_map": logit_map}
        self.head = HEADS.get("softmax")(dims, nn.Embedding(p, width), **params)  # the embedding gives only its width

    def forward(self, pairs_N2: Tensor) -> Mixture:
        h_ND = self.first(pairs_N2 + torch.tensor([0, self.p])).relu()
        return self.head(Hidden(layers=(self.second(h_ND).relu()[None],)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Pairs (N, 2) and the sum of each modulo p, (N,)."""

    inputs_N2: Tensor
    sums_N: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A network after so many steps: accuracies, and on the training pairs the shares of terms of the loss that are
    exactly 0, and of exact zeros in p - onehot, the gradient of the mapped logits.
    """

    seed: int
    head: str
    steps: int
    train: float
    test: float
    zero_terms: float
    zero_gradients: float
    seconds: float


def split(seed: int, p: int = P, share: float = TRAIN_SHARE) -> tuple[Pairs, Pairs]:
    """All p^2 pairs, shuffled, the first `share` of them for training, the others for the test."""
    every_N2 = torch.cartesian_prod(torch.arange(p), torch.arange(p))
    order_N = torch.randperm(len(every_N2), generator=torch.Generator().manual_seed(seed))
    parts = every_N2[order_N].tensor_split([int(share * len(every_N2))])
    train, test = (Pairs(inputs_N2=part, sums_N=part.sum(1) % p) for part in parts)
    return train, test


def train(network: Network, pairs: Pairs, marks: Sequence[int]) -> Iterator[int]:
    """Full batches by Adam without decay. Yields after as many steps as each of the marks says."""
    optimizer = torch.optim.AdamW(network.parameters(), **ADAM)
    for step in range(1, max(marks) + 1):
        loss = network(pairs.inputs_N2).training_loss(pairs.sums_N[None])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step in marks:
            yield step


@torch.no_grad()
def log_probs(network: Network, pairs: Pairs) -> Tensor:
    """(N, V) in float32."""
    return network(pairs.inputs_N2).log_probs()[0]


def accuracy(logp_NV: Tensor, pairs: Pairs) -> float:
    return (logp_NV.argmax(1) == pairs.sums_N).float().mean().item()


def zeros(logp_NV: Tensor, sums_N: Tensor) -> tuple[float, float]:
    """The shares of terms -log p of the loss, and of numbers of p - onehot, that are exactly 0."""
    terms_N1 = logp_NV.gather(1, sums_N[:, None])
    gradient_NV = logp_NV.exp() - nn.functional.one_hot(sums_N, logp_NV.shape[1])
    return (terms_N1 == 0).float().mean().item(), (gradient_NV == 0).float().mean().item()


def outcomes(seed: int, head: str, marks: Sequence[int]) -> Iterator[Outcome]:
    """Train from the seed's weights on the seed's pairs; an outcome at each mark."""
    began, (train_pairs, test_pairs) = time.perf_counter(), split(seed)
    torch.manual_seed(seed)
    network = Network(MAPS[head])
    for steps in train(network, train_pairs, marks):
        logp_NV = log_probs(network, train_pairs)
        zero_terms, zero_gradients = zeros(logp_NV, train_pairs.sums_N)
        yield Outcome(
            seed=seed,
            head=head,
            steps=steps,
            train=accuracy(logp_NV, train_pairs),
            test=accuracy(log_probs(network, test_pairs), test_pairs),
            zero_terms=zero_terms,
            zero_gradients=zero_gradients,
            seconds=time.perf_counter() - began,
        )


def verdict(found: Sequence[Outcome]) -> bool:
    """Whether each network has learnt its training pairs (at least 99 %), each StableMax is right for at least 95 % of
    the test pairs, and each softmax for less than 50 %. All after the same number of steps.
    """
    learnt = all(each.train >= LEARNT for each in found)
    softmax = [each.test < FAILS for each in found if each.head == "softmax"]
    stablemax = [each.test >= GENERALISES for each in found if each.head == "StableMax"]
    return learnt and bool(softmax) and bool(stablemax) and all(softmax) and all(stablemax)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    options.add_argument("--seeds", type=int, default=3, help="0, 1, ..")
    options.add_argument("--steps", type=names, default="2000", help="numbers of steps, separated by commas")
    options.add_argument("--heads", type=names, default=",".join(MAPS))
    given = options.parse_args()
    marks = [int(steps) for steps in given.steps if steps.isdecimal() and int(steps)]
    if given.seeds < 1 or not marks or len(marks) < len(given.steps):
        raise ExecutionError(f"--seeds {given.seeds} --steps {','.join(given.steps)}: expected numbers of at least 1")
    if not set(given.heads) <= set(MAPS):
        raise ExecutionError(f"--heads {','.join(given.heads)}: expected some of {', '.join(MAPS)}")
    work, found = OtherWork(), []
    with torch_threads(1):
        for seed in range(given.seeds):
            for head in given.heads:
                found += outcomes(seed, head, marks)
    show(found, marks, work)


def show(found: Sequence[Outcome], marks: Sequence[int], work: OtherWork) -> None:
    """Print a table in Markdown, the verdict for each mark, and the machine with versions and load."""
    rows = [
        {
            "seed": str(each.seed),
            "head": each.head,
            "steps": f"{each.steps:,}",
            "train accuracy": f"{each.train:.2%}",
            "test accuracy": f"{each.test:.2%}",
            "terms of the loss = 0": f"{each.zero_terms:.2%}",
            "zeros in p - onehot": f"{each.zero_gradients:.2%}",
            "seconds": f"{each.seconds:.0f}",
        }
        for each in found
    ]
    print(f"# Addition modulo {P}, {TRAIN_SHARE:.0%} of the pairs for training, no decay\n")
    print(tabulate(rows, headers="keys", tablefmt="pipe", disable_numparse=True) + "\n")
    for steps in marks if {each.head for each in found} == set(MAPS) else []:
        answer = "yes" if verdict([each for each in found if each.steps == steps]) else "no"
        print(f"Steps: {steps:,}. Softmax does not generalise and StableMax does: {answer}\n")
    machine = f"{environment.device_name(torch.device('cpu'))}, 1 thread, float32"
    load = f"load {environment.load_average():.1f}, other work used {work.cores():.1f} cores"
    versions = f"Python {platform.python_version()}, torch {torch.__version__}, harness at {environment.commit()}"
    print(f"{machine}; {load}; {versions}, {environment.now()}")


if __name__ == "__main__":
    run(main)
