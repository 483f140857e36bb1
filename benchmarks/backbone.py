"""Time a step of each backbone alone, and its memory, by context length: `python benchmarks/backbone.py`.

A step is the forward and the backward pass of a backbone in training mode, for one sequence of T tokens; the gradient
of the top layer is given. There is no head, no loss and no optimizer. The memory is the peak of one step above that
before it, in a new process.
"""

import torch
from measure import extra_mib, in_new_process, interleaved, median, names, parser, run, show
from torch import nn

from harness.machine.environment import OtherWork, torch_threads
from harness.model import build_backbone
from harness.plan.specs import ComponentSpec

WIDTH, VOCAB = 256, 1_000
ATTENTION = {"num_layers": 4, "num_heads": 4}
BACKBONES = {  # of one width; gpt2 has 4 x 256 units in its feed-forward block, too
    "lstm": {"num_layers": 2},
    "gru": {"num_layers": 2},
    "transformer_encoder": {**ATTENTION, "d_ff": 4 * WIDTH},
    "gpt2": ATTENTION,
}


class Step:
    """The forward and backward pass of a backbone, for one sequence."""

    def __init__(self, name: str, context: int, device: torch.device):
        torch.manual_seed(0)
        spec = ComponentSpec(name=name, params={"d_model": WIDTH, "dropout": 0.1, **BACKBONES[name]})
        self.backbone: nn.Module = build_backbone(spec, VOCAB).to(device)
        self.tokens_BT = torch.randint(VOCAB, (1, context)).to(device)
        self.gradient_BTD = torch.randn(1, context, WIDTH).to(device)

    def __call__(self) -> None:
        self.backbone(self.tokens_BT).layers[-1].backward(self.gradient_BTD)


def peak_mib(name: str, context: int, device: torch.device) -> float:
    """The memory of one step in this process, which must be a new one."""
    step = Step(name, context, device)
    step.tokens_BT, step.gradient_BTD, whole = step.tokens_BT[:, :1], step.gradient_BTD[:, :1], vars(step).copy()
    step()  # makes the gradients, and libraries allocate what they need once
    vars(step).update(whole)
    return extra_mib(step, device)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--backbones", type=names, default=",".join(BACKBONES))
    options.add_argument("--contexts", type=names, default="32,64,128,256,512,1024", help="tokens")
    given = options.parse_args()
    work = OtherWork()
    cells = [(name, int(context)) for context in given.contexts for name in given.backbones]
    with torch_threads(given.threads):
        times = interleaved({cell: Step(*cell, given.device) for cell in cells}, given.rounds, given.device)
    rows = []
    for name, context in cells:
        mib = in_new_process(peak_mib, name, context, given.device, threads=given.threads)
        cell = {"backbone": name, "tokens": f"{context:,}", "ms": median(times[name, context]), "MiB": f"{mib:.1f}"}
        rows.append(cell)
    show(f"Step of a backbone alone: width {WIDTH}, V = {VOCAB:,}, float32", rows, given, work)


if __name__ == "__main__":
    run(main)
