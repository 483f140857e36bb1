"""The files of the site of a results folder. They link to each other only, and need neither network nor server:

index.html              all suites, the ground truths, and all rows with a search by head
leaderboard.html
suites/<suite>.html     the page of each suite
tables/<suite>.csv, .tex
plots/<suite>/*.svg, *.png, *.pdf
data/trials.csv, curves.csv, leaderboard.csv
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness import plan
from harness.errors import ExecutionError, SuiteError
from harness.machine.files import write_atomically
from harness.plan.specs import GROUND_TRUTH, LEADERBOARD
from harness.records import store
from harness.records.record import CurvePoint
from harness.report import diagnosed, ground_truth, leaderboard, study, suite_table, table_forms
from harness.report.columns import EMPTY, quantities
from harness.report.content import Cell, Column, Line, Table
from harness.report.figures import plots
from harness.report.leaderboard import Leaderboard
from harness.report.outputs import Trials
from harness.report.page import document
from harness.report.page.document import Section
from harness.report.study import Study

if TYPE_CHECKING:
    import pandas as pd

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
    files = {"data/trials.csv": trials_csv(found).encode(), "data/curves.csv": curves_csv(found).encode()}
    try:
        board = leaderboard.load(results, warn)
    except ExecutionError as reason:
        warn(f"the site has no leaderboard: {reason}")
    else:
        files["data/leaderboard.csv"] = leaderboard_csv(board).encode()
        links = {"all suites": OF_ALL["all suites"], **_data_links("", files)}
        files[OF_ALL["leaderboard"]] = board.page(links).encode()
    pages = {title: place for title, place in OF_ALL.items() if place in files}
    files["index.html"] = index_page(found, {**pages, **_data_links("", files)}).encode()
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
    sections, of_diagnostics = diagnosed.for_page(found.evidence)
    pictures |= plots.files_of(of_diagnostics, Path("plots") / name)[0]
    shown = [*drawn, *of_diagnostics]
    page = document.render(found.findings, table, shown, sections, links=links, plot_folder=f"../plots/{name}/")
    return {
        page_of(found): page.encode(),
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


SHOWN = ("test ppl", "vs baseline", "verdict", "n", "valid ppl", "params", "train ms/batch", "reproduced")
TEXTS = ("verdict", "n", "reproduced")


def index_page(found: Sequence[Study], links: Mapping[str, str]) -> str:
    """The page of some suites."""
    truths = [each for each in found if each.suite.name.startswith(f"{GROUND_TRUTH}_")]
    sections = [Section(heading="What has been run", tables=(_suites(found),))]
    if truths:
        sections.append(Section(heading="Printed numbers trained again", tables=(ground_truth.table(truths),)))
    sections.append(Section(heading="All rows", tables=(_rows(found, "leaderboard" in links),), searched=True))
    statuses = Counter[str]()
    for each in found:
        statuses.update({name: getattr(each.evidence.trials, name) for name in ("ok", "planned", "invalid")})
    last = max(record.environment.finished for each in found for record in each.records.values())
    about = {"Trials": str(Trials(**statuses)), "Suites": str(len(found)), "Last trial": last}
    return document.of_tables("Output heads of language models, compared", sections, about, links)


def page_of(found: Study) -> str:
    """The place of a suite's page in the site."""
    return f"suites/{found.suite.name}.html"


def _suites(found: Sequence[Study]) -> Table:
    columns = (
        Column(name="suite"),
        Column(name="found"),
        Column(name="trials"),
        Column(name="last trial"),
    )
    lines = [
        Line(
            cells=(
                Cell(text=each.suite.name, link=page_of(each)),
                Cell(text=f"{each.found()}."),
                Cell(text=str(each.evidence.trials)),
                Cell(text=max(record.environment.finished for record in each.records.values())[:10]),
            )
        )
        for each in found
    ]
    lead = "Each suite has a page with its table, its plots, and everything known of its trials."
    return Table(title="Suites", columns=columns, lines=tuple(lines), lead=lead)


def _rows(found: Sequence[Study], ranked: bool) -> Table:
    """All rows; `ranked`: the site has a leaderboard."""
    columns = [Column(name="head"), Column(name="backbone"), Column(name="corpus"), Column(name="suite")]
    columns += [Column(name=name, numeric=name not in TEXTS) for name in SHOWN]
    lines = []
    for each in found:
        cells = {_general(one.column.name, each): one.cells for one in quantities(each.findings)}
        for index, row in enumerate(each.rows):
            labels = [Cell(text=text) for text in (row.head, row.backbone, row.corpus)]
            suite = Cell(text=each.suite.name, link=page_of(each))
            numbers = [cells[name][index] if name in cells else EMPTY for name in SHOWN]
            lines.append(Line(cells=(*labels, suite, *numbers), trials=tuple(trial.id for trial in row.trials)))
    columns, lines = _without_empty(columns, lines)
    lead = "Only rows of one suite compare: each suite has its own budget and, for 'vs baseline', its own baseline."
    lead += " The leaderboard compares rows of several suites." if ranked else ""
    return Table(title="Rows of all suites", columns=tuple(columns), lines=tuple(lines), lead=lead)


def _without_empty(columns: list[Column], lines: list[Line]) -> tuple[list[Column], list[Line]]:
    """The columns that are not empty in every line."""
    kept = [index for index in range(len(columns)) if any(line.cells[index] != EMPTY for line in lines)]
    shorter = [replace(line, cells=tuple(line.cells[index] for index in kept)) for line in lines]
    return [columns[index] for index in kept], shorter


def _general(column: str, found: Study) -> str:
    """The name of a column in a table of several suites: 'vs baseline' for 'vs softmax'."""
    return "vs baseline" if column == f"vs {found.findings.baseline}" else column


def trials_csv(found: Sequence[Study]) -> str:
    """One line for each planned trial of all suites: its settings, status and metrics."""
    import pandas as pd  # here: it takes a second to import

    frames = [each.frame().dropna(axis="columns", how="all") for each in found]
    for frame, each in zip(frames, found, strict=True):
        frame.insert(0, "suite", each.suite.name)
    return _csv(pd.concat(frames, ignore_index=True))


def curves_csv(found: Sequence[Study]) -> str:
    """One line for each epoch of each trial that has a record."""
    import pandas as pd

    lines = [
        {"suite": each.suite.name, "id": record.id, "head": str(record.spec.head), "seed": record.spec.seed}
        | point.model_dump()
        for each in found
        for record in each.records.values()
        for point in record.curve
    ]
    return _csv(pd.DataFrame(lines, columns=["suite", "id", "head", "seed", *CurvePoint.model_fields]))


def leaderboard_csv(found: Leaderboard) -> str:
    """One line for each row of the leaderboard; `table` says which rows compare with each other."""
    import pandas as pd

    frames = []
    for group in found.groups:
        table = leaderboard.table(group)
        frame = table_forms.frame(table)
        frame.insert(0, "table", table.title)
        frames.append(frame)
    return _csv(pd.concat(frames, ignore_index=True))


def _csv(frame: "pd.DataFrame") -> str:
    """As CSV in which no text is a formula for a spreadsheet."""
    safe = frame.map(lambda value: table_forms.harmless(value) if isinstance(value, str) else value)
    return safe.to_csv(index=False, lineterminator="\n")


MARK = ".harness-site"  # the file that says that a folder is a site, and lists its files
_ABOUT = "This folder is written by `harness site`: the files below may be replaced or removed.\n"


def write(files: Mapping[str, bytes], out: Path) -> None:
    """Write the files of a site, and remove those of an earlier one that are no longer made.

    Files that the site did not write are kept: `.git` and `CNAME` of a host of static files.
    Args:
        out: a folder that is empty, does not exist, or is a site.
    Raises: ExecutionError when the folder holds something else; StorageError.
    """
    mark = out / MARK
    if out.exists() and not out.is_dir():
        raise ExecutionError(f"--out {out} is a file; name a folder for the site")
    if out.is_dir() and any(out.iterdir()) and not mark.is_file():
        raise ExecutionError(
            f"--out {out} holds files that are no site of ours, and might be replaced; name an empty or a new folder"
        )
    before = _listed(mark)
    _list(mark, {*before, *files})  # an interrupted write leaves no file that is not listed
    for name, content in files.items():
        place = out / name
        if not place.is_file() or place.read_bytes() != content:
            write_atomically(place, content)
    for name in before - files.keys():
        place = out / name
        if place.is_file() and place.resolve().is_relative_to(out.resolve()):  # a list may be of a third party
            place.unlink()
    _list(mark, files)


def _listed(mark: Path) -> set[str]:
    return set(mark.read_text(encoding="utf-8").splitlines()[1:]) if mark.is_file() else set()


def _list(mark: Path, names: Iterable[str]) -> None:
    write_atomically(mark, "".join([_ABOUT, *(f"{name}\n" for name in sorted(names))]).encode())
