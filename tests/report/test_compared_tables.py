"""Tables of matched suites, and of heads with a compatibility switch: what is compared, marked and explained."""

from typing import Literal

import pytest
from handmade import notes, tabulated
from torch import nn

from harness.registry import HEADS

V = 5000
SUITE = f"""\
name: suite
version: 1
corpora: [{{markov: {{vocab_size: {V}, num_tokens: 400, branching: 3}}}}]
backbones: [{{lstm: {{d_model: 250, num_layers: 1}}}}]
heads: [softmax, {{mos: {{num_mixtures: [2, 15]}}}}]
train: {{optimizer: sgd, lr: 0.5, epochs: 2, batch_size: 4, seq_len: 7}}
seeds: [1, 2]
table: {{baseline: softmax}}
"""


class Switched(nn.Module):
    """A head with a compatibility switch, a width of its own, and a parameter that is a list or a mapping."""

    def __init__(
        self,
        dims,
        embedding,
        *,
        size: int = 1,
        d_latent: int = 4,
        components: dict[Literal["top", "second"], int] | tuple[int, ...] = (15, 5),
        compat: dict[Literal["log_epsilon"], float] | None = None,
    ):
        super().__init__()
        self.latent = nn.Linear(dims.d_embed, d_latent, bias=False)
        self.output = nn.Linear(d_latent, dims.vocab_size, bias=False)


@pytest.fixture(autouse=True)
def switched(monkeypatch):
    HEADS.names()  # discover before the table is changed
    monkeypatch.setitem(HEADS._classes, "switched", Switched)


def heads(text: str, entries: str) -> str:
    return text.replace("[softmax, {mos: {num_mixtures: [2, 15]}}]", f"[{entries}]")


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (
            "{mos: {num_mixtures: 3, dropout: 0.2}}, {mos: {gate: static, dropout: 0.2, num_mixtures: 3}}",
            ["Every mos: num_mixtures=3, dropout=0.2."],
        ),
        # a default is given by neither, and a value that one leaves at its default is not given to every one
        ("{mos: {num_mixtures: 10}}, {mos: {gate: static}}", []),
        ("softmax, {mos: {num_mixtures: 3, dropout: 0.2}}", []),
        (
            "{switched: {components: [[3, 1]], size: [1, 2]}}, {mos: {num_mixtures: [2, 3], bias: false}}",
            ["Every switched: components=[3, 1].", "Every mos: bias=False."],
        ),
    ],
)
def test_what_all_entries_of_a_name_are_given_is_told_once(suite_of, entries, expected):
    markdown = tabulated(suite_of(heads(SUITE.replace("{baseline: softmax}", "{}"), entries)))
    assert notes(markdown, "Every") == expected


def test_the_matched_width_is_not_told_as_shared(suite_of):
    text = heads(SUITE, "softmax, {switched: {size: [1, 2], d_latent: 7, components: [3, 1]}}")
    markdown = tabulated(suite_of(text + "match: {params: softmax, vary: d_latent}\n"))
    assert notes(markdown, "Every") == ["Every switched: components=[3, 1]."]
    assert notes(tabulated(suite_of(text)), "Every") == ["Every switched: d_latent=7, components=[3, 1]."]
