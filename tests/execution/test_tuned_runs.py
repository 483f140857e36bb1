"""A suite with `tune`, run for real: two stages, continued anywhere, and what is stored, shown and exchanged."""

import io
import shutil
from pathlib import Path

import handmade
import pytest
from rich.console import Console

import harness
from harness.errors import RecordError
from harness.execution.live import Reporter
from harness.execution.run_suite import all_ok
from harness.records import choices, sealed, store
from harness.records.record import TrialRecord

pytestmark = pytest.mark.system

SUITE = handmade.changed(
    ("optimizer: adam, lr: 0.01", "optimizer: sgd, lr: 1.0"), ("[1, 2]", "[1]"), ("small", "tuned")
)
SUITE += "tune: {epochs: 1, seed: 9, space: {train.lr: [0.5, 1.0, 1.0e+30]}}\n"
QUIET = {"executor": "inline", "device": "cpu", "tracking": False}


class Run:
    """The suite in a folder, and what its commands print."""

    def __init__(self, folder: Path):
        self.suite, self.results = folder / "suites" / "tuned.yaml", folder / "results"
        self.suite.parent.mkdir(exist_ok=True)
        self.suite.write_text(SUITE)
        self.shown, self.warned = "", ""

    def __call__(self, **options):
        out, err = io.StringIO(), io.StringIO()
        reporter = Reporter(Console(file=out, width=200), Console(file=err, width=200, soft_wrap=True))
        try:
            return harness.run_suite(self.suite, results=self.results, reporter=reporter, **{**QUIET, **options})
        finally:
            self.shown, self.warned = out.getvalue(), err.getvalue()

    @property
    def runs(self) -> Path:
        return store.runs_folder(self.results, "tuned")

    def records(self) -> list[TrialRecord]:
        return [store.load(self.runs, path.parent.name) for path in self.runs.glob("*/record.json")]

    def study(self, results: Path | None = None):
        return harness.load_study(self.suite, results=results or self.results)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The suite after one interruption within each stage; the tests read its results."""
    made = Run(tmp_path_factory.mktemp("tuned"))
    made(only=("head=softmax,seed=9",))  # as if it was ended between the stages
    assert len(made.records()) == 3
    assert "Not in the table, because not all of their tuning trials are finished: MoS 2." in made.shown
    made(only=("head=softmax",))
    assert len(made.records()) == 4
    made()
    return made


@pytest.fixture
def copied(run, tmp_path):
    """The same results in a folder that a test may change."""
    made = Run(tmp_path)
    shutil.copytree(run.results, made.results)
    return made


@pytest.mark.needs("board")
def test_both_stages_have_records_and_only_the_second_is_in_the_table(run):
    from harness.board import leaderboard

    study = run.study()
    assert len(run.records()) == 8
    assert len(study.records) == 2
    assert [(record.spec.seed, record.tuning) for record in study.records.values()] == [(1, False)] * 2
    tuning = [trial for row in study.suite.tuned_rows for trial in row.tuning_trials]
    kept = {record.id: record for record in run.records() if record.tuning}
    assert kept.keys() == {trial.id for trial in tuning}
    assert {record.spec.seed for record in kept.values()} == {9}
    assert [kept[trial.id].status for trial in tuning if trial.train.lr == 1e30] == ["diverged"] * 2
    assert not list(run.runs.glob(f"{tuning[0].id}/test_nll.npz"))
    assert all_ok(study)
    (group,) = leaderboard.load(run.results, pytest.fail).groups  # nor are the others on the leaderboard
    assert {record.spec.seed for entry in group.entries for record in entry.row.records.values()} == {1}


def test_a_second_run_has_nothing_to_run_and_leaves_every_file(copied):
    before = {path: path.read_bytes() for path in copied.results.rglob("*") if path.is_file()}
    study = copied()
    assert "nothing to run: all 2 trials have a record" in copied.shown
    assert "failed" not in copied.shown  # a diverged point is no failure of the suite
    assert {path: path.read_bytes() for path in copied.results.rglob("*") if path.is_file()} == before
    assert all_ok(study)


@pytest.mark.needs("integrity")
def test_an_export_brings_both_stages_and_the_choice(run, tmp_path):
    from harness.exchange.copying import export_records, import_records

    export_records(run.results, tmp_path / "records.zip")
    there = tmp_path / "there"
    imported = import_records(tmp_path / "records.zip", there)
    assert imported.new == 8
    ours, theirs = (run.study(results) for results in (run.results, there))
    assert theirs.table() == ours.table()
    assert (there / "runs/tuned/tuning.json").read_bytes() == (run.runs / "tuning.json").read_bytes()
    assert import_records(tmp_path / "records.zip", there).known == 8


def other_choice(run: Run) -> str:
    """Change the stored choice of softmax to its other point, as if its tuning trials had ended in another way."""
    stored = choices.load(run.runs)
    suite = run.study().suite
    one, other, _ = suite.tuned_rows[0].candidates
    was = next(each for each in stored if one.longest.id in each.valid_ppl)
    new = other if was.trial == one.longest.id else one
    ppl = {**was.valid_ppl, new.longest.id: 1.5}
    choices.save(run.runs, [was.model_copy(update={"trial": new.longest.id, "point": new.point, "valid_ppl": ppl})])
    return f"{new.point['train.lr']:g}"


@pytest.mark.needs("integrity")
def test_another_choice_than_the_records_give_is_a_warning_and_kept_by_an_import(copied, run, tmp_path, capsys):
    from harness.exchange.copying import export_records, import_records

    lr = other_choice(copied)
    assert f"{copied.study().rows[0].tuned['train.lr']:g}" == lr
    warning = capsys.readouterr().err
    assert "softmax lstm markov: the stored choice is lr" in warning
    assert f"remove {copied.runs / 'tuning.json'} to use the other one" in warning
    export_records(run.results, tmp_path / "records.zip")
    export_records(copied.results, tmp_path / "contradiction.zip")
    before = (copied.runs / "tuning.json").read_bytes()
    (said,) = import_records(tmp_path / "records.zip", copied.results).warnings
    assert said.startswith("tuned, softmax lstm markov: tuning chose another point there; the choice that is here is")
    assert (copied.runs / "tuning.json").read_bytes() == before
    import_records(tmp_path / "records.zip", copied.results, replacing=True)
    assert choices.load(copied.runs) == choices.load(run.runs)
    with pytest.raises(RecordError, match="the choice of 'softmax lstm markov' contradicts the record of trial"):
        import_records(tmp_path / "contradiction.zip", tmp_path / "there")
    assert not (tmp_path / "there" / "runs").exists()


@pytest.mark.needs("integrity")
def test_a_perplexity_of_0_is_refused_in_a_stored_choice_and_in_an_import(copied, tmp_path, monkeypatch):
    from harness.exchange.copying import export_records, import_records

    was = next(each for each in choices.load(copied.runs) if each.row.startswith("softmax"))
    forged(copied, valid_ppl={**was.valid_ppl, was.trial: 0.0})
    with pytest.raises(RecordError, match=r"tuning\.json: no valid tuning"):
        choices.load(copied.runs)
    with monkeypatch.context() as unchecked:
        unchecked.setattr(choices, "parsed", lambda *arguments: ())
        export_records(copied.results, tmp_path / "records.zip")
    with pytest.raises(RecordError, match=r"tuning\.json: no valid tuning"):
        import_records(tmp_path / "records.zip", tmp_path / "there")
    assert not (tmp_path / "there" / "runs").exists()


def forged(run: Run, **changes) -> None:
    """Replace the stored choice of softmax by one with a valid checksum that the plan does not give."""
    softmax, mos = sorted(choices.load(run.runs), key=lambda each: each.row, reverse=True)
    made = choices.Tuning(suite="tuned", choices=(softmax.model_copy(update=changes), mos))
    sealed.save(made, run.runs / choices.FILE_NAME)


@pytest.mark.needs("integrity")
@pytest.mark.parametrize("point", [{"train.momentum": 0.5}, {"train.lr": 7.5}])
def test_a_stored_point_that_is_not_of_its_trial_does_not_count(copied, point, tmp_path, capsys):
    from harness.exchange.copying import export_records, import_records

    before = copied.study().table()
    forged(copied, point=point)
    export_records(copied.results, tmp_path / "records.zip")
    there = tmp_path / "there"
    import_records(tmp_path / "records.zip", there)
    for results in (copied.results, there):
        capsys.readouterr()
        assert copied.study(results).table() == before  # the choice that the records give
        warned = capsys.readouterr().err
        assert warned.count("\n") == 1
        assert "tuning.json, softmax lstm markov: the stored choice does not count: it is trial" in warned
    assert all_ok(copied())
    assert choices.load(copied.runs)[0].point.keys() == {"train.lr"}


def test_a_damaged_choice_does_not_count_and_a_whole_one_does_without_the_tuning_records(copied, capsys):
    place = copied.runs / "tuning.json"
    before = copied.study().table()
    place.write_text(place.read_text().replace('"row": "softmax', '"row": "sofmax'))
    assert copied.study().table() == before  # from the records
    assert "the checksum does not fit the content" in capsys.readouterr().err
    copied()
    assert choices.load(copied.runs)
    for each in copied.records():
        if each.tuning:
            (copied.runs / each.id / "record.json").unlink()
    after = copied.study().table()
    assert after == before.replace("1 diverged", "1 of unknown status")


def fail(run: Run, head: str, lr: float, status: str) -> None:
    """Save another record of a tuning trial, one that failed, and forget the choices."""
    (was,) = [each for each in run.records() if each.tuning and (each.spec.head.name, each.spec.train.lr) == (head, lr)]
    changes = {"status": status, "metrics": {}, "certificate": None, "weights_sha256": None, "message": "it failed"}
    store.save(was.model_copy(update=changes), run.runs)
    (run.runs / choices.FILE_NAME).unlink(missing_ok=True)


def test_a_tuning_trial_that_fails_in_another_way_than_by_divergence_is_a_failure_of_the_run(copied):
    worse = {0.5, 1.0} - {copied.study().rows[1].tuned["train.lr"]}
    fail(copied, "mos", *worse, "oom")
    study = copied()
    assert not all_ok(study)
    assert all_ok(study, ("head=softmax",))
    assert "softmax: 1 diverged of 3; MoS 2: " in study.table(wide=True)
    assert "1 oom" in study.table(wide=True)
    assert "failed: 1 of the tuning trials; --retry-failed runs such trials again" in copied.shown
    again = copied(retry_failed=True)
    assert all_ok(again)
    assert "softmax: 1 diverged of 3; MoS 2: 1 diverged of 3." in again.table(wide=True)


def test_tuning_trials_that_are_run_again_choose_again(copied):
    other_choice(copied)
    copied(only=("head=softmax,seed=9",), force=True)
    assert 1.5 not in [ppl for each in choices.load(copied.runs) for ppl in each.valid_ppl.values()]
    assert all_ok(copied.study())


def test_a_row_whose_points_all_fail_is_named_and_the_run_is_not_ok(tmp_path):
    run = Run(tmp_path)
    run.suite.write_text(SUITE.replace("[0.5, 1.0, 1.0e+30]", "[1.0e+30, 2.0e+30]"))
    study = run(only=("head=softmax",))
    assert study.rows == []
    assert not all_ok(study, ("head=softmax",))
    assert "Not in the table, because all of their tuning trials failed: softmax." in run.shown
    started = [line[20:] for line in run.shown.splitlines() if line.startswith("start ")]
    assert started == [f"  softmax (lr {rate}) lstm markov seed=9" for rate in ("1e+30", "2e+30")]
    assert not (run.results / "tables").exists()
    with pytest.raises(RecordError, match="no row of the suite is tuned yet"):
        study.write_table()


@pytest.mark.needs("board")
def test_a_tuning_trial_that_becomes_a_trial_of_the_table_is_trained_as_such(tmp_path):
    from harness.board import leaderboard

    run = Run(tmp_path)
    first = SUITE.replace("epochs: 1, seed: 9", "epochs: 2, seed: 9").replace(", 1.0e+30", "")
    run.suite.write_text(first)
    run(only=("head=softmax",))
    was = {each.id for each in run.records() if each.tuning}
    run.suite.write_text(first.replace("seed: 9", "seed: 5").replace("seeds: [1]", "seeds: [9]"))
    study = run(only=("head=softmax",))
    (record,) = study.records.values()
    assert record.id in was
    assert not record.tuning
    assert (run.runs / record.id / "test_nll.npz").is_file()
    assert f"the record of trial {record.id} does not count: it was made as a tuning trial" in run.warned
    (group,) = leaderboard.load(run.results, pytest.fail).groups
    (entry,) = group.entries
    assert set(entry.row.records) == {1, 9}
    run.suite.write_text(first)  # back: the record of the table also counts for tuning
    run(only=("head=softmax",))
    assert "does not count" not in run.warned
    assert "trials to run" not in run.shown
