"""Time the forward and backward pass of heads, with our loss and others, in turns: `python benchmarks/head.py`.

Before anything is timed, every loss is compared with the equations in float64; the largest relative difference is in
the table. `--eval` times the forward pass without gradients.
"""

from collections.abc import Callable

import torch
from implementations import ALL, LOSSES, OURS, Way, arithmetic, lacks, mean_loss, ways
from measure import against, interleaved, median, names, parser, run, show
from settings import Setting, add_options, chosen, head, inputs
from torch import Tensor

from harness.distributions import Mixture
from harness.errors import ExecutionError
from harness.kernels import reference
from harness.machine.environment import OtherWork, torch_threads

EPSILON = {"published": 1e-8}  # what an implementation adds to probabilities
# The largest relative error of the loss. bf16 rounds to 2^-8, and processors round in different places.
TOLERANCE = {"fp32": 1e-5, "tf32": 5e-4, "bf16": 4 * 2**-8}


class HeadPass:
    """A head with inputs; the loss of all tokens, and unless `evaluating` its gradients."""

    def __init__(self, name: str, setting: Setting, device: torch.device, *, evaluating: bool = False):
        self.head = head(name, setting, device)
        self.hidden, self.targets_BT = inputs(setting, device)
        self.leaves = [*self.head.parameters(), *self.hidden.layers]
        for leaf in self.leaves:
            leaf.requires_grad_(not evaluating)

    def distribution(self) -> Mixture:
        return self.head(self.hidden)

    def run(self, impl: str) -> Tensor:
        """One pass; its gradients are dropped, as a training loop does after the update. Returns the mean loss."""
        loss = self.accumulate(impl)
        for leaf in self.leaves:
            leaf.grad = None
        return loss

    def accumulate(self, impl: str) -> Tensor:
        """One pass, which adds to gradients that are there."""
        loss = mean_loss(impl, self.distribution(), self.targets_BT)
        if loss.requires_grad:
            loss.backward()
        return loss.detach()


def within(impl: str, way: Way, device: torch.device, call: Callable[..., Tensor]) -> Callable[[], Tensor]:
    """A call in the precision, route and form of a cell."""

    def made() -> Tensor:
        with arithmetic(impl, way, device):
            return call(impl)

    return made


@torch.no_grad()
def expected_loss(work: HeadPass, epsilon: float) -> float:
    """The mean loss by the equations in float64, -log(p + epsilon), of the facets that the head computes in float32."""
    mixture = work.distribution()
    given = [None if each is None else each.double() for each in mixture.given]
    facets_NFE, log_prior_NK, weight_VE, bias_V = given
    log_prior = None if log_prior_NK is None else log_prior_NK[None]
    kind = {"partitions": mixture.partitions, "logit_map": mixture.logit_map}
    exact = Mixture(facets_NFE[None], log_prior, weight_VE, bias_V, **kind)
    nll_N = reference.nll(exact, work.targets_BT.flatten())
    return -torch.log(torch.exp(-nll_N) + epsilon).mean().item()


def main() -> None:
    options = parser(__doc__)
    add_options(options)
    options.add_argument("--impl", type=names, default=ALL, help=f"some of {ALL}")
    options.add_argument("--precision", type=names, default="fp32,bf16", help="fp32, bf16, on a GPU also tf32")
    options.add_argument("--eval", action="store_true", help="the forward pass without gradients")
    given = options.parse_args()
    setting, heads = chosen(given)
    work, rows = OtherWork(), []
    with torch_threads(given.threads):
        for name in heads:
            rows += measured(name, setting, given)
    kind = "evaluation" if given.eval else "loss and gradients"
    sizes = f"{setting.tokens} tokens, d = {setting.width}, V = {setting.vocab:,}"
    show(f"Heads, {kind}: {given.setting}, {sizes}", rows, given, work)


def measured(name: str, setting: Setting, given) -> list[dict[str, str]]:
    """The rows of a head: one for each implementation and way."""
    work = HeadPass(name, setting, given.device, evaluating=given.eval)
    mixture = work.distribution()
    calls, errors, missing = {}, {}, {}  # by implementation and way; the last by implementation
    for impl in given.impl:
        if impl not in OURS | LOSSES:
            raise ExecutionError(f"--impl {impl}: expected some of {ALL}")
        if reason := lacks(impl, mixture, setting.tokens):
            missing[impl] = reason
            continue
        expected = expected_loss(work, EPSILON.get(impl, 0.0))
        for way in ways(given.precision, given.device):
            call = within(impl, way, given.device, work.run)
            error = abs(call().item() / expected - 1)
            if not error <= TOLERANCE[way[0]]:
                raise ExecutionError(f"{name} by {impl} in {way[0]}: its loss is {error:.1e} away from the equations")
            calls[impl, way], errors[impl, way] = call, error
    times = interleaved(calls, given.rounds, given.device)
    for impl, reason in missing.items():
        print(f"not measured: {name} by {impl}: {reason}")
    return [
        {
            "head": name,
            "loss by": impl,
            "products": " ".join(way),
            "ms": median(milliseconds),
            "/ published": against(milliseconds, times.get(("published", way))),
            "error of the loss": f"{errors[impl, way]:.0e}",
        }
        for (impl, way), milliseconds in times.items()
    ]


if __name__ == "__main__":
    run(main)
