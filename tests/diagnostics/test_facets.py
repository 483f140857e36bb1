"""What the components of a mixture say, by hand: the output matrix is the identity, so a facet is its logits."""

from types import SimpleNamespace

import handmade
import pytest
import torch
from subjects import Spelling, Tokens
from torch import nn

from harness.diagnostics.facets import inspect
from harness.distributions import Logits, Mixture
from harness.model import LanguageModel
from harness.plan.specs import ComponentSpec, TrainSpec, TrialSpec
from harness.trial.trained import Trained

WORDS = ("a", "b", "c", "d")
FIRST, SECOND, GATE = [0.4, 0.3, 0.1, 0.2], [0.1, 0.1, 0.7, 0.1], [0.25, 0.75]
TOGETHER = [0.175, 0.15, 0.55, 0.125]  # 0.25 FIRST + 0.75 SECOND


class Split(nn.Module):
    """After b two components, the first of two facets: facet 1 scores a and c, facet 2 b and d. Else SECOND alone."""

    def forward(self, hidden):
        first, second = torch.tensor(FIRST).log(), torch.tensor(SECOND).log()
        odd = torch.full((2,), 9.0)  # what a facet says of words that it does not own
        facet_1 = torch.stack([first[0], odd[0], first[2], odd[1]])
        facet_2 = torch.stack([odd[0], first[1], odd[1], first[3]])
        after_b = hidden.layers[-1] == 1
        gate = torch.where(after_b, torch.tensor(GATE), torch.tensor([1e-9, 1.0])).log()
        facets = torch.stack([facet_1, facet_2, second]).expand(*after_b.shape[:2], 3, 4)
        return Mixture(facets, gate, torch.eye(4), partitions=(2, 1))


class Whole(nn.Module):
    """No mixture."""

    def forward(self, hidden):
        return Logits(torch.tensor(SECOND).log().expand(*hidden.layers[-1].shape[:2], 4))


def trained(head: nn.Module, seq_len: int = 5) -> Trained:
    any_component = ComponentSpec(name="any")
    train = TrainSpec(optimizer="sgd", lr=1.0, epochs=1, batch_size=1, seq_len=seq_len)
    spec = TrialSpec(id="0", corpus=any_component, backbone=any_component, head=any_component, train=train, seed=1)

    return Trained(
        record=handmade.record(spec=spec),
        model=LanguageModel(Tokens(4), head),
        corpus=SimpleNamespace(symbols=WORDS, codec=Spelling("abcd")),
        device=torch.device("cpu"),
    )


def said(voice):
    return {word: pytest.approx(p, abs=1e-6) for word, p in voice.words}


def test_a_mixture_its_components_and_the_facets_with_their_words():
    ((position,), is_mixture) = inspect(trained(Split()), "ab")
    assert (position.token, is_mixture) == ("b", True)
    names = ["mixture", "component 1", "component 1, facet 1", "component 1, facet 2", "component 2"]
    assert [voice.name for voice in position.voices] == names
    both, one, one_1, one_2, two = position.voices
    assert said(both) == dict(zip(WORDS, TOGETHER, strict=True))
    assert [word for word, _ in both.words] == ["c", "a", "b", "d"]
    assert said(one) == dict(zip(WORDS, FIRST, strict=True))
    assert said(two) == dict(zip(WORDS, SECOND, strict=True))
    assert (said(one_1), one_1.owns) == ({"a": 0.4, "c": 0.1}, "words 0 mod 2")
    assert (said(one_2), one_2.owns) == ({"b": 0.3, "d": 0.2}, "words 1 mod 2")
    assert [voice.weight for voice in position.voices] == pytest.approx([1, 0.25, 0.5, 0.5, 0.75])


def test_every_position_and_few_words():
    positions, _ = inspect(trained(Split()), "abc", top=1, every=True)
    assert [position.token for position in positions] == ["a", "b", "c"]
    assert [position.voices[1].weight for position in positions] == pytest.approx([0, 0.25, 0], abs=1e-6)
    assert all(len(voice.words) == 1 for position in positions for voice in position.voices)


def test_without_a_state_the_last_tokens_of_a_segment_count():
    positions, _ = inspect(trained(Whole(), seq_len=2), "abcd", every=True)
    assert [position.token for position in positions] == ["c", "d"]
    ((position,), is_mixture) = inspect(trained(Whole()), "a", top=2)
    assert (is_mixture, [voice.name for voice in position.voices]) == (False, ["head"])
    assert position.voices[0].words[0] == ("c", pytest.approx(0.7))
