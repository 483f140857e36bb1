"""What every view says of planted records: tests/report/planted has a folder for each suite, with its expected output.

A folder has suite.yaml, records.yaml (tests/support/planted_suites.py) and what the commands print. Numbers of the
records are round, so that means, differences and intervals can be checked by hand: README.md there does so.
GOLDEN=write writes the files again: then check what changed.
"""

import io
import os
import re
import shutil
import subprocess
from pathlib import Path

import planted_suites
import pytest
import texts
from matplotlib.collections import LineCollection
from rich.console import Console
from ruamel.yaml import YAML

from harness import plan
from harness.report import outcome, screen, study, suite_table
from harness.report.figures import plots, style

PLANTED = Path(__file__).parent / "planted"
NAMES = sorted(path.parent.name for path in PLANTED.glob("*/suite.yaml"))
CASES = [pytest.param(name, marks=pytest.mark.needs("ladder")) if name == "ladder" else name for name in NAMES]
PAGES = ["history", "mixtures", "tuned"]
BOARDS = ["controls", "faults", "history", "ladder"]  # whose leaderboard.md is there: the others say nothing more
DRAWN = ["controls", "faults", "mixtures", "ngrams", "texts", "tuned"]
VIEWS = {  # file -> the command whose output it is; SUITE is the suite
    "table.md": "table SUITE --form md",
    "wide.md": "table SUITE --form md --wide",
    "table.csv": "table SUITE --form csv",
    "table.tex": "table SUITE --form latex",
    "compact.tex": "table SUITE --form latex --compact",
    "plan.txt": "plan SUITE --trials",
    "plan.json": "plan SUITE --json",
    "runs.json": "runs SUITE --json",
    "leaderboard.json": "leaderboard --json --all",
    "leaderboard.md": "leaderboard --all",
    "diff.txt": "diff HEADS --suite SUITE --top 3",
}
NUMBER = re.compile(r"-?\b\d+\.\d+(?:e-?\d+)?\b")


@pytest.fixture
def planted_in(tmp_path, monkeypatch):
    """A function: name -> its folder here, the suite in a project with planted records, and options of commands."""

    def made(name: str):
        folder = PLANTED / name
        monkeypatch.chdir(tmp_path)
        (tmp_path / "suites").mkdir()
        shutil.copyfile(folder / "suite.yaml", tmp_path / "suites" / f"{name}.yaml")
        more = YAML(typ="safe").load(folder / "commands.yaml") if (folder / "commands.yaml").exists() else {}
        _write_text(more, tmp_path / "text")
        overrides = tuple(more.get("overrides", ()))
        suite = plan.load(Path("suites") / f"{name}.yaml", overrides)
        planted_suites.plant(suite, folder / planted_suites.RULES, tmp_path / "results")
        return folder, suite, [option for each in overrides for option in ("--set", each)]

    return made


def _write_text(more: dict, folder: Path) -> None:
    """The text of one's own that a suite reads, of random words; some suites have a line of train in test."""
    for name, (number, seed) in more.get("text", {}).items():
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(texts.lines(number, seed))
    if "copied" in more:
        line = (folder / "train.txt").read_text().splitlines(keepends=True)[more["copied"]]
        with (folder / "test.txt").open("a") as file:
            file.write(line)


@pytest.mark.parametrize("name", CASES)
def test_every_view_of_planted_records_is_as_expected(name, planted_in, harness, tmp_path):
    folder, _, options = planted_in(name)
    heads = YAML(typ="safe").load(folder / "commands.yaml").get("diff") if (folder / "commands.yaml").exists() else None
    for view, command in VIEWS.items():
        if ("HEADS" in command and heads is None) or (view == "leaderboard.md" and name not in BOARDS):
            continue
        words = [f"suites/{folder.name}.yaml" if word == "SUITE" else word for word in command.split()]
        if "HEADS" in words:
            words[words.index("HEADS") : words.index("HEADS") + 1] = heads
        done = harness(*words, *([] if words[0] in ("runs", "leaderboard") else options))
        assert done.code == 0, done.err
        compare(folder / view, _anywhere(done.out, tmp_path))


def _anywhere(text: str, project: Path) -> str:
    """What a command says, without the place of the project and the sizes of files, which zlib decides."""
    return re.sub(r'"bytes": \d+', '"bytes": 0', text.replace(str(project), "PROJECT"))


@pytest.mark.parametrize("name", PAGES)
def test_the_page_of_planted_records_is_as_expected(name, planted_in, monkeypatch, tmp_path):
    folder, suite, _ = planted_in(name)
    for module in (plots, style):  # drawings change with matplotlib; tests/report/test_plots.py looks at them
        monkeypatch.setattr(module, "svg_of", lambda *figure: "<svg></svg>\n")
    monkeypatch.setattr(style, "_saved", lambda *figure: b"")
    study.load(suite, tmp_path / "results", warn=lambda sentence: None).write_report()
    (page,) = (tmp_path / "results" / "reports").glob("*.html")
    text = re.sub(r"<(style|script|svg).*?</\1>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    compare(folder / "page.html", _anywhere(text, tmp_path))


@pytest.mark.parametrize("name", CASES)
def test_what_a_terminal_and_the_top_of_a_page_say_is_as_expected(name, planted_in, tmp_path):
    folder, suite, _ = planted_in(name)
    found = study.load(suite, tmp_path / "results", warn=lambda sentence: None)
    console = Console(width=80, file=io.StringIO(), color_system=None)
    console.print(screen.short(found.summary(), 80))
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert max(map(len, lines)) <= 80
    for heading, said in outcome.summary(found.findings, found.rows).items():
        lines += ["", heading, *(f"- {sentence} {command}".rstrip() for sentence, command in said)]
    compare(folder / "reading.txt", _anywhere("\n".join([*lines, ""]), tmp_path))


@pytest.mark.parametrize("name", DRAWN)
def test_what_plots_are_drawn_of_is_as_expected(name, planted_in, monkeypatch, tmp_path):
    folder, suite, _ = planted_in(name)
    for module in (plots, style):
        monkeypatch.setattr(module, "svg_of", lambda figure, of: _drawn(figure.axes[0]))
    found = study.load(suite, tmp_path / "results", warn=lambda sentence: None)
    said = []
    for plot in plots.draw(found.findings, suite_table.title(suite)):
        if isinstance(plot, plots.LeftOut):
            said += [f"## {plot.title}", plot.reason, ""]
            continue
        said += [f"## {plot.title} ({plot.name})", plot.caption, plot.svg, ""]
        said += ["### on a phone", plot.narrow, ""] if plot.narrow else []
    compare(folder / "plots.txt", _anywhere("\n".join(said), tmp_path))


def _drawn(on) -> str:
    """The data of axes: their labels, lines, bars and texts. What is drawn of them changes with matplotlib."""
    names = [text.get_text() for text in (on.title, on.xaxis.label, on.yaxis.label)]
    said = [repr(name) for name in names if name]
    for line in on.lines:
        if len(line.get_xdata()):
            points = " ".join(f"({x:.4g}, {y:.4g})" for x, y in line.get_xydata())
            label = "" if str(line.get_label()).startswith("_") else f" {line.get_label()}"
            said.append(f"{line.get_marker()} {line.get_linestyle()} {line.get_color()}{label}: {points}")
    for each in on.collections:
        is_bar = isinstance(each, LineCollection)
        paths = each.get_segments() if is_bar else [each.get_paths()[0].vertices]
        ends = [(*path.min(axis=0), *path.max(axis=0)) for path in paths]
        places = ", ".join(f"({x:.4g}, {y:.4g}) to ({right:.4g}, {top:.4g})" for x, y, right, top in ends)
        said.append(f"{'bars' if is_bar else 'band'}: {places}")
    return "\n".join([*said, *(repr(text.get_text()) for text in on.texts)])


@pytest.mark.skipif(shutil.which("kpsewhich") is None, reason="TeX is not installed")
@pytest.mark.parametrize("name", NAMES)
def test_tex_compiles_it_in_an_article(name, tmp_path):
    for place in PLANTED.glob(f"{name}/*.tex"):
        # without the names of the files that the command has written
        text = place.read_text(encoding="utf-8").partition("table: results")[0]
        packages = text.splitlines()[0].lstrip("% ")
        document = [r"\documentclass{article}", packages, r"\begin{document}", text, r"\end{document}"]
        (tmp_path / "paper.tex").write_text("\n".join(document), encoding="utf-8")
        command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "paper.tex"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:]
        assert "Overfull" not in done.stdout


def compare(place: Path, text: str) -> None:
    """Compare with a file of expected output."""
    if os.environ.get("GOLDEN") == "write":
        place.write_text(text, encoding="utf-8")
    expected = place.read_text(encoding="utf-8")
    # The last digits of a logarithm are not the same on all processors.
    assert NUMBER.sub("number", text) == NUMBER.sub("number", expected)
    found = [float(number) for number in NUMBER.findall(text)]
    assert found == pytest.approx([float(number) for number in NUMBER.findall(expected)], rel=1e-11, abs=0)
