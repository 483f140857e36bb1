"""How long models are trained: a number of tokens, and the training time of another head."""

import hashlib
import json

import pytest
from handmade import SMALL, tabulated

from harness.errors import SuiteError
from harness.plan import load
from harness.plan.step_ratios import ratios_file

TIMED = SMALL.replace("epochs: 2", "epochs: 6") + "match: {time: softmax}\n"
CORPUS = "markov(vocab_size=12, num_tokens=400, branching=3)"
STEP = {
    "optimizer": "adam", "batch_size": 4, "seq_len": 7, "batching": "stream", "accumulation": 1, "data_parallel": 1,
    "precision": "fp32",
}  # fmt: skip
MEASURED = {
    "device": "a processor", "threads": 1, "torch": "2.13.0", "commit": "abc", "taken": "2026-01-02T03:04:05+00:00",
    "busy": 0.04,
}  # fmt: skip
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
    ratios_file(path).write_text(sealed({"time": time, "train": STEP, "measured": MEASURED, "rows": rows}))


def sealed(content: dict) -> str:
    """The content with its checksum: SHA-256 of its JSON with sorted keys, without spaces, 1.0 written as 1."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":")).replace("1.0}", "1}").replace("2.0}", "2}")
    return json.dumps({**content, "sha256": hashlib.sha256(text.encode()).hexdigest()})


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
    path = suite(TIMED.replace("epochs: 6", "epochs: 10, schedule: {step: {after: 6, factor: 0.5}}"))
    ratios(path, softmax=1.0, mos=2.0)
    schedules = {trial.head.name: trial.train.schedule.step for trial in load(path).trials}
    assert (schedules["softmax"].after, schedules["softmax"].factor) == (6, 0.5)
    # 10 epochs have 4 decays, 5 have 2 of them after the third: 0.5^4 = 0.25^2
    assert (schedules["mos"].after, schedules["mos"].factor) == (3, 0.25)


def test_tuning_is_not_longer_than_the_training_of_any_head(suite):
    tune = "tune: {trials: 2, epochs: 4, space: {train.lr: {log_uniform: [0.01, 0.1]}}}\n"
    path = suite(TIMED + tune)
    ratios(path, softmax=1.0, mos=2.0)
    assert len(found := problems_of(path)) == 1
    assert found[0].endswith("tune.epochs: mos(num_mixtures=2) is trained for 3 epochs, got 4 for its tuning")


def test_ratios_of_another_step_are_refused(suite):
    path = suite(TIMED.replace("batch_size: 4", "batch_size: 8"))
    ratios(path, softmax=1.0, mos=2.0)
    (problem,) = problems_of(path)
    assert "match.time: small.times.json was measured with another batch_size; delete it, then " in problem


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


EDITED = "the checksum does not fit the content, which was edited or is damaged; delete it, then "
NO_JSON = "expected JSON with its checksum as sha256; delete it, then "


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", f": {NO_JSON}"),
        ("[]", f": {NO_JSON}"),
        ("[" * 100_000, f": {NO_JSON}"),
        (json.dumps({"time": "softmax", "train": STEP, "measured": MEASURED, "rows": []}), f": {NO_JSON}"),
        ('{"sha256": "0", "step_ratio": NaN}', f": {NO_JSON}"),
        (sealed({"time": "softmax"}).replace("softmax", "mos"), f": {EDITED}"),
        (sealed({"time": "softmax", "train": {}, "measured": MEASURED, "rows": [{"corpus": "a"}]}), ": "),
        (sealed({"time": "softmax", "train": {}, "measured": {"threads": 1}, "rows": []}), ": "),
        (sealed({"time": "mos", "train": STEP, "measured": MEASURED, "rows": []}), " has the ratios to mos; delete"),
        (
            sealed({"time": "softmax", "train": STEP, "measured": MEASURED, "rows": []}),
            f" has no ratio of {CORPUS}, ",
        ),
    ],
)
def test_a_file_that_does_not_fit_is_refused(suite, content, message):
    path = suite(TIMED)
    ratios_file(path).write_text(content)
    (problem,) = problems_of(path)
    assert problem.startswith(f"small.yaml:14:15: match.time: small.times.json{message}")
    assert problem.endswith(f"delete it, then `harness plan {path} --time --save` writes it")


def test_a_ratio_that_was_edited_is_refused(suite):
    path = suite(TIMED)
    ratios(path, softmax=1.0, mos=2.4)
    place = ratios_file(path)
    place.write_text(place.read_text().replace("2.4", "1.2"))
    (problem,) = problems_of(path)
    assert problem.startswith(f"small.yaml:14:15: match.time: small.times.json: {EDITED}")


def test_ratios_of_another_number_of_threads_are_refused(suite):
    path = suite(TIMED + "resources: {cpus: 2}\n")
    ratios(path, softmax=1.0, mos=2.4)
    (problem,) = problems_of(path)
    assert "match.time: small.times.json was measured with 1 thread, and resources.cpus is 2; delete it, " in problem


def test_the_table_says_where_and_when_the_steps_were_timed(suite):
    path = suite(TIMED)
    ratios(path, softmax=1.0, mos=2.4)
    text = tabulated(load(path))
    assert (
        "- Training time matched: the epochs of each head take as long as those of softmax, within each corpus and "
        "backbone. The steps were timed on a processor, 1 thread, torch 2.13.0, harness at abc, "
        "2026-01-02T03:04:05+00:00; other work used 0.0 cores.\n"
    ) in text


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
