"""A suite file to its trials: every mistake at once and at its place, grids, paths."""

from pathlib import Path

import pytest
from handmade import SMALL, changed
from torch import nn

from harness.plan import load
from harness.registry import HEADS

EIGHT_MISTAKES = """\
name: small
version: 1
extra: 2
corpora:
  - mrkov: {vocab_size: 12, num_tokens: 400}
backbones:
  - lstm: {d_model: 8, num_layers: 1.5, dropout: high}
heads:
  - sofmax
  - mos: {num_mixture: 2}
train:
  optimizer: adam
  lr: 0.01
  epochs: -2
  batch_size: 4
  seq_len: 7
seeds: []
"""


def test_eight_mistakes_are_reported_at_once_each_at_its_line_and_column(problems):
    assert problems(EIGHT_MISTAKES) == [
        "3:1: extra: unknown key 'extra'; did you mean 'train'?",
        "5:5: corpora.0.mrkov: unknown corpus 'mrkov'; did you mean 'markov'? "
        "(known: embedded, enwik8, hub, markov, ptb, ptb_char, spamlang, text, text8, wikitext103, wikitext2)",
        "7:36: backbones.0.lstm.num_layers: expected a valid integer, got 1.5",
        '7:50: backbones.0.lstm.dropout: expected a valid number, got "high"',
        f"9:5: heads.0: unknown head 'sofmax'; did you mean 'softmax'? (known: {', '.join(HEADS.names())})",
        "10:11: heads.1.mos.num_mixture: unknown parameter 'num_mixture' of head 'mos'; did you mean 'num_mixtures'?",
        "14:11: train.epochs: expected greater than or equal to 0, got -2",
        "17:8: seeds: must not be empty",
    ]


MISTAKES = {
    "width not divisible": (
        ("lstm: {d_model: 8, num_layers: 1, dropout: 0.1}", "transformer_encoder: {d_model: 9, num_heads: 4}"),
        "6:50: backbones.0.transformer_encoder.num_heads: num_heads must divide d_model, got 4 heads for a width of 9",
    ),
    "batch": (
        ("batch_size: 4", "batch_size: 201"),
        "10:59: train.batch_size: 201 rows need 402 training tokens, the corpus has 400",
    ),
    "duplicate seed": (("[1, 2]", "[1, 2, 1]"), "11:15: seeds.2: the seed 1 appears twice"),
    "negative seed": (("[1, 2]", "[1, -2]"), "11:12: seeds.1: expected greater than or equal to 0, got -2"),
    "nan": (("0.01", ".nan"), "10:30: train.lr: expected a finite number, got NaN"),
    "inf": (("0.01", ".inf"), "10:30: train.lr: expected a finite number, got Infinity"),
    "nan of a component": (
        ("dropout: 0.1", "dropout: .nan"),
        "6:48: backbones.0.lstm.dropout: expected a finite number, got NaN",
    ),
    "inf of a component": (
        ("dropout: 0.1", "dropout: -.inf"),
        "6:48: backbones.0.lstm.dropout: expected a finite number, got -Infinity",
    ),
    "float for int": (("version: 1", "version: 1.0"), "2:10: version: expected a valid integer, got 1.0"),
    "text for number": (("0.01", "'0.01'"), '10:30: train.lr: expected a valid number, got "0.01"'),
    "bool for int": (("version: 1", "version: true"), "2:10: version: expected a valid integer, got true"),
    "missing section": (("seeds: [1, 2]\n", ""), "1:1: the key 'seeds' is missing"),
    "missing key": (("epochs: 2, ", ""), "10:8: train: the key 'epochs' is missing, or 'tokens' in its place"),
    "missing parameter": (
        ("vocab_size: 12, ", ""),
        "4:5: corpora.0.markov: corpus 'markov' needs the parameter 'vocab_size', which has no default",
    ),
    "constructor": (
        ("num_mixtures: 2", "num_mixtures: 0"),
        "9:25: heads.1.mos.num_mixtures: num_mixtures must be at least 1, got 0 "
        "(on lstm(d_model=8, num_layers=1, dropout=0.1))",
    ),
    "corpus constructor": (
        ("vocab_size: 12", "vocab_size: 1"),
        "4:26: corpora.0.markov.vocab_size: vocab_size must be at least 2, got 1",
    ),
    "literal": (
        ("num_mixtures: 2", "activation: relu"),
        "9:23: heads.1.mos.activation: expected 'tanh' or 'none', got \"relu\"",
    ),
    "one of an axis": (
        ("num_mixtures: 2", "num_mixtures: [2, x]"),
        '9:29: heads.1.mos.num_mixtures.1: expected a valid integer, got "x"',
    ),
    "empty axis": (("num_mixtures: 2", "num_mixtures: []"), "9:25: heads.1.mos.num_mixtures: must not be empty"),
    "baseline": (
        ("baseline: softmax", "baseline: sofmax"),
        "12:19: table.baseline: 'sofmax' is not a head of this suite; did you mean 'softmax'?",
    ),
    "nested key": (
        ("lr: 0.01", "lr: 0.01, schedule: {plateau: {factor: 0.5, factr: 0.5}}"),
        "10:70: train.schedule.plateau.factr: unknown key 'factr'; did you mean 'factor'?",
    ),
    "table key": (
        ("baseline: softmax", "bseline: softmax"),
        "12:9: table.bseline: unknown key 'bseline'; did you mean 'baseline'?",
    ),
    "compare": (("baseline: softmax", "compare: 5"), "12:18: table.compare: expected a valid string, got 5"),
    "optimizer's settings": (
        ("lr: 0.01", "lr: 0.01, momentum: 0.9"),
        "10:8: train: momentum belongs to sgd, and the optimizer is adam",
    ),
    "entry is a number": (
        ("- softmax", "- 3"),
        "8:5: heads.0: expected a name, or one name with its parameters like 'mos: {num_mixtures: 5}'",
    ),
    "entry has two names": (
        ("- softmax", "- {softmax: , mos: }"),
        "8:5: heads.0: expected a name, or one name with its parameters like 'mos: {num_mixtures: 5}'",
    ),
    "section is a word": (("heads:\n  - softmax\n  - mos: {num_mixtures: 2}", "heads: mos"), None),
    "too many trials": (("[1, 2]", f"[{', '.join(map(str, range(5_001)))}]"), "1:1: expands to more than 10000 trials"),
    "too large a grid": (
        ("num_mixtures: 2", f"num_mixtures: [{', '.join(map(str, range(1, 10_002)))}]"),
        "9:5: heads.1: a grid of more than 10000 points",
    ),
    "same point twice": (
        ("num_mixtures: 2", "num_mixtures: [2, 2]"),
        "9:5: heads.1: the trial 'mos(num_mixtures=2) lstm markov seed=1' is in the suite twice",
    ),
    "same head with its default written out": (
        ("  - softmax\n", "  - softmax\n  - softmax: {bias: true}\n"),
        "9:5: heads.1: the trial 'softmax(bias=True) lstm markov seed=1' is in the suite twice",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_one_mistake_is_one_problem_at_its_place(case, problems):
    replacement, expected = MISTAKES[case]
    assert problems(changed(replacement)) == [expected or '7:8: heads: expected a list, got "mos"']


def test_every_missing_key_is_named(problems):
    missing = ["corpora", "backbones", "heads", "train", "seeds"]
    assert problems("name: small\n") == [f"1:1: the key '{key}' is missing" for key in missing]


@pytest.mark.parametrize(
    "replacement",
    [
        ("num_mixtures: 2", f"num_mixtures: 0x{'f' * 5_000}"),
        ("[1, 2]", f"[0x{'f' * 5_000}]"),
        ("name: small", 'name: "\\ud800"'),
        ("vocab_size: 12", "vocab_size: 9999999999999999999"),
        ("d_model: 8", "d_model: 9999999999999999999"),
        ("corpora:", "corpora: {}\nx:"),
    ],
)
def test_extreme_values_are_sentences_and_no_traceback(replacement, problems):
    found = problems(changed(replacement))
    assert found
    assert [len(problem.splitlines()) for problem in found] == [1] * len(found)


@pytest.mark.parametrize("annotation", ["Nowhere", nn.Module], ids=["name that does not exist", "class of no YAML"])
def test_head_with_an_annotation_nobody_understands_is_a_sentence(annotation, problems, monkeypatch):
    class Odd(nn.Module):
        def __init__(self, dims, embedding, *, size=1):
            super().__init__()

    Odd.__init__.__annotations__["size"] = annotation
    HEADS.names()  # discover before the table is changed
    monkeypatch.setitem(HEADS._classes, "odd", Odd)
    (problem,) = problems(changed(("- softmax", "- odd: {size: 2}"), ("baseline: softmax", "baseline: odd")))
    assert problem.startswith("8:")


def test_grid_is_expanded_in_the_order_of_the_file(write):
    suite = load(
        write(
            changed(
                (
                    "mos: {num_mixtures: 2}",
                    "mos: {dropout: [0.1, 0.2], num_mixtures: [3, 2]}",
                ),
                ("[1, 2]", "[9, 4]"),
            )
        )
    )
    # corpora x backbones x heads x seeds; within a head the axes in the order of the constructor, values in the file's.
    points = [(3, 0.1), (3, 0.2), (2, 0.1), (2, 0.2)]
    heads = ["softmax"] + [f"mos(num_mixtures={k}, dropout={rate})" for k, rate in points]
    assert [str(trial) for trial in suite.trials] == [
        f"{head} lstm markov seed={seed}" for head in heads for seed in (9, 4)
    ]
    assert len({trial.id for trial in suite.trials}) == 10


def test_lists_and_mappings_of_a_parameter_that_takes_them_are_a_grid(write, layered):
    grid = "layered: {components: [[15, 5], {top: 3}, {top: 2, second: 1}]}"
    suite = load(write(changed(("mos: {num_mixtures: 2}", grid), ("[1, 2]", "[1]"))))
    assert [str(trial.head) for trial in suite.trials[1:]] == [
        "layered(components=[15, 5])",
        "layered(components={top: 3})",
        "layered(components={top: 2, second: 1})",
    ]


def test_a_wrong_mapping_of_a_grid_is_reported_at_its_place(problems, layered):
    grid = "layered: {components: [{top: 3}, {tpo: 2}]}"
    assert problems(changed(("mos: {num_mixtures: 2}", grid))) == [
        "9:38: heads.1.layered.components.1: expected 'top' or 'second', got \"tpo\""
    ]


def test_corpora_come_before_backbones(write):
    suite = load(
        write(
            changed(
                ("num_tokens: 400", "num_tokens: [400, 500]"),
                ("  - lstm: {d_model: 8", "  - lstm: {d_model: [8, 6]"),
                ("  - mos: {num_mixtures: 2}\n", ""),
                ("[1, 2]", "[1]"),
            )
        )
    )
    order = [(trial.corpus.params["num_tokens"], trial.backbone.params["d_model"]) for trial in suite.trials]
    assert order == [(400, 8), (400, 6), (500, 8), (500, 6)]


def test_parameter_counts_are_those_of_the_formula(write):
    suite = load(write(SMALL))
    # V = 12, D = 8. Embedding V D = 96. LSTM: 4 gates of D (D + D) + 2 D: 4 * (128 + 16) = 576. Head: V D + V = 108.
    # MoS, K = 2: latent K D D + K D = 144, prior K D = 16, output 108: 268.
    assert [suite.params[trial.id] for trial in suite.trials] == [(780, 108)] * 2 + [(940, 268)] * 2


def test_suite_knows_its_file_name_and_counting(write):
    path = write(SMALL)
    suite = load(path)
    assert (suite.name, suite.version, suite.path, suite.overrides) == ("small", 1, path, ())
    assert suite.counting == {
        "markov(vocab_size=12, num_tokens=400, branching=3)": "symbols of a Markov chain",
    }


def test_text_path_is_relative_to_the_suite_file(write, tmp_path, monkeypatch):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "own.txt").write_text("a b c d\n" * 20)
    monkeypatch.chdir("/")
    text = changed(("markov: {vocab_size: 12, num_tokens: 400, branching: 3}", "text: {path: texts/own.txt}"))
    (trial, *_) = load(write(text)).trials
    assert Path(trial.corpus.params["path"]) == (tmp_path / "texts" / "own.txt").resolve()


def test_missing_text_is_reported_at_its_corpus(problems, tmp_path):
    text = changed(("markov: {vocab_size: 12, num_tokens: 400, branching: 3}", "text: {path: own.txt}"))
    assert problems(text) == [f"4:5: corpora.0: {(tmp_path / 'own.txt').resolve()}: no such file or folder"]


def test_loading_builds_no_tensor_of_the_models(write):
    # 10**6 words by 10**5 units would be 400 GB.
    suite = load(write(changed(("vocab_size: 12", "vocab_size: 1000000"), ("d_model: 8", "d_model: 100000"))))
    assert suite.params[suite.trials[0].id][0] > 10**11


def test_tiny_suite_of_the_other_tests_has_six_trials(tiny_suite):
    assert len(load(tiny_suite).trials) == 6


@pytest.mark.parametrize("name", ["quickstart", "ptb_mixtures"])
def test_suites_of_the_repository_load(name):
    path = Path(__file__).parents[2] / "suites" / f"{name}.yaml"
    suite = load(path)
    assert suite.name == name
    assert len(suite.trials) == {"quickstart": 8, "ptb_mixtures": 30}[name]


def test_a_range_mistake_is_found_beside_a_mistake_of_type_in_the_same_component(problems):
    text = changed(("d_model: 8, num_layers: 1", "d_model: 8.5, num_layers: -1"))
    found = [problem.partition(": ")[2] for problem in problems(text)]
    assert [problem.partition(":")[0] for problem in found] == [
        "backbones.0.lstm.d_model",
        "backbones.0.lstm.num_layers",
    ]
    assert found[1].endswith("num_layers must be at least 1, got -1")
