"""The command beside a row runs that row and nothing else: as a shell reads it, as the plan understands it."""

import shlex
from pathlib import Path

import handmade
import pytest

from harness import plan
from harness.report import retraining
from harness.report.row_facts import rows

TWO_OF_ALL = """\
name: small
version: 1
corpora:
  - markov: {vocab_size: 12, num_tokens: 400, branching: 3}
  - markov: {vocab_size: 12, num_tokens: 400, branching: 2}
backbones:
  - lstm: {d_model: [8, 16], num_layers: 2}
  - transformer_encoder: {d_model: 8, num_layers: 2, num_heads: 1, d_ff: 8, dropout: 0.0}
heads:
  - softmax
  - softmax: {projection: true}
  - doc: {components: {top: 2}}
  - doc: {components: [1, 1]}
train: {optimizer: adam, lr: 0.01, epochs: 2, batch_size: 4, seq_len: 7}
seeds: [3, 4]
"""


def selected(command: str, loaded: dict) -> tuple:
    """The trials that a `harness run` picks; suites that were loaded already are kept in `loaded`."""
    program, name, path, *options = shlex.split(command)
    assert (program, name) == ("harness", "run")
    given = {"--set": [], "--only": []}
    while options and options[0] in given:
        given[options.pop(0)].append(options.pop(0))
    assert options in ([], ["--retry-failed"])
    key = Path(path), tuple(given["--set"])
    if key not in loaded:
        loaded[key] = plan.load(*key)
    return plan.select(loaded[key].trials, tuple(given["--only"]))


@pytest.mark.parametrize(
    ("text", "overrides"),
    [
        (handmade.SMALL, ()),
        (handmade.SMALL, ("train.epochs=1", "seeds=[5, 6]", "heads+=sigsoftmax", "heads+=mos")),
        (TWO_OF_ALL, ()),
        (TWO_OF_ALL, ("train.schedule={plateau: {factor: 0.5}}",)),
        (handmade.matched_suite(), ()),
    ],
    ids=["small", "changed", "two of all", "a mapping", "matched"],
)
def test_the_command_of_a_row_selects_its_trials_and_no_others(text, overrides, suite_of, tmp_path, monkeypatch):
    suite = suite_of(text, *overrides)
    monkeypatch.chdir(suite.path.parent.parent)
    lines, loaded = rows(suite, {}), {}
    for line, command in zip(lines, retraining.of_rows(suite, lines), strict=True):
        assert tuple(trial.id for trial in selected(command, loaded)) == line.ids
        assert "id=" not in command
        assert str(tmp_path) not in command  # the suite is read from an absolute path


def test_a_value_that_no_condition_can_say_is_told_by_ids(suite_of, monkeypatch):
    suite = suite_of(TWO_OF_ALL)
    monkeypatch.chdir(suite.path.parent.parent)
    monkeypatch.setattr(retraining, "value_text", lambda value: f"{value},")  # as of a text with a comma
    lines, loaded = rows(suite, {}), {}
    for line, command in zip(lines, retraining.of_rows(suite, lines), strict=True):
        assert tuple(trial.id for trial in selected(command, loaded)) == line.ids
        assert f"--only id={line.spec.id} --only id={line.trials[1].id}" in command


def test_a_command_has_the_heads_that_its_trials_need_and_is_quoted(suite_of):
    suite = suite_of(handmade.SMALL, "train.lr=2 # $(reboot); `reboot`", "heads+=sigsoftmax", "heads+=mos")
    added = [each for each in shlex.split(retraining.of_rows(suite, rows(suite, {}))[2]) if each.startswith("heads+=")]
    assert added == ["heads+=sigsoftmax"]
    assert "train.lr=2 # $(reboot); `reboot`" in shlex.split(retraining.of_rows(suite, rows(suite, {}))[0])
