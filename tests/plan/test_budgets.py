"""How long models are trained: a number of tokens, and the training time of another head."""

import json

import pytest
from handmade import SMALL, tabulated

from harness.errors import SuiteError
from harness.plan import load

TIMED = SMALL.replace("epochs: 2", "epochs: 6")
CORPUS = "markov(vocab_size=12, num_tokens=400, branching=3)"
BACKBONE = "lstm(d_model=8, num_layers=1, dropout=0.1)"
HEADS = {"softmax": "softmax", "mos": "mos(num_mixtures=2)"}


@pytest.fixture
def suite(tmp_path):
    """Write a suite; returns its path."""

    def written(text: str):
        path = tmp_path / "small.yaml"
        path.write_text(text)
        return path

    return written


def timed(text: str = TIMED, **by_head) -> str:
    """A suite in which the step of each head takes so many times as long as that of softmax."""
    return f"{text}match: {{time: softmax, ratios: {json.dumps({HEADS[head]: by_head[head] for head in by_head})}}}\n"


def problems_of(path) -> list[str]:
    with pytest.raises(SuiteError) as error:
        load(path)
    return [problem.removeprefix(str(path.parent) + "/") for problem in error.value.problems]


@pytest.mark.parametrize(
    ("train", "epochs"),
    [
        # 400 tokens in 4 columns of 100: 4 * 99 = 396 targets an epoch
        ("tokens: 396", 1.0),
        ("tokens: 990", 2.5),
        ("tokens: 100", 0.252525),  # 100 / 396
        # blocks of 7: 57, in 14 batches of 4, each block with 6 targets: 14 * 4 * 6 = 336
        ("tokens: 840, batching: blocks", 2.5),
    ],
)
def test_a_number_of_tokens_becomes_epochs(suite, train, epochs):
    found = load(suite(SMALL.replace("epochs: 2", train)))
    assert {trial.train.epochs for trial in found.trials} == {epochs}
    same = load(
        suite(SMALL.replace("epochs: 2", f"epochs: {epochs}" + train.partition("tokens")[2].lstrip(": 0123456789")))
    )
    assert [trial.id for trial in found.trials] == [trial.id for trial in same.trials]


def test_tokens_are_of_each_corpus(suite):
    two = SMALL.replace("num_tokens: 400", "num_tokens: [400, 800]").replace("epochs: 2", "tokens: 796")
    found = load(suite(two))
    # 4 * 99 and 4 * 199 targets an epoch
    assert sorted({trial.train.epochs for trial in found.trials}) == [1.0, 2.010101]


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ("", "train: the key 'epochs' is missing, or 'tokens' in its place"),
        ("epochs: 2, tokens: 400", "train: expected either epochs or tokens, got both"),
        ("tokens: 0", "train.tokens: "),
        ("tokens: 2.5", "train.tokens: "),
    ],
)
def test_one_of_epochs_and_tokens_is_given(suite, train, message):
    text = SMALL.replace("epochs: 2, ", f"{train}, " if train else "")
    (problem,) = problems_of(suite(text))
    assert message in problem
    assert problem.startswith("small.yaml:10:")


@pytest.mark.parametrize(
    ("train", "message"),
    [
        # 400 // 150 = 2 blocks, less than a batch of 4
        (
            "tokens: 400, batching: blocks, seq_len: 150",
            "batch_size 4 and seq_len 150 make no batch of its 400 training tokens",
        ),
        ("tokens: 39600000", "39600000 tokens are 100000 epochs of this corpus; expected at most 50,000"),
    ],
)
def test_a_number_of_tokens_that_fits_no_training_is_one_problem(suite, train, message):
    text = SMALL.replace("epochs: 2", train)
    text = text.replace("batch_size: 4, seq_len: 7", "batch_size: 4") if "seq_len: 150" in train else text
    (problem,) = problems_of(suite(text))
    assert problem.endswith(f"train.tokens: {CORPUS}: {message}")


def test_a_schedule_with_a_horizon_is_scaled_to_the_epochs_of_each_head(suite):
    text = TIMED.replace("epochs: 6", "epochs: 10, schedule: {step: {after: 6, factor: 0.5}}")
    schedules = {trial.head.name: trial.train.schedule.step for trial in load(suite(timed(text, mos=2.0))).trials}
    assert (schedules["softmax"].after, schedules["softmax"].factor) == (6, 0.5)
    # 10 epochs have 4 decays, 5 have 2 of them after the third: 0.5^4 = 0.25^2
    assert (schedules["mos"].after, schedules["mos"].factor) == (3, 0.25)


def test_tuning_is_not_longer_than_the_training_of_any_head(suite):
    tune = "tune: {trials: 2, epochs: 4, space: {train.lr: {log_uniform: [0.01, 0.1]}}}\n"
    (found,) = problems_of(suite(timed(mos=2.0) + tune))
    assert found.endswith("tune.epochs: mos(num_mixtures=2) is trained for 3 epochs, got 4 for its tuning")


def test_each_head_gets_the_epochs_of_the_named_heads_time(suite):
    found = load(suite(timed(mos=2.4)))
    assert {(trial.head.name, trial.train.epochs) for trial in found.trials} == {("softmax", 6.0), ("mos", 2.5)}
    whole = load(suite(TIMED))
    assert [trial.id for trial in found.trials][:2] == [trial.id for trial in whole.trials][:2]


def test_ratios_may_differ_between_backbones(suite):
    text = TIMED.replace("d_model: 8", "d_model: [8, 16]")
    names = [f"mos(num_mixtures=2) on lstm(d_model={d}, num_layers=1, dropout=0.1) and {CORPUS}" for d in (8, 16)]
    match = {"time": "softmax", "ratios": dict(zip(names, (2.0, 3.0), strict=True))}
    found = load(suite(f"{text}match: {json.dumps(match)}\n"))
    epochs = {(t.head.name, t.backbone.params["d_model"]): t.train.epochs for t in found.trials}
    assert epochs == {("softmax", 8): 6.0, ("softmax", 16): 6.0, ("mos", 8): 3.0, ("mos", 16): 2.0}
    del match["ratios"][names[1]]
    (problem,) = problems_of(suite(f"{text}match: {json.dumps(match)}\n"))
    assert problem.endswith(
        f"match.ratios: no ratio of {names[1]}; `harness plan SUITE --set match=null --time` prints the ratios"
    )


def test_the_table_says_where_and_when_the_steps_were_timed(suite):
    note = "- Training time matched: the epochs of each head take as long as those of softmax, within each corpus and "
    plain = timed(mos=2.4)
    assert f"{note}backbone.\n" in tabulated(load(suite(plain)))
    told = plain.replace("ratios:", 'measured: "a processor, 1 thread", ratios:')
    assert f"{note}backbone. The steps were timed on a processor, 1 thread.\n" in tabulated(load(suite(told)))
    assert [trial.id for trial in load(suite(plain)).trials] == [trial.id for trial in load(suite(told)).trials]


PRINTS = "`harness plan SUITE --set match=null --time` prints"


@pytest.mark.parametrize(
    ("match", "message"),
    [
        ("{time: gss, ratios: {mos: 2}}", "14:15: match.time: 'gss' is not a head of this suite"),
        ("{time: softmax}", f"14:8: match: the key 'ratios' is missing; {PRINTS} it"),
        (
            "{time: softmax, ratios: {mso(num_mixtures=2): 2}}",
            "14:33: match.ratios.mso(num_mixtures=2): no head of this suite is 'mso(num_mixtures=2)'; "
            "did you mean 'mos(num_mixtures=2)'?",
        ),
        (
            "{time: softmax, ratios: {softmax: 1}}",
            f"14:32: match.ratios: no ratio of mos(num_mixtures=2) on {BACKBONE} and {CORPUS}; {PRINTS} the ratios",
        ),
        ("{time: softmax, ratios: {mos(num_mixtures=2): 0}}", "14:54: match.ratios.mos(num_mixtures=2): "),
        (
            "{time: softmax, ratios: {mos(num_mixtures=2): 0.0001}}",
            "14:54: match.ratios.mos(num_mixtures=2): mos(num_mixtures=2) gets 60000 epochs; expected at most 50,000",
        ),
        ("{time: softmax, vary: d_model}", "match: expected params and vary, or time and ratios, got vary, time"),
        ("{params: softmax}", "match: the key 'vary' is missing"),
        ("{}", "match: expected params and vary, or time and ratios, got none of them"),
    ],
)
def test_a_wrong_match_has_its_line_and_column(suite, match, message):
    problems = problems_of(suite(TIMED + f"match: {match}\n"))
    assert any(message in problem for problem in problems), problems


def test_a_name_of_several_heads_must_be_written_in_full(suite):
    two = SMALL.replace("  - softmax\n", "  - softmax: {projection: [false, true]}\n")
    (problem,) = problems_of(suite(two + "match: {time: softmax, ratios: {mos(num_mixtures=2): 2}}\n"))
    assert "'softmax' names several heads of this suite; expected one of 'softmax(projection=False)'" in problem
    assert "or a number" not in problem
