"""The lean evaluation under data parallelism, in processes of its own, which tests/mutants.py runs none of."""

import torch
import torch.multiprocessing as multiprocessing
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from harness import kernels
from harness.plan.specs import ComponentSpec
from harness.trial.model import build

V, B, T = 29, 4, 30


def model():
    """Float64, with tied weights."""
    backbone = ComponentSpec(name="lstm", params={"d_model": 8, "num_layers": 1, "dropout": 0.0})
    mos = ComponentSpec(name="mos", params={"num_mixtures": 3, "tie_weights": True})
    return build(backbone, mos, vocab_size=V, seed=1).double()


def batch():
    return torch.randint(V, (2, B, T), generator=torch.Generator().manual_seed(0))


class _Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.built = model()

    def forward(self, tokens, targets):
        distribution, _ = self.built(tokens)
        return distribution.mean_nll(targets)


def _replica(rank, folder):
    """One of two data-parallel processes: half of a batch each."""
    store = f"file://{folder}/store"
    torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    parallel = DistributedDataParallel(_Loss())
    parallel(*batch()[:, 2 * rank : 2 * rank + 2]).backward()
    if rank == 0:
        torch.save([parameter.grad for parameter in parallel.parameters()], f"{folder}/gradients.pt")
    torch.distributed.destroy_process_group()


def test_data_parallel_replicas_average_to_the_gradient_of_the_whole_batch(tmp_path):
    multiprocessing.start_processes(_replica, (str(tmp_path),), nprocs=2, start_method="fork")
    whole = _Loss()
    with kernels.reference_only():
        whole(*batch()).backward()
    for found, parameter in zip(torch.load(tmp_path / "gradients.pt"), whole.parameters(), strict=True):
        torch.testing.assert_close(found, parameter.grad, rtol=0, atol=1e-12)
