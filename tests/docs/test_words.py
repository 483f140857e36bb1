"""The documents are in plain English: none of the words and turns that a reader would have to guess."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FORBIDDEN = (
    *("told", "tells?", "taken up", "takes? up", "put down", "puts? down", "parcels?", "standings?", "unfold(?:s|ed)?"),
    *("spent", "is through", "are through", "at hand", "anybody's", "whoever", "whatever of", "where there is one"),
    *("as it stands", "nothing of the kind", "the like", "hears? of", "knows of", "by itself", "for want of"),
    *("in the midst", "cannot be had", "as a rule", "claims? of a trial", "goes? on from"),
)
PATTERN = re.compile(rf"\b(?:{'|'.join(FORBIDDEN)})\b", flags=re.IGNORECASE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_forbidden_word(page):
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert PATTERN.findall(prose) == []
