"""How a Mixture is evaluated. Every evaluation goes through the three functions below, so a faster exact form for a
device is chosen here and nowhere else; `reference` stays as what the faster forms are held against.
"""

from harness.kernels.reference import LOGIT_MAPS, log_probs, mean_nll, nll, weighted_mean

__all__ = ["LOGIT_MAPS", "log_probs", "mean_nll", "nll", "weighted_mean"]
