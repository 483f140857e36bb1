"""`bench extras`: what a logit map, the z-loss and the statistics of tokens add to the plain lean evaluation.

Every round runs each pass once, on one thread, in float32 on the CPU, by this machine's route of products. Times are
processor time, which other processes disturb less than they do the time of the clock. A ratio is that of a pass to the
plain pass of the same round; the table shows medians.
"""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from harness.benchmarks.machine import high_load
from harness.benchmarks.measurement import save_with_table, slug
from harness.benchmarks.settings import Setting
from harness.benchmarks.tables import markdown_table
from harness.distributions import LOGIT_MAPS, Mixture, SoftCap, log_prior
from harness.kernels import products
from harness.kernels.products import Products, using
from harness.machine import environment

MIXTURES = (1, 3)
CAP, Z_LOSS = 30.0, 1e-4  # of Gemma 2 (2024) and of PaLM (2022)
MAPS = {"plain": LOGIT_MAPS["identity"], "soft cap": SoftCap(CAP), "sigsoftmax": LOGIT_MAPS["sigsoftmax"]}
TRAINING, EVALUATION = "loss and gradients", "nll of each token"
STATISTICS = "statistics of each token"
Call = Callable[[], Any]


class Pass(BaseModel):
    """One pass, and the milliseconds of processor time that it took in each round."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    num_mixtures: int
    what: str
    extra: str
    milliseconds: tuple[float, ...]


class Extras(BaseModel):
    """All passes of one measurement."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: Literal["extras"] = "extras"
    device: str
    torch: str
    commit: str
    started: str
    threads: int
    route: str
    load_average: float
    contended: tuple[str, ...]
    rounds: int
    setting: str
    tokens: int
    vocab: int
    width: int
    passes: tuple[Pass, ...]


def measure(setting: Setting, rounds: int, report: Callable[[str], None] = lambda line: None) -> Extras:
    """Measure all passes at the sizes of a setting, after a round of warm-up."""
    load, route = environment.load_average(), products.load_probe().route
    started, commit = environment.now(), environment.commit()
    calls = {(k, *name): call for k in MIXTURES for name, call in passes(setting, k).items()}
    taken: dict[tuple, list[float]] = {key: [] for key in calls}
    with (
        environment.torch_threads(1),
        using(Products(route=route)),
        Products(route=route).switched(torch.device("cpu")),
    ):
        for number in range(rounds + 1):
            report(f"round {number} of {rounds}" if number else "warm-up")
            for key, call in calls.items():
                start = time.process_time()
                call()
                if number:
                    taken[key].append((time.process_time() - start) * 1e3)
    return Extras(
        device=environment.device_name(torch.device("cpu")),
        torch=str(torch.__version__),
        commit=commit,
        started=started,
        threads=1,
        route=route,
        load_average=round(load, 2),
        contended=tuple(high_load(load, 1)),
        rounds=rounds,
        setting=setting.name,
        tokens=setting.tokens,
        vocab=setting.vocab,
        width=setting.width,
        passes=tuple(
            Pass(num_mixtures=k, what=what, extra=extra, milliseconds=tuple(taken[k, what, extra]))
            for k, what, extra in calls
        ),
    )


def passes(setting: Setting, num_mixtures: int) -> dict[tuple[str, str], Call]:
    """(what is computed, what is added) -> a function that computes it. The plain pass comes first."""
    inputs, targets_BT = _inputs(setting, num_mixtures)

    def mixture(logit_map: Callable[[Tensor], Tensor]) -> Mixture:
        facets, scores, weight, bias = inputs
        return Mixture(facets, None if scores is None else log_prior(scores), weight, bias, logit_map=logit_map)

    def train(logit_map: Callable[[Tensor], Tensor], z_loss: float = 0.0) -> None:
        distribution = mixture(logit_map)
        distribution.z_loss = z_loss
        wanted = [tensor for tensor in inputs if tensor is not None]
        torch.autograd.grad(distribution.training_loss(targets_BT), wanted)

    @torch.no_grad()
    def evaluate(logit_map: Callable[[Tensor], Tensor]) -> None:
        mixture(logit_map).nll(targets_BT)

    plain = MAPS["plain"]
    return {
        **{(TRAINING, name): lambda phi=phi: train(phi) for name, phi in MAPS.items()},
        (TRAINING, "z-loss"): lambda: train(plain, Z_LOSS),
        **{(EVALUATION, name): lambda phi=phi: evaluate(phi) for name, phi in MAPS.items()},
        (EVALUATION, STATISTICS): lambda: mixture(plain).statistics(),
    }


def _inputs(setting: Setting, num_mixtures: int) -> tuple[tuple[Tensor | None, ...], Tensor]:
    """Facets (1, N, K, E), scores (1, N, K) or None, words (V, E), bias (V,), all of which take gradients; targets."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).requires_grad_()

    N, E, V = setting.tokens, setting.width, setting.vocab
    scores = normal(1, N, num_mixtures) if num_mixtures > 1 else None
    inputs = normal(1, N, num_mixtures, E), scores, normal(V, E), normal(V)
    return inputs, torch.randint(V, (1, N), generator=generator)


def ratios(measured: Extras) -> dict[tuple[int, str, str], float]:
    """The median over rounds of the time of a pass, divided by that of the plain pass of the round."""
    times = {(each.num_mixtures, each.what, each.extra): each.milliseconds for each in measured.passes}
    return {
        key: statistics.median(a / b for a, b in zip(values, times[*key[:2], "plain"], strict=True))
        for key, values in times.items()
    }


def rows(measured: Extras) -> list[list[str]]:
    """Return a header, and a row for each pass."""
    found = [["K", "pass", "with", "ms", "times the plain pass"]]
    ratio = ratios(measured)
    for each in measured.passes:
        key = each.num_mixtures, each.what, each.extra
        median = f"{statistics.median(each.milliseconds):.1f}"
        found.append([str(each.num_mixtures), each.what, each.extra, median, f"{ratio[key]:.2f}"])
    return found


def save(measured: Extras, results: Path) -> list[Path]:
    """Write the record and the table; return their paths."""
    return save_with_table(f"extras_{slug(measured.device)}", measured, markdown(measured), results)


def markdown(measured: Extras) -> str:
    """Return the table with a description of the measurement."""
    flag = f"CONTENDED: {'; '.join(measured.contended)}. " if measured.contended else ""
    return f"""\
# What logit maps, z-loss and statistics add to the evaluation of a mixture on {measured.device}

Made by `harness bench extras --save`. {measured.tokens} tokens, V = {measured.vocab:,}, width {measured.width},
float32, a soft cap of {CAP:g}.

{markdown_table(rows(measured))}

- {flag}Medians of {measured.rounds} interleaved rounds, in processor time; a ratio is taken within its round.
  {measured.threads} thread, {measured.route} products, load {measured.load_average:.2f} at the start,
  torch {measured.torch}, harness at {measured.commit}, {measured.started}.
"""
