"""Float64 reference formulas, written as plain loops over tokens, components and words straight from the papers.

Nothing here calls the code under test. Every head in heads/ has an entry in HEADS and one in TRAINING_LOSSES:

    head(layers, t, p, **params) -> log-probability of each word at position t of one sequence
    loss(logp, layers, targets, p, weights=None, **params) -> training loss of a batch, logp being log_probs(...) of it

layers: hidden states, bottom to top, (T, D_l) each, (B, T, D_l) of a batch; p: the head's parameters by name; params:
the keyword parameters it was built with (what an equation does not use is ignored; the defaults are the papers').
Autograd goes through the loops. A vector is a (D,) tensor or a list of D scalars.
"""

from functools import partial
from math import e, floor, log, pi, sqrt

from torch import Tensor, sigmoid, stack, tanh, zeros
from torch.nn import Module


def dot(a: Tensor, b: Tensor | list) -> Tensor:
    """sum_i a_i b_i."""
    return sum(a[i] * b[i] for i in range(len(b)))


def linear(p: dict[str, Tensor], name: str, x: Tensor | list) -> list[Tensor]:
    """W x + b, one dot product a row, by the name of the layer; the bias where there is one."""
    weight, bias = p[f"{name}.weight"], p.get(f"{name}.bias")
    return [dot(weight[i], x) + (0.0 if bias is None else bias[i]) for i in range(len(weight))]


def log_sum_exp(scores: list[Tensor]) -> Tensor:
    """log sum_i exp(s_i) of scalars, shifted by the largest."""
    largest = max(scores)
    total = 0.0
    for score in scores:
        total = total + (score - largest).exp()
    return largest + total.log()


def log_softmax(scores: list[Tensor]) -> list[Tensor]:
    """s_i - log sum_j exp(s_j)."""
    normaliser = log_sum_exp(scores)
    return [score - normaliser for score in scores]


def softplus(x: Tensor) -> Tensor:
    """log(1 + e^x)."""
    return (1 + x.exp()).log()


def gelu(x: Tensor) -> Tensor:
    """x Phi(x) in its tanh approximation (Hendrycks and Gimpel 2016, section 2)."""
    return x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))


def mean(values: list[Tensor]) -> Tensor:
    """sum_i x_i / n."""
    return sum(values) / len(values)


def layer_norm(x: Tensor | list) -> list[Tensor]:
    """(x - mean) / sqrt(variance + 1e-5), the variance over n, without parameters (Ba et al. 2016)."""
    centre = mean(x)
    variance = mean([(unit - centre) ** 2 for unit in x])
    return [(unit - centre) / (variance + 1e-5) ** 0.5 for unit in x]


def sigsoftmax_logit(z: Tensor) -> Tensor:
    """log( exp(z) sigmoid(z) ) = z - log(1 + e^-z) (Kanai 2018)."""
    return z - softplus(-z)


def positive_part(x: Tensor) -> Tensor | int:
    """x where it is positive, else 0."""
    return max(x, 0)


def stablemax_logit(z: Tensor) -> Tensor:
    """log s(z), s(z) = 1 + z for z >= 0, 1 / (1 - z) else (Prieto 2025)."""
    return ((1 + positive_part(z)) / (1 + positive_part(-z))).log()


def multimax_logit(z: Tensor, t: Tensor, bounds: Tensor) -> Tensor:
    """z + sum_n t_bn max(b_n - z, 0)^n + t_dn max(z - d_n, 0)^n, of (b1, d1, b2, d2) and their t (Zhou 2024)."""
    (t_b1, t_d1, t_b2, t_d2), (b1, d1, b2, d2) = t, bounds
    first = t_b1 * positive_part(b1 - z) + t_d1 * positive_part(z - d1)
    return z + first + t_b2 * positive_part(b2 - z) ** 2 + t_d2 * positive_part(z - d2) ** 2


def gss_logit(z: Tensor, c: float, k: float) -> Tensor:
    """k (z - c) + c - (k - 1) softplus(z - c) (Parthiban 2021, equations 3 to 5)."""
    return k * (z - c) + c - (k - 1) * softplus(z - c)


def plif_logit(z: Tensor, raw_slope: Tensor, bound: float) -> Tensor:
    """(z - knot_i) s_i + delta sum_{j<i} s_j, s = softplus(w), knot_i = -T + i delta, delta = 2T/M (Ganea 2019)."""
    num_pieces = len(raw_slope)
    delta = 2 * bound / num_pieces
    slopes = [softplus(w) for w in raw_slope]
    i = min(max(floor((z.item() + bound) / delta), 0), num_pieces - 1)
    return (z - (-bound + i * delta)) * slopes[i] + delta * sum(slopes[:i])


def softcap_logit(z: Tensor, c: float) -> Tensor:
    """c tanh(z / c), with tanh by exponentials (Bello 2016)."""
    up, down = (z / c).exp(), (-z / c).exp()
    return c * (up - down) / (up + down)


def sigmoid_cap_logit(z: Tensor, a: float, b: float, c: float) -> Tensor:
    """a sigmoid((z + b) / c), with sigmoid by an exponential (modded-nanogpt)."""
    return a / (1 + (-(z + b) / c).exp())


def logit_map_of(softcap: float | dict[str, float] | None, name: str = "identity"):
    """The map of a name, the soft cap, or the sigmoid cap."""
    if isinstance(softcap, dict):
        return partial(sigmoid_cap_logit, **softcap)
    return LOGIT_MAPS[name] if softcap is None else partial(softcap_logit, c=softcap)


LOGIT_MAPS = {"identity": lambda z: z, "sigsoftmax": sigsoftmax_logit, "stablemax": stablemax_logit}


def mixture(p: dict[str, Tensor], facets, log_prior, logit_map=LOGIT_MAPS["identity"], compat=None) -> list[Tensor]:
    """log p(x) = log( sum_k pi_k softmax(phi(z_k))_x + e ),  z_k[x] = f_{k, x mod P_k} . w_x + b_x.

    `facets` lists the P_k facets of each component; e is compat's log_epsilon.
    """
    words = range(len(p["output.weight"]))
    components = []
    for owners in facets:
        scores = [linear(p, "output", f) for f in owners]
        components.append(log_softmax([logit_map(scores[x % len(owners)][x]) for x in words]))
    rest = [] if compat is None else [p["output.weight"].new_tensor(log(compat["log_epsilon"]))]
    return [log_sum_exp([log_prior[k] + logp[x] for k, logp in enumerate(components)] + rest) for x in words]


def facet(p: dict[str, Tensor], h: Tensor) -> Tensor | list[Tensor]:
    """f = h, or U h + a where there is a projection."""
    return linear(p, "facet", h) if "facet.weight" in p else h


def latents(p: dict[str, Tensor], name: str, h: Tensor, count: int, activation=tanh) -> list[list[Tensor]]:
    """f_k = act(A_k h + a_k), k = 1 .. count, the rows of A grouped by k, as many in each as W has columns."""
    units = [activation(unit) for unit in linear(p, name, h)]
    _, width = p["output.weight"].shape
    return [units[k * width : (k + 1) * width] for k in range(count)]


def log_gate(p: dict[str, Tensor], x: Tensor | list, num_mixtures: int) -> list[Tensor]:
    """log pi = log_softmax(C x (+ c)); a single component has no gate."""
    return log_softmax(linear(p, "prior", x)) if num_mixtures > 1 else [zeros(())]


def mean_row(matrix: Tensor) -> list[Tensor]:
    """mu = sum_v w_v / V."""
    _, width = matrix.shape
    return [mean([row[e] for row in matrix]) for e in range(width)]


def softmax_head(layers, t, p, logit_map="identity", compat=None, softcap=None, mu_centering=False, **_):
    """log_softmax(phi(W f + b)); phi is a map, its name, or a soft cap. With an epsilon, log(softmax + e).

    Centred, w_v - mu stands for w_v (Stollenwerk 2026).
    """
    phi = logit_map if callable(logit_map) else logit_map_of(softcap, logit_map)
    if mu_centering:
        mu = stack(mean_row(p["output.weight"]))
        p = {**p, "output.weight": [row - mu for row in p["output.weight"]]}
    return mixture(p, [[facet(p, layers[-1][t])]], [zeros(())], phi, compat)


def sigsoftmax_head(layers, t, p, *, compat=None, **_):
    """exp(z_x) sigmoid(z_x) / sum (Kanai 2018, section 3.3)."""
    return softmax_head(layers, t, p, sigsoftmax_logit, compat)


def gss_head(layers, t, p, *, c=-1.5, k=2.5, **_):
    """phi bent at c from slope k to 1 (Parthiban 2021)."""
    return softmax_head(layers, t, p, partial(gss_logit, c=c, k=k))


def plif_head(layers, t, p, *, bound=20.0, **_):
    """phi piecewise linear on [-bound, bound] (Ganea 2019)."""
    return softmax_head(layers, t, p, partial(plif_logit, raw_slope=p["raw_slope"], bound=bound))


def multimax_head(layers, t, p, **_):
    """phi bent at b_n and d_n by learned numbers (Zhou 2024, equation 6)."""
    return softmax_head(layers, t, p, partial(multimax_logit, t=p["temperatures"], bounds=p["bounds"]))


def mos_head(layers, t, p, *, num_mixtures=10, activation="tanh", logit_map="identity", gate="learned", **params):
    """log sum_k pi_k softmax(phi(W act(A_k h + a_k) + b)),  pi = softmax(C h (+ c)) (Yang 2018, section 2.3)."""
    h = layers[-1][t]
    facets = latents(p, "latent", h, num_mixtures, tanh if activation == "tanh" else lambda unit: unit)
    if gate == "learned" or num_mixtures == 1:
        log_prior = log_gate(p, h, num_mixtures)
    else:
        log_prior = log_softmax(p["static_prior"]) if gate == "static" else [-log(num_mixtures)] * num_mixtures
    phi = logit_map_of(params.get("softcap"), logit_map)
    return mixture(p, [[f] for f in facets], log_prior, phi, params.get("compat"))


def moc_head(layers, t, p, *, num_mixtures=10, softcap=None, **_):
    """log_softmax(W sum_k pi_k f_k + b), facets and gate as in mos_head (Yang 2018, section 3.2)."""
    h = layers[-1][t]
    facets = latents(p, "latent", h, num_mixtures)
    prior = [weight.exp() for weight in log_gate(p, h, num_mixtures)]
    _, width = p["output.weight"].shape
    mixed = [sum(prior[k] * facets[k][e] for k in range(num_mixtures)) for e in range(width)]
    return mixture(p, [[mixed]], [zeros(())], logit_map_of(softcap))


def components_from_top(components: tuple[int, ...] | dict[str, int]) -> list[int] | tuple[int, ...]:
    """The number of components of each layer, from the top down."""
    names = ("top", "second", "third")
    return components if isinstance(components, tuple) else [components.get(name, 0) for name in names]


def doc_head(layers, t, p, *, components=(15, 5), compat=None, softcap=None, **_):
    """log sum_m pi_m softmax(W tanh(A_m h^l(m) + a_m) + b),  pi = softmax(C h^top) (Takase 2018, section 3)."""
    counts = components_from_top(components)
    sources = [(layers[-1 - depth][t], count) for depth, count in enumerate(counts) if count]
    facets = [[f] for i, (h, count) in enumerate(sources) for f in latents(p, f"latents.{i}", h, count)]
    return mixture(p, facets, log_gate(p, layers[-1][t], sum(counts)), logit_map_of(softcap), compat)


def doc_poster_head(layers, t, p, *, num_mixtures=3, norm_inputs=False, compat=None, softcap=None, **_):
    """log sum_k pi_k softmax(W (A_k h^(L-K+k) + a_k)),  pi = softmax(C [h^(L-K+1); ..; h^L] + c) (HEADS.md 2.6)."""
    *lower, top = [layer[t] for layer in layers[-num_mixtures:]]
    states = [*(layer_norm(h) if norm_inputs else h for h in lower), top]
    facets = [[linear(p, f"facets.{k}", h)] for k, h in enumerate(states)]
    gate = log_gate(p, [unit for h in states for unit in h], num_mixtures)
    return mixture(p, facets, gate, logit_map_of(softcap), compat)


def mfs_block(layers, t, num_input_layers: int, window: int, norm_inputs: bool) -> list[Tensor]:
    """[ h^l_{t-j} ] for l = L, L-1, .. and within each j = 0 .. w; zeros before the start (HEADS.md 2.3)."""
    block = []
    for i in range(num_input_layers):
        layer = layers[-1 - i]
        _, width = layer.shape
        for j in range(window + 1):
            state = layer[t - j] if j <= t else zeros(width)
            block += layer_norm(state) if norm_inputs and i > 0 else state
    return block


def mfs_head(layers, t, p, *, num_mixtures=3, num_input_layers=3, window=2, num_partitions=4, norm_inputs=False, **etc):
    """log sum_k pi_k softmax(z_k), z_1 of P facets, all affine in q = [h; gelu(L_h block)] (the poster's figure 2)."""
    q = list(layers[-1][t])
    if num_input_layers * (window + 1) > 1:
        q += [gelu(unit) for unit in linear(p, "block", mfs_block(layers, t, num_input_layers, window, norm_inputs))]
    f = [linear(p, f"facets.{i}", q) for i in range(num_partitions + num_mixtures - 1)]
    facets = [f[:num_partitions], *([single] for single in f[num_partitions:])]
    return mixture(p, facets, log_gate(p, q, num_mixtures), logit_map_of(etc.get("softcap")), etc.get("compat"))


def mixtape_head(layers, t, p, *, token_counts, d_gate=32, own_gates=0.1, **_):
    """log_softmax_x( sum_k pi_{x,k} (f_k . w_x + b_x) ): a gate per word, all rare words' the same (HEADS.md 2.9)."""
    h, words = layers[-1][t], range(len(token_counts))
    by_frequency = sorted(words, key=lambda x: -token_counts[x])  # a stable sort: ties by id
    num_own = round(own_gates * len(words))
    hidden, context = [tanh(unit) for unit in linear(p, "gate_hidden", h)], linear(p, "gate_context", h)
    gates = []
    for row in range(num_own + 1):
        v, e = p["gate_word"][row], p["gate_bias"][row]
        s = [sigmoid(dot(v, hidden[i * d_gate : (i + 1) * d_gate]) + context[i] + e[i]) for i in range(3)]
        gates.append([s[0] * s[1], s[0] * (1 - s[1]), (1 - s[0]) * s[2], (1 - s[0]) * (1 - s[2])])
    scores = [linear(p, "output", f) for f in latents(p, "latent", h, 4)]
    gate_of = [gates[min(by_frequency.index(x), num_own)] for x in words]
    return log_softmax([sum(gate_of[x][k] * score[x] for k, score in enumerate(scores)) for x in words])


def adaptive_head(layers, t, p, *, token_counts, cutoffs=None, **_):
    """log p_0(x) of a frequent word; log p_0(c) + log p_c(x) of a word of cluster c (Grave 2017, section 4).

    By default a quarter of the words is frequent; for at least 4 words.
    """
    h, words = layers[-1][t], range(len(token_counts))
    ends = [*(cutoffs or [len(words) // 4]), len(words)]
    by_frequency = sorted(words, key=lambda x: -token_counts[x])  # a stable sort: ties by id
    first = log_softmax(linear(p, "layers.head", h))
    logp = dict(zip(by_frequency[: ends[0]], first[: ends[0]], strict=True))
    for c in range(len(ends) - 1):
        narrow = linear(p, f"layers.tail.{c}.0", h)
        within = log_softmax(linear(p, f"layers.tail.{c}.1", narrow))
        members = by_frequency[ends[c] : ends[c + 1]]
        logp |= {x: first[ends[0] + c] + word for x, word in zip(members, within, strict=True)}
    return [logp[x] for x in words]


def harmonic_head(layers, t, p, *, exponent=None, **_):
    """p(x) = d_x^-n / sum_v d_v^-n,  d_v = || f - w_v ||,  n = sqrt(E) unless it is given (Baek 2025)."""
    f = facet(p, layers[-1][t])
    n = sqrt(len(f)) if exponent is None else exponent
    distances = [sum((f[e] - w[e]) ** 2 for e in range(len(f))) ** 0.5 for w in p["output.weight"]]
    total = sum(d**-n for d in distances)
    return [(d**-n / total).log() for d in distances]


def ngpt_head(layers, t, p, *, scale_start=1.0, **_):
    """log_softmax(s_x f . w_x / (|f| |w_x|) + b_x),  s = start r sqrt(E), one or each word (Loshchilov 2024)."""
    f, W, r = facet(p, layers[-1][t]), p["output.weight"], p["scale"]
    scores = []
    for x, w in enumerate(W):
        s = scale_start * r.expand(len(W))[x] / (1 / sqrt(len(f)))
        scores.append(s * dot(f, w) / (dot(f, f) * dot(w, w)) ** 0.5)
    bias = p.get("output.bias")
    return log_softmax(scores if bias is None else [score + bias[x] for x, score in enumerate(scores)])


def untying_head(layers, t, p, *, share=2 / 3, progress=0.0, **_):
    """log_softmax(M f + b), M = Emb before the share of training, and then W (modded-nanogpt, record 53)."""
    matrix = p["embedding.weight"] if progress < share else p["output.weight"]
    return softmax_head(layers, t, {**p, "output.weight": matrix})


HEADS = {
    "adaptive": adaptive_head,
    "harmonic": harmonic_head,
    "mtp": softmax_head,
    "multimax": multimax_head,
    "mtp_module": softmax_head,
    "bag_of_words": softmax_head,
    "token_order": softmax_head,
    "early": softmax_head,
    "byte_loss": softmax_head,
    "untying": untying_head,
    "ngpt": ngpt_head,
    "softmax": softmax_head,
    "sigsoftmax": sigsoftmax_head,
    "gss": gss_head,
    "plif": plif_head,
    "nce": softmax_head,
    "mos": mos_head,
    "moc": moc_head,
    "doc": doc_head,
    "doc_poster": doc_poster_head,
    "mfs": mfs_head,
    "mixtape": mixtape_head,
}


def log_probs(name: str, layers: list[Tensor], p: dict[str, Tensor], **params) -> list[list[list[Tensor]]]:
    """[b][t][x] for layers (B, T, D_l)."""
    *_, (B, T, _) = [layer.shape for layer in layers]
    sequences = [[layer[b] for layer in layers] for b in range(B)]
    return [[HEADS[name](sequence, t, p, **params) for t in range(T)] for sequence in sequences]


def stacked(logp: list[list[list[Tensor]]]) -> Tensor:
    """(B, T, V) the same as a tensor."""
    return stack([stack([stack(list(words)) for words in row]) for row in logp])


def of_head(name: str, head: Module, layers, **params) -> Tensor:
    """(B, T, V) float64, without gradients: at a head's own parameters and states of any type."""
    named = {key: parameter.detach().double() for key, parameter in head.named_parameters()}
    return stacked(log_probs(name, [layer.detach().double() for layer in layers], named, **params))


def tokens(targets: list[list[int]]) -> list[tuple[int, int, int]]:
    """(b, t, target) of every token."""
    return [(b, t, y) for b, row in enumerate(targets) for t, y in enumerate(row)]


def weighted(losses: list[Tensor], weights: list[list[float]] | None) -> Tensor:
    """sum_i w_i l_i / sum_i w_i of the tokens' losses; their mean without weights."""
    w = [1.0] * len(losses) if weights is None else [each for row in weights for each in row]
    return dot(losses, w) / sum(w)


def ones(targets: list[list[int]]) -> list[list[float]]:
    """A weight of 1 for each token."""
    return [[1.0] * len(row) for row in targets]


def others_taken(logp: list[Tensor], y: int) -> Tensor:
    """-sum_{x != y} log(1 - p(x)), with p at most 1 - 1e-7 (HEADS.md 2.5)."""
    return -sum((1 - word.exp().clamp(max=1 - 1e-7)).log() for x, word in enumerate(logp) if x != y)


def word_loss(logp, layers, targets, p, weights=None, *, loss="nll", **_):
    """The mean over tokens of -log p(y), or of the binary log-loss -log p(y) - sum_{x != y} log(1 - p(x))."""
    losses = [-logp[b][t][y] for b, t, y in tokens(targets)]
    if loss == "binary":
        losses = [nll + others_taken(logp[b][t], y) for nll, (b, t, y) in zip(losses, tokens(targets), strict=True)]
    return weighted(losses, weights)


def imbalance(gates, form: str) -> Tensor:
    """The squared coefficient of variation of the components' use, with gates pi as [b][t], each (J,) (HEADS.md 2.6).

    'paper': of beta_m, summed over the batch; 'code': of S_bm, summed over time, times J - 1. The variance is unbiased.
    """
    S = [sum(row) for row in gates]
    beta = sum(S)
    uses, factor = (beta, 1) if form == "paper" else ([use for row in S for use in row], len(beta) - 1)
    variance = sum((use - mean(uses)) ** 2 for use in uses) / (len(uses) - 1)
    return factor * variance / mean(uses) ** 2


def doc_loss(logp, layers, targets, p, weights=None, *, balance="paper", balance_weight=0.001, **_):
    """The mean nll + lambda times the imbalance of the gates, where there are several components."""
    loss = word_loss(logp, layers, targets, p, weights)
    if "prior.weight" not in p:
        return loss
    gates = [[stack(log_softmax(linear(p, "prior", h))).exp() for h in row] for row in layers[-1]]
    return loss + balance_weight * imbalance(gates, balance)


def log_unigram(token_counts: list[int]) -> list[float]:
    """log q: the words' shares of all tokens, floored at 1e-10, renormalised (HEADS.md 2.8)."""
    floored = [max(count / sum(token_counts), 1e-10) for count in token_counts]
    return [log(q / sum(floored)) for q in floored]


def nce_loss(logp, layers, targets, p, weights=None, *, token_counts, noise_words, log_normaliser=None, **_):
    """Mean of -log sigma(s(y) - log(k q(y))) - sum_i log sigma(log(k q(x_i)) - s(x_i)),  s(x) = z_x - lnZ (2.8)."""
    log_q, log_k = log_unigram(token_counts), log(len(noise_words))
    ln_z = log(len(token_counts)) if log_normaliser is None else log_normaliser
    losses = []
    for b, t, y in tokens(targets):
        z = linear(p, "output", facet(p, layers[-1][b][t]))
        odds = [z[x] - ln_z - (log_k + log_q[x]) for x in range(len(z))]
        losses.append(softplus(-odds[y]) + sum(softplus(odds[x]) for x in noise_words))
    return weighted(losses, weights)


def softmax_loss(
    logp, layers, targets, p, weights=None, *, mu_loss=0.0, z_loss=0.0, softcap=None, logit_map="identity", **params
):
    """The loss of the words + lambda mu' mu, mu the mean row of W (Stollenwerk 2026), + beta times the mean over tokens
    of (log Z)^2, Z the normaliser (Chowdhery 2022).
    """
    mu, phi = mean_row(p["output.weight"]), logit_map_of(softcap, logit_map)
    scores = [linear(p, "output", facet(p, h)) for row in layers[-1] for h in row]
    squares = weighted([log_sum_exp([phi(z) for z in of_words]) ** 2 for of_words in scores], weights)
    return word_loss(logp, layers, targets, p, weights, **params) + mu_loss * dot(mu, mu) + z_loss * squares


def mtp_loss(logp, layers, targets, p, weights=None, *, further=(0.5, 0.25), softcap=None, **_):
    """The mean over tokens of -log p_0(y_t) - sum_k lambda_k log p_k(y_{t+k}), within a row (Gloeckle 2024).

    p_k is p_0, or has a facet of its own. A token counts with its weight wherever it is predicted.
    """
    w, losses = weights or ones(targets), []
    for b, row in enumerate(targets):
        for t, y in enumerate(row):
            losses.append(-w[b][t] * logp[b][t][y])
            for k, share in enumerate(further[: len(row) - 1 - t], start=1):
                own = {"facet.weight": p.get(f"ahead.{k - 1}.weight"), "facet.bias": p.get(f"ahead.{k - 1}.bias")}
                other = p if own["facet.weight"] is None else {**p, **own}
                words = softmax_head([layer[b] for layer in layers], t, other, softcap=softcap)
                losses.append(-w[b][t + k] * share * words[row[t + k]])
    return sum(losses) / sum(map(sum, w))


def early_loss(logp, layers, targets, p, weights=None, *, layer=None, weight=0.1, **_):
    """The mean over tokens of -log p(y) - lambda log q(y), q of the affine map of a lower layer's state."""
    number = (len(layers) - 1) // 2 if layer is None else layer
    losses = []
    for b, t, y in tokens(targets):
        words = log_softmax(linear(p, "output", linear(p, "early", layers[number][b][t])))
        losses.append(-logp[b][t][y] - weight * words[y])
    return weighted(losses, weights)


def byte_loss(logp, layers, targets, p, weights=None, *, token_bytes, num_bytes=4, weight=0.1, **_):
    """The mean over tokens of -log p(y) - lambda times the mean of log q_i of the first n symbols of y's text: its
    bytes, and 256 after the last one. A token without text has the first term only.
    """
    losses = []
    for b, t, y in tokens(targets):
        scores = linear(p, "spelling", facet(p, layers[-1][b][t]))
        symbols = [*token_bytes[y], 256][:num_bytes] if token_bytes[y] else []
        of_bytes = [log_softmax(scores[257 * i : 257 * (i + 1)])[s] for i, s in enumerate(symbols)]
        losses.append(-logp[b][t][y] - (weight * mean(of_bytes) if symbols else 0))
    return weighted(losses, weights)


def token_order_loss(logp, layers, targets, p, weights=None, *, window=16, weight=1.0, **_):
    """The mean over tokens of -log p(y_t) - lambda sum_v softmax(s)_v log q(v), s_v = window - d_v (Zuhri 2025).

    d_v is the distance from t of the next occurrence of v, 1 for y_t; a word that has none within the window is out,
    and so are tokens of weight 0.
    """
    w, losses = weights or ones(targets), []
    for b, t, y in tokens(targets):
        distances = {}
        for d in range(window, 0, -1):
            if t + d - 1 < len(targets[b]) and (d == 1 or w[b][t + d - 1]):
                distances[targets[b][t + d - 1]] = d
        total = sum(e ** (window - d) for d in distances.values())
        words = log_softmax(linear(p, "unembedding", facet(p, layers[-1][b][t])))
        order = sum(e ** (window - d) / total * words[v] for v, d in distances.items())
        losses.append(-logp[b][t][y] - weight * order)
    return weighted(losses, weights)


def bag_of_words_loss(logp, layers, targets, p, weights=None, *, window=12, weight=0.1, **_):
    """The mean over tokens of -log p(y_t) + lambda times the binary cross-entropy of the words of y_{t+1} ..
    y_{t+window-1}, summed over the vocabulary (Mahajan 2025); without it at the last position. A bag counts with
    the weight of its first token, and has no tokens of weight 0.
    """
    w = weights or ones(targets)
    number = sum(map(sum, w))
    total = word_loss(logp, layers, targets, p, w) * number
    for b, row in enumerate(targets):
        for t in range(len(row) - 1):
            bag = [row[s] for s in range(t + 1, min(t + window, len(row))) if w[b][s]]
            for v, z in enumerate(linear(p, "unembedding", facet(p, layers[-1][b][t]))):
                total = total - w[b][t + 1] * weight * (sigmoid(z) if v in bag else 1 - sigmoid(z)).log()
    return total / number


def rms_norm(p: dict[str, Tensor], name: str, x: Tensor | list) -> list[Tensor]:
    """g x / sqrt(mean of squares + 1e-6) (Zhang and Sennrich 2019)."""
    size = (mean([unit**2 for unit in x]) + 1e-6) ** 0.5
    return [gain * unit / size for gain, unit in zip(p[f"{name}.weight"], x, strict=True)]


def learned_layer_norm(p: dict[str, Tensor], name: str, x: Tensor | list) -> list[Tensor]:
    """layer_norm with a gain and a bias for each unit."""
    gains, biases = p[f"{name}.weight"], p[f"{name}.bias"]
    return [gain * unit + bias for gain, unit, bias in zip(gains, layer_norm(x), biases, strict=True)]


def causal_attention(p: dict[str, Tensor], name: str, xs: list[list[Tensor]], num_heads: int) -> list[list[Tensor]]:
    """Multi-head attention of each position to itself and those before it (Vaswani 2017, section 3.2)."""
    width = len(xs[0])
    size = width // num_heads
    projection = {"in.weight": p[f"{name}.in_proj_weight"], "in.bias": p[f"{name}.in_proj_bias"]}
    mapped = [linear(projection, "in", x) for x in xs]  # queries, keys and values, `width` units each
    found = []
    for t in range(len(xs)):
        mixed = []
        for start in range(0, width, size):
            q = mapped[t][start : start + size]
            keys = [mapped[s][width + start : width + start + size] for s in range(t + 1)]
            values = [mapped[s][2 * width + start : 2 * width + start + size] for s in range(t + 1)]
            shares = [score.exp() for score in log_softmax([dot(q, k) / sqrt(size) for k in keys])]
            mixed += [sum(share * value[i] for share, value in zip(shares, values, strict=True)) for i in range(size)]
        found.append(linear(p, f"{name}.out_proj", mixed))
    return found


def mtp_module_loss(logp, layers, targets, p, weights=None, *, weight=0.3, num_heads=1, **_):
    """The mean over tokens of -log p(y_t) - lambda log q_t(y_{t+1}), within a row (DeepSeek-V3, equations 21 to 25).

    The block: x + attention(norm(x)), then x + feed-forward(norm(x)) with ReLU.
    """
    embedding = p.get("embedding.weight", p["output.weight"])
    w = weights or ones(targets)
    number = sum(map(sum, w))
    total = word_loss(logp, layers, targets, p, w) * number
    for b, row in enumerate(targets):
        xs = []
        for h, y in zip(layers[-1][b], row, strict=True):
            xs.append(linear(p, "merge", rms_norm(p, "of_state", h) + rms_norm(p, "of_word", embedding[y])))
        mixed = causal_attention(p, "block.self_attn", [learned_layer_norm(p, "block.norm1", x) for x in xs], num_heads)
        for t, y in enumerate(row[1:]):
            x = [a + m for a, m in zip(xs[t], mixed[t], strict=True)]
            inner = [unit.clamp(min=0) for unit in linear(p, "block.linear1", learned_layer_norm(p, "block.norm2", x))]
            g = [a + f for a, f in zip(x, linear(p, "block.linear2", inner), strict=True)]
            total = total - w[b][t + 1] * weight * log_softmax(linear(p, "output", rms_norm(p, "of_block", g)))[y]
    return total / number


TRAINING_LOSSES = dict.fromkeys(HEADS, word_loss) | {
    "bag_of_words": bag_of_words_loss,
    "byte_loss": byte_loss,
    "doc": doc_loss,
    "early": early_loss,
    "mtp": mtp_loss,
    "mtp_module": mtp_module_loss,
    "nce": nce_loss,
    "softmax": softmax_loss,
    "token_order": token_order_loss,
}
