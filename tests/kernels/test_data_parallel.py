"""The lean evaluation under data parallelism. The replicas are processes of their own, started afresh (this file, run
as a script): forking pytest, which has threads, can hang for ever.
"""

import subprocess
import sys

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from harness import kernels
from harness.corpora.batching import Segment
from harness.model import build
from harness.plan.specs import ComponentSpec

V, B, T = 29, 4, 30


def batch():
    return torch.randint(V, (2, B, T), generator=torch.Generator().manual_seed(0))


class Loss(nn.Module):
    """Tokens and targets -> loss, in float64, with tied weights."""

    def __init__(self):
        super().__init__()
        backbone = ComponentSpec(name="lstm", params={"d_model": 8, "num_layers": 1, "dropout": 0.0})
        mos = ComponentSpec(name="mos", params={"num_mixtures": 3, "tie_weights": True})
        self.model = build(backbone, mos, vocab_size=V, seed=1).double()

    def forward(self, tokens, targets):
        distribution, _ = self.model(Segment(tokens, targets))
        return distribution.mean_nll(targets)


def replica(rank, folder):
    """Half of the batch each; the first replica keeps the gradients."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    parallel = DistributedDataParallel(Loss())
    parallel(*batch()[:, 2 * rank : 2 * rank + 2]).backward()
    if rank == 0:
        torch.save([parameter.grad for parameter in parallel.parameters()], f"{folder}/gradients.pt")
    torch.distributed.destroy_process_group()


def test_data_parallel_replicas_average_to_the_gradient_of_the_whole_batch(tmp_path):
    replicas = [subprocess.Popen([sys.executable, __file__, rank, str(tmp_path)]) for rank in "01"]
    try:
        assert [process.wait(timeout=1000) for process in replicas] == [0, 0]
    finally:
        for process in replicas:
            process.kill()
    whole = Loss()
    with kernels.reference_only():
        whole(*batch()).backward()
    for found, parameter in zip(
        torch.load(tmp_path / "gradients.pt", weights_only=True), whole.parameters(), strict=True
    ):
        torch.testing.assert_close(found, parameter.grad, rtol=0, atol=1e-12)


if __name__ == "__main__":
    torch.set_num_threads(1)
    replica(int(sys.argv[1]), sys.argv[2])
