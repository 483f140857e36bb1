"""The command line, called as a user calls it: exit codes, what is printed, what is written."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.main import get_command

from harness import cli

ROOT = Path(__file__).parent.parent
COMMANDS = ["run", "plan", "table", "list", "check", "sync", "ui"]
SUITE = """\
name: tiny
version: 1
corpora: [{markov: {vocab_size: 12, num_tokens: 400, branching: 3}}]
backbones: [{lstm: {d_model: 8, num_layers: 1}}]
heads: [softmax, {mos: {num_mixtures: 2}}]
train: {optimizer: adam, lr: 0.01, epochs: 2, batch_size: 4, seq_len: 7}
seeds: [1, 2]
table: {baseline: softmax}
"""


def started(folder: Path, *arguments) -> subprocess.Popen:
    """The command line as a process of its own."""
    environment = {k: v for k, v in os.environ.items() if k not in ("HARNESS_DATA", "HARNESS_RESULTS")}
    return subprocess.Popen(
        [sys.executable, "-m", "harness.cli", *map(str, arguments)],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.fixture(scope="module")
def first_run(tmp_path_factory):
    """The suite run once in a process of its own: its folder, exit code and output."""
    folder = tmp_path_factory.mktemp("first")
    (folder / "suites").mkdir()
    (folder / "suites" / "tiny.yaml").write_text(SUITE)
    process = started(folder, "run", "suites/tiny.yaml", "--executor", "inline")
    out, err = process.communicate(timeout=120)
    return SimpleNamespace(folder=folder, code=process.returncode, out=out, err=err)


@pytest.fixture
def finished(first_run, tmp_path, monkeypatch):
    """A copy of the finished suite's folder, as the current one."""
    folder = shutil.copytree(first_run.folder, tmp_path / "finished")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """A folder with the suite and nothing else, as the current one."""
    (tmp_path / "fresh" / "suites").mkdir(parents=True)
    (tmp_path / "fresh" / "suites" / "tiny.yaml").write_text(SUITE)
    monkeypatch.chdir(tmp_path / "fresh")
    return tmp_path / "fresh"


@pytest.fixture
def harness(monkeypatch, capsys):
    """A function: arguments -> exit code, standard output, standard error of the entry point in this process."""

    def call(*arguments) -> SimpleNamespace:
        monkeypatch.setattr(sys, "argv", ["harness", *map(str, arguments)])
        before = signal.getsignal(signal.SIGTERM)
        code = 0
        try:
            cli.main()
        except SystemExit as left:
            code = left.code or 0
        finally:
            signal.signal(signal.SIGTERM, before)
        captured = capsys.readouterr()
        return SimpleNamespace(code=code, out=captured.out, err=captured.err)

    return call


@pytest.fixture
def run(harness):
    """`harness run suites/tiny.yaml` in this process, without MLflow."""
    return lambda *arguments: harness("run", "suites/tiny.yaml", "--executor", "inline", "--no-tracking", *arguments)


def record_files(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Trial id -> time of writing and content of its record."""
    found = (folder / "results" / "runs" / "tiny").glob("*/record.json")
    return {path.parent.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in found}


def files(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))}


def table_rows(markdown: str) -> dict[str, str]:
    """Head -> the n cell of its row."""
    rows = [line.split("|") for line in markdown.splitlines() if line.startswith("| ")][1:]
    return {row[1].strip(): row[-2].strip() for row in rows}


def planned(harness, *arguments) -> list[dict]:
    return json.loads(harness("plan", "suites/tiny.yaml", "--json", *arguments).out)["trials"]


# run


def test_a_run_prints_and_writes_the_table_and_leaves_with_0(first_run):
    assert first_run.code == 0
    markdown = (first_run.folder / "results" / "tables" / "tiny.md").read_text()
    assert markdown in first_run.out
    assert table_rows(markdown) == {"softmax": "2/2", "mos(num_mixtures=2)": "2/2"}
    assert re.search(r"^MLflow UI: (\S*/)?harness ui tiny$", first_run.out, flags=re.MULTILINE)


def test_a_run_that_goes_well_writes_nothing_to_standard_error(first_run):
    assert first_run.err == ""


def test_a_second_run_starts_nothing(finished, harness, monkeypatch):
    for module in ("ray", "harness.execution.schedule", "harness.execution.tracking"):
        monkeypatch.setitem(sys.modules, module, None)  # an import of it would raise
    before = files(finished)
    done = harness("run", "suites/tiny.yaml")
    assert (done.code, done.err) == (0, "")
    assert "nothing to run: all 4 trials have a record" in done.out
    assert files(finished) == before


def test_a_missing_table_is_written_when_there_is_nothing_to_run(finished, run):
    place = finished / "results" / "tables" / "tiny.md"
    before = place.read_text()
    place.unlink()
    assert run().code == 0
    assert place.read_text() == before


def test_a_failed_trial_is_a_row_and_exit_code_1_until_retried(fresh, run):
    options = ("--set", "train.lr=1e30", "--only", "head=softmax,seed=1")
    done = run(*options)
    assert done.code == 1
    markdown = (fresh / "results" / "tables" / "tiny.lr=1e30.md").read_text()
    assert table_rows(markdown) == {"softmax": "0/2: 1 diverged, 1 not run", "mos(num_mixtures=2)": "0/2: 2 not run"}
    assert re.search(r"- softmax lstm markov seed=1 \([0-9a-f]{12}\): diverged: Diverged: ", markdown)
    first = record_files(fresh)
    again = run(*options)
    assert again.code == 1
    assert "nothing to run" in again.out
    assert record_files(fresh) == first
    assert run(*options, "--retry-failed").code == 1
    (trial,) = first
    assert record_files(fresh)[trial][0] > first[trial][0]
    previous = fresh / "results" / "runs" / "tiny" / trial / "record.previous.json"
    assert previous.read_bytes() == first[trial][1]


def test_retry_failed_leaves_good_trials_alone(finished, run):
    before = record_files(finished)
    assert "nothing to run" in run("--retry-failed").out
    assert record_files(finished) == before


def test_force_runs_everything_again_with_the_same_result(finished, run):
    before = record_files(finished)
    done = run("--force")
    assert done.code == 0
    after = record_files(finished)
    assert after.keys() == before.keys()
    for trial, (written, content) in after.items():
        assert written > before[trial][0]
        assert json.loads(content)["weights_sha256"] == json.loads(before[trial][1])["weights_sha256"]


def test_only_runs_the_chosen_trials_and_the_table_shows_all_rows(fresh, run):
    done = run("--only", "head=softmax,seed=1", "--only", "head=mos,seed=2")
    assert done.code == 0
    assert len(record_files(fresh)) == 2
    expected = {"softmax": "1/2: 1 not run", "mos(num_mixtures=2)": "1/2: 1 not run"}
    assert table_rows((fresh / "results" / "tables" / "tiny.md").read_text()) == expected


def test_a_shortened_run_has_ids_and_a_table_of_its_own(finished, run):
    before, full = record_files(finished), (finished / "results" / "tables" / "tiny.md").read_text()
    done = run("--set", "train.epochs=1", "--only", "seed=1")
    assert done.code == 0
    assert "SHORTENED: train.epochs = 1 instead of 2" in done.out
    after = record_files(finished)
    assert before.items() <= after.items()
    assert len(after) == 4 + 2
    assert (finished / "results" / "tables" / "tiny.md").read_text() == full
    assert (finished / "results" / "tables" / "tiny.epochs=1.md").read_text() in done.out


def test_a_damaged_record_is_named_and_its_trial_runs_again(finished, run):
    before = record_files(finished)
    trial = sorted(before)[0]
    place = finished / "results" / "runs" / "tiny" / trial / "record.json"
    place.write_bytes(before[trial][1][:100])
    done = run()
    assert done.code == 0
    assert str(place) in done.err
    after = record_files(finished)
    assert {name for name in after if after[name] != before[name]} == {trial}
    assert json.loads(after[trial][1])["weights_sha256"] == json.loads(before[trial][1])["weights_sha256"]


def test_cuda_without_a_gpu_is_refused_and_no_record_is_touched(finished, run, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    before = record_files(finished)
    done = run("--device", "cuda", "--force")
    assert done.code == 2
    assert done.err == "a GPU is asked for and this torch sees none; use --device cpu or auto\n"
    assert record_files(finished) == before


def test_too_many_cpus_are_refused_and_no_record_is_touched(finished, run):
    before = record_files(finished)
    done = run("--cpus-per-trial", "10000", "--force")
    assert done.code == 2
    assert done.err.startswith("a trial claims 10000 CPUs and this machine has ")
    assert record_files(finished) == before


def test_a_file_in_the_place_of_the_results_folder_is_one_sentence(fresh, run):
    (fresh / "results").write_text("in the way")
    done = run()
    assert done.code == 2
    assert len(done.err.splitlines()) == 1
    assert str(fresh / "results") in done.err
    assert (fresh / "results").read_text() == "in the way"


@pytest.mark.parametrize("name", ["run", "plan", "table"])
def test_every_mistake_of_a_suite_is_located_and_nothing_is_run(fresh, harness, name):
    text = SUITE.replace("softmax, {mos", "sofmax, {mos").replace("epochs: 2", "epochs: -2")
    (fresh / "suites" / "tiny.yaml").write_text(text)
    before = files(fresh)
    done = harness(name, "suites/tiny.yaml")
    assert (done.code, done.out) == (2, "")
    head, train, count = done.err.splitlines()
    assert head.startswith("suites/tiny.yaml:5:9: heads.0: unknown head 'sofmax'; did you mean 'softmax'?")
    # line 6: "train: {optimizer: adam, lr: 0.01, epochs: -2": the value begins in column 44
    assert train.startswith("suites/tiny.yaml:6:44: train.epochs: ")
    assert count == "2 problems; nothing was run"
    assert files(fresh) == before


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["suites/none.yaml"], "suites/none.yaml: no such file"),
        (["suites/tiny.yaml", "--only", "haed=mos"], "did you mean 'head'"),
        (["suites/tiny.yaml", "--only", "head=none"], "no trial of the suite is like that"),
        (["suites/tiny.yaml", "--set", "train.epochs"], "expected key=value"),
        (["suites/tiny.yaml", "--set", "train.epoch=3"], "did you mean 'epochs'"),
        (["suites/tiny.yaml", "--set", "table.compare=benka2021/9"], "--set table.compare=benka2021/9: "),
    ],
)
def test_a_wrong_argument_is_one_problem_and_nothing_is_run(fresh, harness, arguments, sentence):
    before = files(fresh)
    done = harness("run", *arguments)
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err
    assert done.err.endswith("\n1 problem; nothing was run\n")
    assert files(fresh) == before


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("executor", ["inline", "ray"])
def test_a_signal_ends_a_run_with_its_code_and_no_record(fresh, executor, sent, code):
    options = ["--executor", executor, "--no-tracking", "--set", "train.epochs=100000"]
    process = started(fresh, "run", "suites/tiny.yaml", *options)
    try:
        for line in process.stdout:
            if line.startswith("epoch "):
                break
        process.send_signal(sent)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == code
    assert "Traceback" not in err
    assert record_files(fresh) == {}


# plan, table


def test_plan_json_is_json_alone_of_the_documented_form(fresh, harness):
    done = harness("plan", "suites/tiny.yaml", "--json")
    assert (done.code, done.err) == (0, "")
    plan = json.loads(done.out)
    assert list(plan) == ["suite", "version", "trials"]
    assert (plan["suite"], plan["version"], len(plan["trials"])) == ("tiny", 1, 4)
    trial = plan["trials"][3]
    assert re.fullmatch("[0-9a-f]{12}", trial.pop("id"))
    assert trial == {
        "corpus": {"name": "markov", "params": {"vocab_size": 12, "num_tokens": 400, "branching": 3}},
        "backbone": {"name": "lstm", "params": {"d_model": 8, "num_layers": 1}},
        "head": {"name": "mos", "params": {"num_mixtures": 2}},
        "seed": 2,
        # V = 12, d = 8: embedding 96, LSTM 4 * 2 * 64 + 64 = 576; mos: 8 * 16 + 16, prior 16, output 96 + 12
        "params_total": 96 + 576 + 144 + 16 + 108,
        "params_head": 144 + 16 + 108,
        "state": "missing",
    }


def test_plan_writes_nothing(fresh, harness):
    before = files(fresh)
    assert harness("plan", "suites/tiny.yaml").code == 0
    assert harness("plan", "suites/tiny.yaml", "--json").code == 0
    assert files(fresh) == before


def test_plan_shows_what_is_finished_missing_and_failed(finished, harness, run):
    assert {trial["state"] for trial in planned(harness)} == {"ok"}
    assert {trial["state"] for trial in planned(harness, "--set", "train.lr=1e30")} == {"missing"}
    run("--set", "train.lr=1e30", "--only", "head=softmax,seed=2")
    states = [trial["state"] for trial in planned(harness, "--set", "train.lr=1e30")]
    assert states == ["missing", "diverged", "missing", "missing"]


def test_plan_names_a_damaged_record_on_standard_error_only(finished, harness):
    trial = planned(harness)[1]["id"]
    (finished / "results" / "runs" / "tiny" / trial / "record.json").write_text("{")
    done = harness("plan", "suites/tiny.yaml", "--json")
    assert [entry["state"] for entry in json.loads(done.out)["trials"]] == ["ok", "missing", "ok", "ok"]
    assert done.err.count("warning: ") == 1
    assert trial in done.err


def test_plan_for_people_shows_every_trial_with_its_counts(finished, harness):
    out = harness("plan", "suites/tiny.yaml").out
    for trial in planned(harness):
        (line,) = [line for line in out.splitlines() if trial["id"] in line]
        cells = [cell.strip() for cell in re.split("[│|]", line)[1:-1]]
        assert cells[4:] == [str(trial["seed"]), str(trial["params_total"]), str(trial["params_head"]), "ok"]
    assert "4 trials, 0 to run" in out


def test_plan_only_shows_the_chosen(fresh, harness):
    chosen = planned(harness, "--only", "head=mos,seed=2")
    assert [(trial["head"]["name"], trial["seed"]) for trial in chosen] == [("mos", 2)]


def test_table_only_shows_those_rows_and_leaves_the_file_whole(finished, harness):
    place = finished / "results" / "tables" / "tiny.md"
    whole = place.read_text()
    place.unlink()
    done = harness("table", "suites/tiny.yaml", "--only", "head=mos")
    assert done.code == 0
    assert table_rows(done.out) == {"mos(num_mixtures=2)": "2/2"}
    assert place.read_text() == whole


def test_table_only_keeps_the_labels_and_numbers_of_the_whole_table(finished, harness):
    whole = (finished / "results" / "tables" / "tiny.md").read_text()
    shown = harness("table", "suites/tiny.yaml", "--only", "head=mos").out
    rows = [
        [re.sub(" +", " ", line) for line in text.splitlines() if line.startswith("| mos")] for text in (whole, shown)
    ]
    assert rows[1] == rows[0] != []


# list, check


@pytest.mark.parametrize(
    ("what", "name", "origin", "parameter"),
    [
        ("heads", "mos", "heads/mos.py", "num_mixtures: int = 10"),
        ("backbones", "lstm", "backbones/lstm.py", "d_model: int = 200"),
        ("corpora", "markov", "harness/corpora/markov.py", "vocab_size: int"),
    ],
)
def test_list_names_what_is_known_its_file_and_parameters(harness, what, name, origin, parameter):
    done = harness("list", what, "--json")
    assert (done.code, done.err) == (0, "")
    (entry,) = [entry for entry in json.loads(done.out) if entry["name"] == name]
    assert entry["from"] == origin
    assert parameter in entry["parameters"]
    text = harness("list", what).out
    for entry in json.loads(done.out):
        for shown in (entry["name"], entry["from"], *entry["parameters"]):
            assert shown in text


def test_list_suites_names_the_files_of_the_folder(fresh, harness):
    done = harness("list", "suites", "--json")
    assert json.loads(done.out) == [{"name": "tiny", "from": "suites/tiny.yaml", "parameters": []}]
    assert "suites/tiny.yaml" in harness("list", "suites").out


def test_list_of_something_else_leaves_with_2(harness):
    done = harness("list", "haeds")
    assert (done.code, done.out) == (2, "")
    assert "expected heads, backbones, corpora or suites" in done.err


def test_check_of_a_head_passes_with_a_line_for_each_check(harness):
    done = harness("check", "mos")
    assert done.code == 0
    *lines, last = done.out.splitlines()
    assert len(lines) > 1
    assert all(line.startswith("ok  ") for line in lines)
    assert last == f"head mos: {len(lines)} of {len(lines)} checks passed"


def test_check_of_an_unknown_name_leaves_with_2_and_the_nearest(harness):
    done = harness("check", "sofmax")
    assert (done.code, done.out) == (2, "")
    assert "'sofmax'; did you mean 'softmax'?" in done.err


# sync, ui


def database(results: Path) -> tuple[dict, str]:
    """Trial id -> all that its run says, and the description of the experiment."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{results}/mlflow.db")
    experiment = client.get_experiment_by_name("tiny")
    found = {}
    for run in client.search_runs([experiment.experiment_id]):
        history = {
            name: [(m.step, m.value, m.timestamp) for m in client.get_metric_history(run.info.run_id, name)]
            for name in run.data.metrics
        }
        about = (run.info.run_name, run.info.status, run.info.start_time, run.info.end_time)
        trial = run.data.tags["harness.trial_id"]
        assert trial not in found
        found[trial] = (about, run.data.params, run.data.tags, history)
    return found, experiment.tags["mlflow.note.content"]


def test_sync_rebuilds_a_deleted_database_equal(finished, harness):
    (finished / "before").mkdir()
    (finished / "results" / "mlflow.db").rename(finished / "before" / "mlflow.db")
    before = database(finished / "before")
    assert len(before[0]) == 4
    done = harness("sync")
    assert done.code == 0
    assert "4 records of 1 suites" in done.out
    assert database(finished / "results") == before
    assert harness("sync").code == 0
    assert database(finished / "results") == before


def test_sync_without_records_leaves_with_2(fresh, harness):
    done = harness("sync")
    assert done.code == 2
    assert "holds no records" in done.err
    assert not (fresh / "results").exists()


def test_ui_without_a_database_leaves_with_2(fresh, harness):
    done = harness("ui")
    assert done.code == 2
    assert done.err == "results/mlflow.db does not exist: run a suite first, or `harness sync`\n"


# help


def test_the_commands_are_the_documented_ones():
    assert sorted(get_command(cli.app).commands) == sorted(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example_of_itself(harness, name):
    done = harness(name, "--help")
    assert done.code == 0
    assert f"Example: harness {name}" in done.out


def test_the_package_installs_the_command():
    assert 'harness = "harness.cli:main"' in (ROOT / "pyproject.toml").read_text()


def test_sync_deletes_the_runs_of_trials_without_a_record(finished, harness):
    assert harness("sync").code == 0
    gone = sorted((finished / "results" / "runs" / "tiny").glob("*/record.json"))[0]
    gone.unlink()
    assert harness("sync").code == 0
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{finished / 'results' / 'mlflow.db'}")
    (experiment,) = [e.experiment_id for e in client.search_experiments() if e.name == "tiny"]
    runs = client.search_runs([experiment])
    assert len(runs) == 3
    assert gone.parent.name not in {run.data.tags["harness.trial_id"] for run in runs}


@pytest.mark.parametrize("command", ["sync", "ui"])
@pytest.mark.parametrize("content", [b"garbage", b"SQLite format 3\0" + b"x" * 5000])
def test_a_damaged_database_is_one_sentence_that_says_what_to_do(finished, harness, command, content):
    (finished / "results" / "mlflow.db").write_bytes(content)
    done = harness(command)
    assert done.code == 2
    assert done.err.endswith("mlflow.db is no SQLite database or is damaged; move it away and run `harness sync`\n")
    assert done.err.count("\n") == 1


def test_a_table_that_cannot_be_written_is_one_sentence(finished, harness):
    shutil.rmtree(finished / "results" / "tables")
    (finished / "results" / "tables").write_text("a file")
    done = harness("table", "suites/tiny.yaml")
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "tables" in done.err
