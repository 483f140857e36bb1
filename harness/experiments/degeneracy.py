"""The singular values of the Jacobian of a layer: a dense one against mixtures of experts (Orhan, 2018)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from harness.random_streams import seeded

WIDTH, INPUTS = 128, 250
Gate = Literal["learned", "constant"]
Inputs = Literal["uniform", "normal"]  # U(0, 1), or N(0, 1)
INPUT_KINDS: tuple[Inputs, ...] = ("uniform", "normal")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer of the experiment.

    Args:
        experts: K; 1 is the dense layer.
        gate: 'learned': softmax of an affine map of the input; 'constant': 1 / K.
    """

    experts: int
    gate: Gate = "learned"

    @property
    def name(self) -> str:
        """'dense', 'K = 5', 'K = 5, constant gates'."""
        if self.experts == 1:
            return "dense"
        return f"K = {self.experts}" + (", constant gates" if self.gate == "constant" else "")


EXPERTS = (2, 4, 8, 16)
LAYERS = (
    Layer(experts=1),
    *(Layer(experts=experts, gate=gate) for gate in ("learned", "constant") for experts in EXPERTS),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spectrum:
    """The singular values of a layer's Jacobian, largest first, averaged over inputs: one list for each seed."""

    layer: Layer
    inputs: Inputs = "uniform"
    seeds: tuple[tuple[float, ...], ...]

    def below(self, share: float) -> tuple[float, ...]:
        """For each seed the share of singular values below `share` times the largest."""
        shares = []
        for values in self.seeds:
            small = sum(value < share * values[0] for value in values)
            shares.append(small / len(values))
        return tuple(shares)


def spectrum(layer: Layer, seeds: Sequence[int], *, inputs: Inputs = "uniform") -> Spectrum:
    """Singular values of dy/dx of an untrained layer, in float64:

    y = sum_k g_k(x) relu(W_k x);    g = softmax(V x), or 1 / K
    dy/dx = sum_k g_k diag(W_k x > 0) W_k + relu(W_k x) (dg_k/dx)^T;    dg_k/dx = g_k (v_k - sum_j g_j v_j)

    Shapes: x (128,), W_k (128, 128), V (K, 128).
    Args:
        inputs: 'uniform': U(0, 1); 'normal': N(0, 1). A seed has the same weights with both.
    Source: Orhan's note on mixtures of experts, and eminorhan/mixture-of-experts, jacobian_moe_demo.py and DenseMoE.py:
        250 inputs, W_k in U(-r, r) with r = sqrt(6 / 256), V in U(-s, s) with s = sqrt(6 / 129), biases 0.
    Differs: the code draws the inputs from U(0, 1), though its comment says normal, so both are computed. The code has
        one seed.
    """
    return Spectrum(layer=layer, inputs=inputs, seeds=tuple(_of_seed(layer, seed, inputs) for seed in seeds))


def _of_seed(layer: Layer, seed: int, inputs: Inputs) -> tuple[float, ...]:
    K, D, r, s = layer.experts, WIDTH, (6 / (2 * WIDTH)) ** 0.5, (6 / (WIDTH + 1)) ** 0.5
    with seeded(seed, "degeneracy"):
        x_ND = torch.rand(INPUTS, D, dtype=torch.float64)
        weight_KDD = torch.empty(K, D, D, dtype=torch.float64).uniform_(-r, r)
        gate_KD = torch.empty(K, D, dtype=torch.float64).uniform_(-s, s)
    if inputs == "normal":
        with seeded(seed, "degeneracy", "normal inputs"):
            x_ND = torch.randn(INPUTS, D, dtype=torch.float64)
    if layer.gate == "constant":
        gate_KD = torch.zeros_like(gate_KD)  # the softmax of zeros is 1 / K, and its gradient is 0
    values_ND = torch.stack([torch.linalg.svdvals(jacobian(x_D, weight_KDD, gate_KD)) for x_D in x_ND])
    return tuple(values_ND.mean(0).tolist())


def jacobian(x_D: Tensor, weight_KDD: Tensor, gate_KD: Tensor) -> Tensor:
    """(D, D) dy/dx at an input, by the equation above."""
    z_KD = weight_KDD @ x_D
    g_K = (gate_KD @ x_D).softmax(0)
    slope_KD = g_K[:, None] * (z_KD > 0)
    change_KD = g_K[:, None] * (gate_KD - g_K @ gate_KD)
    return torch.einsum("kd,kde->de", slope_KD, weight_KDD) + z_KD.relu().T @ change_KD
