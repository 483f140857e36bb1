"""The Jacobian against autograd and finite differences, and the singular values of layers known by hand."""

import pytest
import torch

from harness.experiments import degeneracy
from harness.experiments.degeneracy import Layer, Spectrum, jacobian, spectrum
from harness.random_streams import seeded


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(degeneracy, "WIDTH", 6)
    monkeypatch.setattr(degeneracy, "INPUTS", 4)


def layer(K, D=6):
    generator = torch.Generator().manual_seed(K)
    return (torch.randn(size, generator=generator, dtype=torch.float64) for size in ((D,), (K, D, D), (K, D)))


@pytest.mark.parametrize("K", [1, 3])
def test_the_jacobian_is_that_of_autograd(K):
    x, weight, gate = layer(K)

    def output(x):
        g = (gate @ x).softmax(0)
        return sum(g[k] * torch.relu(weight[k] @ x) for k in range(K))

    torch.testing.assert_close(
        jacobian(x, weight, gate), torch.autograd.functional.jacobian(output, x), rtol=0, atol=1e-12
    )
    step = 1e-6 * torch.eye(6, dtype=torch.float64)
    numeric = torch.stack([(output(x + e) - output(x - e)) / 2e-6 for e in step], dim=1)
    torch.testing.assert_close(jacobian(x, weight, gate), numeric, rtol=0, atol=1e-8)


def test_a_spectrum_has_a_list_for_each_seed_and_repeats():
    found = spectrum(Layer(experts=3), [0, 1])
    assert [len(values) for values in found.seeds] == [6, 6]
    assert found == spectrum(Layer(experts=3), [0, 1])
    assert found.seeds[0] != found.seeds[1]


@pytest.mark.parametrize("inputs", ["uniform", "normal"])
def test_both_laws_of_the_inputs_have_the_same_weights(inputs):
    """A dense layer, from its draws: the singular values of the rows of W that are active for an input."""
    with seeded(7, "degeneracy"):
        x = torch.rand(4, 6, dtype=torch.float64)
        weight = (2 * torch.rand(6, 6, dtype=torch.float64) - 1) * (6 / 12) ** 0.5
    if inputs == "normal":
        with seeded(7, "degeneracy", "normal inputs"):
            x = torch.randn(4, 6, dtype=torch.float64)
    values = torch.zeros(4, 6, dtype=torch.float64)
    for n in range(4):
        active = weight[weight @ x[n] > 0]
        values[n, : len(active)] = torch.linalg.svdvals(active)
    found = spectrum(Layer(experts=1), [7], inputs=inputs)
    assert found.inputs == inputs
    assert found.seeds[0] == pytest.approx(values.mean(0).tolist(), abs=1e-9)


def test_names_and_shares():
    assert [Layer(experts=1).name, Layer(experts=5).name, Layer(experts=5, gate="constant").name] == [
        "dense", "K = 5", "K = 5, constant gates"
    ]  # fmt: skip
    made = Spectrum(layer=Layer(experts=1), seeds=((4.0, 2.0, 0.3, 0.0), (1.0, 1.0, 1.0, 1.0)))
    assert made.below(0.1) == (0.5, 0.0)
