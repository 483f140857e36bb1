"""A results folder whose records are written by hand: numbers that a planted suite's `records.yaml` gives its trials.

The file is a list of rules. Each has `where`, the trials that it is of, and what it changes in their records; of rules
that concern the same trial the later one counts. A number may be a list: one value for each seed of the suite, in its
order; null takes it away.

    - metrics: {test_ppl: 100.0, valid_ppl: 110.0}          every trial
    - where: {head: mos, head.num_mixtures: [2, 5]}          MoS 2 and MoS 5
      metrics: {test_ppl: [90.0, 81.0]}                      90 with the first seed, 81 with the second
      timing: {train_ms_per_batch: 5.0}                      alone on the machine
    - where: {head: mos, seed: 3}
      status: diverged
      message: "Diverged: loss is nan"
    - where: {tuning: true, train.lr: 0.5}                   a trial that tunes
      metrics: {valid_ppl: 9.0}

Further keys: `environment`, `code` and `certificate` change what handmade.py has; `curve` is the validation perplexity
of each epoch; `tokens: true` stores a loss of each test token; `contents`, `uncertified` and `further_seed` (one more
record, of a seed that the suite has not) are for what notes say; `record: false`: the trial was not run.
"""

import math
from pathlib import Path
from typing import Any

import handmade
import numpy as np
from bundles import timing_of
from ruamel.yaml import YAML

from harness.code import hashes
from harness.plan.specs import Contents, TrialSpec
from harness.plan.suite import Suite
from harness.records import choices, sidecars, store
from harness.records.record import CurvePoint, TrialRecord
from harness.records.sidecars import TokenScores

RULES = "records.yaml"
ABOUT = ("threads", "busy", "shared", "passed")  # of a timing, that are no metrics
PARTS = ("metrics", "timing", "environment", "code", "certificate")  # of which a rule changes single values


def plant(suite: Suite, rules: Path, results: Path) -> None:
    """Write the records of a suite's trials. Of a suite with `tune`, tuning trials are planted first: they choose the
    points of the others.
    """
    found = YAML(typ="safe").load(rules)
    seeds = list(dict.fromkeys(trial.seed for trial in suite.trials)) or [1]
    for trial in suite.tuning_trials:
        _keep(suite, trial, _told(trial, found, seeds, tuning=True), results)
    planned = choices.read(suite, results, _refused).suite if suite.tune else suite
    seeds = list(dict.fromkeys(trial.seed for trial in planned.trials))
    for trial in planned.trials:
        told = _told(trial, found, seeds, tuning=False)
        _keep(planned, trial, told, results)
        if (seed := told.get("further_seed")) is not None:
            other = trial.model_copy(update={"seed": seed, "id": trial.id[::-1]})
            _keep(planned, other, told, results)


def _refused(sentence: str) -> None:
    raise AssertionError(sentence)


def _told(trial: TrialSpec, rules: list[dict], seeds: list[int], *, tuning: bool) -> dict[str, Any]:
    """What the rules say of a trial."""
    told: dict[str, Any] = {part: {} for part in PARTS}
    for rule in rules:
        if not _concerns(rule.get("where", {}), trial, tuning=tuning):
            continue
        for key, value in rule.items():
            if key in ("metrics", "timing"):
                told[key].update({name: _of_seed(each, trial.seed, seeds) for name, each in value.items()})
            elif key in PARTS:
                told[key].update({name: tuple(x) if isinstance(x, list) else x for name, x in value.items()})
            elif key != "where":
                told[key] = value
    return told


def _of_seed(value: Any, seed: int, seeds: list[int]) -> Any:
    return value[seeds.index(seed) % len(value)] if isinstance(value, list) else value


def _concerns(where: dict[str, Any], trial: TrialSpec, *, tuning: bool) -> bool:
    """Whether a trial has all of these values; of a list, one of them."""
    known: dict[str, Any] = {"seed": trial.seed, "tuning": tuning}
    for kind in ("corpus", "backbone", "head"):
        component = getattr(trial, kind)
        known[kind] = component.name
        known.update({f"{kind}.{name}": value for name, value in component.params.items()})
    known.update({f"train.{name}": value for name, value in trial.train.model_dump().items()})
    where = {"tuning": False, **where} if tuning else where
    if tuning and not where["tuning"]:
        return False
    return all(known.get(key) in (value if isinstance(value, list) else [value]) for key, value in where.items())


def _keep(suite: Suite, trial: TrialSpec, told: dict[str, Any], results: Path) -> None:
    """Write a trial's record and what lies beside it."""
    if not told.get("record", True):
        return
    status = told.get("status", "ok")
    record = _record(suite, trial, told, status)
    if status == "ok":
        record = record.model_copy(update={"curve": _curve(record, told)})
    runs = store.runs_folder(results, suite.name)
    store.save(record, runs)
    if status == "ok" and told["timing"]:
        about = {name: told["timing"].pop(name) for name in ABOUT if name in told["timing"]}
        sidecars.save_timing(timing_of(record, metrics=told["timing"], **about), runs)
    if status == "ok" and told.get("tokens"):
        place = store.folder(runs, trial.id) / sidecars.TOKEN_NLL.file
        sidecars.save_token_scores(_scores(record), record.weights_sha256, place)


def _curve(record: TrialRecord, told: dict[str, Any]) -> tuple[CurvePoint, ...]:
    """The curve of a converged trial, or with the validation perplexities of the rules; each seed has other losses."""
    valid = told.get("curve", [record.metrics["valid_ppl"]] * len(record.curve))
    pairs = zip(record.curve, valid, strict=True)
    return tuple(
        point.model_copy(update={"valid_ppl": ppl, "train_loss": 5.0 + record.spec.seed}) for point, ppl in pairs
    )


def _record(suite: Suite, trial: TrialSpec, told: dict[str, Any], status: str) -> TrialRecord:
    of_row = next(row for row in suite.rows if row.key == suite.key_of(trial))
    contents = Contents(corpus=of_row.corpus.content, **told.get("contents", {}))
    changes: dict[str, Any] = {
        "suite": suite.name,
        "spec": trial,
        "status": status,
        "message": told.get("message", ""),
        "metrics": {name: value for name, value in told["metrics"].items() if value is not None and status == "ok"},
        "contents": contents,
        "environment": handmade.environment(**told["environment"]),
        "code": hashes.of_trial(trial).model_copy(update=told["code"]),
        "weights_sha256": f"{trial.seed:02x}" * 32,
        "tuning": trial in suite.tuning_trials,
    }
    if told.get("uncertified"):
        changes |= {"certificate": None, "not_certified": told["uncertified"]}
    elif status == "ok":
        changes["certificate"] = handmade.certificate(**told["certificate"])
    else:
        changes["certificate"] = None
    return handmade.record(**changes)


def _scores(record: TrialRecord) -> TokenScores:
    """Losses of twelve tokens around the mean that the test perplexity gives. The first is not scored."""
    offset_n = np.array([3, -1, -2, 1, 2, -3, 1, -1, 2, -2, 0], dtype=np.float64) * 0.01 * record.spec.seed
    nll_n = math.log(record.metrics["test_ppl"]) + offset_n
    count = np.arange(12) % 5 + 1
    return TokenScores(nll=np.array([math.nan, *nll_n], dtype=np.float32), count=count, offset=np.arange(12) - 1)
