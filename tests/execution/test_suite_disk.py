"""The disk that a plan predicts, against the files of trials that were run."""

from dataclasses import replace

import pytest

from harness import plan, run_suite
from harness.execution.planned import REST, TrialDisk, planned, suite_disk, trial_disk
from harness.training import checkpoint

pytestmark = pytest.mark.system

SUITE = """\
name: stored
corpora: [markov: {vocab_size: 2000, num_tokens: 20000, branching: 3}]
backbones: [lstm: {d_model: 64, num_layers: 1}]
heads: [softmax, {mos: {num_mixtures: 2}}]
seeds: [1]
train: {lr: 0.01, epochs: 4, optimizer: sgd, batch_size: 100}
measure: {exclusive: false}
"""


@pytest.fixture
def write(tmp_path):
    def of(text: str) -> plan.Suite:
        (path := tmp_path / "stored.yaml").write_text(text)
        return plan.load(path)

    return of


@pytest.mark.parametrize("optimizer", ["sgd", "sgd, momentum: 0.9", "adam", "adamw_huggingface"])
def test_a_trials_files_are_as_large_as_planned(write, tmp_path, monkeypatch, optimizer):
    suite = write(SUITE.replace("optimizer: sgd", f"optimizer: {optimizer}"))
    (spec, _) = suite.trials
    folder = tmp_path / "results" / "runs" / "stored" / spec.id
    sizes = []
    save = checkpoint.save

    def watched(content, place) -> None:
        save(content, place)
        sizes.append(sum(path.stat().st_size for path in folder.iterdir()))

    monkeypatch.setattr(checkpoint, "save", watched)
    options = {"executor": "inline", "tracking": False, "only": ("head=softmax",)}
    found = run_suite(suite, results=tmp_path / "results", **options)
    assert found.records[spec.id].status == "ok"
    needed = trial_disk(suite, spec)
    left = sum(path.stat().st_size for path in folder.iterdir())
    assert 0.8 * needed.finished < left <= needed.finished
    assert 0.8 * needed.running < max(sizes) <= needed.running


def test_the_suite_is_the_sum_of_what_has_no_record(write, tmp_path):
    suite = write(SUITE)
    one, two = (trial_disk(suite, spec) for spec in suite.trials)
    needed = suite_disk(planned(suite, tmp_path, (), print), tmp_path)
    assert (needed.trials, needed.finished) == (2, one.finished + two.finished)
    assert needed.running == max(one.running, two.running)
    assert needed.free > 0
    assert needed.without_losses == ()
    chosen = suite_disk(planned(suite, tmp_path, ("head=softmax",), print), tmp_path)
    assert (chosen.trials, chosen.finished) == (1, one.finished)
    tuned = write(SUITE + "tune: {epochs: 1, seed: 9, space: {train.lr: [0.1, 1]}}\n")
    # two points of each row, then one seed of each, whose trials have no id yet
    assert suite_disk(planned(tuned, tmp_path, (), print), tmp_path).trials == 2 * 2 + 2


def test_token_losses_are_counted_where_they_are_kept_and_a_corpus_of_unknown_length_is_named(write, tmp_path):
    suite = write(SUITE)
    tokens = suite.facts[str(suite.trials[0].corpus)].num_tokens["test"]
    without = write(SUITE.replace("exclusive: false", "exclusive: false, token_nll: false"))
    spec = suite.trials[0]
    assert trial_disk(suite, spec).finished - trial_disk(without, spec).finished == 4 * tokens
    assert trial_disk(suite, spec, tuning=True).finished == trial_disk(without, spec).finished
    embedded = write(SUITE.replace("markov: {vocab_size: 2000, num_tokens: 20000, branching: 3}", "embedded"))
    facts = {key: replace(each, num_tokens=None) for key, each in embedded.facts.items()}
    unknown = planned(embedded.model_copy(update={"facts": facts}), tmp_path, (), print)
    assert suite_disk(unknown, tmp_path).without_losses == ("embedded",)


def test_an_untrained_model_has_one_checkpoint_without_an_optimizer(write):
    suite = write(SUITE.replace("epochs: 4", "epochs: 0").replace("sgd", "adam"))
    spec = suite.trials[0]
    weights = 4 * suite.params[spec.id][0]
    losses = 4 * suite.facts[str(spec.corpus)].num_tokens["test"]
    assert trial_disk(suite, spec) == TrialDisk(finished=weights + losses + REST, running=2 * weights + 2 * REST)
