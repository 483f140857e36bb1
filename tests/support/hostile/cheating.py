"""Heads and a backbone whose perplexities are lower than what they know: plug-ins for tests of certificates."""

import math
from typing import Literal

import torch
from torch import nn

from harness.backbones.lstm import StackedLSTM
from harness.distributions import Logits
from harness.protocols import Hidden

Kind = Literal[
    "none",
    "scaled",
    "shifted",
    "sigmoid",
    "constant",
    "unnormalised",
    "beside_log_probs",
    "among_targets",
    "later_states",
    "honest_alone",
    "honest_once_asked",
]


class Cheating(nn.Module):
    """A softmax in training; what it says in evaluation is a lie of one kind.

    Args:
        kind: none: it stays a softmax.
            scaled: 0.3 times each log-probability. shifted: 10 more on each log-probability.
            sigmoid: a probability of its own for each word. constant: each nll is 0.
            unnormalised: each word has 2.77 times its probability.
            beside_log_probs: the nll is that of the most probable word, log_probs is a softmax.
            among_targets: the nll is normalised over the words that occur among the targets, log_probs over all.
            later_states: the distribution is made of the state one position later.
            honest_alone: 0.3 times each nll where a row has more than one position.
            honest_once_asked: 0.3 times each nll until log_probs is called for the first time.
    """

    def __init__(self, dims, embedding, *, kind: Kind = "none"):
        super().__init__()
        self.output = nn.Linear(dims.layer_dims[-1], dims.vocab_size)
        self.kind, self.asked = kind, False

    def forward(self, hidden: Hidden) -> Logits:
        h_BTD = hidden.layers[-1]
        if self.kind == "later_states":
            h_BTD = torch.cat([h_BTD[:, 1:], h_BTD[:, -1:]], dim=1)
        z_BTV = self.output(h_BTD)
        return Logits(z_BTV) if self.training else Lying(z_BTV, self)


class Lying(Logits):
    """What a Cheating head says in evaluation."""

    def __init__(self, z_BTV, head: Cheating):
        super().__init__(z_BTV)
        self.head = head

    def log_probs(self):
        """As the kind says."""
        self.head.asked, kind = True, self.head.kind
        if kind == "sigmoid":
            return nn.functional.logsigmoid(self.z_BTV)
        logp_BTV = super().log_probs()
        if kind == "scaled":
            return 0.3 * logp_BTV
        return logp_BTV + {"shifted": 10.0, "unnormalised": math.log(2.77)}.get(kind, 0.0)

    def nll(self, targets_BT):
        """As the kind says."""
        kind, asked = self.head.kind, self.head.asked
        logp_BTV = self.log_probs()
        self.head.asked = asked
        nll_BT = -logp_BTV.gather(-1, targets_BT[..., None]).squeeze(-1)
        if kind == "constant":
            return torch.zeros_like(nll_BT)
        if kind == "beside_log_probs":
            return -logp_BTV.amax(-1)
        if kind == "among_targets":
            return nll_BT + logp_BTV[..., targets_BT.unique()].logsumexp(-1)
        if (kind == "honest_alone" and nll_BT.shape[1] > 1) or (kind == "honest_once_asked" and not asked):
            return 0.3 * nll_BT
        return nll_BT


class LookingAhead(StackedLSTM):
    """An LSTM that adds the embedding of the next token, which is the target, to each top state."""

    def forward(self, tokens_BT, state=None) -> Hidden:
        layers, state = super().forward(tokens_BT, state)
        next_BTD = nn.functional.pad(self.embedding(tokens_BT)[:, 1:], (0, 0, 0, 1))
        return Hidden((*layers[:-1], layers[-1] + next_BTD), state)
