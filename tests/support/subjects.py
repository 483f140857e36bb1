"""For tests of diagnostics: a model with its initial weights on random tokens."""

import handmade
import torch
from ruamel.yaml import YAML
from torch import nn

from harness.corpora.corpus import Corpus
from harness.errors import CorpusError
from harness.model import build
from harness.plan.specs import ComponentSpec, TrainSpec, TrialSpec
from harness.protocols import Hidden
from harness.trial.trained import Trained

V = 12
FIRST = "the came to house and we spoke"  # the words of the first template of harness/diagnostics/prompts.py
NAMES = "boy girl king queen"

LSTM = ComponentSpec(name="lstm", params={"d_model": 8, "num_layers": 1})
TRANSFORMER = ComponentSpec(name="transformer_encoder", params={"d_model": 8, "num_heads": 2, "num_layers": 1})
DEEP = ComponentSpec(name="lstm", params={"d_model": 8, "num_layers": 3})
SOFTMAX = ComponentSpec(name="softmax")


def head_of(line: str) -> ComponentSpec:
    """The head of a line of a suite."""
    read = YAML(typ="safe").load(line)
    name, params = (read, {}) if isinstance(read, str) else next(iter(read.items()))
    # a list is a grid; each has one value
    return ComponentSpec(
        name=name, params={key: value[0] if isinstance(value, list) else value for key, value in params.items()}
    )


def subject(backbone: ComponentSpec, *, head: ComponentSpec = SOFTMAX, tokens: int = 103, **train) -> Trained:
    """A model with its initial weights, and a validation split of random tokens."""
    settings = {"optimizer": "sgd", "lr": 1.0, "epochs": 1, "batch_size": 2, "seq_len": 7, "eval_batch_size": 4}
    markov, trained = ComponentSpec(name="markov"), TrainSpec(**{**settings, **train})
    spec = TrialSpec(id="0123456789ab", corpus=markov, backbone=backbone, head=head, train=trained, seed=1)
    ids = torch.randint(V, (tokens,), generator=torch.Generator().manual_seed(2))
    model = build(spec.backbone, spec.head, vocab_size=V, seed=1, token_counts=torch.ones(V)).eval()
    corpus = Corpus(vocab_size=V, train=ids, valid=ids, test=ids)
    return Trained(record=handmade.record(spec=spec), model=model, corpus=corpus, device=torch.device("cpu"))


def words(text: str) -> Corpus:
    """A word-level corpus with these words."""
    symbols = tuple(text.split())
    ids = torch.arange(len(symbols))
    return Corpus(vocab_size=len(symbols), train=ids, valid=ids, test=ids, symbols=symbols)


def loud(head: str, **params):
    """A subject whose weights are not small."""
    of = subject(LSTM, head=ComponentSpec(name=head, params=params), tokens=60)
    with torch.no_grad():
        for number, parameter in enumerate(of.model.parameters()):
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number)))
    return of


class Spelling:
    """A codec of one id a letter."""

    def __init__(self, letters: str):
        self.letters = letters

    def encode(self, text):
        """See harness.protocols."""
        for letter in text:
            if letter not in self.letters:
                raise CorpusError(f"the letter {letter!r} is not in the vocabulary")
        return [self.letters.index(letter) for letter in text]

    def decode(self, ids):
        """See harness.protocols."""
        return "".join(self.letters[index] for index in ids)


class Tokens(nn.Module):
    """A backbone whose hidden states are the tokens."""

    layer_dims = (1,)

    def __init__(self, vocab_size: int, *, carries: bool = False):
        super().__init__()
        self.embedding, self.carries = nn.Embedding(vocab_size, 1), carries

    def forward(self, tokens_BT, state=None):
        """See harness.protocols."""
        return Hidden((tokens_BT[..., None].double(),), 0 if self.carries else None)
