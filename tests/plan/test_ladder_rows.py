"""A ladder of sizes in a suite: its rows, tokens, learning rates and seeds; and rows of equal FLOPs."""

import pytest
from causal_models import V, saved

from harness.plan import load
from harness.plan.ladder_rows import number_text
from harness.plan.selection import chosen_rows, chosen_trials
from harness.plan.suite import with_choices

BASE = """\
name: small
corpora:
  - markov: {vocab_size: 50, num_tokens: 400000, branching: 3}
backbones:
  - lstm: {num_layers: 1}
heads: [softmax, mos: {num_mixtures: 2}]
train: {optimizer: adam, lr: 0.01, LENGTH, batch_size: 4, seq_len: 7}
seeds: [1, 2, 3]
"""
SIZES = "ladder: {sizes: [{d_model: 8}, {d_model: 16}, {d_model: 32}]MORE}\n"
TUNE = "tune: {space: {train.lr: [0.01, 0.02, 0.04]}}\n"


def suite(write, *parts, length="epochs: 2", more=""):
    return load(write("".join((BASE, *parts)).replace("LENGTH", length).replace("MORE", more)))


def parameters_of(d):
    return 4 * (2 * d * d + 2 * d)  # of an LSTM layer: two matrices and two biases for each of four gates


@pytest.mark.needs("pretrained")
def test_a_size_gives_keys_of_a_configuration(write):
    text = BASE.replace(
        "lstm: {num_layers: 1}", "hf: {config: {model_type: llama, num_attention_heads: 2}, label: ours}"
    )
    sizes = "ladder: {sizes: [{hidden_size: 8, num_hidden_layers: 1}, {hidden_size: 16, num_hidden_layers: 1}]}\n"
    found = load(write(text.replace("LENGTH", "epochs: 1") + sizes))
    first = found.rows[0].backbone
    assert first.spec.params["config"] == {
        **{"model_type": "llama", "num_attention_heads": 2},
        **{"hidden_size": 8, "num_hidden_layers": 1},
    }
    assert first.name == f"ours {number_text(found.rows[0].non_embedding)}"


@pytest.mark.needs("pretrained")
@pytest.mark.parametrize("how", ["frozen: true", "weights: random"])
def test_the_size_of_gpt2_leaves_out_both_of_its_embeddings(how, write, tmp_path):
    sizes = []
    for layers, d in ((1, 8), (2, 16)):
        folder, _ = saved(tmp_path / f"gpt2-{d}", "gpt2", n_embd=d, n_layer=layers)
        sizes.append(f"{{model: {folder}}}")
    text = BASE.replace("vocab_size: 50", f"vocab_size: {V}").replace("lstm: {num_layers: 1}", f"hf: {{{how}}}")
    text = text.replace("LENGTH", "epochs: 1, batching: blocks") + f"ladder: {{sizes: [{', '.join(sizes)}]}}\n"
    found = load(write(text)).rows[::2]
    # a block: 4 d^2 of attention, 8 d^2 of the two layers after it, their biases 4 d + 5 d, two norms 4 d; a norm 2 d
    expected = [layers * (12 * d * d + 13 * d) + 2 * d for layers, d in ((1, 8), (2, 16))]
    assert [row.non_embedding for row in found] == expected


@pytest.mark.parametrize(
    ("number", "text"),
    [(999, "999"), (999.6, "1k"), (853_120, "853k"), (999_600, "1M"), (1.711e9, "1.71B")],
)
def test_numbers_of_parameters_have_three_digits(number, text):
    assert number_text(number) == text


def choices_of(found, rates):
    """The choices of its tuned rows, as if the points with these rates were the best, in the order of the rows."""
    made = []
    for row, rate in zip(found.tuned_rows, rates, strict=True):
        ppl = {t.id: 10 + abs(t.train.lr - rate) for t in row.tuning_trials}
        made.append(row.choose(ppl))
    return made


def test_a_rate_that_follows_is_known_when_the_others_are_chosen(write):
    found = suite(write, SIZES, TUNE, more=", tuned: [1, 2], rate_power: -0.3")
    assert [row.size for row in found.tuned_rows] == [1, 1, 2, 2]
    last = [row for row in found.rows if row.size == 3]
    assert [row.trials for row in last] == [(), ()]
    half = with_choices(found, [*choices_of(found, (0.04, 0.02, 0.02, 0.02))[:3], None])
    softmax, mixture = [row for row in half.rows if row.size == 3]
    assert mixture.trials == ()
    expected = 0.02 * (parameters_of(32) / parameters_of(16)) ** -0.3  # of the nearest tuned size, not of the first
    assert [trial.train.lr for trial in softmax.trials] == [pytest.approx(expected, rel=5e-4)] * 3  # four digits
    # a choice that is taken back takes the rate back, too
    assert [row.trials for row in with_choices(half, [None] * 4).rows if row.size == 3] == [(), ()]
    # conditions choose a size, and what its rate follows from
    assert {row.size for row in chosen_rows(found, ("size=2",))} == {2}
    rows = chosen_rows(found, ("size=3,head=mos",))
    assert [(row.size, row.head.name) for row in rows] == [(2, "MoS 2")]
    chosen = with_choices(found, choices_of(found, (0.02,) * 4))
    assert len(chosen_trials(chosen, ("size=3",))) == 6
