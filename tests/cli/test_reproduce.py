"""`harness reproduce`: which suites are run, the one table at the end, exit codes."""

import pytest

SUITE = """\
name: ground_truth_NAME
version: 1
COST
corpora: [{markov: {vocab_size: 12, num_tokens: 400, branching: 3}}]
backbones: [{lstm: {d_model: 8, num_layers: 1}}]
heads: [softmax]
train: {optimizer: adam, lr: 0.01, epochs: 1, batch_size: 4, seq_len: 7}
seeds: [SEED]
measure: {exclusive: false}
table: {compare: paper/NAME}
"""
# A perplexity of 12 words after an epoch is between 1 and some 14: 'wide' and 'open' hold, 'far' does not.
PUBLISHED = """\
table,corpus,backbone,head,params,metric,value,weights,counting,note,epoch,tolerance_percent,tolerance_reason,differs
wide,markov,lstm,softmax,,test_ppl,10,best,,,,90,twelve words,
open,markov,lstm,softmax,,test_ppl,10,best,,,,90,twelve words,
far,markov,lstm,softmax,,test_ppl,1000,best,,,,1,a planted error,the number is invented
"""
COSTS = {"wide": ("core_minutes: 0.1", 1), "far": ("core_minutes: 500", 2), "open": ("", 3)}  # and the seed


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A folder with three suites of one trial each, one of them short, as the current one."""
    (tmp_path / "suites").mkdir()
    (tmp_path / "results" / "published").mkdir(parents=True)
    for name, (cost, seed) in COSTS.items():
        text = SUITE.replace("NAME", name).replace("COST\n", f"{cost}\n").replace("SEED", str(seed))
        (tmp_path / "suites" / f"ground_truth_{name}.yaml").write_text(text)
    (tmp_path / "results" / "published" / "paper.csv").write_text(PUBLISHED)
    (tmp_path / "results" / "published" / "sources.csv").write_text(
        "paper,title,year,identifier,read_in\npaper,A Paper,2020,id,paper\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def reproduce(harness):
    return lambda *options: harness("reproduce", "--executor", "inline", "--no-tracking", *options)


def answers(text: str) -> dict[str, str]:
    """Target -> answer, of the last table of the kind in a text."""
    lines = [line for line in text.splitlines() if line.startswith("|") and line.rstrip(" |").endswith(tuple(COSTS))]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0].partition(":")[0]: row[6] for row in cells}


def trials(checkout) -> dict[str, int]:
    """Name of a suite -> time of writing of the record of its trial."""
    found = (checkout / "results" / "runs").glob("ground_truth_*/*/record.json")
    return {path.parent.parent.name.removeprefix("ground_truth_"): path.stat().st_mtime_ns for path in found}


@pytest.mark.system
def test_short_suites_are_run_and_the_table_has_all(checkout, reproduce):
    done = reproduce()
    assert (done.code, done.err) == (0, "")
    assert trials(checkout).keys() == {"wide"}
    assert answers(done.out) == {"wide": "yes", "far": "not run", "open": "not run"}
    assert "1 of 1 suite: suites/ground_truth_wide.yaml (0.1 minutes on one core)\n" in done.out
    left = "not run, because they take longer (--all runs them): ground_truth_far (500 minutes on one core), "
    assert f"{left}ground_truth_open\n" in done.out
    table = (checkout / "results" / "tables" / "ground_truth.md").read_text()
    assert table in done.out
    assert "table: results/tables/ground_truth.md, .csv, .tex\n" in done.out
    before = trials(checkout)
    again = reproduce()
    assert (again.code, trials(checkout)) == (0, before)
    assert "nothing to run: the trial has a record" in again.out
    assert (checkout / "results" / "tables" / "ground_truth.md").read_text() == table


@pytest.mark.system
def test_all_runs_every_suite_and_a_number_that_is_not_reproduced_gives_exit_code_1(checkout, reproduce):
    done = reproduce("--all")
    assert done.code == 1
    assert trials(checkout).keys() == {"wide", "far", "open"}
    assert answers(done.out) == {"wide": "yes", "far": "no", "open": "yes"}
    assert "(a planted error): no, -9" in done.out
    assert "1 of 1 seed; the number is invented.\n" in done.out
    assert reproduce().code == 0  # of the suites that this command runs


def test_no_run_writes_the_table_of_the_records(checkout, reproduce):
    done = reproduce("--no-run")
    assert (done.code, trials(checkout)) == (0, {})
    assert answers(done.out) == dict.fromkeys(COSTS, "not run")
    assert not (checkout / "results" / "tables").exists()  # without any record none is written
    reproduce()
    (checkout / "results" / "tables" / "ground_truth.md").unlink()
    done = reproduce("--no-run")
    assert (done.code, answers(done.out)["wide"]) == (0, "yes")
    assert answers((checkout / "results" / "tables" / "ground_truth.md").read_text()) == answers(done.out)
    assert "not run, because" not in done.out


def test_a_trial_that_fails_gives_exit_code_1(checkout, reproduce):
    path = checkout / "suites" / "ground_truth_wide.yaml"
    path.write_text(path.read_text().replace("adam, lr: 0.01", "sgd, lr: 1.0e+38"))
    done = reproduce()
    assert (done.code, answers(done.out)["wide"]) == (1, "failed")


def test_an_interrupted_run_writes_the_table(checkout, reproduce, monkeypatch):
    def interrupt(*given):
        raise KeyboardInterrupt

    reproduce()
    table = checkout / "results" / "tables" / "ground_truth.md"
    table.unlink()
    monkeypatch.setattr("harness.execution.run_suite.run_trials", interrupt)
    done = reproduce("--all")
    assert done.code == 130
    assert answers(table.read_text()) == {"wide": "yes", "far": "not run", "open": "not run"}


def test_a_shortened_run_of_a_suite_is_not_taken_for_it(checkout, harness, reproduce):
    path = "suites/ground_truth_wide.yaml"
    done = harness("run", path, "--set", "train.epochs=0.5", "--executor", "inline", "--no-tracking")
    assert done.code == 0
    assert "| not run in full" in done.out
    assert answers(reproduce("--no-run").out)["wide"] == "not run"
