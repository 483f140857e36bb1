"""What the lean evaluation computes and allocates, counted at torch's dispatcher: never timed."""

import pytest
import torch
from handmade import SaysCuda
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from harness.distributions import LOGIT_MAPS, Mixture, log_prior
from harness.kernels import chunked

E, V = 16, 500


class Noted(TorchDispatchMode):
    """(operation, shape of its result), multiplications and additions in matrix products, the largest tensor made."""

    def __init__(self):
        super().__init__()
        self.calls, self.operations, self.largest = [], 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result, name = func(*args, **(kwargs or {})), func.overloadpacket.__name__
        if name in ("mm", "addmm", "addmm_"):
            a, b = [arg for arg in args if isinstance(arg, torch.Tensor) and arg.ndim == 2][-2:]
            self.operations += 2 * a.shape[0] * a.shape[1] * b.shape[1]
        for made in tree_leaves(result):
            if isinstance(made, torch.Tensor):
                self.largest = max(self.largest, made.untyped_storage().nbytes())
        self.calls.append((name, tuple(getattr(result, "shape", ()))))
        return result

    def on_a_matrix(self, name):
        """How often an operation gives a tensor as large as the output matrix."""
        return self.calls.count((name, (V, E)))


def mixture(num_tokens, num_mixtures, *, frozen=(), partitions=None, logit_map="identity"):
    generator = torch.Generator().manual_seed(0)
    num_facets = sum(partitions) if partitions else num_mixtures
    facets = torch.randn(1, num_tokens, num_facets, E, generator=generator)
    prior = log_prior(torch.randn(1, num_tokens, num_mixtures, generator=generator))
    weight = torch.randn(V, E, generator=generator)
    for name, tensor in (("facets", facets), ("prior", prior), ("weight", weight)):
        tensor.requires_grad_(name not in frozen)
    options = {"partitions": partitions, "logit_map": LOGIT_MAPS[logit_map]}
    made = Mixture(facets, prior if num_mixtures > 1 else None, weight, **options)
    return made, torch.randint(V, (1, num_tokens), generator=generator)


def operations(evaluate):
    with Noted() as counted:
        evaluate()
    return counted.operations


@pytest.mark.parametrize("num_mixtures", [1, 5])
@pytest.mark.parametrize("logit_map", ["identity", "sigsoftmax"])
def test_training_costs_three_products_and_evaluation_one(num_mixtures, logit_map):
    made, targets = mixture(200, num_mixtures, logit_map=logit_map)
    one = 2 * 200 * num_mixtures * V * E
    assert operations(lambda: made.mean_nll(targets).backward()) == 3 * one
    assert operations(lambda: made.nll(targets).sum().backward()) == 4 * one
    with torch.no_grad():
        assert operations(lambda: made.mean_nll(targets)) == one
        assert operations(lambda: made.nll(targets)) == one


@pytest.mark.parametrize(
    ("given", "products"),
    [
        ({"partitions": (4, 1, 1)}, 3),
        ({"frozen": ["weight"]}, 2),
        ({"frozen": ["facets"]}, 2),
        ({"frozen": ["facets", "weight"]}, 1),
        ({"frozen": ["prior"]}, 3),
    ],
    ids=str,
)
def test_frozen_inputs_cost_nothing_and_partitions_no_product_more(given, products):
    made, targets = mixture(200, 3, **given)
    assert operations(lambda: made.mean_nll(targets).backward()) == products * 2 * 200 * 3 * V * E


@pytest.mark.parametrize(
    ("upstream", "times", "looked"),
    [(torch.tensor(1.0), 0, True), (torch.tensor(2.0), 1, True), (torch.tensor(1.0).as_subclass(SaysCuda), 1, False)],
)
def test_a_factor_of_one_is_not_multiplied_by_but_on_a_gpu_where_looking_costs_more(upstream, times, looked):
    made, targets = mixture(20, 1)
    loss = made.mean_nll(targets)
    with Noted() as noted:
        loss.backward(upstream)
    assert noted.on_a_matrix("mul_") == times
    assert ("_local_scalar_dense" in dict(noted.calls)) == looked


@pytest.mark.parametrize("logit_map", ["identity", "sigsoftmax"])
def test_no_tensor_grows_with_tokens_or_mixtures_but_the_facets(monkeypatch, logit_map):
    monkeypatch.setattr(chunked, "CHUNK_BYTES", 0)
    largest = []
    for N, K in ((600, 2), (600, 12), (2400, 2)):
        made, targets = mixture(N, K, logit_map=logit_map)
        with Noted() as counted:
            made.mean_nll(targets).backward()
        assert counted.largest <= max(4 * N * K * E, 4 * chunked.LEAST_ROWS * V)
        largest.append(counted.largest)
    assert largest[0] < 4 * 600 * 2 * V / 2  # and a chunk is what it says: far from all logits


def test_a_large_vocabulary_makes_chunks_of_fewer_rows():
    def tokens(V, K, E=1, dtype=torch.float32, P=1):
        return chunked.tokens_per_chunk(torch.empty(V, E, device="meta", dtype=dtype), [P] + [1] * (K - 1))

    MiB = 2**20
    assert tokens(1_000_000, 1) == 256 * MiB // 4_000_000
    assert tokens(10**9, 5) == 1
    assert tokens(50_000, 5) == 512 // 5
    assert tokens(50_000, 5, P=4) == 1024 // 5  # a facet multiplies a quarter of the words
    assert tokens(50_000, 5, dtype=torch.bfloat16) == 512 // 5
    assert tokens(10_000, 5) == 30 * MiB // 40_000 // 5
    assert tokens(10_000, 5, P=2) == 2 * (30 * MiB // 40_000) // 5
    assert tokens(10_000, 5, dtype=torch.bfloat16) == 30 * MiB // 20_000 // 5
    assert tokens(100, 1, E=50_000) == 512  # rows of facets count too
    assert tokens(100, 1, E=1000) == 30 * MiB // 4000
