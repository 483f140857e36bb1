"""A small text and model, and settings to train it: what the tests of training share."""

import torch
from torch import nn

from harness.corpora.corpus import Corpus
from harness.distributions import Logits
from harness.model import LanguageModel, build
from harness.plan.specs import ComponentSpec, TrainSpec
from harness.protocols import Hidden

V = 7
LSTM = ComponentSpec(name="lstm", params={"d_model": 6, "num_layers": 1, "dropout": 0.0})
SOFTMAX = ComponentSpec(name="softmax")


def tokens(length: int, seed: int = 0) -> torch.Tensor:
    """(length,) words of the vocabulary."""
    return torch.randint(V, (length,), generator=torch.Generator().manual_seed(seed))


TOKENS = tokens(83)  # in 4 columns of 20: 4 segments an epoch
CORPUS = Corpus(vocab_size=V, train=TOKENS, valid=TOKENS[:31], test=TOKENS[:29])


def spec(**changes) -> TrainSpec:
    """Settings of training, with what a test changes."""
    settings = {"optimizer": "sgd", "lr": 0.5, "epochs": 3, "batch_size": 4, "seq_len": 5}
    return TrainSpec(**{**settings, **changes})


def model(backbone: ComponentSpec = LSTM, head: ComponentSpec = SOFTMAX, seed: int = 1) -> LanguageModel:
    """A model at its start."""
    return build(backbone, head, vocab_size=V, seed=seed)


class Bigram(nn.Module):
    """A backbone whose state of a place is the logits of the next token, by this one only."""

    def __init__(self, vocab_size: int):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, vocab_size)
        self.layer_dims = (vocab_size,)

    def forward(self, tokens, state=None):
        """See harness.protocols."""
        return Hidden((self.embedding(tokens),))


class Identity(nn.Module):
    """A head whose logits are the last layer's states."""

    def forward(self, hidden):
        """See harness.protocols."""
        return Logits(hidden.layers[-1])


class Plain:
    """A distribution with the members that one must have, and no others."""

    aux_loss = 0.0
    training_loss = mean_nll = nll = log_probs = None


class Bare(nn.Module):
    """A head whose distribution is that."""

    def forward(self, hidden):
        """See harness.protocols."""
        return Plain()


def bigram(logits_VV: torch.Tensor, head: nn.Module | None = None) -> LanguageModel:
    """A model of the logits of the next token by the last."""
    backbone = Bigram(len(logits_VV))
    with torch.no_grad():
        backbone.embedding.weight.copy_(logits_VV)
    return LanguageModel(backbone, head or Identity())
