"""What the documents point to exists: files, headings, paths of the source tree, suites."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = {"heads/cosine.py", "harness/execution/slurm.py"}  # what a reader is to write
TREE = ("harness", "heads", "backbones", "suites", "tests", "benchmarks", "results/published", "docs")


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def anchors(path: Path) -> set[str]:
    """What the headings of a page are called in a link, as GitHub makes it."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_to_a_file_and_a_heading(page):
    missing = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if link.startswith(("http://", "https://")):
            continue
        place, _, heading = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        if not target.exists() or (heading and heading not in anchors(target)):
            missing.append(link)
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_path_of_the_tree_that_is_named_exists(page):
    text = page.read_text(encoding="utf-8")
    if page.name == "CHANGELOG.md":
        pytest.skip("it names what there was")
    named = {
        path.rstrip("/")
        for path in re.findall(r"`([a-z_]+/[\w./=-]+)`", text)
        if path.startswith(tuple(f"{folder}/" for folder in TREE)) and path not in EXAMPLES
    }
    assert sorted(path for path in named if not (ROOT / path).exists()) == []


def test_every_page_of_a_folder_is_linked_from_its_index():
    for folder in (ROOT / "docs", ROOT / "docs" / "design"):
        index = (folder / "README.md").read_text(encoding="utf-8")
        assert {page.name for page in folder.glob("*.md")} - {"README.md"} <= set(
            re.findall(r"\]\(([\w-]+\.md)", index)
        )


def test_every_page_has_one_title_and_no_line_that_is_too_long():
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert len(re.findall(r"^# ", text, flags=re.MULTILINE)) == 1, page
        prose = [line for line in text.splitlines() if not line.startswith(("|", "    ", "- ", "!["))]
        assert [line for line in prose if len(line) > 150] == [], page


def test_every_page_that_the_code_names_exists():
    sources = [path for folder in ("harness", "heads", "backbones", "suites") for path in (ROOT / folder).rglob("*.*")]
    texts = [path.read_text(encoding="utf-8") for path in sources if path.suffix in (".py", ".yaml", ".html")]
    named = {page for text in texts for page in re.findall(r"\bdocs/[\w/-]+\.md", text)}
    named |= {f"docs/{page}.md" for text in texts for page in re.findall(r"\bharness docs (\w+)", text)}
    assert named
    assert {page for page in named if not (ROOT / page).exists()} == set()
