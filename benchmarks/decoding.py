"""`bench sample`: the speed of text generation, token by token, for backbones of equal size.

It compares a recurrent backbone, for which the time of a step does not depend on the length of the text, with
Transformers with and without cached keys. Weights are random and the head is always the same softmax, because the speed
depends only on sizes. Every round samples from each backbone; the table shows medians.
"""

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict

from harness.benchmarks.machine import high_load
from harness.benchmarks.measurement import save_with_table, slug
from harness.benchmarks.tables import markdown_table
from harness.diagnostics.decoding import Decoder
from harness.diagnostics.sampling import Choice, sample
from harness.machine import environment
from harness.model import LanguageModel, build
from harness.plan.components import count
from harness.plan.specs import ComponentSpec

VOCAB, PROMPT, LENGTHS = 5_000, 8, (64, 256)
STEP = 8  # between widths: a multiple of the numbers of attention heads below
# name, parameters and width; the others get as many parameters
REFERENCE = ("gpt2", {"num_layers": 4, "num_heads": 4}, 256)
SOFTMAX = ComponentSpec(name="softmax")
OTHERS = (("lstm", {"num_layers": 2}), ("transformer_encoder", {"num_layers": 4, "num_heads": 8, "d_ff": 1024}))


class Writing(BaseModel):
    """One backbone. `rates`: number of generated tokens -> tokens per second in each round."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    backbone: str
    goes_on_by: str
    params: int
    rates: dict[int, tuple[float, ...]]


class Writings(BaseModel):
    """All backbones of one measurement."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: Literal["sample"] = "sample"
    device: str
    torch: str
    commit: str
    started: str
    threads: int
    load_average: float
    contended: tuple[str, ...]
    rounds: int
    writings: tuple[Writing, ...]


def measure(rounds: int, report: Callable[[str], None] = lambda line: None) -> Writings:
    """Measure all backbones on the CPU: one text at a time, one thread."""
    load = environment.load_average()
    about = {"device": environment.device_name(torch.device("cpu")), "torch": str(torch.__version__), "threads": 1}
    about |= {"commit": environment.commit(), "started": environment.now(), "load_average": round(load, 2)}
    about |= {"contended": tuple(high_load(load, 1)), "rounds": rounds}
    specs = {str(spec): spec for spec in equal_sizes()}
    models = {name: build(spec, SOFTMAX, vocab_size=VOCAB, seed=1).eval() for name, spec in specs.items()}
    rates: dict[tuple[str, int], list[float]] = {}
    with environment.torch_threads(1):
        for number in range(rounds + 1):
            report(f"round {number} of {rounds}" if number else "warming up")
            for length in LENGTHS:
                for name, model in models.items():
                    rate = _rate(model, length)
                    if number:
                        rates.setdefault((name, length), []).append(rate)
    writings = tuple(
        Writing(
            backbone=name,
            goes_on_by=_goes_on_by(model),
            params=count(VOCAB, specs[name], SOFTMAX)[0],
            rates={length: tuple(rates[name, length]) for length in LENGTHS},
        )
        for name, model in models.items()
    )
    return Writings(**about, writings=writings)


def equal_sizes() -> list[ComponentSpec]:
    """Return the backbones, each with the width at which its number of parameters is nearest to the reference's."""
    name, params, width = REFERENCE
    found = [ComponentSpec(name=name, params={"d_model": width, **params})]
    target = count(VOCAB, found[0], SOFTMAX)[0]
    for name, params in OTHERS:
        widths = [ComponentSpec(name=name, params={"d_model": d, **params}) for d in range(STEP, 4 * width, STEP)]
        found.append(min(widths, key=lambda spec: abs(count(VOCAB, spec, SOFTMAX)[0] - target)))
    return found


def rows(measured: Writings) -> list[list[str]]:
    """Return a header, and a row for each backbone: medians, and their ratios to the reference."""
    found = [["backbone", "goes on by", "parameters", *(f"tokens/s, {length} tokens" for length in LENGTHS)]]
    base = {length: statistics.median(measured.writings[0].rates[length]) for length in LENGTHS}
    for each in measured.writings:
        medians = {length: statistics.median(each.rates[length]) for length in LENGTHS}
        shown = [f"{medians[length]:,.0f} ({medians[length] / base[length]:.2f}x)" for length in LENGTHS]
        found.append([each.backbone, each.goes_on_by, f"{each.params:,}", *shown])
    return found


def save(measured: Writings, results: Path) -> list[Path]:
    """Write the record and the table; return their paths."""
    return save_with_table(f"decoding_{slug(measured.device)}", measured, markdown(measured), results)


def markdown(measured: Writings) -> str:
    """Return the table with a description of the measurement."""
    flag = f"CONTENDED: {'; '.join(measured.contended)}. " if measured.contended else ""
    return f"""\
# Speed of writing text, token by token, on {measured.device}

Made by `harness bench sample --save`. One text after a prompt of {PROMPT} tokens, softmax over V = {VOCAB:,}, float32,
random weights; x: times the first row's speed.

{markdown_table(rows(measured))}

- {flag}Medians of {measured.rounds} interleaved rounds, {measured.threads} thread, load {measured.load_average:.2f} at
  the start, torch {measured.torch}, harness at {measured.commit}, {measured.started}.
"""


def _rate(model: LanguageModel, length: int) -> float:
    """Return the tokens per second for one text."""
    prompt_BT = torch.arange(PROMPT)[None]
    return sample(Decoder(model, PROMPT + length), prompt_BT, length, Choice(), seed=1).tokens_per_second


@torch.no_grad()
def _goes_on_by(model: LanguageModel) -> str:
    if model.backbone(torch.zeros(1, 1, dtype=torch.int64)).state is not None:
        return "its state"
    return "cached keys" if callable(getattr(model.backbone, "extend", None)) else "computing all again"
