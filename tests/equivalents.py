"""Mutants that no test can kill because they change no value; each excuse is an expression, and why."""

from dataclasses import dataclass

from mutations import Mutant


@dataclass(frozen=True)
class Equivalent:
    """An expression whose surviving mutants are excused, because they change no value; stale when it excuses none."""

    file: str
    function: str
    text: str
    reason: str

    def excuses(self, file: str, mutant: Mutant) -> bool:
        """Whether the mutated node is this expression or a part of it."""
        return (self.file, self.function) == (file, mutant.function) and self.text in mutant.within


SAME_AXIS = "the same axis, counted from the other end"
EQUIVALENT = [
    Equivalent(
        "heads/doc_poster.py",
        "DirectOutputConnectionPoster.forward",
        "torch.stack([facet(h) for facet, h in zip(self.facets, read, strict=True)], dim=2)",
        SAME_AXIS,
    ),
    Equivalent(
        "heads/mfs.py",
        "MultiFacetSoftmax.forward",
        "torch.stack([facet(query) for facet in self.facets], dim=2)",
        SAME_AXIS,
    ),
    Equivalent(
        "heads/mfs.py",
        "MultiFacetSoftmax.input_block",
        "(0, 0, offset, 0)",
        "what is padded at the end, [:, :T] cuts off",
    ),
    Equivalent("heads/nce.py", "NoiseContrastive.contrast", "from_noise_Nk.sum(-1)", SAME_AXIS),
    Equivalent("heads/nce.py", "NoiseContrastive.contrast", "bias_V.index_select(0, targets_N)", SAME_AXIS),
    Equivalent("heads/nce.py", "NoiseContrastive.contrast", "bias_V.index_select(0, noise_words)", SAME_AXIS),
    Equivalent("heads/plif.py", "_looked_up", "table_M.index_select(0, index.flatten())", SAME_AXIS),
    Equivalent("heads/plif.py", "PiecewiseLinearSoftmax.phi", "slope_M.cumsum(0)", SAME_AXIS),
    Equivalent("harness/kernels/reference.py", "nll", "torch.stack(component_nlls, dim=1)", SAME_AXIS),
    Equivalent(
        "harness/kernels/reference.py", "nll", "torch.logsumexp(mixture.log_prior_NK - nll_NK, dim=1)", SAME_AXIS
    ),
    Equivalent("harness/kernels/reference.py", "log_probs", "u_NV.log_softmax(-1)", SAME_AXIS),
    Equivalent(
        "harness/kernels/reference.py",
        "_partitioned_product",
        "num_partitions == 1",
        "a shortcut: the same product at once",
    ),
    Equivalent("harness/kernels/reference.py", "_partitioned_product", "facets_NPE[:, 0]", "there is one facet then"),
    Equivalent(
        "tests/oracles.py",
        "log_sum_exp",
        "max(scores, key=lambda score: score.item()).detach()",
        "the shift cancels, in the gradient too; only scores beyond +-700 would show it",
    ),
]
