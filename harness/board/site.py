"""The files of the site of a results folder. They link to each other only, and need neither network nor server:

index.html              boards, what is known of each corpus, suites, ground truths, and all rows with a search by head
leaderboard.html
boards/<suite>.html     the page of each board, with its submissions and its history
suites/<suite>.html     the page of each other suite
submissions/<suite>/<submission>.html
heads/<head>.html       the page of each head: its equation and all its rows
tables/<suite>.csv, .tex
plots/<suite>/*.svg
data/trials.csv, curves.csv, leaderboard.csv
data/results.json       all rows, for programs; docs/tables.md has its keys
results.json            boards and submissions, for programs; docs/results_feed.md has its keys
"""

import inspect
import json
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import harness
from harness import plan
from harness.board import boards, feed, ground_truths, ladders, leaderboard
from harness.board.boards import Received, is_board
from harness.board.leaderboard import Leaderboard
from harness.board.row_json import difference_json, row_json
from harness.board.smaller import smaller
from harness.errors import ExecutionError, SuiteError
from harness.extensions import needed
from harness.machine.files import read_bounded, write_atomically
from harness.plan.names import without_sections
from harness.plan.reader import introduction
from harness.plan.specs import GROUND_TRUTH, LEADERBOARD
from harness.printable import counted
from harness.records.record import CurvePoint
from harness.registry import HEADS
from harness.report import (
    layouts,
    outcome,
    outputs,
    study,
    suite_table,
    table_forms,
)
from harness.report.columns import EMPTY, quantities
from harness.report.content import Cell, Column, Line, Table
from harness.report.figures import plots
from harness.report.figures.drawn import Plot
from harness.report.page import document
from harness.report.page.document import Section
from harness.report.row_facts import RowFacts
from harness.report.study import Study

if TYPE_CHECKING:
    import pandas as pd

RESULTS_FORMAT = 3
MARK = ".harness-site"  # the file that says that a folder is a site, and lists its files
MAX_LIST = 4 * 1024**2  # bytes
_NAME = r"\w[\w.+-]*"
_OF_SITE = re.compile(  # the files of a site
    rf"(index|leaderboard|(suites|boards|heads|submissions/{_NAME})/{_NAME})\.html|results\.json|tables/{_NAME}\.(csv|tex)|plots/{_NAME}/{_NAME}\.svg"
    r"|data/((trials|curves|leaderboard)\.csv|results\.json)"
)
_ABOUT = "This folder is written by `harness site`: the files below may be replaced or removed.\n"
SHOWN = ("test ppl", "vs control", "verdict", "n", "params", "train ms/batch", "reproduced")
TEXTS = ("verdict", "n", "reproduced")
FOR_TABLES = ("Cost", "Family")  # sections of a head's docstring that its page leaves out
OF_ALL = {"all suites": "index.html", "leaderboard": f"{LEADERBOARD}.html"}  # links of every page


def studies(results: Path, suites: Path, warn: Callable[[str], None]) -> list[Study]:
    """The studies of the suites of a results folder, by name.

    Args:
        suites: the folder of suite files: that of the suite 'x' is x.yaml. Those of the package are found, too.
        warn: called with a sentence for each suite without a file, with a file that is not valid, or without a record
            that it plans, and for each damaged record.
    Raises: ExecutionError when no suite is left.
    """
    found = []
    for name, path in ladders.suite_files(results, suites).items():
        if path is None:
            warn(f"{suites / name}.yaml is not there: the trials of suite {name} are on the leaderboard only")
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


def files_of(
    found: Sequence[Study],
    results: Path,
    suites: Path,
    warn: Callable[[str], None],
    received: Sequence[Received] = (),
) -> dict[str, bytes]:
    """Path within the site -> content. The same records give the same bytes.

    Where no trial can be on the leaderboard there is none, and a warning says why.

    Args:
        received: the submissions, whose trials the studies of boards have (boards.with_submissions).
    """
    files = {"data/trials.csv": trials_csv(found).encode(), "data/curves.csv": curves_csv(found).encode()}
    with_feed = received or any(map(is_board, found))
    if with_feed:
        files["results.json"] = feed.results_feed(list(filter(is_board, found)), received).encode()
    board = None
    try:
        known = ladders.in_hand(found)
        others = [each for each in found if not is_board(each)]  # boards have pages of their own
        board = leaderboard.load(results, warn, suites, known, others)
    except ExecutionError as reason:
        warn(f"the site has no leaderboard: {reason}")
    else:
        files["data/leaderboard.csv"] = leaderboard_csv(board).encode()
        links = {"all suites": OF_ALL["all suites"], **_data_links("", files)}
        files[OF_ALL["leaderboard"]] = board.page(links).encode()
    files["data/results.json"] = results_json(found, board).encode()
    pages = {title: place for title, place in OF_ALL.items() if place in files}
    files["index.html"] = index_page(found, {**pages, **_data_links("", files)}, received).encode()
    for each in found:
        files |= _of_suite(each, files, received)
    files |= _of_submissions(found, received)
    up = {title: f"../{place}" for title, place in OF_ALL.items() if place in files}
    for name in sorted({row.spec.head.name for each in found for row in each.rows}):
        files[f"heads/{name}.html"] = head_page(name, found, up).encode()
    return {name: smaller(name, content) for name, content in files.items()}


def _page_of(found: Study) -> str:
    """The place of the page of a suite."""
    return f"{'boards' if is_board(found) else 'suites'}/{found.suite.name}.html"


def _of_submissions(found: Sequence[Study], received: Sequence[Received]) -> dict[str, bytes]:
    by_suite, files = {each.suite.name: each for each in found}, {}
    for one in received:
        links = {"all suites": "../../index.html"}
        if one.suite in by_suite:
            links[one.suite] = f"../../{_page_of(by_suite[one.suite])}"
        page = needed("harness.submissions.pages:page", "the page of a submission")
        files[one.page] = page(one, None if one.why_not else by_suite[one.suite], links).encode()
    return files


def _of_suite(found: Study, of_all: Container[str], received: Sequence[Received]) -> dict[str, bytes]:
    """The files of a suite; `of_all`: the files of all suites, to which its page links."""
    name = found.suite.name
    table, more = suite_table.build(found.findings), []
    if is_board(found):
        table = replace(table, title=f"{name}, version {found.suite.version}")
        more = boards.sections(found, received)
    drawn = plots.draw(found.findings, table.title)
    links = {
        **{title: f"../{place}" for title, place in OF_ALL.items() if place in of_all},
        "table as CSV": f"../tables/{name}.csv",
        "table as LaTeX": f"../tables/{name}.tex",
        **_data_links("../", of_all),
    }
    sections, of_diagnostics = found.diagnosed()
    shown = [*drawn, *of_diagnostics]
    sections = [*more, *sections]
    folder = "" if is_board(found) else f"../plots/{name}/"  # three boards with both are too large for a site
    page = document.render(found.findings, table, shown, sections, links=links, plot_folder=folder)
    files = [plot for plot in shown if isinstance(plot, Plot) and folder]
    return {
        _page_of(found): page.encode(),
        f"tables/{name}.csv": suite_table.text(table, "csv").encode(),
        f"tables/{name}.tex": suite_table.text(table, "latex").encode(),
        **{f"plots/{name}/{plot.name}.svg": plot.svg.encode() for plot in files},
    }


def _data_links(up: str, files: Container[str]) -> Mapping[str, str]:
    places = {
        "all trials as CSV": "data/trials.csv",
        "all learning curves as CSV": "data/curves.csv",
        "leaderboard as CSV": "data/leaderboard.csv",
        "all rows as JSON": "data/results.json",
        "boards as JSON": "results.json",
    }
    return {title: f"{up}{place}" for title, place in places.items() if place in files}


def index_page(found: Sequence[Study], links: Mapping[str, str], received: Sequence[Received] = ()) -> str:
    """The page of some suites: boards first; suites that neither rank a row nor decide anything are folded away."""
    truths = [each for each in found if _is_truth(each)]
    ordered = _ordered(found)
    of_boards = [each for each in ordered if is_board(each)]
    others = [each for each in ordered if not is_board(each)]
    first = [each for each in others if _is_shown_first(each)]
    folded = [each for each in others if not _is_shown_first(each)]
    sections = []
    if of_boards:
        sections.append(Section(heading="Boards", tables=(_suites(of_boards),)))
    if received:
        listing = needed("harness.submissions.pages:listing", "the list of submissions")
        sections.append(Section(heading="Submissions", tables=(listing(received, ""),)))
    sections.append(Section(heading="What is known", notes=_known(ordered)))
    if tables := ladders.tables(each for each in others if each.suite.ladder is not None):
        sections.append(Section(heading=leaderboard.LADDERS, tables=tables))
    if first:
        sections.append(Section(heading="Suites", tables=(_suites(first),)))
    if folded:
        line = counted(len(folded), "suite")
        sections.append(Section(heading="Suites that rank no row", tables=(_suites(folded),), folded=line))
    if truths:
        sections.append(Section(heading="Printed numbers trained again", tables=(ground_truths.table(truths),)))
    lead = "Only rows of one suite compare: each suite has its own budget and, for 'vs control', its own controls."
    lead += " The leaderboard compares rows of several suites." if "leaderboard" in links else ""
    rows = _rows("Rows of all suites", lead, ((each, each.rows) for each in found))
    sections.append(Section(heading="All rows", tables=(rows,), searched=True))
    trials = outputs.total(each.evidence.trials for each in found)
    last = max(record.environment.finished for each in found for record in each.records.values())
    about = {"Trials": str(trials), "Suites": str(len(found)), "Last trial": last[:10]}
    return document.of_tables("Output heads of language models, compared", sections, about, links)


def head_page(name: str, found: Sequence[Study], links: Mapping[str, str]) -> str:
    """The page of a head: what it is, as its docstring says, and its rows in all suites."""
    of_head = []
    for each in found:
        of_head.append((each, [row for row in each.rows if row.spec.head.name == name]))
    lead = "Only rows of one suite compare. A suite has its own budget and, for 'vs control', its own controls."
    rows = _rows("In all suites", lead, of_head, up="../")
    sections = [
        Section(heading="What it is", text=without_sections(HEADS.get(name), FOR_TABLES)),
        Section(heading="Results", tables=(rows,), searched=True),
    ]
    return document.of_tables(name, sections, None, links)


def _is_shown_first(found: Study) -> bool:
    """Whether a suite ranks a row, or decides something."""
    return bool(found.findings.ranks) or any(outcome.decided(found.findings).values())


def _is_truth(found: Study) -> bool:
    return found.suite.name.startswith(f"{GROUND_TRUTH}_")


def _ordered(found: Sequence[Study]) -> list[Study]:
    """Suites that decide something first, ground truths last; by corpus, of a corpus those with more trials first."""

    def place(each: Study) -> tuple[bool, bool, list[str], int]:
        undecided = not any(outcome.decided(each.findings).values())
        return _is_truth(each), undecided, [row.corpus for row in each.rows[:1]], -each.evidence.trials.ok

    return sorted(found, key=place)


def _known(found: Iterable[Study]) -> tuple[str, ...]:
    """A sentence for each corpus: 'On ptb: with lstm MoS 5 beats softmax by 2 %; nothing is decided yet with gpt2'."""
    corpora: dict[str, dict[str, list[str]]] = {}
    for each in found:
        for (corpus, backbone), said in outcome.decided(each.findings).items():
            corpora.setdefault(corpus, {}).setdefault(backbone, []).extend([said] if said else [])
    sentences = []
    for corpus, of in corpora.items():
        parts = [f"with {backbone} {each}" for backbone, said in of.items() for each in said]
        undecided = ", ".join(backbone for backbone, said in of.items() if not said)
        parts += [f"nothing is decided yet with {undecided}"] if undecided else []
        sentences.append(f"On {corpus}: {'; '.join(parts)}.")
    return tuple(sentences)


def _suites(found: Iterable[Study]) -> Table:
    labels = [Column(name=name, key="label") for name in ("suite", "corpus")]
    columns = (*labels, *(Column(name=name) for name in ("question and finding", "trials", "last trial")))
    lines = []
    for each in found:
        trained_on = ", ".join(dict.fromkeys(row.corpus for row in each.rows))
        backbones = dict.fromkeys(row.backbone for row in each.rows if not row.is_ngram)
        corpora = f"{trained_on} with {next(iter(backbones))}" if len(backbones) == 1 else trained_on
        last = max(record.environment.finished for record in each.records.values())[:10]
        suite = Cell(text=each.suite.name, link=_page_of(each))
        question, *_ = introduction(each.suite.path)
        said = f"{question}{'' if question.endswith('?') else ':'} {each.found()}." if question else f"{each.found()}."
        texts = [Cell(text=text) for text in (said, str(each.evidence.trials), last)]
        lines.append(Line(cells=(suite, Cell(text=corpora), *texts)))
    lead = "Each suite has a page with its table, its plots, and everything known of its trials."
    return Table(title="Question, finding and page of each suite", columns=columns, lines=tuple(lines), lead=lead)


def _rows(title: str, lead: str, found: Iterable[tuple[Study, Sequence[RowFacts]]], up: str = "") -> Table:
    columns = [Column(name=name, key="label") for name in ("head", "backbone", "corpus", "suite")]
    columns += [Column(name=name, numeric=name not in TEXTS) for name in SHOWN]
    lines = []
    for each, rows in found:
        known = quantities(each.findings) if rows else ()
        names = {f"vs {each.findings.reference}": "vs control"}  # it is another one in each suite
        said = {names.get(one.column.name, one.column.name): one for one in known}
        for row in rows:
            head = row.spec.head.name
            full = (inspect.getdoc(HEADS.get(head)) or "").partition("\n")[0].partition(":")[0]
            labels = [Cell(text=row.head, link=f"{up}heads/{head}.html", full=full), Cell(text=row.backbone)]
            labels += [Cell(text=row.corpus), Cell(text=each.suite.name, link=f"{up}{_page_of(each)}")]
            numbers = [said[name].cell(row) if name in said else EMPTY for name in SHOWN]
            lines.append(Line(cells=(*labels, *numbers), trials=row.ids))
    return layouts.without_empty(Table(title=title, columns=tuple(columns), lines=tuple(lines), lead=lead))


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
        table = found.tables[group]
        frame = table_forms.frame(table)
        frame.insert(0, "table", table.title)
        frames.append(frame)
    return _csv(pd.concat(frames, ignore_index=True))


def results_json(found: Sequence[Study], board: Leaderboard | None) -> str:
    """All rows of all suites and the leaderboard, unrounded; RESULTS_FORMAT changes with its keys."""
    content = {
        "format": RESULTS_FORMAT,
        "harness": harness.__version__,
        "suites": [_suite_json(each) for each in found],
        "leaderboard": None if board is None else board.as_json(),
    }
    return json.dumps(content, separators=(",", ":"), allow_nan=False) + "\n"


def _suite_json(found: Study) -> dict[str, object]:
    controls = []
    for (corpus, backbone), known in found.findings.controls.items():
        heads = [row.head for row in known]
        controls.append({"corpus": corpus, "backbone": backbone, "heads": heads})
    return {
        "name": found.suite.name,
        "version": found.suite.version,
        "found": f"{found.found()}.",
        "baseline": found.findings.baseline,
        "controls": controls,
        "rows": [_row_json(found, row) for row in found.rows],
    }


def _row_json(found: Study, row: RowFacts) -> dict[str, object]:
    compared = found.findings.compared.get(row)
    about = row_json(row, found.evidence.timings) | {"rank": found.findings.ranks.get(row)}
    if compared is None:
        return about | {"verdict": None, "vs_control": None}
    against = difference_json(compared.difference) | {"p": compared.p_holm}
    return about | {"verdict": compared.verdict, "vs_control": against}


def _csv(frame: "pd.DataFrame") -> str:
    """As CSV in which no text is a formula for a spreadsheet."""
    safe = frame.map(lambda value: table_forms.harmless(value) if isinstance(value, str) else value)
    return safe.to_csv(index=False, lineterminator="\n")


def write(files: Mapping[str, bytes], out: Path) -> None:
    """Write the files of a site, and remove those of an earlier one that are no longer made.

    Files that the site did not write are kept: `.git` and `CNAME` of a host of static files.
    Args:
        out: a folder that is empty, does not exist, or is a site.
    Raises: ExecutionError when the folder holds something else, or a link where the site has a file or folder;
        StorageError.
    """
    mark = out / MARK
    if out.exists() and not out.is_dir():
        raise ExecutionError(f"--out {out} is a file; name a folder for the site")
    if out.is_dir() and any(out.iterdir()) and not mark.is_file():
        raise ExecutionError(
            f"--out {out} holds files that are no site of ours, and might be replaced; name an empty or a new folder"
        )
    before = _listed(mark)
    for name in (MARK, *before, *files):
        _refuse_link(out, name)
    _list(mark, {*before, *files})  # an interrupted write leaves no file that is not listed
    gone = [out / name for name in before - files.keys() if (out / name).is_file()]
    outputs.write({out / name: content for name, content in files.items()}, gone=gone)
    _list(mark, files)


def _refuse_link(out: Path, name: str) -> None:
    """Raise ExecutionError for a file whose folder in the site, or which itself, is a link to another place."""
    for place in (out / name, *(out / name).parents):
        if place == out:
            return
        if place.is_symlink():
            raise ExecutionError(
                f"--out {out}: {place} is a link, and what is written there would be somewhere else; remove the link, "
                "or name another folder"
            )


def _listed(mark: Path) -> set[str]:
    """The files of the site that is in a folder. The list may be of a stranger: only names as a site has them count."""
    if mark.is_symlink() or not mark.is_file():
        return set()
    try:
        content = read_bounded(mark, MAX_LIST).decode(errors="replace")
    except OSError as cause:
        reason = f"{mark} cannot be read ({cause.strerror})"
        raise ExecutionError(f"{reason}; name an empty or a new folder by --out") from cause
    return {name for name in content.splitlines() if _OF_SITE.fullmatch(name)}


def _list(mark: Path, names: Iterable[str]) -> None:
    write_atomically(mark, "".join([_ABOUT, *(f"{name}\n" for name in sorted(names))]).encode())
