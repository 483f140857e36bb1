"""The documentation as web pages, from the same files: `make docs` (Sphinx, which reads markdown with MyST).

Sphinx reads a copy of the repository's documents in build/documents. What is made from the source is added to it: a
page for each head, backbone and corpus, the keys of suites, the metrics, and a gallery of the committed results.
"""

import inspect
import re
import shutil
from pathlib import Path

import harness
from harness.cli.reference import OURS, PAGES, in_yaml, parameter_lines
from harness.registry import BACKBONES, CORPORA, HEADS

ROOT = Path(__file__).resolve().parents[2]
COPY = ROOT / "build" / "documents"
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "AGENTS.md")
LINKED = ("heads", "backbones", "suites", "harness", "tests", "benchmarks", "results/published", "results/showcase")

project = "output-head-harness"
version = release = harness.__version__
copyright = "the authors of output-head-harness"
extensions = ["myst_parser"]
root_doc = "index"
include_patterns = ["index.md", *DOCUMENTS, "docs/**.md", "results/showcase/tables/*.md"]
exclude_patterns = ["docs/site"]
myst_heading_anchors = 4  # links to headings are written as on a forge
html_theme = "furo"
html_title = f"{project} {version}"
html_show_sourcelink = False
# A link to a file that is no page is offered as a download; the lexer of a suite's comment may find none of its words.
suppress_warnings = ["misc.highlighting_failure"]


def copy_documents() -> None:
    """Copy the documents, and what they link to."""
    shutil.rmtree(COPY, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__", "records", "site")
    for folder in ("docs", *LINKED):
        shutil.copytree(ROOT / folder, COPY / folder, ignore=ignored)
    for name in (*DOCUMENTS, "LICENSE", "Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy2(ROOT / name, COPY / name)
    readme = COPY / "README.md"  # a forge lists the tables of the folder; here the gallery does
    readme.write_text(readme.read_text().replace("(results/showcase/tables)", "(docs/results.md)"))


def component_page(kind: str, name: str, cls: type, origin: str) -> str:
    """What the docstring of a head, backbone or corpus says, and where its code is."""
    described, _, rest = inspect.cleandoc(cls.__doc__).partition("Args:\n")
    _, *sections = re.split(r"^(Raises|Source|Differs): ", rest, flags=re.MULTILINE)
    parts = [f"# {name}", f"```text\n{described.strip()}\n```", "\n".join(parameter_lines(cls, set()))]
    for title, text in zip(sections[::2], sections[1::2], strict=True):
        parts.append(f"*{title}*: {in_yaml(' '.join(text.split()))}")
    parts.append(f"Code: [{origin}](../../{origin})" if (ROOT / origin).is_file() else f"Code: {origin}")
    suites = sorted((ROOT / "suites").glob("*.yaml"))
    using = [place.stem for place in suites if re.search(rf"- {name}\b", place.read_text())]
    parts.append("Suites: " + (", ".join(f"[{stem}](../../suites/{stem}.yaml)" for stem in using) or "none"))
    return "\n\n".join([*parts, f"All {kind}: [components](../components.md).", ""])


def make_pages() -> dict[str, list[str]]:
    """Write the pages that are made from the source. Return the pages of each kind of component."""
    for name, text in PAGES.items():
        (COPY / "docs" / f"{name}.md").write_text(text())
    found = {}
    for kind, registry in (("heads", HEADS), ("backbones", BACKBONES), ("corpora", CORPORA)):
        folder = COPY / "docs" / kind
        folder.mkdir()
        found[kind] = [name for name in registry.names() if registry.origin(name).startswith(OURS)]
        for name in found[kind]:
            page = component_page(kind, name, registry.get(name), registry.origin(name).partition(":")[0])
            (folder / f"{name}.md").write_text(page)
    return found


def gallery() -> str:
    """Every committed table: its outcome, its forest plot, its page."""
    lines = ["# Results", "", "What was trained so far, and what it came to.", ""]
    showcase = COPY / "results" / "showcase"
    tables = sorted((showcase / "tables").glob("*.md"))
    for table in sorted(tables, key=lambda place: not place.with_suffix(".csv").is_file()):  # comparisons first
        text = table.read_text().replace("](../../../docs/", "](")  # links of the page, which lies elsewhere
        title, outcome = (text + "\n\n\n").splitlines()[:3:2]
        stem, shown = table.stem, "../results/showcase"
        lines += [f"## {title.removeprefix('# ')}", "", "" if outcome.startswith("|") else outcome, ""]
        if (showcase / "plots" / stem / "forest.svg").is_file():
            lines += [f"![{stem}: a line for each head]({shown}/plots/{stem}/forest.svg)", ""]
        page = f", [page]({shown}/reports/{stem}.html)" if (showcase / "reports" / f"{stem}.html").is_file() else ""
        lines += [f"[Table]({shown}/tables/{table.name}){page}", ""]
    return "\n".join(lines)


def contents(title: str, pages: list[str]) -> str:
    return "\n".join(["```{toctree}", f":caption: {title}", ":maxdepth: 1", "", *pages, "```", ""])


def write_index(components: dict[str, list[str]]) -> None:
    """The list of all pages; the first of them is the README."""
    guides = [f"docs/{place.stem}" for place in sorted((ROOT / "docs").glob("*.md")) if place.stem != "README"]
    design = [f"docs/design/{place.stem}" for place in sorted((ROOT / "docs" / "design").glob("*.md"))]
    tables = [str(place.relative_to(ROOT)) for place in sorted((ROOT / "results/showcase/tables").glob("*.md"))]
    parts = {
        "Start": ["README", "docs/README", "docs/results"],
        "Guides": guides,
        "Reference": [f"docs/{name}" for name in PAGES],
        **{kind.capitalize(): [f"docs/{kind}/{name}" for name in names] for kind, names in components.items()},
        "Development": ["CONTRIBUTING", "CHANGELOG", "AGENTS", *design],
        "Tables": tables,
    }
    lists = [contents(title, pages) for title, pages in parts.items()]
    (COPY / "index.md").write_text("\n".join([f"# {project}", "", "Start with the [README](README.md).", "", *lists]))


copy_documents()
(COPY / "docs" / "results.md").write_text(gallery())
write_index(make_pages())
