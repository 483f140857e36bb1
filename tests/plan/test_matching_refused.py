"""Matched parameters: what is refused, where, and in which words."""

import pytest
from handmade import MATCHED_VOCAB, matched_suite

pytestmark = pytest.mark.usefixtures("wide_heads")
V = MATCHED_VOCAB


REFUSED = {
    "unknown reference": (
        [],
        "match: {params: sofmax, vary: d_model}",
        "12:17: match.params: 'sofmax' is not a head of this suite; did you mean 'softmax'?",
    ),
    "several references": (
        [],
        "match: {params: mos, vary: d_model}",
        "12:17: match.params: 'mos' names several heads of this suite; expected one of 'mos(num_mixtures=2)', "
        "'mos(num_mixtures=15)', or a number",
    ),
    "unlike every reference": (
        [],
        "match: {params: gpt, vary: d_model}",
        "12:17: match.params: 'gpt' is not a head of this suite (it has: 'softmax', 'mos(num_mixtures=2)', "
        "'mos(num_mixtures=15)')",
    ),
    "a reference in other words": (
        [],
        "match: {params: mos(num_mixtures=3), vary: d_model}",
        "12:17: match.params: 'mos(num_mixtures=3)' is not a head of this suite; did you mean 'mos(num_mixtures=2)'?",
    ),
    "neither has it": (
        [("mos: {num_mixtures: [2, 15]}", "own")],
        "match: {params: softmax, vary: d_modl}",
        "12:32: match.vary: neither head 'own' nor backbone 'lstm' has a width 'd_modl'; did you mean 'd_model'? "
        "(widths are whole numbers named d_...; head 'own': d_latent; backbone 'lstm': d_model, d_input)",
    ),
    "both have it": (
        [("mos: {num_mixtures: [2, 15]}", "clash")],
        "match: {params: softmax, vary: d_model}",
        "12:32: match.vary: both head 'clash' and backbone 'lstm' have a parameter 'd_model'",
    ),
    "no integer": (
        [("mos: {num_mixtures: [2, 15]}", "own")],
        "match: {params: softmax, vary: rate}",
        "12:32: match.vary: neither head 'own' nor backbone 'lstm' has a width 'rate' "
        "(widths are whole numbers named d_...; head 'own': d_latent; backbone 'lstm': d_model, d_input)",
    ),
    "a number of layers": (
        [],
        "match: {params: softmax, vary: num_layers}",
        "12:32: match.vary: neither head 'mos' nor backbone 'lstm' has a width 'num_layers' "
        "(widths are whole numbers named d_...; head 'mos': d_embed; backbone 'lstm': d_model, d_input)",
    ),
    "a number that changes no total": (
        [("mos: {num_mixtures: [2, 15]}", "nce")],
        "match: {params: softmax, vary: num_noise}",
        "12:32: match.vary: neither head 'nce' nor backbone 'lstm' has a width 'num_noise' "
        "(widths are whole numbers named d_...; head 'nce': none; backbone 'lstm': d_model, d_input)",
    ),
    "a list": (
        [("d_model: 250", "d_model: [250, 120]")],
        "match: {params: softmax, vary: d_model}",
        "6:21: backbones.0.lstm.d_model: d_model has the values 250 and 120, but match.vary chooses it; give one value",
    ),
    "two entries that differ in it alone": (
        [("  - lstm", "  - lstm: {dropout: 0.1, num_layers: 1}\n  - lstm")],
        "match: {params: softmax, vary: d_model}",
        "7:21: backbones.1.lstm.d_model: d_model has the values 200 and 250, but match.vary chooses it; give one value",
    ),
    "no such number": (
        [],
        "match: {params: 0, vary: d_model}",
        "12:17: match.params: expected the name of a head or a whole number of parameters, got 0",
    ),
    "no whole number": (
        [],
        "match: {params: 1.5, vary: d_model}",
        "12:17: match.params: expected the name of a head or a whole number of parameters, got 1.5",
    ),
    "a missing key": ([], "match: {params: softmax}", "12:8: match: the key 'vary' is missing"),
    "an unknown key": (
        [],
        "match: {params: softmax, vary: d_model, vry: 1}",
        "12:41: match.vry: unknown key 'vry'; did you mean 'vary'?",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_unclear_is_one_problem_at_its_place(case, problems):
    replacements, match, expected = REFUSED[case]
    assert problems(matched_suite(*replacements, match=f"{match}\n")) == [expected]


def test_where_no_width_is_near_enough_the_nearest_is_named_with_its_count(problems):
    text = matched_suite(("d_model: 250", "d_model: 8"), ("[2, 15]", "15"), (f"vocab_size: {V}", "vocab_size: 12"))
    # V = 12, d = 8: 96 + 512 + 64 + 108 = 780 for softmax. mos, K = 15, d: 24 d + 23 d d + 38 d + 12; at d = 4 it is
    # 368 + 248 + 12 = 628, at d = 5 575 + 310 + 12 = 897: 152 and 117 away, 117 / 780 = 15 %
    assert problems(text) == [
        "12:8: match: no d_model brings mos(num_mixtures=15) on lstm(d_model=8, num_layers=1, dropout=0.1) and "
        "markov(vocab_size=12, num_tokens=4000, branching=3) within 0.5 % of softmax's 780 parameters: "
        "the nearest found, 5, has 897 (+15 %); other widths to vary: d_embed, d_input"
    ]


def test_other_widths_are_named_where_every_head_has_them(problems):
    encoder = "transformer_encoder: {d_model: 8, num_layers: 1, num_heads: 8, d_ff: 9}"
    text = matched_suite(
        ("lstm: {d_model: 250, num_layers: 1, dropout: 0.1}", encoder), (f"vocab_size: {V}", "vocab_size: 12")
    )
    both = problems(text.replace("  - mos", "  - sigsoftmax: {projection: true}\n  - mos"))
    assert [problem.partition("; ")[2] for problem in both] == ["other widths to vary: d_ff"] * 3
    assert problems(text)[0].endswith("; other widths to vary: d_embed, d_ff")


ON = "on lstm(d_model=250, num_layers=1, dropout=0.1) and markov(vocab_size=5000, num_tokens=4000, branching=3)"


def test_where_no_width_can_be_built_the_constructors_reason_is_told(problems):
    text = matched_suite(("mos: {num_mixtures: [2, 15]}", "unset"), match="match: {params: 1000, vary: d_latent}\n")
    assert problems(text.replace("  - softmax\n", "")) == [
        f"11:8: match: no value of d_latent is possible for unset {ON}: d_latent must be left out, got 250; "
        "other widths to vary: d_model, d_input"
    ]


def test_where_one_width_can_be_built_the_others_reason_is_told(problems):
    text = matched_suite(("[2, 15]", "3, tie_weights: true"), match="match: {params: softmax, vary: d_embed}\n")
    # E = D = 250 alone: softmax 1250000 + 502000 + 1255000; mos ties its V E: 1250000 + 502000 + 3 (62750 + 250) + 5000
    assert problems(text) == [
        f"12:8: match: no d_embed brings mos(num_mixtures=3, tie_weights=True) {ON} within 0.5 % of softmax's "
        "3,007,000 parameters: the nearest found, 250, has 1,946,000 (-35.3 %), and no other can be built: "
        "tie_weights: the embedding has width 250, d_embed is 251; they must be equal; "
        "other widths to vary: d_model, d_input"
    ]


def test_every_combination_without_a_width_is_named(problems):
    found = problems(matched_suite(match="match: {params: 20, vary: d_model}\n"))
    assert [problem.partition(" on ")[0] for problem in found] == [
        f"12:8: match: no d_model brings {head}" for head in ("softmax", "mos(num_mixtures=2)", "mos(num_mixtures=15)")
    ]
    # the smallest width: 5000 + 16 + 10000
    assert "within 0.5 % of 20 parameters: the nearest found, 1, has 15,016 (+74,980 %)" in found[0]


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        (
            ("match.params=sofmax", "match.vary=d_model"),
            "--set match.params=sofmax: match.params: 'sofmax' is not a head of this suite; did you mean 'softmax'?",
        ),
        (
            ("match.params=softmax", "match.vary=dropout"),
            "--set match.vary=dropout: match.vary: neither head 'mos' nor backbone 'lstm' has a width 'dropout' "
            "(widths are whole numbers named d_...; head 'mos': d_embed; backbone 'lstm': d_model, d_input)",
        ),
        (
            ("match.params=softmax", "match.vary.x=1"),
            '--set match.vary.x=1: match.vary: expected a valid string, got {"x": 1}',
        ),
        (("match.params=softmax",), "--set match.params=softmax: match: the key 'vary' is missing"),
    ],
)
def test_wrong_request_is_reported_as_the_command_line_said_it(overrides, problem, problems):
    assert problems(matched_suite(match=""), *overrides) == [problem]
