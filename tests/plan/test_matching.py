"""Matched parameters: the width that is found, what stays as it is, and what is refused."""

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from harness import cli
from harness.plan import load, matching
from harness.plan.matching import closest_width
from harness.registry import HEADS

SUITES = Path(__file__).parents[2] / "suites"
MATCH = "match: {params: softmax, vary: d_model}\n"
V = 5000
BASE = f"""\
name: small
version: 1
corpora:
  - markov: {{vocab_size: {V}, num_tokens: 4000, branching: 3}}
backbones:
  - lstm: {{d_model: 250, num_layers: 1, dropout: 0.1}}
heads:
  - softmax
  - mos: {{num_mixtures: [2, 15]}}
train: {{optimizer: adam, lr: 0.01, epochs: 2, batch_size: 4, seq_len: 7}}
seeds: [1, 2]
"""


def changed(*replacements: tuple[str, str], match: str = MATCH) -> str:
    text = BASE
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    return text + match


def lstm_softmax(d: int) -> int:
    """Embedding V d; one LSTM layer, four gates of d (d + d) weights and 2 d biases; output V d + V."""
    return V * d + 8 * d * d + 8 * d + V * d + V


def lstm_mos(d: int, k: int) -> int:
    """The same with K facets of d d + d and a prior of K d."""
    return lstm_softmax(d) + k * (d * d + d) + k * d


def nearest_of(total, target: int) -> int:
    """The width of the nearest total, by trying them all."""
    return min(range(1, 400), key=lambda width: abs(total(width) - target))


def widths(suite) -> dict[str, int]:
    """str(head) -> d_model of its backbone."""
    return {str(trial.head): trial.backbone.params["d_model"] for trial in suite.trials}


class OwnWidth(nn.Module):
    """A head with a width of its own, E d_latent + d_latent V scalars."""

    def __init__(self, dims, embedding, *, d_latent: int | None = None, rate: float = 0.5):
        super().__init__()
        width = dims.d_embed if d_latent is None else d_latent
        self.latent = nn.Linear(dims.d_embed, width, bias=False)
        self.output = nn.Linear(width, dims.vocab_size, bias=False)


class OwnModelWidth(nn.Module):
    """A head whose parameter is called as the backbone's."""

    def __init__(self, dims, embedding, *, d_model: int = 4):
        super().__init__()
        self.output = nn.Linear(d_model, dims.vocab_size)


@pytest.fixture(autouse=True)
def heads(monkeypatch):
    HEADS.names()  # discover before the table is changed
    monkeypatch.setitem(HEADS._classes, "own", OwnWidth)
    monkeypatch.setitem(HEADS._classes, "clash", OwnModelWidth)


# the width


@pytest.mark.parametrize("num_mixtures", [2, 15])
def test_width_is_the_one_with_the_nearest_total(write, num_mixtures):
    target = lstm_softmax(250)
    expected = nearest_of(lambda d: lstm_mos(d, num_mixtures), target)
    assert expected < 250
    suite = load(write(changed()))
    assert widths(suite)[f"mos(num_mixtures={num_mixtures})"] == expected
    (total, head), *_ = (
        suite.params[trial.id] for trial in suite.trials if trial.head.params.get("num_mixtures") == num_mixtures
    )
    assert total == lstm_mos(expected, num_mixtures)
    assert head == total - V * expected - 8 * expected * expected - 8 * expected
    assert abs(total - target) <= 0.005 * target


def test_reference_head_keeps_its_trials(write):
    plain, matched = load(write(changed(match=""))), load(write(changed()))
    assert [trial.id for trial in matched.trials[:2]] == [trial.id for trial in plain.trials[:2]]
    assert matched.trials[0].backbone.params["d_model"] == 250
    assert not {trial.id for trial in matched.trials[2:]} & {trial.id for trial in plain.trials[2:]}


def test_matched_trial_is_the_trial_whose_width_is_written_by_hand(write):
    suite = load(write(changed()))
    width = widths(suite)["mos(num_mixtures=2)"]
    by_hand = load(write(changed(("d_model: 250", f"d_model: {width}"), ("[2, 15]", "2"), match="")))
    assert suite.trials[2:4] == by_hand.trials[2:4]


def test_width_that_the_file_leaves_at_its_default_is_varied_and_written_out(write):
    # the lstm's default is 200
    suite = load(write(changed(("d_model: 250, ", ""))))
    assert "d_model" not in suite.trials[0].backbone.params
    expected = nearest_of(lambda d: lstm_mos(d, 15), lstm_softmax(200))
    assert suite.trials[-1].backbone.params["d_model"] == expected


def test_number_is_the_target_of_every_trial(write):
    suite = load(write(changed(match="match: {params: 2000000, vary: d_model}\n")))
    assert widths(suite) == {
        "softmax": nearest_of(lstm_softmax, 2_000_000),
        "mos(num_mixtures=2)": nearest_of(lambda d: lstm_mos(d, 2), 2_000_000),
        "mos(num_mixtures=15)": nearest_of(lambda d: lstm_mos(d, 15), 2_000_000),
    }


def test_every_corpus_and_backbone_has_a_target_of_its_own(write):
    text = changed(("num_layers: 1", "num_layers: [1, 2]"), (f"vocab_size: {V}", f"vocab_size: [{V}, 6000]"))
    suite = load(write(text))
    totals = {}
    for trial in suite.trials:
        key = trial.corpus.params["vocab_size"], trial.backbone.params["num_layers"]
        totals.setdefault(key, []).append(suite.params[trial.id][0])
    assert len(totals) == 4
    for found in totals.values():
        assert all(abs(total - found[0]) <= 0.005 * found[0] for total in found)


def test_widths_that_cannot_be_built_are_passed_over(write):
    transformer = "transformer_encoder: {d_model: 800, num_layers: 1, num_heads: 4, d_ff: 100}"
    suite = load(write(changed(("lstm: {d_model: 250, num_layers: 1, dropout: 0.1}", transformer))))

    def total(d: int, k: int = 0) -> int:
        # embedding and output; attention 4 d d + 4 d; feed-forward 2 d 100 + 100 + d; two norms 4 d; mixture
        mixture = k * (d * d + d) + k * d
        return 2 * V * d + V + 4 * d * d + 4 * d + 200 * d + 100 + d + 4 * d + mixture

    assert suite.params[suite.trials[0].id][0] == total(800)
    expected = min(range(4, 1600, 4), key=lambda d: abs(total(d, 15) - total(800)))
    assert expected % 4 == 0
    assert widths(suite)["mos(num_mixtures=15)"] == expected


def test_head_with_a_width_of_its_own_keeps_the_backbone(write):
    text = changed(("mos: {num_mixtures: [2, 15]}", "own"), match="match: {params: softmax, vary: d_latent}\n")
    suite = load(write(text))
    own = suite.trials[-1]
    # softmax V 250 + V = 1255000 against d_latent (250 + V): 1255000 / 5250 = 239.05
    assert own.head.params == {"d_latent": 239}
    assert own.backbone == suite.trials[0].backbone


def test_each_model_is_solved_once_in_tens_of_builds(write, monkeypatch):
    built = []

    def counting(*args):
        built.append(args)
        return count(*args)

    count = matching.count
    monkeypatch.setattr(matching, "count", counting)
    one = changed(("[2, 15]", "2"))
    load(write(one))
    assert 0 < len(built) < 40
    alone = len(built)
    built.clear()
    # more seeds, and a second corpus with the same vocabulary
    load(write(one.replace("seeds: [1, 2]", "seeds: [1, 2, 3, 4]").replace("tokens: 4000", "tokens: [4000, 5000]")))
    assert len(built) == alone


# the search


@given(
    target=st.integers(1, 10**6),
    start=st.integers(1, 300),
    step=st.sampled_from([1, 2, 4, 7, 32]),
    slope=st.integers(0, 500),
)
def test_search_finds_what_trying_all_widths_finds(target, start, step, slope):
    def total(width: int) -> int | None:
        return width * width + slope * width + 17 if width % step == 0 else None

    found = closest_width(total, target, start)
    assert found % step == 0
    nearest = min(abs(total(width) - target) for width in range(step, 1100, step))
    assert abs(total(found) - target) == nearest


def test_search_below_a_largest_width_finds_it():
    # as of a rank that the model's width bounds
    assert closest_width(lambda width: 10 * width if width <= 300 else None, 10_000, 200) == 300


def test_search_keeps_the_width_where_the_count_does_not_depend_on_it():
    assert closest_width(lambda width: 5_000, 5_000, 8) == 8


def test_search_without_a_width_that_can_be_built_finds_none():
    assert closest_width(lambda width: None, 5_000, 8) is None


# what is refused


REFUSED = {
    "unknown reference": (
        [],
        "match: {params: sofmax, vary: d_model}",
        "12:17: match.params: 'sofmax' is no head of this suite; did you mean 'softmax'?",
    ),
    "several references": (
        [],
        "match: {params: mos, vary: d_model}",
        "12:17: match.params: 'mos' names several heads of this suite (mos(num_mixtures=2), mos(num_mixtures=15)); "
        "expected one, or a number",
    ),
    "neither has it": (
        [("mos: {num_mixtures: [2, 15]}", "own")],
        "match: {params: softmax, vary: d_modl}",
        "12:32: match.vary: neither head 'own' nor backbone 'lstm' has a parameter 'd_modl'; did you mean 'd_model'? "
        "(head 'own': d_latent; backbone 'lstm': d_model, num_layers)",
    ),
    "both have it": (
        [("mos: {num_mixtures: [2, 15]}", "clash")],
        "match: {params: softmax, vary: d_model}",
        "12:32: match.vary: both head 'clash' and backbone 'lstm' have a parameter 'd_model'",
    ),
    "no integer": (
        [("mos: {num_mixtures: [2, 15]}", "own")],
        "match: {params: softmax, vary: rate}",
        "12:32: match.vary: expected a whole number, and head 'own' has rate: float = 0.5",
    ),
    "a list": (
        [("d_model: 250", "d_model: [250, 120]")],
        "match: {params: softmax, vary: d_model}",
        "6:21: backbones.0.lstm.d_model: d_model is 250 and 120, and match.vary chooses it; expected one value",
    ),
    "two entries that differ in it alone": (
        [("  - lstm", "  - lstm: {dropout: 0.1, num_layers: 1}\n  - lstm")],
        "match: {params: softmax, vary: d_model}",
        "7:21: backbones.1.lstm.d_model: d_model is 200 and 250, and match.vary chooses it; expected one value",
    ),
    "no such number": (
        [],
        "match: {params: 0, vary: d_model}",
        "12:17: match.params: expected the name of a head or a whole number of parameters, got 0",
    ),
    "no whole number": (
        [],
        "match: {params: 1.5e6, vary: d_model}",
        "12:17: match.params: expected the name of a head or a whole number of parameters, got 1500000.0",
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
    assert problems(changed(*replacements, match=f"{match}\n")) == [expected]


def test_where_no_width_is_near_enough_the_nearest_is_named_with_its_count(problems):
    text = changed(("d_model: 250", "d_model: 8"), ("[2, 15]", "15"), (f"vocab_size: {V}", "vocab_size: 12"))
    # V = 12, d = 8: 96 + 512 + 64 + 108 = 780 for softmax. mos, K = 15, d: 24 d + 23 d d + 38 d + 12; at d = 4 it is
    # 368 + 248 + 12 = 628, at d = 5 575 + 310 + 12 = 897: 152 and 117 away, 117 / 780 = 15 %
    assert problems(text) == [
        "12:8: match: no d_model brings mos(num_mixtures=15) on lstm(d_model=8, num_layers=1, dropout=0.1) and "
        "markov(vocab_size=12, num_tokens=4000, branching=3) within 0.5 % of softmax's 780 parameters: "
        "the nearest that can be built, 5, has 897 (+15 %)"
    ]


def test_every_combination_without_a_width_is_named(problems):
    found = problems(changed(match="match: {params: 20, vary: d_model}\n"))
    assert [problem.partition(" on ")[0] for problem in found] == [
        f"12:8: match: no d_model brings {head}" for head in ("softmax", "mos(num_mixtures=2)", "mos(num_mixtures=15)")
    ]
    # the smallest width: 5000 + 16 + 10000
    assert "within 0.5 % of 20 parameters: the nearest that can be built, 1, has 15,016 (" in found[0]


# the command line


def test_matching_is_asked_for_on_the_command_line(write):
    asked = load(write(changed(match="")), ("match.params=softmax", "match.vary=d_model"))
    assert asked.trials == load(write(changed())).trials
    assert [key for key, _, _ in asked.overrides] == ["match.params", "match.vary"]


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        (
            ("match.params=sofmax", "match.vary=d_model"),
            "--set match.params=sofmax: match.params: 'sofmax' is no head of this suite; did you mean 'softmax'?",
        ),
        (
            ("match.params=softmax", "match.vary=dropout"),
            "--set match.vary=dropout: match.vary: both head 'mos' and backbone 'lstm' have a parameter 'dropout'",
        ),
        (("match.params=softmax",), "--set match.params=softmax: match: the key 'vary' is missing"),
    ],
)
def test_wrong_request_is_reported_as_the_command_line_said_it(overrides, problem, problems):
    assert problems(changed(match=""), *overrides) == [problem]


def test_plan_prints_the_widths_and_what_was_matched(write, tmp_path, monkeypatch, capsys):
    path = write(changed(("num_layers: 1, dropout: 0.1", "num_layers: 1"), ("[2, 15]", "15"), ("[1, 2]", "[1]")))
    width = nearest_of(lambda d: lstm_mos(d, 15), lstm_softmax(250))
    monkeypatch.setattr(sys, "argv", ["harness", "plan", str(path), "--results", str(tmp_path)])
    with pytest.raises(SystemExit):
        cli.main()
    shown = capsys.readouterr().out
    assert f"lstm(d_model={width}, num_layers=1)" in shown
    assert "parameters matched: totals agree with softmax's within 0.5 %, by d_model" in shown
    monkeypatch.setattr(sys, "argv", ["harness", "plan", str(path), "--results", str(tmp_path), "--json"])
    with pytest.raises(SystemExit):
        cli.main()
    plan = json.loads(capsys.readouterr().out)
    assert list(plan) == ["suite", "version", "trials"]
    assert plan["trials"][1]["backbone"] == {"name": "lstm", "params": {"d_model": width, "num_layers": 1}}


def test_matched_suite_of_the_repository_agrees_everywhere():
    suite = load(SUITES / "ptb_matched.yaml")
    assert len(suite.trials) == 2 * 3 * 3
    totals = {(trial.backbone.name, str(trial.head)): suite.params[trial.id][0] for trial in suite.trials}
    # V = 10000, d = 200. lstm: V d, two layers of 8 d d + 8 d, V d + V. Transformer: four layers of 4 d d + 4 d,
    # 2 d 200 + 200 + d, two norms 4 d.
    assert totals["lstm", "softmax"] == 2_000_000 + 2 * 321_600 + 2_010_000
    assert totals["transformer_encoder", "softmax"] == 2_000_000 + 4 * 242_000 + 2_010_000
    for (backbone, _), total in totals.items():
        assert abs(total / totals[backbone, "softmax"] - 1) <= 0.005
