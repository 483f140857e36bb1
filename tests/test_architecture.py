"""The house rules that a reading of the source can keep: who imports what, sizes, names."""

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted(p for folder in ("harness", "heads", "backbones", "benchmarks") for p in (ROOT / folder).rglob("*.py"))
HOMES = {
    "ray": "harness/execution/ray/",
    "mlflow": "harness/tracking/tracker.py",
    "ruamel": "harness/plan/reader.py",
    "typer": "harness/cli/",
    "pandas": "harness/report/",
    "tabulate": "harness/report/",
    "matplotlib": "harness/report/",
    "jinja2": "harness/report/page/document.py",
    "markupsafe": "harness/report/page/document.py",
    "datasets": "harness/corpora/hub.py",
}
COMPONENTS_MAY_IMPORT = {"harness.protocols", "harness.registry", "harness.distributions"}


def imports(path: Path) -> set[str]:
    """Dotted names of every module imported anywhere in a file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= (
                {f"{node.module}.{alias.name}" for alias in node.names} if node.module == "harness" else {node.module}
            )
    return found


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_each_library_is_imported_in_its_home_only(path):
    for module in imports(path):
        home = HOMES.get(module.partition(".")[0])
        assert home is None or name(path).startswith(home), f"{name(path)} imports {module}; its home is {home}"


@pytest.mark.parametrize("path", [p for p in SOURCES if name(p).startswith(("heads/", "backbones/"))], ids=name)
def test_heads_and_backbones_import_torch_and_three_modules_of_ours(path):
    ours = {module for module in imports(path) if module.partition(".")[0] in {"harness", "heads", "backbones"}}
    assert ours <= COMPONENTS_MAY_IMPORT


@pytest.mark.parametrize("path", [p for p in SOURCES if name(p).startswith("harness/")], ids=name)
def test_the_framework_imports_no_head_and_no_backbone(path):
    assert not {m for m in imports(path) if m.partition(".")[0] in {"heads", "backbones"}}


@pytest.mark.parametrize("path", [p for p in SOURCES if name(p).startswith("harness/report/")], ids=name)
def test_reports_do_not_import_execution(path):
    assert not {m for m in imports(path) if m.startswith("harness.execution")}


@pytest.mark.parametrize("path", [p for p in SOURCES if name(p) != "harness/cli/bench.py"], ids=name)
def test_benchmarks_are_imported_by_their_command_only(path):
    assert name(path).startswith("benchmarks/") or not {m for m in imports(path) if m.startswith("benchmarks")}


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_a_module_has_at_most_300_lines_and_says_what_it_is(path):
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= 300
    assert ast.get_docstring(ast.parse(text))
    assert path.stem not in {"utils", "util", "helpers", "common", "core", "base", "misc"}


def test_no_package_below_tests():
    # tests/heads/__init__.py would make the tests import themselves as `heads`
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_no_machine_path_in_the_suites_and_tables():
    made = [path for kind in ("tables/*.*", "plots/*/*.svg", "reports/*") for path in (ROOT / "results").glob(kind)]
    for path in [*(ROOT / "suites").glob("*.yaml"), *made]:
        text = path.read_text(encoding="utf-8")
        assert str(ROOT) not in text, path
        assert "/home/" not in text, path


def test_every_package_of_ours_is_installed_and_nothing_else():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    assert sorted(listed) == sorted({name(path.parent).replace("/", ".") for path in SOURCES})
