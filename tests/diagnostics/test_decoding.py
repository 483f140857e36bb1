"""A text decoded token by token has the distributions of one forward pass over it."""

import pytest
import torch
from commands import EVERY_BACKBONE, EVERY_HEAD
from torch import nn

from harness import plan
from harness.corpora.batching import Segment
from harness.diagnostics.generation import Decoder
from harness.distributions import Logits
from harness.model import LanguageModel, build
from harness.protocols import Hidden

V, T = 12, 9
SUITE = """\
name: every
version: 1
corpora: [{{markov: {{vocab_size: {vocab}, num_tokens: 400, branching: 3}}}}]
backbones: [{backbones}]
heads: [{heads}]
train: {{optimizer: adam, lr: 0.01, epochs: 1, batch_size: 4, seq_len: 7}}
seeds: [1]
"""


class Summed(nn.Module):
    """h_t = the sum of the embeddings so far: a backbone without state that can extend."""

    def __init__(self):
        super().__init__()
        self.embedding, self.layer_dims = nn.Embedding(V, 4), (4,)
        self.computed = []

    def forward(self, tokens_BT, state=None):
        return Hidden((self.embedding(tokens_BT).cumsum(1),))

    def extend(self, tokens_BT, state=None):
        self.computed.append(tokens_BT.shape[1])
        h_BTD = self.embedding(tokens_BT).cumsum(1) + (0 if state is None else state)
        return Hidden((h_BTD,), h_BTD[:, -1:])


class TwoBack(nn.Module):
    """Reads the position and the two before it, nothing before the start."""

    window = 2

    def __init__(self):
        super().__init__()
        self.output = nn.Linear(12, V)

    def forward(self, hidden):
        (h_BTD,) = hidden.layers
        padded = nn.functional.pad(h_BTD, (0, 0, 2, 0))
        return Logits(self.output(torch.cat([padded[:, 2:], padded[:, 1:-1], padded[:, :-2]], dim=-1)))


@pytest.fixture
def summed():
    torch.manual_seed(0)
    return LanguageModel(Summed(), TwoBack()).eval()


@pytest.fixture
def models(tmp_path):
    """A function: lines of backbones and heads -> (name, model) of every head on every backbone."""

    def of(backbones, heads):
        path, counts = tmp_path / "every.yaml", torch.arange(V) + 1
        path.write_text(SUITE.format(vocab=V, backbones=", ".join(backbones), heads=", ".join(heads)))
        return [
            (str(trial), build(trial.backbone, trial.head, vocab_size=V, seed=1, token_counts=counts).eval())
            for trial in plan.load(path).trials
        ]

    return of


def tokens(number=T, rows=2):
    return torch.randint(V, (rows, number), generator=torch.Generator().manual_seed(3))


def full(model, tokens_BT):
    """(B, T, V) of one forward pass."""
    with torch.no_grad():
        return model(Segment(tokens_BT, tokens_BT))[0].log_probs()


@pytest.mark.system
@pytest.mark.parametrize("first", [1, 4])
def test_every_head_on_every_backbone_token_by_token_is_one_forward_pass(models, first):
    tokens_BT, every = tokens(), models(EVERY_BACKBONE, EVERY_HEAD)
    assert len(every) == len(EVERY_HEAD) * len(EVERY_BACKBONE)
    for name, model in every:
        expected_BTV, decoder = full(model, tokens_BT), Decoder(model, context=T)
        parts = [tokens_BT[:, :first], *tokens_BT[:, first:].split(1, dim=1)]
        found = torch.stack([decoder(part) for part in parts], dim=1)
        torch.testing.assert_close(
            found, expected_BTV[:, first - 1 :], rtol=0, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_a_backbone_that_extends_computes_new_positions_only(summed):
    tokens_BT, decoder = tokens(), Decoder(summed, context=T)
    found = torch.stack([decoder(part) for part in tokens_BT.split([3, 1, 1, 2, 2], dim=1)], dim=1)
    torch.testing.assert_close(found, full(summed, tokens_BT)[:, [2, 3, 4, 6, 8]])
    assert summed.backbone.computed == [3, 1, 1, 2, 2]


def test_a_full_context_begins_anew_with_its_second_half(summed):
    tokens_BT, decoder = tokens(), Decoder(summed, context=4)
    seen = [1, 2, 3, 4, 2, 3, 4, 2, 3]  # tokens that count after each of the nine
    for t, (part, number) in enumerate(zip(tokens_BT.split(1, dim=1), seen, strict=True)):
        expected = full(summed, tokens_BT[:, t + 1 - number : t + 1])[:, -1]
        torch.testing.assert_close(decoder(part), expected)
    torch.testing.assert_close(Decoder(summed, context=4)(tokens_BT), full(summed, tokens_BT[:, -4:])[:, -1])


@pytest.mark.parametrize(("backbone", "seen"), [("{transformer_encoder: {num_layers: 2}}", 4), ("lstm", T)])
def test_a_backbone_without_state_sees_the_last_context_tokens_and_a_state_the_whole_text(models, backbone, seen):
    ((_, model),) = models([backbone], ["{mfs: {num_partitions: 2, window: 1}}"])
    tokens_BT, decoder = tokens(), Decoder(model, context=4)
    for t, part in enumerate(tokens_BT.split(1, dim=1)):
        expected = full(model, tokens_BT[:, max(0, t + 1 - seen) : t + 1])[:, -1]
        torch.testing.assert_close(decoder(part), expected, rtol=0, atol=1e-5)
