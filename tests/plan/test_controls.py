"""The rule for the suites of this repository: what a table with mixtures needs to answer 'is it the mixing?'.

A suite with mixtures has the controls of docs/heads.md; a training has a decay with a fixed horizon; all heads start
alike. Suites that do otherwise are named here with the reason, and say it in the comment at their top.
"""

import re
from pathlib import Path

import pytest
from stand_ins import of_the_repository, placed

from harness import plan
from harness.plan.parameters import resolved
from harness.plan.specs import TrialSpec
from harness.plan.suite import Suite
from harness.registry import HEADS

SUITES = of_the_repository()
PLAIN, AFFINE, ONE, MOC, LOW, MATCHED = CONTROLS = (
    "plain softmax",
    "softmax with an affine map",
    "mos with K = 1",
    "moc at the K of a mos",
    "low-rank softmax",
    "softmax with as many parameters as a mixture",
)
OF_THE_POSTER = {ONE, MOC, LOW, MATCHED}  # its row Softmax is the baseline, and K = 1 of its mixtures, without tanh
LEFT_OUT = {  # name of a suite -> the controls that it leaves out; the reason
    # the top layer of its AWD-LSTM is wider than the embedding, so that a softmax has a map
    **{name: {PLAIN, LOW, MATCHED} for name in ("awd_ptb_mixtures", "awd_wt2_mixtures", "mos_ptb", "mos_wt2")},
    **{name: {PLAIN, LOW, MATCHED} for name in ("doc_ptb", "doc_wt2", "sigsoftmax_ptb")},
    "awd_ptb_quick": {AFFINE, ONE, MOC, LOW, MATCHED},  # one seed, five epochs: a description
    "bilm_heads": {LOW, MATCHED},  # moc has as many parameters; the text is that of embedded_mixtures
    "bilm_ptb": {AFFINE, ONE, MOC, LOW, MATCHED},  # one seed: a description
    **{f"board_{kind}": {ONE, LOW} for kind in ("words", "subwords", "characters")},  # equal FLOPs
    "char_controls": {LOW, MATCHED},  # V < d: no bottleneck; moc has as many parameters
    "gpt2_heads": {PLAIN, *OF_THE_POSTER},  # rows of the poster; the others cannot start as the public model
    "gpt2_medium_heads": {PLAIN, *OF_THE_POSTER},  # the same
    "gpt2_sizes": OF_THE_POSTER,  # sizes only, nothing is trained
    "gpt2_tiny_heads": {PLAIN, *OF_THE_POSTER},  # do the rows of the poster train? One seed
    "ground_truth_transformer_mos": {AFFINE, ONE, MOC, LOW, MATCHED},  # each row against its printed numbers
    "ladder_mixtures": {ONE, LOW, MATCHED},  # at each size; moc has as many parameters
    "ladder_poster": {PLAIN, *OF_THE_POSTER},  # rows of the poster; nothing is trained
    "ladder_quick": {AFFINE, ONE, MOC, LOW, MATCHED},  # a demonstration of a quarter of an hour
    "ptb_matched": {LOW},  # at an equal total its backbone would be wider
    "ptb_mixtures_300_bf16": {PLAIN, AFFINE, ONE, MOC, LOW, MATCHED},  # in ptb_mixtures_300
    "ptb_spectrum": {AFFINE, ONE, MOC, LOW, MATCHED},  # for `harness diagnose`; one seed
    "quickstart": {ONE, MOC, LOW, MATCHED},  # a first run in two minutes
    "claims_2026": {ONE, MATCHED},  # decoders of today have no mixtures
    "claims_2026_ladder": {ONE, MOC, LOW},  # the same; ladder_mixtures and claims_2026 have them
    "claims_2026_time": {AFFINE, ONE, LOW},  # the same; a softmax of low rank costs no more time
    "smollm2_heads": {PLAIN, *OF_THE_POSTER},  # rows of the poster, whose moc has the K of its mixtures
    "spamlang": {MATCHED},  # moc has as many parameters; all rows reach the lowest perplexity
    "spamlang_large": {PLAIN, ONE, MOC, MATCHED},  # one seed; spamlang has them
    # the paper's reductions are against the plain softmax; the others are in ptb_mixtures, wt2_mixtures and their _300
    "transformer_mos": {LOW, MATCHED},
    "transformer_mos_300": {LOW, MATCHED},
}
TIED_AND_UNTIED = ("ground_truth_pytorch", "claims_2026", "claims_2026_ladder")
LONG = 40  # epochs from which on a plateau is the schedule of a paper, and not noise
AVERAGED = "the constant rate of the code that it reproduces, whose weights are averaged"
NO_FIXED_HORIZON = {  # name of a suite -> why its rate has no decay with a fixed horizon
    **dict.fromkeys(("awd_ptb_heads", "awd_wt2_heads", "awd_ptb_mixtures", "awd_wt2_mixtures"), AVERAGED),
    **dict.fromkeys(("mos_ptb", "mos_wt2", "doc_ptb", "doc_wt2", "sigsoftmax_ptb", "awd_ptb_quick"), AVERAGED),
    "gpt2_heads": "the constant rate of the authors' code",
    "gpt2_medium_heads": "the constant rate of the authors' code",
    "gpt2_sizes": "sizes only",
    "gpt2_zero_shot": "no training",
    "ground_truth_kim": "the plateau of the paper that it reproduces",
    "ground_truth_ngrams": "no training",
    "ground_truth_pytorch": "the plateau of the code that it reproduces",
    "ground_truth_transformer_mos": "the first epochs of the code that it reproduces, which has a plateau",
    "ladder_poster": "as gpt2_heads",
    "ptb_low_rank": "committed records; its header says that the rate was constant",
    "ptb_spectrum": "committed records; its header says that the rate was constant",
}


def params(trial: TrialSpec) -> dict:
    """The parameters of the trial's head, defaults included."""
    return resolved(HEADS.get(trial.head.name), trial.head.params)


def components(trial: TrialSpec) -> int:
    """How many distributions the head mixes; 1 for a head that mixes none."""
    values = params(trial)
    if trial.head.name == "doc":
        of_layers = values["components"]
        return sum(of_layers.values() if isinstance(of_layers, dict) else of_layers)
    return values["num_mixtures"] if trial.head.name in ("mos", "mfs", "doc_poster") else 1


def left_out(suite: Suite) -> set[str]:
    """The controls that a suite with mixtures does not have; none of a suite without mixtures."""
    trials = [trial for trial in (*suite.tuning_trials, *suite.trials) if not trial.is_ngram]
    mixtures = [trial for trial in trials if components(trial) > 1]
    if not mixtures:
        return set()
    softmaxes = [trial for trial in trials if trial.head.name == "softmax"]
    affine = [trial for trial in softmaxes if params(trial)["projection"]]
    of_width = [trial for trial in affine if params(trial)["d_embed"]]
    ks = {components(trial) for trial in mixtures if trial.head.name == "mos"}
    has = {
        PLAIN: len(affine) < len(softmaxes),
        AFFINE: bool(affine),
        ONE: any(trial.head.name == "mos" and components(trial) == 1 for trial in trials),
        MOC: any(trial.head.name == "moc" and params(trial)["num_mixtures"] in ks for trial in trials),
        LOW: any(params(trial)["d_embed"] < width(trial) for trial in of_width),
        MATCHED: suite.match is not None or any(alike(suite, one, two) for one in of_width for two in mixtures),
    }
    return {control for control in CONTROLS if not has[control]}


def width(trial: TrialSpec) -> int:
    """The width of the backbone."""
    of = trial.backbone.params
    names = (name for name in ("d_model", "d_last", "d_embed") if name in of)
    return of["config"]["hidden_size"] if "config" in of else of[next(names)]


def alike(suite: Suite, one: TrialSpec, two: TrialSpec) -> bool:
    """The same corpus and backbone, and totals of parameters within 0.5 %."""
    first, second = suite.candidate_of(one).params[0], suite.candidate_of(two).params[0]
    return (one.corpus, one.backbone) == (two.corpus, two.backbone) and abs(first / second - 1) <= 0.005


def start(trial: TrialSpec) -> tuple:
    """From what the output matrix is drawn, and whether there is an output bias."""
    values = params(trial)
    copied = trial.head.name in ("mfs", "doc_poster") or values.get("start") in ("embedding", "pretrained")
    tied = values.get("tie_weights", False)
    return tied, values.get("init_range") or ("embedding" if copied else "xavier"), values["bias"]


def header(path: Path) -> str:
    """The comment at the top of a suite, as one line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return " ".join(line.removeprefix("# ") for line in lines[: lines.index(f"name: {path.stem}")])


@pytest.fixture(scope="module", params=SUITES, ids=lambda path: path.stem)
def path(request):
    return request.param


@pytest.fixture(scope="module")
def suite(path, tmp_path_factory):
    return plan.load(placed(path, tmp_path_factory.mktemp("project")))


def test_a_suite_with_mixtures_has_the_controls_or_is_named_here_and_says_so(suite, path):
    assert left_out(suite) == LEFT_OUT.get(suite.name, set())
    assert ("Controls left out: " in header(path)) == (suite.name in LEFT_OUT)


def test_a_decay_has_a_fixed_horizon_but_for_long_trainings_and_the_suites_named_here(suite, path):
    train = (*suite.tuning_trials, *suite.trials)[0].train
    fixed = train.schedule is not None and train.schedule.plateau is None
    plateau_of_a_paper = train.schedule is not None and not fixed and train.epochs >= LONG
    assert (fixed or plateau_of_a_paper) == (suite.name not in NO_FIXED_HORIZON)
    if suite.name in ("ptb_low_rank", "ptb_spectrum"):  # a short plateau of ours
        assert re.search("plateau, which +never lowered the rate within two epochs", header(path))


def test_all_heads_start_alike_or_the_suite_says_which_do_not(suite, path):
    trials = [trial for trial in (*suite.tuning_trials, *suite.trials) if not trial.is_ngram]
    starts = {start(trial) for trial in trials if trial.head.name != "adaptive"}
    differ = len(starts) > 1 and suite.name not in ("gpt2_sizes", *TIED_AND_UNTIED)
    assert differ == (re.search("ha(s|ve) no output bias", header(path)) is not None)


def test_the_suites_named_here_are_there():
    assert {*LEFT_OUT, *NO_FIXED_HORIZON} <= {each.values[0].stem for each in SUITES}
