"""Parameter counts that papers print: the ten models of the multi-facet poster, Yang's MoS, Takase's DOC."""

from pathlib import Path

import pytest
from handmade import count
from torch import nn

from harness import plan
from harness.model import on_meta
from harness.protocols import HeadDims
from harness.registry import HEADS

SUITE = Path(__file__).parents[2] / "suites" / "gpt2_sizes.yaml"
V = 50_257
SIZES = {"small": (768, 12), "medium": (1024, 24)}  # d, L
# Chang and McCallum's poster, table 1: name, #S, #I, #P, millions of parameters on GPT-2 small; DOC's gate reads 3d
POSTER = [
    ("Softmax", 1, 1, 1, 163.6),
    ("SigSoftmax", 1, 1, 1, 163.6),
    ("Softmax + Multi-input", 1, 9, 1, 169.5),
    ("Softmax + Multi-partition", 1, 1, 4, 165.4),
    ("MoS (4)", 4, 1, 1, 165.4),
    ("MoS (3)", 3, 1, 1, 164.8),
    ("DOC", 3, 3, 1, 164.8),
    ("MFS w/o Multi-partition", 3, 9, 1, 171.9),
    ("MFS w/o Multi-input", 3, 1, 4, 166.6),
    ("MFS", 3, 9, 4, 175.4),
]
NAMES = [row[0] for row in POSTER]


def backbone_size(d, L):
    """HEADS.md section 5: GPT-2 without an output matrix."""
    return V * d + 1024 * d + L * (12 * d * d + 13 * d) + 2 * d


def head_size(name, S, I, P, d):  # noqa: E741 - the papers' letter
    """HEADS.md section 5: output matrix, L^h, L^f, L^pi; biases everywhere but on the output."""
    if name == "DOC":
        return V * d + 3 * (d * d + d) + (3 * d * 3 + 3)
    q = 2 * d if I > 1 else d
    block = I * d * d + d if I > 1 else 0
    gate = q * S + S if S > 1 else 0  # a one-way gate has no effect and is left out
    return V * d + block + (P + S - 1) * (q * d + d) + gate


@pytest.fixture(scope="module")
def planned():
    """{size: [(total, head), ..]} in the order of the suite."""
    suite = plan.load(SUITE)
    found = {size: [] for size in SIZES}
    for trial in suite.trials:
        found[trial.backbone.params["size"]].append(suite.candidate_of(trial).params)
    return found


def test_the_ten_models_have_the_sizes_the_poster_prints(planned):
    found = {name: round(total / 1e6, 1) for name, (total, _) in zip(NAMES, planned["small"], strict=False)}
    assert found == {name: printed for name, _, _, _, printed in POSTER}


@pytest.mark.parametrize("size", SIZES)
def test_both_sizes_follow_the_closed_formulas_to_the_parameter(planned, size):
    d, L = SIZES[size]
    heads = [*(head_size(*row[:4], d) for row in POSTER), 0]  # the last: stock GPT-2, tied, without a projection
    assert planned[size] == [(backbone_size(d, L) + head, head) for head in heads]


def head_parameters(name, layer_dims, d_embed, vocab_size=10_000, **params):
    """Parameters of a head with its own output matrix, counted without allocating."""
    with on_meta():
        dims = HeadDims(vocab_size=vocab_size, layer_dims=layer_dims, d_embed=d_embed)
        return count(HEADS.get(name)(dims, nn.Embedding(vocab_size, d_embed), **params))


def test_yangs_mos_on_ptb_has_a_gate_without_bias_on_the_lstms_width():
    # 15 experts, top LSTM layer D = 620, embedding d = 280: D K d + K d + D K, W and b (HEADS.md 2.5 and 5)
    D, K, d = 620, 15, 280
    expected = 2_604_000 + 4_200 + 9_300 + 10_000 * 280 + 10_000
    assert expected == D * K * d + K * d + D * K + 10_000 * d + 10_000
    assert head_parameters("mos", (960, 960, 620), 280, num_mixtures=15) == expected
    assert head_parameters("moc", (960, 960, 620), 280, num_mixtures=15) == expected
    assert head_parameters("mos", (960, 960, 620), 280, num_mixtures=15, prior_bias=True) == expected + K


def test_takases_doc_adds_the_second_layers_components_to_yangs_mos():
    # J_2 = 5 from a second layer of n_2 = 960: n_2 (J_2 d) + J_2 d + D J_2 (HEADS.md 2.6 and 5)
    mos = head_parameters("mos", (960, 960, 620), 280, num_mixtures=15)
    expected = 960 * 5 * 280 + 5 * 280 + 620 * 5
    assert head_parameters("doc", (960, 960, 620), 280) - mos == expected == 1_348_500


@pytest.mark.parametrize(("width", "added"), [(200, 404_000), (300, 906_000)])
def test_ten_mixtures_add_what_the_seed_paper_counts(width, added):
    # Benka et al. (2021): "nearly 1M added parameters" is 0.906M at width 300; 0.404M at the printed 200
    mos = head_parameters("mos", (width,), width, num_mixtures=10)
    assert mos - head_parameters("softmax", (width,), width) == added
    assert added == 10 * width * width + 10 * width + 10 * width  # A_k, a_k, C


WORDS = {"ptb": 10_000, "wikitext2": 33_278}
# suite -> corpus; widths e, n (of all layers but the top one), m (of the top one); millions that papers print
AWD = {
    "awd_ptb_heads": ("ptb", 400, 1150, 400, {"softmax": 24}),
    "awd_wt2_heads": ("wikitext2", 400, 1150, 400, {"softmax": 33}),  # 33.56
    "awd_ptb_mixtures": ("ptb", 280, 960, 620, {}),
    "awd_wt2_mixtures": ("wikitext2", 300, 1150, 650, {}),
    "mos_ptb": ("ptb", 280, 960, 620, {"mos": 22}),
    "mos_wt2": ("wikitext2", 300, 1150, 650, {"mos": 35}),
    "doc_ptb": ("ptb", 280, 960, 620, {"doc": 23}),
    "doc_wt2": ("wikitext2", 300, 1150, 650, {"doc": 37}),
    "sigsoftmax_ptb": ("ptb", 280, 960, 620, {}),
    "awd_ptb_quick": ("ptb", 200, 400, 200, {}),
}


def tied_head(name, params, V, e, n, m):
    """Parameters that a head with a tied output matrix has of its own: its maps and gate, and a bias for each word."""
    if name in ("softmax", "sigsoftmax", "gss", "plif"):
        return V + params.get("projection", False) * (m * e + e) + 100_000 * (name == "plif")
    if name == "doc":
        return V + 15 * (m * e + e) + 5 * (n * e + e) + 20 * m
    K = params["num_mixtures"]
    return V + K * (m * e + e) + (K * m if K > 1 else 0)


@pytest.mark.needs("awd")
@pytest.mark.parametrize("name", AWD)
def test_every_model_on_awd_lstm_has_the_size_of_the_formulas_and_of_the_papers(name):
    corpus, e, n, m, printed = AWD[name]
    suite = plan.load(SUITE.parent / f"{name}.yaml")
    V = WORDS[corpus]
    layers = sum(4 * h * (below + h) + 8 * h for below, h in ((e, n), (n, n), (n, m)))
    assert {trial.corpus.name for trial in suite.trials} == {corpus}
    for trial in suite.trials:
        own = tied_head(trial.head.name, trial.head.params, V, e, n, m)
        assert suite.candidate_of(trial).params == (V * e + layers + own, own)
    for head, millions in printed.items():
        largest = max(suite.candidate_of(trial).params[0] for trial in suite.trials if trial.head.name == head)
        assert abs(largest / 1e6 - millions) < 0.6  # some round, some cut
