"""The lowest KL that one softmax can reach with a given output matrix: a convex problem, solved by scipy."""

import numpy as np
import torch
from scipy import optimize
from torch import Tensor


def lowest_kl(weight_VD: Tensor, target_NV: Tensor, *, bound: float | None = None) -> float:
    """min over h of KL(t || softmax(W h)) in nats, a mean over contexts.

    f(h) = logsumexp(W h) - t^T W h is convex; its gradient is W^T (p - t) and its Hessian W^T (diag(p) - p p^T) W.
    Where the minimum is approached at infinity only, the value is within 1e-9 of the limit.

    Args:
        weight_VD, target_NV: W and the targets, float64.
        bound: |h_i| <= bound, for states that a tanh limits. None: h is free.
    """
    W = weight_VD.numpy()
    return float(np.mean([_minimum(W, t, bound) for t in target_NV.numpy()])) - entropy(target_NV)


def entropy(target_NV: Tensor) -> float:
    """The mean entropy of some distributions in nats."""
    return float(torch.special.entr(target_NV).sum(1).mean())


def _minimum(W: np.ndarray, t: np.ndarray, bound: float | None) -> float:
    start = np.zeros(W.shape[1])
    if bound is not None:
        limits = optimize.Bounds(-bound, bound)
        options = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 10_000, "maxfun": 10**6}
        return optimize.minimize(_value, start, (W, t), jac=True, method="L-BFGS-B", bounds=limits, options=options).fun
    return optimize.minimize(
        _value, start, (W, t), jac=True, hess=_hessian, method="trust-exact", options={"gtol": 1e-11, "maxiter": 10_000}
    ).fun


def _value(h: np.ndarray, W: np.ndarray, t: np.ndarray) -> tuple[float, np.ndarray]:
    z = W @ h
    log_sum = np.logaddexp.reduce(z)
    return log_sum - t @ z, W.T @ (np.exp(z - log_sum) - t)


def _hessian(h: np.ndarray, W: np.ndarray, t: np.ndarray) -> np.ndarray:
    z = W @ h
    p = np.exp(z - np.logaddexp.reduce(z))
    mean = W.T @ p
    return (W * p[:, None]).T @ W - np.outer(mean, mean)
