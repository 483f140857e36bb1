"""What documents point to exists, and they list all that there is: headings, paths, keys, checks, marks, functions."""

import inspect
import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
from pydantic import ValidationError
from ruamel.yaml import YAML

import harness
from harness.cli import reference
from harness.conformance.backbones import BACKBONE_CHECKS
from harness.conformance.heads import HEAD_CHECKS
from harness.plan.suite_file import SuiteFile
from harness.report.content import MARKS

ROOT = Path(__file__).parent.parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
PROSE = [page for page in PAGES if page.name != "CHANGELOG.md"]
SUITES, HEADS_PAGE, TABLES, PYTHON = (
    (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("suites", "heads", "tables", "python")
)
EXAMPLES = {"heads/cosine.py"}  # what a reader is to write
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
    assert named
    assert {page for page in named if not (ROOT / page).exists()} == set()
    texts += [page.read_text(encoding="utf-8") for page in PROSE]
    shown = {page for text in texts for page in re.findall(r"\bharness docs ([a-z]\w+)", text)}
    assert shown
    assert {page for page in shown - set(reference.PAGES) if not (ROOT / "docs" / f"{page}.md").exists()} == set()


@pytest.mark.parametrize("page", reference.PAGES)
def test_a_page_made_from_the_source_says_something_of_each_entry(page):
    text = reference.PAGES[page]()
    entries = re.findall(r"^- `.*$", text, flags=re.MULTILINE)
    assert len(entries) > 50
    assert [entry for entry in entries if not re.search(r"[:.] ?\S*\w", entry)] == []
    assert text.startswith("# ")


KEYS = dict(re.findall(r"^- `([a-z_.]+)` \(.*?\): (.*)$", reference.suite_keys(), flags=re.MULTILINE))


def test_every_key_has_a_meaning():
    assert len(KEYS) > 50
    assert [key for key, meaning in KEYS.items() if len(meaning.split()) < 2] == []


def examples() -> list[str]:
    """The suites and parts of suites that the page shows."""
    return re.findall(r"```yaml\n(.*?)```", SUITES, flags=re.DOTALL)


def test_every_key_stands_in_an_example():
    text = "\n".join(examples())
    names = {key.rpartition(".")[2] for key in KEYS}
    assert {name for name in names if not re.search(rf"\b{name}:", text)} == set()


@pytest.mark.parametrize("text", examples())
def test_every_example_is_accepted(text):
    complete = {
        **{"name": "example", "version": 1, "seeds": [1]},
        **{"corpora": ["ptb"], "backbones": ["lstm"], "heads": ["softmax"]},
        "train": {"optimizer": "sgd", "lr": 1.0, "epochs": 1, "batch_size": 20, "seq_len": 35},
    }
    data = YAML(typ="safe").load(text)
    given = data.get("train", {})
    optimizer = {} if "momentum" in given else {"optimizer": "adam"}
    train = {name: value for name, value in complete["train"].items() if name != "epochs" or "tokens" not in given}
    merged = {**complete, **data, "train": {**train, **optimizer, **given}}
    try:
        SuiteFile.model_validate_json(json.dumps(merged))
    except ValidationError as error:
        pytest.fail(f"{text}\n{error}")


def test_the_page_of_heads_has_every_check_and_no_other():
    tables = re.findall(r"^\| check \|.*\n\|---\|---\|\n((?:\|.*\n)+)", HEADS_PAGE, flags=re.MULTILINE)
    shown = [re.findall(r"^\| ([^|]+) \|", table, flags=re.MULTILINE) for table in tables]
    assert shown == [list(HEAD_CHECKS), list(BACKBONE_CHECKS)]


def test_the_page_of_heads_explains_every_parameter_that_is_only_named_elsewhere():
    (section,) = re.findall(r"^## Parameters that heads share\n(.*?)^## ", HEADS_PAGE, flags=re.DOTALL | re.MULTILINE)
    assert set(re.findall(r"^- `(\w+)`", section, flags=re.MULTILINE)) == reference.SHARED


def section(heading: str) -> str:
    (found,) = re.findall(rf"^## {heading}\n(.*?)(?=^## )", TABLES, flags=re.DOTALL | re.MULTILINE)
    return found


def test_every_mark_is_explained():
    assert {mark for mark in MARKS if f"| `{mark}` |" not in section("Marks")} == set()


def test_every_function_of_harness_exists():
    named = set(re.findall(r"\bharness\.([a-zA-Z_]+)\(", PYTHON)) | {"RunOptions"}
    assert {"run_suite", "load_study"} <= named <= set(harness.__all__)


def test_every_method_and_argument_of_a_study_exists():
    from harness.report.study import Study

    calls = re.findall(r"\bstudy\.([a-z_]+)(?:\(([^)]*)\))?", PYTHON)
    assert {name for name, _ in calls if not hasattr(Study, name)} <= {field.name for field in fields(Study)}
    for name, arguments in calls:
        given = set(re.findall(r"\b([a-z]+)=", re.sub(r'"[^"]*"', "", arguments)))
        assert given <= set(inspect.signature(getattr(Study, name)).parameters if given else ())


def test_options_are_those_of_a_run():
    from harness import RunOptions

    assert {"executor", "overrides", "only"} <= {field.name for field in fields(RunOptions)}
