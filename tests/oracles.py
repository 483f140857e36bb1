"""Float64 reference formulas, written as plain loops over tokens, components and words straight from the papers.

Nothing here calls the code under test. Every head in heads/ has an entry in HEADS: the log-probability of each word at
each position from the top hidden state and the head's parameters by name. Autograd goes through the loops.
"""

from torch import Tensor, stack, tanh


def log_sum_exp(scores: list[Tensor]) -> Tensor:
    """log sum_i exp(s_i) of scalars, shifted by the largest."""
    largest = max(scores, key=lambda score: score.item()).detach()
    total = 0.0
    for score in scores:
        total = total + (score - largest).exp()
    return largest + total.log()


def log_softmax(scores: list[Tensor]) -> list[Tensor]:
    """s_i - log sum_j exp(s_j)."""
    normaliser = log_sum_exp(scores)
    return [score - normaliser for score in scores]


def dot(a: Tensor, b: Tensor) -> Tensor:
    """sum_i a_i b_i."""
    total = 0.0
    for i in range(len(a)):
        total = total + a[i] * b[i]
    return total


def affine(weight: Tensor, bias: Tensor | None, x: Tensor) -> list[Tensor]:
    """One dot product a row, plus the bias where there is one."""
    return [dot(weight[i], x) + (0.0 if bias is None else bias[i]) for i in range(len(weight))]


def softmax_head(h_D: Tensor, p: dict[str, Tensor], num_words: int) -> list[Tensor]:
    """log p(x) = (W f + b)_x - log sum_x' exp (W f + b)_x',  f = h or U h + a."""
    f = stack(affine(p["facet.weight"], p["facet.bias"], h_D)) if "facet.weight" in p else h_D
    return log_softmax(affine(p["output.weight"], p.get("output.bias"), f))


def mos_head(h_D: Tensor, p: dict[str, Tensor], num_words: int, *, activation: str = "tanh") -> list[Tensor]:
    """log p(x) = log sum_k pi_k softmax(W act(A_k h + a_k) + b)_x,  pi = softmax(C h + c) (Yang 2018, section 2.3)."""
    width = p["output.weight"].shape[1]
    num_mixtures = len(p["latent.weight"]) // width
    log_prior = [0.0]
    if num_mixtures > 1:
        log_prior = log_softmax(affine(p["prior.weight"], p.get("prior.bias"), h_D))
    components = []
    for k in range(num_mixtures):
        rows = slice(k * width, (k + 1) * width)
        latent = affine(p["latent.weight"][rows], p["latent.bias"][rows], h_D)
        f = stack([tanh(unit) if activation == "tanh" else unit for unit in latent])
        components.append(log_softmax(affine(p["output.weight"], p.get("output.bias"), f)))
    return [log_sum_exp([log_prior[k] + components[k][x] for k in range(num_mixtures)]) for x in range(num_words)]


def mixture(
    facets_FE: Tensor, log_prior_K, weight_VE: Tensor, bias_V: Tensor | None, partitions: tuple[int, ...], logit_map
) -> list[Tensor]:
    """log p(x) = log sum_k pi_k softmax(phi(z_k))_x,  z_k[x] = f_{k, x mod P_k} . w_x + b_x, for one token."""
    num_words = len(weight_VE)
    components, first = [], 0
    for num_partitions in partitions:
        scores = []
        for x in range(num_words):
            z = dot(facets_FE[first + x % num_partitions], weight_VE[x]) + (0.0 if bias_V is None else bias_V[x])
            scores.append(logit_map(z))
        components.append(log_softmax(scores))
        first += num_partitions
    return [log_sum_exp([log_prior_K[k] + components[k][x] for k in range(len(partitions))]) for x in range(num_words)]


def sigsoftmax_logit(z: Tensor) -> Tensor:
    """log( exp(z) sigmoid(z) ) = z - log(1 + exp(-z)) (Kanai 2018)."""
    return z - (1 + (-z).exp()).log()


HEADS = {"softmax": softmax_head, "mos": mos_head}
