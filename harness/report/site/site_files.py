"""The files of the site of a results folder. They link to each other only, and need neither network nor server:

index.html              all suites, the ground truths, and all rows with a search by head
leaderboard.html
suites/<suite>.html     the page of each suite
tables/<suite>.csv, .tex
plots/<suite>/*.svg, *.png, *.pdf
data/trials.csv, curves.csv, leaderboard.csv
"""

from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path

from harness import plan
from harness.errors import ExecutionError, SuiteError
from harness.plan.specs import LEADERBOARD
from harness.records import store
from harness.report import diagnosed_views, study
from harness.report.figures import plots
from harness.report.leaderboard import all_suites
from harness.report.page import document
from harness.report.site import data, index
from harness.report.study import Study
from harness.report.table import suite_table

OF_ALL = {"all suites": "index.html", "leaderboard": f"{LEADERBOARD}.html"}  # links of every page


def studies(results: Path, suites: Path, warn: Callable[[str], None]) -> list[Study]:
    """The studies of the suites of a results folder, by name.

    Args:
        results: the results folder.
        suites: the folder of suite files: that of the suite 'x' is x.yaml.
        warn: called with a sentence for each suite without a file, with a file that is not valid, or without a record
            that it plans, and for each damaged record.
    Raises: ExecutionError when no suite is left.
    """
    found = []
    for name in sorted({place.parent.parent.name for place in (results / "runs").glob(f"*/*/{store.FILE_NAME}")}):
        path = suites / f"{name}.yaml"
        if not path.is_file():
            warn(f"{path} is not there: the trials of suite {name} are on the leaderboard only")
            continue
        try:
            read = study.load(plan.load(path), results, warn=warn)
        except SuiteError as error:
            problems = "; ".join(error.problems)
            warn(f"{path} is not valid: the trials of suite {name} are on the leaderboard only ({problems})")
            continue
        if read.records:
            found.append(read)
        else:
            warn(f"{path} plans none of the trials in {read.evidence.runs}: they are on the leaderboard only")
    if not found:
        raise ExecutionError(f"{results / 'runs'} has no records of the suites in {suites}: run or import some first")
    return found


def files_of(found: Sequence[Study], results: Path, warn: Callable[[str], None]) -> dict[str, bytes]:
    """Path within the site -> content. The same records give the same bytes.

    Where no trial can be on the leaderboard there is none, and a warning says why.
    """
    files = {"data/trials.csv": data.trials(found).encode(), "data/curves.csv": data.curves(found).encode()}
    try:
        board = all_suites.load(results, warn)
    except ExecutionError as reason:
        warn(f"the site has no leaderboard: {reason}")
    else:
        files["data/leaderboard.csv"] = data.leaderboard(board).encode()
        links = {"all suites": OF_ALL["all suites"], **_data_links("", files)}
        files[OF_ALL["leaderboard"]] = board.page(links).encode()
    pages = {title: place for title, place in OF_ALL.items() if place in files}
    files["index.html"] = index.page(found, {**pages, **_data_links("", files)}).encode()
    for each in found:
        files |= _of_suite(each, files)
    return files


def _of_suite(found: Study, of_all: Container[str]) -> dict[str, bytes]:
    """The files of a suite; `of_all`: the files of all suites, to which its page links."""
    name = found.suite.name
    table = suite_table.build(found.findings)
    drawn = plots.draw(found.findings, table.title)
    pictures, _ = plots.files_of(drawn, Path("plots") / name)
    links = {
        **{title: f"../{place}" for title, place in OF_ALL.items() if place in of_all},
        "table as CSV": f"../tables/{name}.csv",
        "table as LaTeX": f"../tables/{name}.tex",
        **_data_links("../", of_all),
    }
    sections, of_diagnostics = diagnosed_views.for_page(found.evidence)
    pictures |= plots.files_of(of_diagnostics, Path("plots") / name)[0]
    shown = [*drawn, *of_diagnostics]
    page = document.render(found.findings, table, shown, sections, links=links, plot_folder=f"../plots/{name}/")
    return {
        index.page_of(found): page.encode(),
        f"tables/{name}.csv": suite_table.text(table, "csv").encode(),
        f"tables/{name}.tex": suite_table.text(table, "latex").encode(),
        **{place.as_posix(): content for place, content in pictures.items()},
    }


def _data_links(up: str, files: Container[str]) -> Mapping[str, str]:
    places = {
        "all trials as CSV": "data/trials.csv",
        "all learning curves as CSV": "data/curves.csv",
        "leaderboard as CSV": "data/leaderboard.csv",
    }
    return {title: f"{up}{place}" for title, place in places.items() if place in files}
