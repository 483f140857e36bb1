"""Matrices of log-probabilities for the tests of singular values, in blocks, and their dense decompositions."""

import math

import torch


def draw(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def softmax(N: int, V: int, d: int, *, bias: bool = False, seed: int = 0) -> torch.Tensor:
    """(N, V) log-probabilities of random states and weights: of rank d + 1, with a bias d + 2."""
    z = draw(N, d, seed=seed) @ draw(d, V, seed=seed + 100)
    return (z + bias * draw(V, seed=seed + 200)).log_softmax(1)


def mixture(N: int, V: int, d: int) -> torch.Tensor:
    """(N, V) log-probabilities of two softmaxes with equal weights: of full rank."""
    return torch.logaddexp(softmax(N, V, d, seed=1), softmax(N, V, d, seed=2)) - math.log(2)


def blocks_of(A: torch.Tensor, size: int = 70):
    """The matrix in blocks, and how often it was asked for."""
    passes = []

    def blocks():
        passes.append(1)
        return (block.clone() for block in A.split(size))

    return blocks, passes


def both(A: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The matrix, and the matrix less the mean of each row."""
    return A, A - A.mean(1, keepdim=True)
