"""LaTeX tables read as TeX reads them: environments and groups end, rows have as many cells as columns, and every
command is known. No TeX is needed; where one is, it compiles them, too."""

import re
import shutil
import subprocess
from pathlib import Path

import handmade
import pytest
from handmade import findings

from harness.report import layouts, suite_table, table_forms
from harness.report.content import Table

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.tex"))
SUITE = handmade.suite_text(
    name="a_suite",
    corpora="[{markov: {vocab_size: 12, num_tokens: 400, branching: [2, 3]}}]",
    heads="[softmax, {mos: {num_mixtures: [2, 3]}}]",
    seeds="[1, 2]",
    table="{baseline: softmax}",
)
ENVIRONMENTS = {"table", "adjustbox", "tabular"}
RULES = {r"\toprule", r"\midrule", r"\bottomrule"}
SYMBOLS = {name for name in re.findall(r"\\[A-Za-z]+", "".join(table_forms._LATEX.values()))}
COMMANDS = SYMBOLS | RULES | {
    *(r"\begin", r"\end", r"\caption", r"\label", r"\textbf", r"\multicolumn", r"\cmidrule"),
    *(r"\footnotesize", r"\setlength", r"\tabcolsep", r"\columnwidth", r"\textwidth"),
}  # fmt: skip
TOKEN = re.compile(r"\\[A-Za-z]+|\\.|[{}$&#^_~%]|[^\\{}$&#^_~%]+", re.DOTALL)


def text_of(place: Path) -> str:
    """The content of a file, with ids in the place of those that a golden file leaves open (TRIAL_01)."""
    return re.sub(r"TRIAL_\d+", "0123456789ab", place.read_text(encoding="utf-8"))


def check(text: str) -> None:
    """Fail at what TeX would refuse."""
    assert text.isascii()
    lines = [re.sub(r"(?<!\\)%.*", "", line) for line in text.splitlines()]
    assert all(line for line, whole in zip(lines, text.splitlines(), strict=True) if not whole.startswith("%"))
    tokens = TOKEN.findall("\n".join(lines))
    assert "".join(tokens) == "\n".join(lines)
    assert {token for token in tokens if re.fullmatch(r"\\[A-Za-z]+", token)} <= COMMANDS
    check_groups(tokens)
    check_environments(lines)
    check_rows(lines)


def check_groups(tokens: list[str]) -> None:
    """Every { has its }, every $ its $ in the same group, and nothing else is special outside of a row."""
    depth, maths = 0, None
    for token in tokens:
        if token == "$":
            assert maths in (None, depth)
            maths = depth if maths is None else None
        depth += {"{": 1, "}": -1}.get(token, 0)
        assert depth >= 0
        assert token not in ("#", "^", "_", "~")
    assert (depth, maths) == (0, None)


def check_environments(lines: list[str]) -> None:
    opened = []
    for what, name in re.findall(r"\\(begin|end)\{(\w+)\}", "\n".join(lines)):
        if what == "begin":
            assert name in ENVIRONMENTS
            opened.append(name)
        else:
            assert opened.pop() == name
    assert opened == []


def check_rows(lines: list[str]) -> None:
    """Each row of the tabular has a cell for each of its columns, and ends; rules are between rows."""
    (start,) = [number for number, line in enumerate(lines) if line.startswith(r"\begin{tabular}")]
    end = lines.index(r"\end{tabular}")
    columns = len(re.fullmatch(r"\\begin\{tabular\}\{([lr]+)\}", lines[start])[1])
    rows = 0
    for line in lines[start + 1 : end]:
        if line in RULES:
            continue
        if line.startswith(r"\cmidrule"):
            ranges = [tuple(map(int, each)) for each in re.findall(r"\\cmidrule\(lr\)\{(\d+)-(\d+)\}", line)]
            assert ranges
            assert all(1 <= first <= last <= columns for first, last in ranges)
            continue
        assert line.endswith(r" \\")
        assert not line.startswith(("[", "*"))  # an argument of the line before
        cells = re.split(r"(?<!\\)&", line.removesuffix(r" \\"))
        spans = [re.match(r"\s*\\multicolumn\{(\d+)\}", cell) for cell in cells]
        assert sum(int(span[1]) if span else 1 for span in spans) == columns
        rows += 1
    assert rows >= 2


@pytest.mark.parametrize("place", GOLDEN, ids=lambda place: f"{place.parent.name}-{place.name}")
def test_a_table_that_is_in_the_repository_is_sound(place):
    check(text_of(place))


@pytest.mark.parametrize("compact", [False, True], ids=["whole", "compact"])
@pytest.mark.parametrize("shape", ["mixtures", "heads", "corpora"])
def test_every_shape_is_sound_whole_and_compact(shape, compact, suite_of, record_of):
    suite = suite_of(SUITE)
    made = [record_of(trial, test_ppl=80.0 + n, valid_ppl=90.0 + n) for n, trial in enumerate(suite.trials)]
    table = suite_table.build(findings(suite, made), shape)
    check(table_forms.latex(layouts.select(table, compact=compact), compact=compact))


@pytest.mark.skipif(shutil.which("kpsewhich") is None, reason="TeX is not installed")
@pytest.mark.parametrize("place", GOLDEN, ids=lambda place: place.name)
def test_tex_compiles_it_in_an_article(place, tmp_path):
    text = text_of(place)
    packages = text.splitlines()[0].lstrip("% ")
    document = [r"\documentclass{article}", packages, r"\begin{document}", text, r"\end{document}"]
    (tmp_path / "paper.tex").write_text("\n".join(document), encoding="utf-8")
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "paper.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (r"\end{adjustbox}", ""),
        (r"\begin{tabular}{l", r"\begin{tabular}{ll"),
        ("& params", "& params_total"),
        (r"\caption{", r"\caption{{"),
        (" \\\\\n", "\n"),
        (r"\%", "%"),
    ],
)
def test_the_check_finds_what_tex_would_refuse(good, bad):
    (place,) = [each for each in GOLDEN if each.stem == "mixtures"]
    text = text_of(place)
    check(text)
    assert good in text
    with pytest.raises(AssertionError):
        check(text.replace(good, bad, 1))


def test_a_table_without_columns_is_a_table():
    text = table_forms.latex(Table(title="a suite without trials", columns=(), lines=()))
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1
