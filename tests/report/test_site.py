"""The site: all suites, linked to each other only, made of the records alone, in a folder of its own."""

import csv
import io
import re
from pathlib import Path

import handmade
import pytest

from harness import plan
from harness.exchange import exporter
from harness.records import store
from harness.records.record import Contents
from harness.report.site import folder, site_files

OTHER = handmade.changed(("name: small", "name: other"), ("  - mos: {num_mixtures: 2}", "  - sigsoftmax"))
PPLS = {"softmax": 100.0, "mos": 90.0, "sigsoftmax": 95.0}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with two suites and their records: <place>/suites and <place>/results."""
    place = tmp_path_factory.mktemp("place")
    (place / "suites").mkdir()
    for name, text in (("small", handmade.changed()), ("other", OTHER)):
        (place / "suites" / f"{name}.yaml").write_text(text)
        suite = plan.load(place / "suites" / f"{name}.yaml")
        for trial in suite.trials:
            ppl = PPLS[trial.head.name] + trial.seed
            contents = Contents(corpus=suite.contents[str(trial.corpus)])
            made = handmade.record(
                suite=name, spec=trial, metrics={"test_ppl": ppl, "valid_ppl": ppl}, contents=contents
            )
            store.save(made, store.runs_folder(place / "results", name))
    return place


@pytest.fixture(scope="module")
def files(place):
    results = place / "results"
    return site_files.files_of(
        site_files.studies(results, place / "suites", pytest.fail), results, lambda sentence: None
    )


def text(files, name: str) -> str:
    return files[name].decode()


def rows(files, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text(files, name))))


def test_every_link_leads_to_a_file_of_the_site(files):
    pages = [name for name in files if name.endswith(".html")]
    assert set(pages) == {"index.html", "leaderboard.html", "suites/small.html", "suites/other.html"}
    for page in pages:
        links = [
            link for link in re.findall(r'href="([^"]*)"', text(files, page)) if not link.startswith(("#", "data:"))
        ]
        assert links
        found = {(Path("/") / Path(page).parent / link).resolve().relative_to("/").as_posix() for link in links}
        assert found <= files.keys()


def test_every_file_is_linked_from_a_page(files):
    linked = set()
    for page in (name for name in files if name.endswith(".html")):
        for link in re.findall(r'href="([^"#:]+)"', text(files, page)):
            linked.add((Path("/") / Path(page).parent / link).resolve().relative_to("/").as_posix())
    assert linked == files.keys()


def test_all_rows_of_all_suites_can_be_searched(files):
    index = text(files, "index.html")
    searched = index[index.index('<section class="searched">') :]
    names = re.findall(r'<td class="text name">([^<]*)<', searched)
    assert sorted(names) == ["mos(num_mixtures=2)", "sigsoftmax", "softmax", "softmax"]
    assert index.count('id="search"') == 1
    assert "<dt>Trials</dt><dd>8 ok of 8</dd>" in index


def test_the_data_has_every_trial_and_every_epoch_unrounded(place, files):
    trials = rows(files, "data/trials.csv")
    assert len(trials) == 8
    found = {(each["suite"], each["head"], each["seed"]): float(each["test_ppl"]) for each in trials}
    assert found["small", "mos(num_mixtures=2)", "2"] == 92.0
    assert found["other", "sigsoftmax", "1"] == 96.0
    curves = rows(files, "data/curves.csv")
    assert len(curves) == 8 * 2  # epochs
    assert {each["suite"] for each in curves} == {"small", "other"}
    board = rows(files, "data/leaderboard.csv")
    assert {each["head"]: each["rank"] for each in board} == {
        "mos(num_mixtures=2)": "1",
        "sigsoftmax": "2",
        "softmax": "3",
    }


def test_the_same_records_give_the_same_site(place, files):
    results = place / "results"
    again = site_files.files_of(
        site_files.studies(results, place / "suites", pytest.fail), results, lambda sentence: None
    )
    assert again == files


def test_writing_it_again_removes_what_is_no_longer_made(files, tmp_path):
    folder.write({**files, "suites/gone.html": b"gone"}, tmp_path / "site")
    folder.write(files, tmp_path / "site")
    found = {
        path.relative_to(tmp_path / "site").as_posix() for path in (tmp_path / "site").rglob("*") if path.is_file()
    }
    assert found == {*files, folder.MARK}
    assert (tmp_path / "site" / "index.html").read_bytes() == files["index.html"]


def test_a_folder_with_other_files_is_refused_and_not_touched(harness, place, tmp_path):
    (tmp_path / "mine.txt").write_text("kept")
    done = harness("site", "--out", tmp_path, "--results", place / "results", "--suites", place / "suites")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "holds files that are no site of ours" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_the_site_of_exported_records_is_that_of_the_results_they_are_from(harness, place, files, tmp_path):
    (tmp_path / "records").mkdir()
    for name in ("small", "other"):
        exporter.export_records(
            place / "results",
            tmp_path / "records" / f"{name}.zip",
            suites=(name,),
            trials=(),
            token_nll=True,
            warn=pytest.fail,
        )
    options = ("--records", tmp_path / "records", "--suites", place / "suites")
    done = harness("site", "--out", tmp_path / "site", *options)
    assert done.code == 0
    assert done.out.startswith(f"site: {tmp_path / 'site' / 'index.html'} (")
    for name in ("index.html", "data/trials.csv", "tables/small.csv"):
        assert (tmp_path / "site" / name).read_bytes() == files[name]


def test_no_records_and_a_suite_without_a_file_are_sentences(harness, place, tmp_path):
    (tmp_path / "empty").mkdir()
    done = harness("site", "--out", tmp_path / "site", "--records", tmp_path / "empty")
    assert (done.code, done.err) == (
        2,
        f"--records {tmp_path / 'empty'} has no file *.zip; `harness export` writes such files\n",
    )
    done = harness("site", "--out", tmp_path / "site", "--results", place / "results", "--suites", tmp_path / "empty")
    assert done.code == 2
    assert "small.yaml is not there: the trials of suite small are on the leaderboard only" in done.err
    assert not (tmp_path / "site").exists()
