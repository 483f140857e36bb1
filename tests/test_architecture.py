"""The rules of the code's structure, checked by reading the source: who imports what.

`PACKAGES` is the order of the packages and modules of harness/; a few of them may belong together. Each imports from
itself and from those before it. CONTRIBUTING.md has the reasons.
"""

import ast
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from harness.extensions import EXTENSIONS

ROOT = Path(__file__).parent.parent
SOURCES = sorted(p for folder in ("harness", "heads", "backbones") for p in (ROOT / folder).rglob("*.py"))
PACKAGES: tuple[tuple[str, ...], ...] = (
    ("printable",),
    ("errors",),
    ("extensions",),
    ("random_streams",),
    ("machine",),
    ("model_folder",),
    ("containment",),
    ("registry",),
    ("dropout",),
    ("fading",),
    ("protocols",),
    ("kernels",),
    ("distributions",),
    ("corpora",),
    ("model",),
    ("flops",),
    ("plan",),
    ("records",),
    ("code",),
    ("training",),
    ("trial",),
    ("integrity",),
    ("gpu",),
    ("pretrained",),
    ("report",),
    ("ladder",),
    ("diagnostics",),
    ("experiments",),
    ("tracking",),
    ("execution",),
    ("board",),
    ("exchange",),
    ("verification",),
    ("conformance",),
    ("starters",),
    ("submissions",),
    ("cli",),
    ("__main__",),
)
COMPONENTS_MAY_IMPORT = {
    *("harness.protocols", "harness.registry", "harness.distributions", "harness.dropout", "harness.fading"),
    "harness.model_folder",
}
COMPONENTS_OF_COMPONENTS = {
    ("backbones/bilstm.py", "harness.backbones.lstm"),  # its stack from the left is that LSTM
    ("heads/mtp_module.py", "harness.heads.mtp"),  # the sum of the losses of two words
    ("heads/bag_of_words.py", "harness.heads.token_order"),  # the first occurrences of the words to come
}
BESIDE = {"heads", "backbones"}  # packages of harness/ in folders beside it


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module. `at_run_time` is False within `if TYPE_CHECKING:`."""

    module: str
    line: int
    at_run_time: bool


def listed(problems: list[str]) -> str:
    return "\n".join(problems)


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def module_of(path: Path) -> str:
    """The dotted name: 'harness.plan' for harness/plan/__init__.py, 'harness.heads.mos' for heads/mos.py."""
    dotted = name(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return dotted if name(path).startswith("harness/") else f"harness.{dotted}"


MODULES = {module_of(path): path for path in SOURCES}
OURS = [path for path in SOURCES if name(path).startswith("harness/")]


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(path: Path) -> tuple[Import, ...]:
    """Every import of a file, within functions too; `from a import b` imports a.b where that is a module of ours."""
    blocks = [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.If)]
    only_types = {
        id(inner)
        for block in blocks
        if ast.unparse(block.test).endswith("TYPE_CHECKING")
        for statement in block.body
        for inner in ast.walk(statement)
    }
    found = []
    for node in ast.walk(tree_of(path)):
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name(path)}:{node.lineno}: a relative import; write the full name"
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            modules = [each if each in MODULES else node.module for each in full]
        found += [Import(module, node.lineno, id(node) not in only_types) for module in modules]
    return tuple(found)


def place_of(module: str) -> int:
    """The place in PACKAGES of a module of harness/."""
    first = module.split(".")[1]
    (found,) = [index for index, together in enumerate(PACKAGES) if first in together]
    return found


def test_every_module_of_the_harness_belongs_to_a_package():
    tops = {module.split(".")[1] for module in MODULES if module != "harness"}
    assert tops - BESIDE == {each for package in PACKAGES for each in package}


def test_a_package_imports_from_itself_and_from_those_before_it_and_no_head_or_backbone():
    problems = []
    for path in OURS:
        for each in imports(path):
            if module_of(path) == "harness" or not each.module.startswith("harness."):
                continue
            if each.module.split(".")[1] in BESIDE:
                problems.append(f"{name(path)}:{each.line} imports {each.module}; a registry has it")
            elif place_of(each.module) > place_of(module_of(path)):
                problems.append(f"{name(path)}:{each.line} imports {each.module}, which is of a later package")
    assert not problems, listed(problems)


def extension_of(module: str) -> str:
    """The extension that a module belongs to; '' for the core."""
    for extension, parts in EXTENSIONS.items():
        if any(f"{module}.".startswith(f"{part}.") for part in parts):
            return extension
    return ""


def test_no_module_imports_an_extension_but_its_own():
    problems = []
    for path in OURS:
        own = extension_of(module_of(path))
        for each in imports(path):
            if each.at_run_time and extension_of(each.module) not in ("", own):
                problems.append(f"{name(path)}:{each.line}: imports {each.module}; ask harness.extensions for it")
    assert not problems, listed(problems)


def test_importing_the_harness_imports_none_of_its_packages():
    # the public names of harness/__init__.py are imported when they are asked for: `harness --help` needs no torch
    statements = [each for each in tree_of(ROOT / "harness" / "__init__.py").body if "import" in ast.unparse(each)]
    assert not [
        ast.unparse(each)
        for each in statements
        if isinstance(each, ast.Import | ast.ImportFrom) and "harness" in ast.unparse(each)
    ]


def test_heads_and_backbones_import_torch_and_three_modules_of_ours():
    problems = []
    for path in SOURCES:
        for each in imports(path) if name(path).startswith(("heads/", "backbones/")) else ():
            allowed = each.module in COMPONENTS_MAY_IMPORT or (name(path), each.module) in COMPONENTS_OF_COMPONENTS
            if each.module.startswith("harness") and not allowed:
                problems.append(f"{name(path)}:{each.line} imports {each.module}")
    assert not problems, listed(problems)


@pytest.mark.system
def test_tables_and_pages_wait_for_no_library_of_plots():
    packages = "harness.cli.views, harness.report.study, harness.board.leaderboard, harness.report.page.document"
    slow = "{'matplotlib', 'pandas', 'scipy.stats', 'mlflow', 'ray'}"
    code = f"import sys, {packages}; print(sorted({slow} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "[]\n"


def test_no_machine_path_in_the_suites_and_tables():
    made = [
        path
        for kind in ("tables/*.*", "plots/*/*.svg", "reports/*")
        for path in (ROOT / "results" / "showcase").glob(kind)
    ]
    for path in [*(ROOT / "suites").glob("*.yaml"), *made]:
        text = path.read_text(encoding="utf-8")
        assert str(ROOT) not in text, path
        assert "/home/" not in text, path


def test_every_package_of_ours_is_installed_and_nothing_else():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    data = {"harness.suites", "harness.docs", "harness.published"}
    assert sorted({*listed} - data) == sorted({module_of(path.parent / "__init__.py") for path in SOURCES})
