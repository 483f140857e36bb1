"""Time whole training steps, with our loss and the published structure in turns: `python benchmarks/step.py`.

A step is forward pass, loss, backward pass, clipping and update, for segments of 35 tokens as in suites/. On a GPU our
step is also timed as a CUDA graph, as trials run it.

`--theirs DIR` adds a step of the authors' own model: DIR is a copy of github.com/zihangdai/mos (Yang et al. 2018),
whose model.py is used as it is, in the loop of its main.py without activation regularisation. Its mixtures are then
compared with `mos` on the same LSTM layers without weight dropout.
"""

import sys
from functools import partial
from pathlib import Path

import torch
from head import within
from implementations import mean_loss, ways
from measure import Call, against, interleaved, median, names, parser, run, show
from settings import Setting, add_options, chosen, component, head
from torch import Tensor
from torch.nn import functional

from harness.corpora.batching import Segment
from harness.errors import ExecutionError
from harness.gpu.cuda_graph import GraphStep, captured
from harness.kernels import products
from harness.machine.environment import OtherWork, torch_threads
from harness.model import LanguageModel
from harness.plan.specs import TrainSpec
from harness.registry import BACKBONES
from harness.training.optimizers import make_optimizer
from harness.training.step import EagerStep

SEQ_LEN = 35
# As in suites/, but the learning rate is small, so that weights hardly change between rounds.
TRAIN = TrainSpec(optimizer="sgd", lr=0.01, epochs=1, batch_size=20, seq_len=SEQ_LEN, clip=0.25)
BACKBONE_SIZES = {  # of Benka et al. (2021), and of the language models that the LSTM suites reproduce
    "transformer_encoder": {"num_layers": 4, "num_heads": 4, "d_ff": 200, "dropout": 0.2},
    "lstm": {"num_layers": 2, "dropout": 0.2},
}


class Published(LanguageModel):
    """A model whose training loss is the published one."""

    def forward(self, segment: Segment, state=None):
        distribution, state = super().forward(segment, state)
        distribution.training_loss = partial(_published_loss, distribution)
        return distribution, state


def _published_loss(distribution, targets_BT: Tensor) -> Tensor:
    return mean_loss("published", distribution, targets_BT)


def segment_of(setting: Setting, device: torch.device) -> Segment:
    generator = torch.Generator().manual_seed(1)
    shape = (setting.tokens // SEQ_LEN, SEQ_LEN)
    return Segment(*(torch.randint(setting.vocab, shape, generator=generator).to(device) for _ in range(2)))


def ours(kind: type[LanguageModel], name: str, backbone: str, setting: Setting, device: torch.device) -> EagerStep:
    torch.manual_seed(0)
    body = BACKBONES.get(backbone)(setting.vocab, d_model=setting.width, **BACKBONE_SIZES[backbone])
    model = kind(body, head(name, setting, device)).to(device)
    train = TRAIN.model_copy(update={"precision": products.current().precision})
    return EagerStep(model, make_optimizer(model, train), train)


def theirs(folder: Path, name: str, setting: Setting, device: torch.device) -> Call:
    """A step of the authors' model. Raises ExecutionError where the folder has no model.py."""
    if not (folder / "model.py").exists():
        raise ExecutionError(f"--theirs {folder}: expected a copy of github.com/zihangdai/mos with its model.py")
    sys.path.insert(0, str(folder))
    from model import RNNModel

    layers, drop = BACKBONE_SIZES["lstm"]["num_layers"], BACKBONE_SIZES["lstm"]["dropout"]
    dropouts = {"dropout": drop, "dropouth": drop, "dropouti": drop, "dropoute": 0.0, "ldropout": 0.0}
    K, d = component(name)[1].get("num_mixtures", 1), setting.width
    model = RNNModel("LSTM", setting.vocab, d, d, d, layers, **dropouts, n_experts=K).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=TRAIN.lr)
    segment = segment_of(setting, device)
    tokens_TB, targets_TB = segment.inputs.t().contiguous(), segment.targets.t().contiguous()
    hidden = model.init_hidden(tokens_TB.shape[1])

    def step() -> None:
        optimizer.zero_grad()
        log_p_TBV, _ = model(tokens_TB, hidden)
        functional.nll_loss(log_p_TBV.view(-1, setting.vocab), targets_TB.view(-1)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), TRAIN.clip)
        optimizer.step()

    return step


def steps_of(name: str, setting: Setting, given, way: tuple[str, str]) -> dict[str, Call]:
    """What is timed of a head, by its name in the table."""
    segment, device = segment_of(setting, given.device), given.device

    def alone(step, impl: str) -> Call:
        step.begin_epoch()
        return within(impl, way, device, lambda _: step(segment))

    calls = {}
    with products.using(products.Products(*way)):
        eager = ours(LanguageModel, name, given.backbone, setting, device)
        calls["ours"] = alone(eager, "ours")
        if device.type == "cuda":
            graph = GraphStep(ours(LanguageModel, name, given.backbone, setting, device), segment, captured)
            calls["ours, CUDA graph"] = alone(graph, "ours")
        calls["published"] = alone(ours(Published, name, given.backbone, setting, device), "published")
    if given.theirs and component(name)[0] == "mos":
        theirs_step = theirs(given.theirs, name, setting, device)
        calls["authors' code"] = within("published", way, device, lambda _: theirs_step())
    return calls


def main() -> None:
    options = parser(__doc__)
    add_options(options)
    options.add_argument("--backbone", choices=BACKBONE_SIZES, default="transformer_encoder")
    options.add_argument("--precision", type=names, default="fp32,bf16", help="fp32, bf16, on a GPU also tf32")
    options.add_argument("--theirs", type=Path, metavar="DIR", help="a copy of github.com/zihangdai/mos")
    given = options.parse_args()
    setting, heads = chosen(given)
    if setting.tokens % SEQ_LEN:
        raise ExecutionError(f"--tokens {setting.tokens}: expected a multiple of {SEQ_LEN}")
    if given.theirs:
        given.backbone = "lstm"  # the only one that they have
    work, rows = OtherWork(), []
    with torch_threads(given.threads):
        for name in heads:
            for way in ways(given.precision, given.device):
                times = interleaved(steps_of(name, setting, given, way), given.rounds, given.device)
                for what, milliseconds in times.items():
                    ratio = against(milliseconds, times["published"])
                    cells = [name, what, " ".join(way), median(milliseconds), ratio]
                    rows.append(dict(zip(("head", "step", "products", "ms", "/ published"), cells, strict=True)))
    sizes = f"{setting.tokens} tokens, d = {setting.width}, V = {setting.vocab:,}"
    show(f"Whole training steps: {given.backbone}, {given.setting}, {sizes}", rows, given, work)


if __name__ == "__main__":
    run(main)
