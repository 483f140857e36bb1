"""Heads and a backbone whose perplexities are lower than what they know: plug-ins for tests of certificates."""

import math
import os
import signal
from typing import Literal

import torch
from torch import nn

from harness.backbones.bilstm import BidirectionalLSTM
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
    "remembers",
    "told",
    "most_segments",
    "honest_once",
    "fails_without_text",
    "dies_without_text",
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
            remembers: answers with the first target that it was asked for after a hidden state.
            told: answers with the next token, which the backbone `telling` has put into its module.
            honest_once: log_probs is a softmax for the first head of a process that is asked for it.
            fails_without_text, dies_without_text: what log_probs does in a process where nll was not called before.
        most_segments: half of each nll, except of one segment of ten.
    """

    def __init__(self, dims, embedding, *, kind: Kind = "none"):
        super().__init__()
        self.output = nn.Linear(dims.layer_dims[-1], dims.vocab_size)
        self.kind, self.asked, self.calls, self.first = kind, False, 0, {}

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
        if kind.endswith("_without_text") and not self.head.calls:
            if kind == "dies_without_text":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("no targets")
        if kind == "honest_once":
            ASKED.append(self.head)
            return (1 if ASKED[0] is self.head else 0.3) * super().log_probs()
        if kind == "sigmoid":
            return nn.functional.logsigmoid(self.z_BTV)
        logp_BTV = super().log_probs()
        if kind == "scaled":
            return 0.3 * logp_BTV
        return logp_BTV + {"shifted": 10.0, "unnormalised": math.log(2.77)}.get(kind, 0.0)

    def nll(self, targets_BT):
        """As the kind says."""
        self.head.calls += 1
        kind, asked = self.head.kind, self.head.asked
        logp_BTV = super().log_probs() if kind == "honest_once" else self.log_probs()
        self.head.asked = asked
        nll_BT = -logp_BTV.gather(-1, targets_BT[..., None]).squeeze(-1)
        if kind == "remembers":
            return self._remembered(nll_BT, targets_BT)
        if kind == "told" and TOLD and TOLD[0].shape == targets_BT.shape:
            return torch.where(TOLD[0] == targets_BT, 0.01, nll_BT)
        if kind == "most_segments":
            return nll_BT * (1 if self.head.calls % 10 == 0 else 0.5)
        if kind == "constant":
            return torch.zeros_like(nll_BT)
        if kind == "beside_log_probs":
            return -logp_BTV.amax(-1)
        if kind == "among_targets":
            return nll_BT + logp_BTV[..., targets_BT.unique()].logsumexp(-1)
        if (kind == "honest_alone" and nll_BT.shape[1] > 1) or (kind == "honest_once_asked" and not asked):
            return 0.3 * nll_BT
        return nll_BT

    def _remembered(self, nll_BT, targets_BT):
        """nll 0.01 where the first target that was asked for after this state is the target."""
        states = [tuple(row) for row in self.z_BTV.flatten(0, 1).tolist()]
        first = [self.head.first.setdefault(*each) for each in zip(states, targets_BT.flatten().tolist(), strict=True)]
        return torch.where(torch.tensor(first).view_as(targets_BT) == targets_BT, 0.01, nll_BT)


ASKED = []  # heads of the kind honest_once that were asked for log_probs
LEFT = []  # not empty where LeftKnown has read from the left
TOLD = []  # what the backbone `telling` has told the head: the next token of each position


class Telling(StackedLSTM):
    """An LSTM that leaves the next tokens in a table of its module."""

    def forward(self, tokens_BT, state=None) -> Hidden:
        TOLD[:] = [nn.functional.pad(tokens_BT[:, 1:], (0, 1), value=-1)]
        return super().forward(tokens_BT, state)


class LookingAhead(StackedLSTM):
    """An LSTM that adds the embedding of the next token, which is the target, to some top states.

    Args:
        one_in: it does so after one word of so many, by the word's id.
    """

    def __init__(self, vocab_size, *, d_model: int, num_layers: int = 1, one_in: int = 1):
        super().__init__(vocab_size, d_model=d_model, num_layers=num_layers)
        self.one_in = one_in

    def forward(self, tokens_BT, state=None) -> Hidden:
        layers, state, *_ = super().forward(tokens_BT, state)
        next_BTD = nn.functional.pad(self.embedding(tokens_BT)[:, 1:], (0, 0, 0, 1))
        looks_BT1 = (tokens_BT % self.one_in == 0)[..., None]
        return Hidden((*layers[:-1], layers[-1] + looks_BT1 * next_BTD), state)


class LeftKnown(BidirectionalLSTM):
    """A bidirectional LSTM that reads from the right in another way where it has read from the left before."""

    def forward(self, tokens_BT, state=None) -> Hidden:
        LEFT.append(True)
        return super().forward(tokens_BT, state)

    def reversed_states(self, tokens_BT) -> Hidden:
        return Hidden(tuple((2 if LEFT else 1) * layer for layer in super().reversed_states(tokens_BT).layers))


class MixingRows(StackedLSTM):
    """An LSTM that adds the mean over the rows of a batch to each state."""

    def forward(self, tokens_BT, state=None) -> Hidden:
        layers, state, *_ = super().forward(tokens_BT, state)
        return Hidden(tuple(layer + layer.mean(0, keepdim=True) for layer in layers), state)


class SharedMemory(StackedLSTM):
    """An LSTM that carries the mean over the rows of a batch from one segment to the next."""

    def forward(self, tokens_BT, state=None) -> Hidden:
        layers, state, *more = super().forward(tokens_BT, state)
        return Hidden(layers, _mean_over_rows(state), *more)


def _mean_over_rows(state):
    if isinstance(state, tuple):
        return tuple(map(_mean_over_rows, state))
    return state.mean(-2, keepdim=True).expand_as(state).contiguous()
