"""Mixtures of odd sizes, and the same by all N K V numbers at once: for tests of the evaluation in chunks."""

import torch
from torch.nn import functional

from harness.distributions import LOGIT_MAPS, Bend, Mixture, SigmoidCap, SoftCap, log_prior
from harness.kernels import chunked

E = 5
BEND = Bend(c=-1.5, k=2.5)
DENSE_MAPS = {
    "identity": lambda z: z,
    "sigsoftmax": lambda z: z + functional.logsigmoid(z),
    "stablemax": lambda z: torch.where(z < 0, 1 / (1 + z.abs()), 1 + z.abs()).log(),
    "bend": lambda z: z + 1.5 * functional.logsigmoid(z + 1.5),  # logsigmoid(-x) = -softplus(x)
    "softcap": lambda z: 2.5 * torch.tanh(z / 2.5),
    "sigmoid cap": lambda z: 4 * functional.sigmoid((z + 0.5) / 1.5),
}
MAPS = {**LOGIT_MAPS, "bend": BEND, "softcap": SoftCap(2.5), "sigmoid cap": SigmoidCap(a=4.0, b=0.5, c=1.5)}
# (partitions, logit map, bias, prior, tokens, words): one chunk and several, the last one ragged
CASES = [
    ((1,), "identity", True, False, 7, 11),
    ((1,), "identity", False, False, 600, 23),
    ((1,), "sigsoftmax", True, False, 300, 31),
    ((3,), "identity", True, False, 257, 10),
    ((1, 1, 1), "identity", True, True, 200, 13),
    ((1, 1, 1, 1, 1), "identity", False, True, 151, 8),
    ((4, 1, 1), "identity", True, True, 173, 15),
    ((1, 4, 1), "identity", True, True, 90, 9),
    ((1, 1, 4), "identity", True, True, 61, 9),
    ((2, 3), "bend", True, True, 140, 14),
    ((1, 1), "bend", False, True, 130, 12),
    ((1, 2), "sigsoftmax", False, True, 129, 7),
    ((3, 3), "identity", True, True, 100, 3),  # a word a slice
    ((1,), "softcap", True, False, 300, 31),
    ((2, 1), "softcap", True, True, 140, 14),
    ((2, 1), "stablemax", True, True, 140, 14),
    ((1, 1, 1), "softcap", False, True, 130, 12),
    ((1,), "sigmoid cap", True, False, 300, 31),
    ((2, 1), "sigmoid cap", False, True, 140, 14),
]


def chunks_of(monkeypatch, rows):
    """Chunks of so many rows, however short."""
    monkeypatch.setattr(chunked, "CHUNK_BYTES", 0)
    monkeypatch.setattr(chunked, "LEAST_ROWS", rows)


def tensors(partitions, with_bias, with_prior, num_tokens, num_words, dtype=torch.float64, level=0.0):
    generator = torch.Generator().manual_seed(num_tokens)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

    scores = normal(num_tokens, len(partitions)) if with_prior else None
    bias = (normal(num_words).detach() + level).requires_grad_() if with_bias else None
    targets = torch.randint(num_words, (num_tokens,), generator=generator)
    weights = torch.randint(4, (num_tokens,), generator=generator).to(dtype)  # a quarter of them 0
    return normal(num_tokens, sum(partitions), E), scores, normal(num_words, E), bias, targets, weights


def dense_logits(facets, weight, bias, partitions, logit_map):
    """(N, K, V) the mapped logits u."""
    num_words, first, components = len(weight), 0, []
    for num_partitions in partitions:
        owner = first + torch.arange(num_words) % num_partitions
        z = torch.einsum("nve,ve->nv", facets[:, owner], weight) + (0 if bias is None else bias)
        components.append(DENSE_MAPS[logit_map](z))
        first += num_partitions
    return torch.stack(components, dim=1)


def dense_nll(facets, scores, weight, bias, targets, partitions, logit_map, log_epsilon=None):
    """(N,) from all N K V probabilities."""
    prior = 0 if scores is None else scores.log_softmax(-1)[..., None]
    logp = (dense_logits(facets, weight, bias, partitions, logit_map).log_softmax(-1) + prior).logsumexp(1)
    p = logp.exp() if log_epsilon is None else logp.exp() + log_epsilon
    return -p.log()[torch.arange(len(targets)), targets]


def mixture(facets, scores, weight, bias, partitions, logit_map, log_epsilon=None):
    return Mixture(
        facets[None],
        None if scores is None else log_prior(scores)[None],
        weight,
        bias,
        partitions=partitions,
        logit_map=MAPS[logit_map],
        log_epsilon=log_epsilon,
    )
