"""Words that no hidden state can put first, in the model of a trial."""

import pytest
import torch
from subjects import LSTM, V, head_of, subject

from harness.diagnostics.diagnostic import NotDefined, Settings
from harness.diagnostics.unargmaxable import compute

SETTINGS = Settings(contexts=40)


def test_a_word_between_others_is_named():
    of = subject(LSTM)
    output = of.model.head.output
    with torch.no_grad():
        output.weight.copy_(torch.eye(V, 8))  # words 8 to 11 have rows of zeros, and only 11 has a bias
        output.weight[7] = output.weight[:4].mean(0)  # 1/4 four times: exact in float32
        output.bias.zero_()
        output.bias[11] = 1.0
    found = compute(of, SETTINGS)
    # 0 to 6 are first in their own direction, 11 at h = 0; word 7 has at best a tie with 0 to 3
    assert (found.vocabulary, found.never, found.undecided) == (V, 4, 0)
    assert found.in_contexts + found.along_rows + found.by_program == 8
    counts = of.corpus.token_counts
    assert found.never_in_training == int(counts[7:11].sum())
    assert sorted(found.words, key=int) == ["7", "8", "9", "10"]
    assert [int(counts[int(word)]) for word in found.words] == sorted(counts[7:11].tolist(), reverse=True)


def test_initial_weights_put_every_word_first():
    found = compute(subject(LSTM), SETTINGS)
    assert (found.never, found.undecided, found.words) == (0, 0, ())
    assert found.in_contexts >= 1


@pytest.mark.parametrize(
    "line", ["{softmax: {bias: false}}", "{sigsoftmax: {}}", "{gss: {}}", "{moc: {num_mixtures: 3}}"]
)
def test_heads_of_one_softmax(line):
    found = compute(subject(LSTM, head=head_of(line)), SETTINGS)
    assert found.in_contexts + found.along_rows + found.by_program + found.never == V


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{mos: {num_mixtures: 2}}", "several softmaxes or facets"),
        ("{mfs: {num_mixtures: 1, num_input_layers: 1, window: 0}}", "several softmaxes or facets"),
        ("{adaptive: {cutoffs: [[3, 6]], div_value: 2.0}}", "no output matrix by which all its words are scored"),
    ],
)
def test_other_heads_are_not_defined(line, why):
    with pytest.raises(NotDefined, match=why):
        compute(subject(LSTM, head=head_of(line)), SETTINGS)
