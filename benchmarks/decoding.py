"""`bench sample`: the speed of text generation, token by token, for backbones of equal size.

It compares a recurrent backbone, for which the time of a step does not depend on the length of the text, with
Transformers with and without cached keys. Weights are random and the head is always the same softmax, because the speed
depends only on sizes. Every round samples from each backbone; the table shows medians.
"""

import statistics
from functools import partial
from typing import Literal

import torch

from harness.benchmarks.measure import Report, interleaved, silent
from harness.benchmarks.record import Record, Rows, Values, about
from harness.benchmarks.tables import document, listed
from harness.diagnostics.generation import Choice, Decoder, sample
from harness.machine.environment import torch_threads
from harness.model import LanguageModel, build
from harness.plan.components import count
from harness.plan.specs import ComponentSpec

VOCAB, PROMPT, LENGTHS = 5_000, 8, (64, 256)
CPU = torch.device("cpu")
STEP = 8  # between widths: a multiple of the numbers of attention heads below
# name, parameters and width; the others get as many parameters
REFERENCE = ("gpt2", {"num_layers": 4, "num_heads": 4}, 256)
SOFTMAX = ComponentSpec(name="softmax")
OTHERS = (("lstm", {"num_layers": 2}), ("transformer_encoder", {"num_layers": 4, "num_heads": 8, "d_ff": 1024}))


class Writing(Values):
    """One backbone. `rates`: number of generated tokens -> tokens per second in each round."""

    backbone: str
    goes_on_by: str
    params: int
    rates: dict[int, tuple[float, ...]]


class Writings(Record):
    """All backbones of one measurement."""

    stem = "decoding"
    kind: Literal["sample"] = "sample"
    writings: tuple[Writing, ...]

    def tables(self) -> list[Rows]:
        """A row for each backbone: medians, and their ratios to the reference."""
        base = {length: statistics.median(rates) for length, rates in self.writings[0].rates.items()}

        def rate(each: Writing, length: int) -> str:
            found = statistics.median(each.rates[length])
            return f"{found:,.0f} ({found / base[length]:.2f}x)"

        columns = {
            "backbone": lambda each: each.backbone,
            "goes on by": lambda each: each.goes_on_by,
            "parameters": lambda each: f"{each.params:,}",
            **{f"tokens/s, {length} tokens": lambda each, length=length: rate(each, length) for length in base},
        }
        return [listed(self.writings, columns)]

    def markdown(self) -> str:
        sizes = f"{PROMPT} tokens, softmax over V = {VOCAB:,}, float32, random weights; x: times the first row's speed"
        about = f"Made by `harness bench sample --save`. One text after a prompt of {sizes}."
        return document("Speed of writing text, token by token,", about, self, [])


def measure(kind: str, report: Report = silent, *, rounds: int) -> list[Writings]:
    """Measure all backbones on the CPU: one text at a time, one thread."""
    machine, specs = about(CPU), equal_sizes()
    models = [build(spec, SOFTMAX, vocab_size=VOCAB, seed=1).eval() for spec in specs]
    cells = [(length, at) for length in LENGTHS for at in range(len(models))]
    calls = {(length, at): partial(_rate, models[at], length) for length, at in cells}
    with torch_threads(1):
        rates = interleaved(calls, rounds, CPU, report, measure=lambda call: call())
    writings = tuple(
        Writing(
            backbone=str(spec),
            goes_on_by=_goes_on_by(models[at]),
            params=count(VOCAB, spec, SOFTMAX)[0],
            rates={length: rates[length, at] for length in LENGTHS},
        )
        for at, spec in enumerate(specs)
    )
    return [Writings(**machine, rounds=rounds, writings=writings)]


def equal_sizes() -> list[ComponentSpec]:
    """Return the backbones, each with the width at which its number of parameters is nearest to the reference's."""
    name, params, width = REFERENCE
    found = [ComponentSpec(name=name, params={"d_model": width, **params})]
    target = count(VOCAB, found[0], SOFTMAX)[0]
    for name, params in OTHERS:
        widths = [ComponentSpec(name=name, params={"d_model": d, **params}) for d in range(STEP, 4 * width, STEP)]
        found.append(min(widths, key=lambda spec: abs(count(VOCAB, spec, SOFTMAX)[0] - target)))
    return found


def _rate(model: LanguageModel, length: int) -> float:
    prompt_BT = torch.arange(PROMPT)[None]
    return sample(Decoder(model, PROMPT + length), prompt_BT, length, Choice(), seed=1)[1]


@torch.no_grad()
def _goes_on_by(model: LanguageModel) -> str:
    if model.backbone(torch.zeros(1, 1, dtype=torch.int64)).state is not None:
        return "its state"
    return "cached keys" if callable(getattr(model.backbone, "extend", None)) else "computing all again"
