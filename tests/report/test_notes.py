"""What stands under a table of how the products were made and the steps run."""

import bundles
import pytest
from handmade import tabulated

from harness.records import store

SUITE = """\
name: suite
version: 3
corpora: [{markov: {vocab_size: 12, num_tokens: 400, branching: 3}}]
backbones: [{lstm: {d_model: 8, num_layers: 1}}]
heads: [softmax]
train: {optimizer: sgd, lr: 0.5, epochs: 2, batch_size: 4, seq_len: 7}
seeds: [1]
"""


def notes(suite, *made, about: str) -> list[str]:
    markdown = tabulated(suite, made)
    return [line.removeprefix("- ") for line in markdown.splitlines() if line.startswith(f"- {about}")]


@pytest.mark.guards("unscored-named")
def test_trials_without_token_scores_are_named(tmp_path, harness):
    trials = bundles.planned(tmp_path)
    for number, spec in enumerate(trials):
        bundles.keep(tmp_path / "results", bundles.record_of(spec), timed=False, scored=number != 1)
    done = harness("table", tmp_path / "suite.yaml", "--wide", "--results", tmp_path / "results")
    why = "test_nll.npz is missing or does not fit the record."
    assert f"- No token scores: 1 of 4 ok trials ({trials[1].id}): {why}\n" in done.out
    assert harness("report", tmp_path / "suite.yaml", "--results", tmp_path / "results").code == 0
    page = (tmp_path / "results" / "reports" / "small.html").read_text(encoding="utf-8")
    assert (
        '<th scope="row">token scores</th><td class="number">kept</td><td class="number">no token scores</td>' in page
    )
    assert page.count('<th scope="row">token scores</th>') == 1
    off = ("--set", "measure.token_nll=false")
    assert (
        "oken scores"
        not in harness("table", tmp_path / "suite.yaml", "--wide", "--results", tmp_path / "results", *off).out
    )


def test_a_record_that_its_token_scores_contradict_counts_as_one_without(tmp_path, harness):
    trials = bundles.planned(tmp_path)
    for spec in trials:
        bundles.keep(tmp_path / "results", bundles.record_of(spec), timed=False)
    runs = tmp_path / "results" / "runs" / "small"
    record = store.load(runs, trials[1].id)
    store.save(record.model_copy(update={"metrics": {**record.metrics, "test_ppl": 1.5}}), runs)
    done = harness("table", tmp_path / "suite.yaml", "--wide", "--results", tmp_path / "results")
    assert "the scores do not add up to the record's test perplexity" in done.err
    assert f"- No token scores: 1 of 4 ok trials ({trials[1].id})" in done.out


@pytest.mark.guards("chosen-seeds")
@pytest.mark.parametrize(("seeds", "said"), [("[1, 2, 3]", False), ("[7, 8]", False), ("[1, 2, 4]", True)])
def test_seeds_that_leave_some_out_are_named(suite_of, seeds, said):
    suite = suite_of(SUITE.replace("seeds: [1]", f"seeds: {seeds}"))
    made = [bundles.record_of(spec) for spec in suite.trials]
    expected = [f"The seeds are {seeds[1:-1]}, not consecutive numbers: say how they were chosen."]
    assert notes(suite, *made, about="The seeds") == (expected if said else [])
