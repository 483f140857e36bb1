"""How long models are trained: a number of tokens, and the training time of another head."""

import json

import pytest
from handmade import SMALL

from harness.errors import SuiteError
from harness.plan import load
from harness.plan.budgets import ratios_file

TIMED = SMALL.replace("epochs: 2", "epochs: 6") + "match: {time: softmax}\n"
CORPUS = "markov(vocab_size=12, num_tokens=400, branching=3)"
HEADS = {"softmax": "softmax", "mos": "mos(num_mixtures=2)"}
BACKBONE = "lstm(d_model=8, num_layers=1, dropout=0.1)"


@pytest.fixture
def suite(tmp_path):
    """Write a suite; returns its path."""

    def written(text: str):
        path = tmp_path / "small.yaml"
        path.write_text(text)
        return path

    return written


def ratios(path, time="softmax", **by_head):
    rows = [
        {
            "corpus": CORPUS,
            "backbone": BACKBONE,
            "head": HEADS[head],
            "step_ratio": ratio,
        }
        for head, ratio in by_head.items()
    ]
    content = {"time": time, "measured": {"device": "a processor", "threads": 1}, "rows": rows}
    ratios_file(path).write_text(json.dumps(content))


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


def test_each_head_gets_the_epochs_of_the_named_heads_time(suite):
    path = suite(TIMED)
    ratios(path, softmax=1.0, mos=2.4)
    found = load(path)
    assert {(trial.head.name, trial.train.epochs) for trial in found.trials} == {("softmax", 6.0), ("mos", 2.5)}
    whole = load(suite(SMALL.replace("epochs: 2", "epochs: 6")))
    assert [trial.id for trial in found.trials][:2] == [trial.id for trial in whole.trials][:2]
    assert [trial.train.epochs for trial in load(suite(TIMED), equal_time=False).trials] == [6.0] * 4


def test_without_its_file_the_suite_says_which_command_writes_it(suite):
    path = suite(TIMED)
    (problem,) = problems_of(path)
    assert problem == (
        "small.yaml:14:15: match.time: small.times.json is not beside the suite; "
        f"`harness plan {path} --time --save` writes it"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "small.times.json: "),
        ("[]", "small.times.json: "),
        ('{"time": "softmax", "measured": {}, "rows": [{"corpus": "a"}]}', "small.times.json: "),
        ('{"time": "mos", "measured": {}, "rows": []}', "small.times.json has the ratios to mos; "),
        ('{"time": "softmax", "measured": {}, "rows": []}', f"small.times.json has no ratio of {CORPUS}, "),
    ],
)  # fmt: skip
def test_a_file_that_does_not_fit_is_refused(suite, content, message):
    path = suite(TIMED)
    ratios_file(path).write_text(content)
    (problem,) = problems_of(path)
    assert problem.startswith(f"small.yaml:14:15: match.time: {message}")


@pytest.mark.parametrize(
    ("match", "message"),
    [
        ("{time: gss}", "match.time: 'gss' is not a head of this suite"),
        ("{time: softmax, vary: d_model}", "match: expected params and vary, or time alone, got vary, time"),
        ("{params: softmax}", "match: the key 'vary' is missing"),
        ("{}", "match: expected params and vary, or time alone, got none of them"),
    ],
)
def test_a_wrong_match_is_one_problem(suite, match, message):
    (problem,) = problems_of(suite(SMALL + f"match: {match}\n"))
    assert message in problem


def test_a_name_of_several_heads_must_be_written_in_full(suite):
    two = SMALL.replace("  - softmax\n", "  - softmax: {projection: [false, true]}\n") + "match: {time: softmax}\n"
    (problem,) = problems_of(suite(two))
    assert "'softmax' names several heads of this suite; expected one of 'softmax(projection=False)'" in problem
    assert "or a number" not in problem
