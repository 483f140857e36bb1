"""Measure the peak memory of a head's forward and backward pass: `python benchmarks/memory.py`.

It is what one pass needs beyond weights, inputs and all gradients; each cell is measured in a new process.
"""

import torch
from head import HeadPass, within
from implementations import ALL, Way, lacks, ways
from measure import extra_mib, in_new_process, names, parser, run, show
from settings import SETTINGS, Setting, add_options, chosen

from harness.machine.environment import OtherWork


def peak_mib(name: str, impl: str, way: Way, setting: Setting, device: torch.device) -> float:
    """The peak of one pass in this process, which must be a new one. A small pass has loaded the libraries."""
    small = HeadPass(name, SETTINGS["tiny"]._replace(bias=setting.bias), device)
    within(impl, way, device, small.accumulate)()
    work = HeadPass(name, setting, device)
    for leaf in work.leaves:
        leaf.grad = torch.zeros_like(leaf)
    call = within(impl, way, device, work.accumulate)
    if device.type == "cuda":
        call()  # chooses the form of the loss
    return extra_mib(call, device)


def main() -> None:
    options = parser(__doc__)
    add_options(options)
    options.add_argument("--impl", type=names, default=ALL, help=f"some of {ALL}")
    options.add_argument("--precision", type=names, default="fp32", help="fp32, bf16, on a GPU also tf32")
    given = options.parse_args()
    setting, heads = chosen(given)
    work, rows = OtherWork(), []
    for name in heads:
        mixture = HeadPass(name, setting, given.device).distribution()
        for impl in given.impl:
            if reason := lacks(impl, mixture, setting.tokens):
                print(f"not measured: {name} by {impl}: {reason}")
                continue
            for precision in given.precision:
                way = ways([precision], given.device)[-1]
                mib = in_new_process(peak_mib, name, impl, way, setting, given.device, threads=given.threads)
                rows.append({"head": name, "loss by": impl, "products": " ".join(way), "MiB": f"{mib:.1f}"})
    given.rounds = 1
    sizes = f"{setting.tokens} tokens, d = {setting.width}, V = {setting.vocab:,}"
    show(f"Peak memory of a pass of a head: {given.setting}, {sizes}", rows, given, work)


if __name__ == "__main__":
    run(main)
