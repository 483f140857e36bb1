"""`make reference`: the documents that say what the source says, from the source. A test holds that they are equal.

docs/suite_keys.md: every key of a suite file, from the schema. docs/components.md: heads, backbones and corpora with
their parameters, from the docstrings. docs/metrics.md: what a record holds. docs/design/modules.md: modules,
and the names that others use of them.
"""

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
OURS = ("heads/", "backbones/", "harness/")  # the components of this repository, without those of plug-ins
OF_COMPONENTS = {"corpora", "backbones", "heads"}  # lists of a suite file that are checked against the registries
LIMITS = {"exclusiveMinimum": ">", "minimum": ">=", "exclusiveMaximum": "<", "maximum": "<="}
WORDS = {
    "integer": "whole number",
    "boolean": "`true` or `false`",
    "null": "`null`",
    "string": "text",
    "object": "mapping",
}
SHARED = {  # parameters that docs/heads.md explains once for all heads
    *("bias", "tie_weights", "projection", "d_embed", "compat", "start", "init_range", "init_bias", "softcap"),
}


def in_yaml(text: str) -> str:
    """What a docstring says of a value, as a suite writes it: `null` for None, `sgd` for 'sgd'."""
    text = re.sub(r" \(harness/[\w/.]+\)", "", re.sub(r"\bNone\b", "`null`", text))
    text = re.sub(r"(?<!\w)'([\w.-]+)'", r"`\1`", text)
    return escaped(text)


def escaped(text: str) -> str:
    """Markdown without tags: `<` outside of code."""
    parts = text.split("`")
    return "`".join(part if code % 2 else part.replace("<", "&lt;") for code, part in enumerate(parts))


# The keys of a suite file.


def options(node: dict[str, Any], definitions: dict[str, Any]) -> list[dict[str, Any]]:
    """The schemas of which one holds, without references."""
    if "$ref" in node:
        node = {**definitions[node["$ref"].rpartition("/")[2]], **{k: v for k, v in node.items() if k != "$ref"}}
    return [each for option in node["anyOf"] for each in options(option, definitions)] if "anyOf" in node else [node]


def type_text(node: dict[str, Any], definitions: dict[str, Any]) -> str:
    """A schema in words: 'number > 0 or `null`'."""
    return " or ".join(_of_one(option, definitions) for option in options(node, definitions))


def _of_one(node: dict[str, Any], definitions: dict[str, Any]) -> str:
    if "enum" in node:  # true, and "true" as a text, are written alike
        return " or ".join(dict.fromkeys(f"`{str(value).lower()}`" for value in node["enum"]))
    if "const" in node:
        return f"`{node['const']}`"
    if "prefixItems" in node:
        return f"list of {len(node['prefixItems'])}: {type_text(node['prefixItems'][0], definitions)}"
    if node["type"] == "array":
        return f"list of {type_text(node['items'], definitions)}"
    limits = [f"{sign} {node[name]:g}" for name, sign in LIMITS.items() if name in node and node[name] < 2**60]
    word = WORDS.get(node["type"], node["type"])
    return f"{word} {' and '.join(limits)}" if limits else word


def leaves(node: dict[str, Any], definitions: dict[str, Any], place: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """(key, type, default, meaning) of every value that a suite file may hold."""
    for name, child in node["properties"].items():
        mappings = [option for option in options(child, definitions) if "properties" in option]
        if mappings and "items" not in child:
            yield from leaves(mappings[0], definitions, (*place, name))
            continue
        default = child.get("default", {} if child.get("type") == "object" else [])
        shown = f"`{default if isinstance(default, str) and default else json.dumps(default)}`"
        required = name in node.get("required", ()) or name in OF_COMPONENTS or name == "seeds"
        kind = "list of components" if name in OF_COMPONENTS else type_text(child, definitions)
        yield ".".join((*place, name)), kind, "required" if required else shown, in_yaml(child.get("description", ""))


def suite_keys() -> str:
    """The text of docs/suite_keys.md."""
    from harness.plan.suite_file import suite_schema

    schema = suite_schema()
    lines = [
        "# Keys of a suite file",
        "",
        "Made by `make reference` from the schema that `harness schema` prints: key (type; default): meaning.",
        "What the keys are for, with examples: [suites.md](suites.md).",
    ]
    parts: dict[str, list[str]] = {}
    for key, kind, default, meaning in leaves(schema, schema["$defs"]):
        part = f"`{key.partition('.')[0]}`" if "." in key else "The suite"
        parts.setdefault(part, []).append(f"- `{key}` ({kind}; {default}): {meaning}")
    for part, keys in parts.items():
        lines += ["", f"## {part}", "", *keys]
    return "\n".join([*lines, ""])


# Heads, backbones and corpora.


def summary(cls: type) -> Iterator[str]:
    """The first sentences of a component's docstring, and its first source."""
    text = inspect.cleandoc(cls.__doc__)
    yield in_yaml(" ".join(text.partition("\n\n")[0].split()))
    for source in re.findall(r"^Source: ((?:[^;\n]|\n {4})+)", text, flags=re.MULTILINE):
        yield f"Source: {escaped(' '.join(source.split()).rstrip('.'))}."


def parameter_lines(component: str, cls: type, shared: set[str], explained: dict[str, str]) -> Iterator[str]:
    """The parameters of a component: those with a meaning of its own, then those that are explained elsewhere.

    `explained`: name and meaning -> the component that has it; this one's are added.
    """
    from harness.plan.parameters import REQUIRED, parameters
    from harness.plan.suite_file import descriptions

    texts, elsewhere = descriptions(cls), {}
    for name, parameter in parameters(cls).items():
        default = parameter.default
        written = default if isinstance(default, str) else "" if default is REQUIRED else json.dumps(default)
        shown = f"`{name}: {written}`" if written else f"`{name}`"
        meaning = f"{name}: {texts[name]}"
        if name in shared:
            elsewhere.setdefault("Shared", []).append(shown)
        elif meaning in explained:
            elsewhere.setdefault(f"As `{explained[meaning]}`", []).append(shown)
        else:
            explained[meaning] = component
            yield f"- {shown}: {in_yaml(texts[name])}"
    for place, names in elsewhere.items():
        yield f"- {place}: {', '.join(names)}."


def components() -> str:
    """The text of docs/components.md."""
    from harness.registry import BACKBONES, CORPORA, HEADS

    lines = [
        "# Heads, backbones and corpora",
        "",
        "Made by `make reference` from the docstrings, which also have equations, shapes, sources and differences. A",
        "parameter stands with its default. Shared ones: [heads.md](heads.md#parameters-that-heads-share).",
    ]
    for title, registry in (("Heads", HEADS), ("Backbones", BACKBONES), ("Corpora", CORPORA)):
        lines += ["", f"## {title}"]
        explained: dict[str, str] = {}
        for name in registry.names():
            if registry.origin(name).startswith(OURS):
                cls = registry.get(name)
                shared = SHARED if registry is HEADS else set()
                lines += ["", f"### `{name}`", "", *summary(cls), "", *parameter_lines(name, cls, shared, explained)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join([*lines, ""]))


# Metrics.


def metrics() -> str:
    """The text of docs/metrics.md."""
    from harness.records.metrics import METRICS

    lines = [
        "# Metrics",
        "",
        "Made by `make reference` from `harness/records/metrics.py`: what a record holds. Label in tables (name in",
        "records and frames; unit): meaning. What else tables show: [tables.md](tables.md#columns).",
        "",
    ]
    for metric in METRICS.values():
        unit = f"; {metric.unit}" if metric.unit else ""
        lines.append(f"- `{metric.label}` (`{metric.name}`{unit}): {escaped(metric.description)}")
    return "\n".join([*lines, ""])


# Modules.

WIDTH = 150  # of a line


def modules() -> str:
    """The text of docs/design/modules.md."""
    parsed = {module: ast.parse(path.read_text(encoding="utf-8")) for module, path in sources().items()}
    used = {module: set() for module in parsed}
    for user, tree in parsed.items():
        for module, name in imported(tree, parsed):
            if module != user and f"{module}.{name}" not in parsed:
                used[module].add(name)
    lines = [
        "# Packages and modules",
        "",
        "Made by `make reference`: what each module does, which is the first sentence of its docstring, and what other",
        "modules use of it. Of one that is found by its name, as a command or a head, its classes and functions.",
    ]
    for module, path in sources().items():
        if path.name == "__main__.py":
            continue
        said, names = sentence(parsed[module]), exported(parsed[module], used[module])
        shown = f" {', '.join(f'`{name}`' for name in names)}" if names else ""
        if path.name == "__init__.py":
            lines += ["", f"## {path.parent.relative_to(ROOT).as_posix()}/", "", *wrapped(f"{said}{shown}", ""), ""]
        else:
            lines += wrapped(f"- **{path.stem}**: {said}{shown}", "  ")
    return "\n".join([*lines, ""])


def sources() -> dict[str, Path]:
    """Dotted name -> file of every module, a package before its modules."""
    paths = [path for top in ("harness", "heads", "backbones") for path in (ROOT / top).rglob("*.py")]
    found = {}
    for path in sorted(paths, key=lambda path: (path.parent.as_posix(), path.name != "__init__.py", path.name)):
        dotted = path.relative_to(ROOT).as_posix().removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        found[dotted if dotted.startswith("harness") else f"harness.{dotted}"] = path
    return found


def imported(tree: ast.Module, known: Container[str]) -> Iterator[tuple[str, str]]:
    """(module, name) of what a module uses of others: by `from a import b`, or as `a.b` where it imports a."""
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        for alias in node.names if isinstance(node, ast.ImportFrom) else ():
            if (module := f"{node.module}.{alias.name}") in known:
                modules[alias.asname or alias.name] = module
            elif node.module in known:
                yield node.module, alias.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            yield modules[node.value.id], node.attr


def exported(tree: ast.Module, used: set[str]) -> list[str]:
    """What a module has for others: `__all__`, and the public names that others use; without any, its classes and
    functions.
    """
    made: dict[str, bool] = {}  # name -> whether it is a class or a function
    listed: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            made[node.name] = True
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
            listed += ast.literal_eval(node.value) if names == ["__all__"] else []
            made |= dict.fromkeys(names, False)
    public = {name: kind for name, kind in made.items() if not name.startswith("_")}
    found = dict.fromkeys([*listed, *(name for name in public if name in used)])
    return list(found) or [name for name, kind in public.items() if kind]


def wrapped(text: str, indent: str) -> list[str]:
    """The lines of a paragraph or of an entry of a list, with an indent from the second line on."""
    return textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def sentence(tree: ast.Module) -> str:
    """The first sentence of a module's docstring."""
    first = " ".join((ast.get_docstring(tree) or "").partition("\n\n")[0].split())
    return escaped(re.split(r"(?<=\w[.)])\s(?=[A-Z])", first, maxsplit=1)[0])


DOCUMENTS = {
    Path("docs") / "suite_keys.md": suite_keys,
    Path("docs") / "components.md": components,
    Path("docs") / "metrics.md": metrics,
    Path("docs") / "design" / "modules.md": modules,
}

if __name__ == "__main__":
    for place, made in DOCUMENTS.items():
        (ROOT / place).write_text(made(), encoding="utf-8")
        print(place)
