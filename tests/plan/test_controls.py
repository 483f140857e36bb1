"""The rule for the suites of this repository: what a table with mixtures needs to answer 'is it the mixing?'.

A suite with mixtures has the controls of docs/heads.md; a training has a decay with a fixed horizon; all heads start
alike. Suites that do otherwise are in tests/golden/controls.yaml with the reason, and say it in their first comment.
"""

import re
from pathlib import Path

import golden
import pytest
from stand_ins import of_the_repository, placed

from harness import plan
from harness.plan.parameters import resolved
from harness.plan.specs import TrialSpec
from harness.plan.suite import Suite
from harness.registry import HEADS

SUITES = of_the_repository()
LEFT_OUT, NO_FIXED_HORIZON = golden.read("controls").values()
TIED_AND_UNTIED = ("ground_truth_pytorch", "claims_2026", "claims_2026_ladder")
LONG = 40  # epochs from which on a plateau is the schedule of a paper, and not noise


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
        "plain": len(affine) < len(softmaxes),
        "affine": bool(affine),
        "one": any(trial.head.name == "mos" and components(trial) == 1 for trial in trials),
        "moc": any(trial.head.name == "moc" and params(trial)["num_mixtures"] in ks for trial in trials),
        "low": any(params(trial)["d_embed"] < width(trial) for trial in of_width),
        "matched": suite.match is not None or any(alike(suite, one, two) for one in of_width for two in mixtures),
    }
    return {control for control in has if not has[control]}


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


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
def test_a_suite_keeps_to_the_rule_or_is_named_and_says_so(path, tmp_path):
    suite, said = plan.load(placed(path, tmp_path)), header(path)
    trials = (*suite.tuning_trials, *suite.trials)
    assert left_out(suite) == set(LEFT_OUT.get(suite.name, ()))
    assert ("Controls left out: " in said) == (suite.name in LEFT_OUT)

    train = trials[0].train  # a decay has a fixed horizon, but for long trainings
    fixed = train.schedule is not None and train.schedule.plateau is None
    plateau_of_a_paper = train.schedule is not None and not fixed and train.epochs >= LONG
    assert (fixed or plateau_of_a_paper) == (suite.name not in NO_FIXED_HORIZON)
    if suite.name in ("ptb_low_rank", "ptb_spectrum"):  # a short plateau of ours
        assert re.search("plateau, which +never lowered the rate within two epochs", said)

    starts = {start(trial) for trial in trials if not trial.is_ngram and trial.head.name != "adaptive"}
    differ = len(starts) > 1 and suite.name not in ("gpt2_sizes", *TIED_AND_UNTIED)
    assert differ == (re.search("ha(s|ve) no output bias", said) is not None)


def test_the_suites_that_are_named_are_there():
    assert {*LEFT_OUT, *NO_FIXED_HORIZON} <= {each.values[0].stem for each in SUITES}
