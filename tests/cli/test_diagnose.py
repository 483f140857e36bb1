"""`harness diagnose`: results beside the records, computed once, in tables, plots and the page."""

import json
import signal

import pytest

from harness.code import hashes
from harness.diagnostics import catalogue
from harness.diagnostics.diagnostic import Diagnostic, Figure, Result
from harness.records import sidecars, store
from harness.training import checkpoint

pytestmark = pytest.mark.system
ASK = ("diagnose", "suites/tiny.yaml")

ALL = 4 * len(catalogue.DIAGNOSTICS)  # results of the suite's four trials


@pytest.fixture
def calls(monkeypatch):
    """The diagnostics that are computed from now on: (name, head, seed)."""
    made = []
    for name, each in catalogue.DIAGNOSTICS.items():

        def compute(subject, settings, each=each):
            made.append((each.name, subject.spec.head.name, subject.spec.seed))
            return each.compute(subject, settings)

        monkeypatch.setitem(catalogue.DIAGNOSTICS, name, Diagnostic(**{**fields(each), "compute": compute}))
    return made


def fields(each: Diagnostic) -> dict[str, object]:
    return {name: getattr(each, name) for name in Diagnostic.__slots__}


def runs(folder):
    return folder / "results" / "runs" / "tiny"


def stored(folder):
    """Trial id -> what is stored beside its record."""
    found = store.load_all(runs(folder), [each.name for each in runs(folder).iterdir()])[0]
    return {trial: sidecars.DIAGNOSES.load(runs(folder), record) or () for trial, record in found.items()}


def lines(folder, name: str) -> list[list[str]]:
    """The cells of a table's rows."""
    text = (folder / "results" / "tables" / f"tiny.diagnostics.{name}.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in (rows[0], *rows[2:])]


def test_a_suite_of_four_trials_end_to_end(finished, harness, calls):
    done = harness(*ASK)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{ALL} results computed, 0 known already\n")
    assert sorted(calls) == sorted(
        (name, head, seed) for name in catalogue.DIAGNOSTICS for head in ("softmax", "mos") for seed in (1, 2)
    )
    header, softmax, mos = lines(finished, "spectrum")
    assert header[:3] == ["head", "bound", "Press rank"]
    # 12 words and states of width 8 with a bias: rank 8 + 2, and no bound below 12 for the mixture
    assert (softmax[1:3], softmax[-1]) == (["10 ± 0", "10 ± 0"], "2/2")
    assert (mos[1], mos[2], mos[-1]) == ("-", "12 ± 0", "2/2")
    header, softmax, mos = lines(finished, "gates")
    assert (softmax[1:5], softmax[-1]) == (["-"] * 4, "2/2")
    assert mos[1] == "2 ± 0"
    plots = {place.name for place in (finished / "results" / "plots" / "tiny.diagnostics").iterdir()}
    names = ("spectrum", "spectrum_centred", "jacobian")
    assert plots == {f"{name}.{end}" for name in names for end in ("svg", "png", "pdf")}
    found = json.loads(harness(*ASK, "--diagnostic", "spectrum", "--only", "seed=1", "--json").out)
    assert [trial["head"] for trial in found["trials"]] == ["softmax", "mos(num_mixtures=2)"]
    assert len(found["trials"][0]["diagnostics"]["spectrum"]["content"]["raw"]["values"]) == 12
    harness("report", "suites/tiny.yaml")
    page = (finished / "results" / "reports" / "tiny.html").read_text()
    for text in ("What the heads can express", "Spectrum of the log-probability matrix", "Singular values of the log-"):
        assert text in page
    before = {each: each.read_bytes() for each in (finished / "results").rglob("*.*") if each.is_file()}
    calls.clear()
    again = harness(*ASK)
    assert (again.code, calls) == (0, [])
    assert f"0 results computed, {ALL} known already" in again.out
    assert {each: each.read_bytes() for each in (finished / "results").rglob("*.*") if each.is_file()} == before


def test_an_interrupted_command_goes_on_and_computes_each_result_once(finished, harness, calls, monkeypatch):
    stop, compute = 3, catalogue.DIAGNOSTICS["gates"].compute

    def interrupted(subject, settings):
        if len(calls) == stop:
            signal.raise_signal(signal.SIGINT)  # Ctrl-C
        return compute(subject, settings)

    with monkeypatch.context() as patch:
        own = fields(catalogue.DIAGNOSTICS["gates"]) | {"compute": interrupted}
        patch.setitem(catalogue.DIAGNOSTICS, "gates", Diagnostic(**own))
        stopped = harness(*ASK, "--diagnostic", "gates")
    assert (stopped.code, stopped.err) == (
        130,
        f"interrupted: {stop} new results stored; the same command goes on\n",
    )
    done = harness(*ASK, "--diagnostic", "gates")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"1 result computed, {stop} known already\n")
    assert sorted(calls) == [("gates", head, seed) for head in ("mos", "softmax") for seed in (1, 2)]


def test_other_settings_other_code_and_a_damaged_file_are_computed_again(finished, harness, calls, monkeypatch):
    def computed(*options) -> tuple[int, list]:
        calls.clear()
        harness(*ASK, "--diagnostic", "gates", "--only", "head=mos,seed=1", *options)
        (found,) = [each for each in stored(finished).values() if each]
        return len(calls), [(each.settings, each.content["contexts"]) for each in found]

    first, short = ({"contexts": 10_000}, 39), ({"contexts": 20}, 20)  # of 40 tokens
    assert computed() == (1, [first])
    assert computed("--contexts", "20") == (1, [first, short])
    assert computed() == (0, [first, short])
    (place,) = runs(finished).glob(f"*/{sidecars.DIAGNOSES.file}")
    place.write_text(place.read_text().replace("mos", "moss").replace('"contexts": ', '"contexts": 1'))
    assert computed() == (1, [first])
    monkeypatch.setattr(hashes, "of_module", lambda module: "f" * 64)
    assert computed() == (1, [first])
    assert {each.code for found in stored(finished).values() for each in found} == {"f" * 64}


def test_trials_without_weights_are_one_sentence_and_an_empty_row(finished, harness):
    for trial in runs(finished).glob("[0-9a-f]*"):
        if store.load(runs(finished), trial.name).spec.head.name == "mos":
            (trial / checkpoint.BEST).unlink()
    done = harness(*ASK, "--diagnostic", "spectrum")
    assert done.code == 0
    (warning,) = done.err.splitlines()
    assert warning.startswith("warning: 2 trials of tiny without weights: imported, or removed (")
    assert warning.endswith("`harness run suites/tiny.yaml --force` trains again")
    _, softmax, mos = lines(finished, "spectrum")
    assert softmax[-1] == "2/2"
    assert (set(mos[1:-2]), mos[-1]) == ({"-"}, "0/2")
    for place in [*runs(finished).glob(f"*/{checkpoint.BEST}"), *runs(finished).glob(f"*/{sidecars.DIAGNOSES.file}")]:
        place.unlink()
    done = harness(*ASK)
    assert done.code == 2
    assert done.err.splitlines()[-1].startswith("there is no result of tiny to show: ")


def test_a_diagnostic_without_any_result_says_why(finished, harness, calls):
    done = harness(*ASK, "--diagnostic", "word_pairs")
    assert (done.code, len(calls)) == (0, 4)
    assert done.out.splitlines()[-1].startswith("word_pairs: no trial has a result: the vocabulary of markov(")
    assert harness(*ASK, "--diagnostic", "word_pairs").out.startswith("0 results computed, 4 known already\n")
    assert len(calls) == 4


def test_a_diagnostic_that_fails_leaves_the_others(finished, harness, monkeypatch):
    each = catalogue.DIAGNOSTICS["spectrum"]

    def compute(subject, settings):
        if subject.spec.seed == 2:
            raise MemoryError("out of memory, says a test")
        return each.compute(subject, settings)

    monkeypatch.setitem(catalogue.DIAGNOSTICS, "spectrum", Diagnostic(**{**fields(each), "compute": compute}))
    done = harness(*ASK)
    assert done.code == 1
    assert done.out.startswith(f"{ALL - 2} results computed, 0 known already\n")
    assert done.err.count("MemoryError: out of memory, says a test") == 2
    _, softmax, _ = lines(finished, "spectrum")
    assert softmax[-1] == "1/2"


def test_an_export_has_the_results_and_an_import_brings_them(finished, harness, tmp_path):
    harness(*ASK)
    done = harness("export", tmp_path / "records.zip", "--results", finished / "results")
    assert "diagnostics of 4 trials" in done.out
    there = tmp_path / "there"
    harness("import", tmp_path / "records.zip", "--results", there)
    kept = sorted((there / "runs" / "tiny").glob(f"*/{sidecars.DIAGNOSES.file}"))
    assert [place.read_bytes() for place in kept] == [
        place.read_bytes() for place in sorted(runs(finished).glob(f"*/{sidecars.DIAGNOSES.file}"))
    ]
    shown = harness(*ASK, "--results", there)
    assert (shown.code, shown.err) == (0, "")
    assert f"0 results computed, {ALL} known already" in shown.out


def test_a_diagnostic_of_ones_own_is_a_value_and_a_line(finished, harness, monkeypatch):
    class Size(Result):
        parameters: int

    own = Diagnostic(
        name="size",
        title="Size",
        module="harness.diagnostics.calibrated",
        settings=(),
        result=Size,
        compute=lambda subject, settings: Size(parameters=sum(each.numel() for each in subject.model.parameters())),
        figures=(Figure(name="parameters", value=lambda each: each.parameters),),
    )
    monkeypatch.setitem(catalogue.DIAGNOSTICS, "size", own)
    assert harness(*ASK, "--diagnostic", "size").code == 0
    _, _, mos = lines(finished, "size")
    record = next(
        each
        for each in store.load_all(runs(finished), list(stored(finished)))[0].values()
        if each.spec.head.name == "mos"
    )
    assert mos[1] == f"{int(record.metrics['params_total'])} ± 0"
