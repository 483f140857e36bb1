"""Labels in any script are drawn with fonts of this machine, or named; the environment's backend does not matter."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from harness.report.figures import fonts, plots
from harness.report.figures.drawn import LeftOut
from harness.report.figures.style import Frame, axes, finished, settings

NOT_INSTALLED = pytest.mark.skipif(find_spec("matplotlib_inline") is not None, reason="matplotlib_inline is installed")
CHINESE, EMOJI = "\u6df7\u5408", "\U0001f642"


@pytest.fixture
def machine(monkeypatch):
    """A function: path -> letters of its font. These are the fonts of the machine then, beside that of plots."""

    def planted(**found):
        real, families = fonts._letters, {}
        for cached in (fonts._chosen, fonts._families):
            cached.cache_clear()
        monkeypatch.setattr(fonts.font_manager, "findSystemFonts", lambda: list(found))
        monkeypatch.setattr(fonts, "_letters", lambda path: frozenset(found[path]) if path in found else real(path))
        monkeypatch.setattr(fonts, "_families", lambda letters: tuple(fonts._chosen(letters)))
        return families

    yield planted
    fonts._chosen.cache_clear()


def drawn(label):
    with settings():
        return finished(axes(label, "y", Frame(title=label)), name="a", title="", caption="", of="1 ok")


@pytest.mark.parametrize(
    ("found", "text", "chosen", "boxes"),
    [
        ({}, "softmax \u00e9 \u03a9 \u0416", (), ""),  # Latin, Greek, Cyrillic: of the font of plots
        ({}, CHINESE + EMOJI, (), "".join(sorted(CHINESE + EMOJI))),
        ({"b.ttf": CHINESE, "a.ttf": "x"}, CHINESE, ("b.ttf",), ""),
        ({"bold.ttf": CHINESE, "plain.ttf": CHINESE}, CHINESE, ("plain.ttf",), ""),
        ({"a.ttf": CHINESE[0], "b.ttf": CHINESE}, CHINESE + EMOJI, ("a.ttf", "b.ttf"), EMOJI),
    ],
)
def test_the_plainest_fonts_with_the_letters_are_taken_and_the_others_named(machine, found, text, chosen, boxes):
    machine(**found)
    assert fonts._chosen(fonts._lacking(text)) == chosen
    assert fonts.without(text) == boxes


@pytest.mark.filterwarnings("error")
def test_letters_without_a_font_are_one_sentence_and_no_warning_for_each(machine):
    machine()
    made = drawn(CHINESE)
    assert made.png().startswith(b"\x89PNG")
    assert made.pdf().startswith(b"%PDF")
    assert CHINESE in made.svg
    sentence = plots.boxes_in([made, LeftOut(title="x", reason="y")])
    assert sentence.startswith(f"no font of this machine has {''.join(sorted(CHINESE))}: PNG and PDF files show boxes")
    assert plots.boxes_in([drawn("plain")]) == ""


@pytest.mark.system
@pytest.mark.parametrize(
    ("named", "code", "left"),
    [
        pytest.param("module://matplotlib_inline.backend_inline", "", None, marks=NOT_INSTALLED),
        ("nonsense", "", None),
        ("svg", "import matplotlib; matplotlib.use('pdf'); ", "pdf"),  # the user's choice stays
    ],
)
def test_plots_are_drawn_whatever_backend_the_environment_names(named, code, left):
    code += "import harness.report.figures, os, matplotlib as m; from harness.report.figures import plots; "
    code += "print(os.environ.get('MPLBACKEND')); print(m.rcParams._get('backend'))"
    variables = {**os.environ, "MPLBACKEND": named}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
    variable, backend = done.stdout.splitlines()
    assert (variable == "None") == (left is None)
    assert left is None or backend == left
