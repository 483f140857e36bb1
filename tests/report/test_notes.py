"""What stands under a table of how the products were made and the steps run."""

import bundles
import pytest
from handmade import tabulated

from harness.records import store
from harness.report import suite_table

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


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("precision: bf16", ", precision bf16 (products with the output matrix, in training)"),
        ("precision: tf32", ", precision tf32 (products with the output matrix, in training)"),
        ("precision: fp32", ""),
        ("cuda_graph: on", ""),
    ],
)
def test_a_precision_other_than_float32_is_told_and_settings_of_the_run_are_not(suite_of, setting, told):
    suite = suite_of(SUITE.replace("seq_len: 7", f"seq_len: 7, {setting}"))
    assert notes(suite, about="Training") == [
        f"Training: optimizer sgd, lr 0.5, epochs 2, batch_size 4, seq_len 7{told}; seeds 1; run so far: none."
    ]


def test_the_seeds_that_have_run_are_said_where_not_all_have(suite_of, record_of):
    three = SUITE.replace("[softmax]", "[softmax, {mos: {num_mixtures: [2, 3]}}]").replace("[1]", "[1, 2, 3, 4]")
    suite = suite_of(three)
    ok = [record_of(trial, test_ppl=9.0) for trial in suite.trials]

    def said(*made):
        (note,) = notes(suite, *made, about="Training")
        return note.partition("; ")[2]

    of_seed = {seed: [record for record in ok if record.spec.seed == seed] for seed in (1, 2, 3, 4)}
    assert said(*ok) == "seeds 1, 2, 3, 4."
    assert said(*of_seed[1], *of_seed[2]) == "seeds 1, 2, 3, 4; run so far: 1, 2 in all rows."
    failed = record_of(of_seed[3][0].spec, "diverged")  # it has run
    several = (*of_seed[1], *of_seed[2][:2], failed)
    assert said(*several) == "seeds 1, 2, 3, 4; run so far: 1 in all rows; 2 in 2 of 3 rows; 3 in 1 of 3 rows."


def test_rows_that_share_fewer_seeds_with_the_baseline_than_a_mean_has_are_named(suite_of, record_of):
    suite = suite_of(SUITE.replace("[softmax]", "[softmax, {mos: {num_mixtures: [2, 3]}}]").replace("[1]", "[1, 2, 3]"))
    softmax, two, three = suite.trials[:3], suite.trials[3:6], suite.trials[6:]

    def said(*trials):
        (note,) = notes(suite, *(record_of(trial, test_ppl=9.0 + trial.seed) for trial in trials), about="Comparisons")
        return note.partition("the ratio of the means.")[2]

    assert said(*softmax, *two, *three) == ""
    assert said(*softmax[:2], *two[:2], *three[:2]) == ""
    shared = " Seeds shared, where one of both rows has more: MoS 2 1; MoS 3 2."
    assert said(*softmax[:2], *two[1:], *three) == shared  # 1, 2 against 2, 3 and against 1, 2, 3
    assert said(*softmax, *two[:1], *three[:2]) == shared  # 1, 2, 3 against 1 and against 1, 2


def test_the_notes_of_a_suite_are_escaped_and_said_to_be_its_own(suite_of):
    suite = suite_of(SUITE + "table: {notes: ['A paper reports *90 %* <b>', 'not trained']}\n")
    assert notes(suite, about="The suite's file says") == [
        r"The suite's file says: A paper reports \*90 %\* &lt;b>",
        "The suite's file says: not trained",
    ]


def test_a_precision_of_the_command_line_is_in_the_title_and_the_file_name_and_a_graph_is_not(suite_of):
    suite = suite_of(SUITE, "train.precision=bf16", "train.cuda_graph=off")
    title = tabulated(suite).splitlines()[0]
    assert title == "# suite, version 3; CHANGED: train.precision = bf16"
    assert suite_table.stem(suite) == "suite.precision=bf16"


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({}, ""),  # a record from before routes were noted
        ({"matmul_route": "default"}, ", float32 products by its default route"),
        ({"matmul_route": "onednn"}, ", float32 products by oneDNN"),
        ({"device": "GPU X", "cuda_graph": True}, ", training steps as a CUDA graph"),
    ],
)
def test_the_route_of_products_and_a_graph_are_told_with_the_machine(suite_of, record_of, environment, told):
    suite = suite_of(SUITE)
    record = record_of(suite.trials[0], environment=environment)
    assert notes(suite, record, about="Measured") == [
        f"Measured on {environment.get('device', 'a processor')}, 1 thread a trial, torch 2.13.0{told}, "
        "Python 3.11.7, harness 0.1.0 at abc, executor inline. The last trial finished 2026-01-02T03:05:05+00:00."
    ]


@pytest.mark.parametrize("shared", [True, False])
def test_timing_exclusive_is_claimed_of_no_time_taken_while_sharing(suite_of, record_of, shared):
    suite = suite_of(SUITE)
    record = record_of(suite.trials[0], environment={"shared": shared}, train_ms_per_batch=2.0)
    said = "‡ taken while other work ran on the machine: compare such times within this table only."
    assert notes(suite, record, about="‡") == [said] * shared


def test_stats_small_n_tell_how_many_seeds_there_are_and_claim_no_significance(suite_of, record_of):
    suite = suite_of(
        SUITE.replace("heads: [softmax]", "heads: [softmax, mos]").replace("seeds: [1]", "seeds: [1, 2, 3]")
    )
    made = {trial.id: record_of(trial) for trial in suite.trials[:5]}
    table = tabulated(suite, made.values()).partition("\n- ")[0]
    assert [line.split("|")[-2].strip() for line in table.splitlines()[4:]] == ["3/3", "2/3: 1 not run"]
    assert "*" not in table.replace(r"\*", "")  # neither a star nor bold


def test_what_changed_between_the_sessions_of_a_trial_is_told(suite_of, record_of):
    suite = suite_of(SUITE)
    record = record_of(suite.trials[0], environment={"sessions": 2, "changed": ("commit aaa until epoch 3",)})
    (told,) = notes(suite, record, about=str(record.spec))
    assert told.endswith("was trained in 2 sessions, of which earlier ones ran with: commit aaa until epoch 3.")


def test_what_was_left_out_on_the_gpu_is_told_once(suite_of, record_of):
    suite = suite_of(SUITE.replace("seeds: [1]", "seeds: [1, 2]"))
    said = "Switched off on this machine (GPU X): the Triton kernel for training, since it is wrong; torch's own run"
    made = [record_of(trial, environment={"device": "GPU X", "switched_off": (said,)}) for trial in suite.trials]
    assert notes(suite, *made, about="Switched off") == [f"{said}."]
    assert notes(suite, record_of(suite.trials[0]), about="Switched off") == []


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


@pytest.mark.parametrize(("backbone", "told"), [("lstm", 0), ("bilstm", 1)])
def test_a_table_of_a_bidirectional_backbone_says_with_what_it_does_not_compare(suite_of, record_of, backbone, told):
    suite = suite_of(SUITE.replace("lstm:", f"{backbone}:"))
    found = notes(suite, record_of(suite.trials[0], test_ppl=9.0, test_ppl_from_the_right=8.0), about="A bidirectional")
    assert len(found) == told
    assert all("Neither perplexity compares with that of a model that is trained in one direction." in x for x in found)


@pytest.mark.guards("chosen-seeds")
@pytest.mark.parametrize(("seeds", "said"), [("[1, 2, 3]", False), ("[7, 8]", False), ("[1, 2, 4]", True)])
def test_seeds_that_leave_some_out_are_named(suite_of, seeds, said):
    suite = suite_of(SUITE.replace("seeds: [1]", f"seeds: {seeds}"))
    made = [bundles.record_of(spec) for spec in suite.trials]
    expected = [f"The seeds are {seeds[1:-1]}, not consecutive numbers: say how they were chosen."]
    assert notes(suite, *made, about="The seeds") == (expected if said else [])
