"""`make reference`: the documents that say what the source says, from the source. A test holds that they are equal.

docs/design/modules.md: each module of harness/, heads/ and backbones/, the sentence of its docstring, and what it
exports: the public functions, classes and constants that another module names.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
MODULES = Path("docs") / "design" / "modules.md"
SHOWN = 8  # names of a module; more are counted


def sources() -> list[Path]:
    folders = ("harness", "heads", "backbones", "benchmarks")
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def sentence(path: Path) -> str:
    """The first sentence of a module's docstring, in one line."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    first = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=\w[.)])\s(?=[A-Z])", first, maxsplit=1)[0]


def public(path: Path) -> Iterator[str]:
    """The public names that a module defines at its top level, in their order."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        names = [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [each.id for each in targets if isinstance(each, ast.Name)]
        yield from (name for name in names if not name.startswith("_"))


def words(path: Path) -> set[str]:
    return set(re.findall(r"\w+", path.read_text(encoding="utf-8")))


def package(path: Path) -> str:
    """The heading of a module: its folder, or harness/ for a module that lies there."""
    return path.parent.relative_to(ROOT).as_posix()


def modules() -> str:
    """The text of docs/design/modules.md."""
    paths = sources()
    named = {path: words(path) for path in paths}
    sections: dict[str, list[str]] = {}
    for path in paths:
        if path.name in ("__init__.py", "__main__.py") and not sentence(path):
            continue
        elsewhere = set().union(*(found for other, found in named.items() if other != path))
        exports = [f"`{name}`" for name in public(path) if name in elsewhere]
        more = f" and {len(exports) - SHOWN} more" if len(exports) > SHOWN else ""
        cell = sentence(path).replace("|", "\\|").replace("<", "&lt;")
        row = f"| `{path.name}` | {cell} | {', '.join(exports[:SHOWN])}{more} |"
        sections.setdefault(package(path), []).append(row)
    lines = [
        "# Modules",
        "",
        "Made by `make reference` from the docstrings: each module, what it does, what others use of it.",
        "",
    ]
    for name, rows in sorted(sections.items()):
        lines += [f"## {name}/", "", "| module | what it does | exports |", "|---|---|---|", *rows, ""]
    return "\n".join(lines)


DOCUMENTS = {MODULES: modules}

if __name__ == "__main__":
    for place, made in DOCUMENTS.items():
        (ROOT / place).write_text(made(), encoding="utf-8")
        print(place)
