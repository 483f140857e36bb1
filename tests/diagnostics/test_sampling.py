"""What is drawn from: distributions worked out by hand. What is drawn: frequencies, against those distributions."""

import pytest
import torch

from harness.diagnostics.generation import NextToken, sample

P = torch.tensor([[0.15, 0.5, 0.1, 0.25]], dtype=torch.float64)
SQUARES = torch.tensor([[0.0225, 0.25, 0.01, 0.0625]], dtype=torch.float64) / 0.345


EVEN = torch.full((1, 4), 0.25, dtype=torch.float64)  # of equal tokens the first counts


@pytest.mark.parametrize(
    ("choice", "expected", "given"),
    [
        ({"temperature": 0.0}, [[1, 0, 0, 0]], EVEN),
        ({"top_k": 2}, [[0.5, 0.5, 0, 0]], EVEN),
        ({}, P, P),
        ({"temperature": 0.5}, SQUARES, P),
        ({"temperature": 0.0}, [[0, 1, 0, 0]], P),
        ({"top_k": 2}, [[0, 2 / 3, 0, 1 / 3]], P),
        ({"top_k": 9}, P, P),
        ({"top_p": 0.51}, [[0, 2 / 3, 0, 1 / 3]], P),  # 0.5 falls short of it
        ({"top_p": 0.76}, [[0.15 / 0.9, 0.5 / 0.9, 0, 0.25 / 0.9]], P),
        ({"top_p": 1.0}, P, P),
        ({"top_k": 3, "top_p": 0.6}, [[0, 2 / 3, 0, 1 / 3]], P),  # of 0.9: 0.556 falls short of it
        ({"top_k": 3, "top_p": 0.55}, [[0, 1, 0, 0]], P),  # 0.556 does not, where 0.5 of all would
        ({"temperature": 0.5, "top_k": 2}, [[0, 0.8, 0, 0.2]], P),
    ],
)
def test_what_is_drawn_from_by_hand(choice, expected, given):
    found = NextToken(**choice).probabilities(given.log().float())
    torch.testing.assert_close(found, torch.as_tensor(expected, dtype=torch.float64), rtol=0, atol=1e-6)


class Chain:
    """A decoder of a Markov chain: what follows depends on the last token alone."""

    TRANSITIONS = torch.tensor([[0.7, 0.2, 0.1], [0.05, 0.05, 0.9], [0.3, 0.3, 0.4]])

    def __call__(self, tokens_BT):
        return self.TRANSITIONS[tokens_BT[:, -1]].log()


def test_frequencies_are_those_of_the_distribution():
    # chi-square of each row's next tokens, 2 degrees of freedom: P(> 30) = exp(-15) = 3e-7, three rows
    drawn = sample(Chain(), torch.zeros(4000, 1, dtype=torch.int64), 6, NextToken(), seed=5)[0]
    assert drawn.shape == (4000, 6)
    for token in range(3):
        followed = drawn[:, :-1] == token
        counts = torch.bincount(drawn[:, 1:][followed], minlength=3)
        expected = followed.sum() * Chain.TRANSITIONS[token]
        assert expected.min() > 50
        assert ((counts - expected) ** 2 / expected).sum() < 30


def test_a_seed_repeats_its_texts_and_another_draws_others():
    prompts = torch.zeros(2, 1, dtype=torch.int64)
    one, again, other = (sample(Chain(), prompts, 30, NextToken(), seed=seed)[0] for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert not torch.equal(one[0], one[1])  # texts of one prompt are drawn one by one
    greedy, speed = sample(Chain(), torch.tensor([[1]]), 4, NextToken(temperature=0.0), seed=1)
    assert greedy.tolist() == [[2, 2, 2, 2]]
    assert speed > 0
