"""The site: all suites, linked to each other only, made of the records alone, in a folder of its own."""

import csv
import io
import json
import math
import re
from pathlib import Path

import handmade
import pytest

from harness import plan
from harness.board import site as site_module
from harness.errors import ExecutionError
from harness.records import store

pytestmark = pytest.mark.system

OTHER = handmade.changed(("name: small", "name: other"), ("  - mos: {num_mixtures: 2}", "  - sigsoftmax"))
PPLS = {"softmax": 100.0, "mos": 90.0, "sigsoftmax": 95.0}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with two suites and their records: <place>/suites and <place>/results."""
    return planted(tmp_path_factory.mktemp("place"), small=handmade.changed(), other=OTHER)


def planted(place: Path, **texts: str) -> Path:
    (place / "suites").mkdir()
    for name, text in texts.items():
        (place / "suites" / f"{name}.yaml").write_text(text)
        finish(place, name)
    return place


def finish(place: Path, name: str, *, known: bool = True) -> None:
    """Save a record of each trial of <place>/suites/<name>.yaml; `known`: which says what text it read."""
    suite = plan.load(place / "suites" / f"{name}.yaml")
    for trial in suite.trials:
        ppl = PPLS[trial.head.name] + trial.seed
        contents = suite.contents_of(trial) if known else None
        told = {"contents": contents, "weights_sha256": f"{trial.seed:02x}" * 32}
        made = handmade.record(suite=name, spec=trial, metrics={"test_ppl": ppl, "valid_ppl": ppl}, **told)
        store.save(made, store.runs_folder(place / "results", name))


def made_of(place: Path, warn=lambda sentence: None) -> dict[str, bytes]:
    results, suites = place / "results", place / "suites"
    return site_module.files_of(site_module.studies(results, suites, pytest.fail), results, suites, warn)


@pytest.fixture(scope="module")
def files(place):
    return made_of(place)


def text_of(files, name: str) -> str:
    return files[name].decode()


def rows(files, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text_of(files, name))))


def test_every_link_leads_to_a_file_of_the_site_and_every_file_is_linked(files):
    pages, linked = [name for name in files if name.endswith(".html")], set()
    heads = {f"heads/{name}.html" for name in ("mos", "sigsoftmax", "softmax")}
    assert set(pages) == {"index.html", "leaderboard.html", "suites/small.html", "suites/other.html", *heads}
    for page in pages:
        links = re.findall(r'href="([^"]*)"', text_of(files, page))
        links = [link.partition("#")[0] for link in links if not link.startswith(("#", "data:"))]
        assert links
        linked |= {(Path("/") / Path(page).parent / link).resolve().relative_to("/").as_posix() for link in links}
    assert linked == files.keys()


def test_all_rows_of_all_suites_can_be_searched(files):
    index = text_of(files, "index.html")
    searched = index[index.index('<section class="searched">') :].replace("<wbr>", "")
    names = re.findall(r'<td class="text name"[^>]*><a href="heads/[a-z]+.html">([^<]*)<', searched)
    assert sorted(names) == ["MoS 2", "sigsoftmax", "softmax", "softmax"]
    assert index.count('id="search"') == 1
    columns = re.findall(r'<th scope="col"[^>]*><button[^>]*>([^<]*)<', searched)
    assert "test ppl" in columns
    assert "reproduced" not in columns  # no suite has a printed number
    assert "<dt>Trials</dt><dd>8 ok of 8</dd>" in index


def test_a_head_has_a_page_with_what_it_is_and_its_rows_in_all_suites(files):
    page = text_of(files, "heads/softmax.html").replace("<wbr>", "")
    assert "log p = log_softmax(phi(W f + b))" in page
    rows_of = r'<td class="text name"[^>]*><a href="../heads/softmax.html">([^<]*)<'
    assert re.findall(rows_of, page) == ["softmax", "softmax"]
    page = text_of(files, "heads/mos.html")
    assert "Mixture of Softmaxes (MoS): a prior-weighted sum" in page
    assert "Shapes: top layer h" in page
    assert not re.search("^(Cost|Family):", page, re.MULTILINE)  # what a docstring says for tables
    for text in (page, text_of(files, "index.html")):
        assert re.search(r'<td class="text name" title="Mixture of Softmaxes \(MoS\)"><a [^>]*>MoS 2<', text)


def test_the_first_page_says_what_is_known_of_each_corpus_in_one_sentence(files, tmp_path):
    known = r"<h2>What is known</h2>\s*<ul[^>]*>\s*<li>(.*)</li>\s*</ul>\s*</section>"
    assert re.search(known, text_of(files, "index.html"))[1] == "On markov: nothing is decided yet with lstm."
    seeds = ("seeds: [1, 2]", "seeds: [1, 2, 3, 4, 5, 6]")
    longer = handmade.changed(("name: small", "name: longer"), seeds, ("lstm:", "bilstm:"))
    planted(tmp_path, other=OTHER, small=handmade.changed(), longer=longer)
    studies = site_module.studies(tmp_path / "results", tmp_path / "suites", pytest.fail)
    page = site_module.index_page(studies, {})
    # log(90 + s) - log(100 + s) for s = 1 to 6 is on average -0.1018: 100 * (1 - exp(-0.1018)) = 9.7
    said = re.search(known, page)[1]
    assert said.startswith("On markov: with bilstm MoS 2 beats softmax by 9.7 % [9.")
    assert said.endswith("; nothing is decided yet with lstm.")
    # the suite that decides something is first
    assert re.findall(r'<td class="text name"><a href="suites/([a-z]+).html">', page) == ["longer", "other", "small"]


def test_results_are_there_for_programs(files):
    found = json.loads(files["data/results.json"])
    assert found["format"] == 3
    (small,) = [each for each in found["suites"] if each["name"] == "small"]
    row = next(row for row in small["rows"] if row["head"]["label"] == "MoS 2")
    assert (row["head"]["name"], row["head"]["params"]) == ("mos", {"num_mixtures": 2})
    assert (row["seeds"], row["state"]) == ([1, 2], "2/2")
    assert row["test_ppl"] == pytest.approx((91 + 92) / 2)
    assert row["sd"] == pytest.approx(math.sqrt(0.5))
    assert [len(group["rows"]) for group in found["leaderboard"]["groups"]] == [3]


def test_the_data_has_every_trial_and_every_epoch_unrounded(place, files):
    trials = rows(files, "data/trials.csv")
    assert len(trials) == 8
    found = {(each["suite"], each["head"], each["seed"]): float(each["test_ppl"]) for each in trials}
    assert found["small", "MoS 2", "2"] == 92.0
    assert found["other", "sigsoftmax", "1"] == 96.0
    curves = rows(files, "data/curves.csv")
    assert len(curves) == 8 * 2  # epochs
    assert {each["suite"] for each in curves} == {"small", "other"}
    board = rows(files, "data/leaderboard.csv")
    assert {each["head"]: each["rank"] for each in board} == {
        "MoS 2": "",  # two seeds give no rank
        "sigsoftmax": "",
        "softmax": "",
    }


def test_the_same_records_give_the_same_site_and_each_is_read_once(place, files, times_read):
    assert made_of(place) == files
    assert set(times_read.values()) == {1}


def test_writing_it_again_removes_what_is_no_longer_made_and_nothing_else(files, tmp_path):
    site = tmp_path / "site"
    site_module.write({**files, "suites/gone.html": b"gone"}, site)
    kept = {".git/HEAD": "ref: refs/heads/pages", ".nojekyll": "", "CNAME": "heads.example", "suites/mine.html": "mine"}
    for name, content in kept.items():
        (site / name).parent.mkdir(exist_ok=True)
        (site / name).write_text(content)
    site_module.write(files, site)
    found = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    assert found == {*files, *kept, site_module.MARK}
    assert {name: (site / name).read_text() for name in kept} == kept
    assert (site / "index.html").read_bytes() == files["index.html"]


def test_a_list_from_elsewhere_removes_nothing_outside_the_folder(files, tmp_path):
    (tmp_path / "mine.txt").write_text("kept")
    site_module.write(files, tmp_path / "site")
    with (tmp_path / "site" / site_module.MARK).open("a") as mark:
        mark.write(f"../mine.txt\n{tmp_path / 'mine.txt'}\nsuites\n\n.git/config\nREADME.md\nsuites/../README.md\n")
    (tmp_path / "site" / ".git").mkdir()
    for name in (".git/config", "README.md"):
        (tmp_path / "site" / name).write_text("kept")
    site_module.write(files, tmp_path / "site")
    assert (tmp_path / "mine.txt").read_text() == "kept"
    assert all((tmp_path / "site" / name).read_text() == "kept" for name in (".git/config", "README.md"))
    assert (tmp_path / "site" / "suites" / "small.html").is_file()


@pytest.mark.parametrize("name", ["data", "plots", "plots/small", "index.html", "tables/gone.csv", ".harness-site"])
def test_nothing_is_written_or_removed_through_a_link(name, files, tmp_path):
    site, outside = tmp_path / "site", tmp_path / "outside"
    outside.mkdir()
    for each in ("trials.csv", "gone.csv"):
        (outside / each).write_text("kept")
    site.mkdir()
    (site / ".harness-site").write_text("a site\ntables/gone.csv\n")
    (site / name).unlink(missing_ok=True)
    (site / name).parent.mkdir(exist_ok=True)
    (site / name).symlink_to(outside / "trials.csv" if "." in name else outside)
    with pytest.raises(ExecutionError, match=r"is a link, .*; remove the link, or name another folder"):
        site_module.write(files, site)
    assert {each.name: each.read_text() for each in outside.iterdir()} == {"trials.csv": "kept", "gone.csv": "kept"}


def test_a_list_without_end_is_not_read(files, tmp_path):
    (tmp_path / ".harness-site").write_bytes(bytes(5 * 2**20))
    with pytest.raises(ExecutionError, match=r"\.harness-site cannot be read .*; name an empty or a new folder by"):
        site_module.write(files, tmp_path)


def test_a_suite_file_that_is_not_valid_is_left_out_with_its_problem(tmp_path, files):
    planted(tmp_path, small=handmade.changed(), other=OTHER)
    path, results, said = tmp_path / "suites" / "other.yaml", tmp_path / "results", []
    path.write_text(OTHER.replace("epochs: 2", "epochs: two"))
    found = site_module.studies(results, tmp_path / "suites", said.append)
    assert [each.suite.name for each in found] == ["small"]
    (sentence,) = said
    assert sentence.startswith(f"{path} is not valid: the trials of suite other are on the leaderboard only ({path}:")
    made = site_module.files_of(found, results, path.parent, pytest.fail)
    assert made.keys() == {name for name in files if "other" not in name and name != "heads/sigsoftmax.html"}
    assert "sigsoftmax" in text_of(made, "leaderboard.html")


def test_without_a_trial_for_the_leaderboard_the_site_has_none(tmp_path):
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "small.yaml").write_text(handmade.changed())
    finish(tmp_path, "small", known=False)
    said = []
    made = made_of(tmp_path, said.append)
    *records, last = said
    assert len(records) == len([each for each in records if "does not say what it read" in each]) == 4
    assert last.startswith("the site has no leaderboard: ")
    assert {"index.html", "suites/small.html", "data/trials.csv"} <= made.keys()
    assert not [name for name in made if "leaderboard" in name]
    assert "leaderboard" not in text_of(made, "index.html") + text_of(made, "suites/small.html")


def test_a_folder_with_other_files_is_refused_and_not_touched(harness, place, tmp_path):
    (tmp_path / "mine.txt").write_text("kept")
    done = harness("site", "--out", tmp_path, "--results", place / "results", "--suites", place / "suites")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "holds files that are no site of ours" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.needs("integrity")
def test_the_site_of_exported_records_is_that_of_the_results_they_are_from(harness, place, files, tmp_path):
    from harness.exchange import copying

    (tmp_path / "records").mkdir()
    for name in ("small", "other"):
        copying.export_records(
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


@pytest.mark.needs("integrity")
def test_what_an_import_says_is_said_of_the_records_of_a_site(harness, tmp_path):
    from harness.exchange import copying

    (tmp_path / "suites").mkdir()
    (tmp_path / "records").mkdir()
    (tmp_path / "suites" / "small.yaml").write_text(handmade.changed())
    suite = plan.load(tmp_path / "suites" / "small.yaml")
    contents = suite.contents_of(suite.trials[0])
    record = handmade.record(spec=suite.trials[0], contents=contents, code=handmade.code())
    store.save(record, store.runs_folder(tmp_path / "results", "small"))
    archive = tmp_path / "records" / "small.zip"
    options = {"suites": (), "trials": (), "token_nll": True, "warn": pytest.fail}
    copying.export_records(tmp_path / "results", archive, **options)
    done = harness(
        "site", "--out", tmp_path / "site", "--records", tmp_path / "records", "--suites", tmp_path / "suites"
    )
    assert done.code == 0
    said = f"{archive}: 1 record made by other code than is here"
    assert said in " ".join(done.err.split())


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


def test_a_smaller_plot_keeps_its_text_and_what_is_referred_to():
    from harness.board.smaller import smaller

    svg = '<svg width="9.123456pt"><path id="used" d="M 1.23456 2\n   L 3 4"/><g id="gone"><use href="#used"/></g>'
    svg += "<text>1.23456: 2;  3</text></svg>"
    expected = '<svg width="9.12pt"><path id="used" d="M 1.23 2\nL 3 4"/><g><use href="#used"/></g>'
    assert smaller("plots/x/y.svg", svg.encode()).decode() == f"{expected}<text>1.23456: 2;  3</text></svg>"
    cell = '<td class="number" data-trial="0123456789ab" data-metric="test_ppl" data-value="12.5">12.5</td>'
    assert smaller("suites/x.html", cell.encode()) == b'<td class="number">12.5</td>'
    assert smaller("data/x.csv", svg.encode()) == svg.encode()
