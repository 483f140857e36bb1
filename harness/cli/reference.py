"""Pages of the documentation that are made from the source: the keys of suites, components, metrics."""

import inspect
import json
import re
from collections.abc import Iterator
from typing import Any

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
    """`harness docs suite_keys`: every key of a suite file, from its schema."""
    from harness.plan.suite_file import suite_schema

    schema = suite_schema()
    lines = [
        "# Keys of a suite file",
        "",
        "From the schema that `harness schema` prints: key (type; default): meaning.",
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


def parameter_lines(cls: type, shared: set[str]) -> Iterator[str]:
    """The parameters of a component with their meanings, then the names of those that are `shared`."""
    from harness.plan.parameters import REQUIRED, parameters
    from harness.plan.suite_file import descriptions

    texts, elsewhere = descriptions(cls), []
    for name, parameter in parameters(cls).items():
        default = parameter.default
        written = default if isinstance(default, str) else "" if default is REQUIRED else json.dumps(default)
        shown = f"`{name}: {written}`" if written else f"`{name}`"
        if name in shared:
            elsewhere.append(shown)
        else:
            yield f"- {shown}: {in_yaml(texts[name])}"
    if elsewhere:
        yield f"- Shared: {', '.join(elsewhere)}."


def components() -> str:
    """`harness docs components`: those of this repository with their parameters, from docstrings."""
    from harness.registry import BACKBONES, CORPORA, HEADS

    lines = [
        "# Heads, backbones and corpora",
        "",
        "From the docstrings, which also have equations, shapes, sources and differences. A parameter stands with its",
        "default. Shared ones: [heads.md](heads.md#parameters-that-heads-share).",
    ]
    for title, registry in (("Heads", HEADS), ("Backbones", BACKBONES), ("Corpora", CORPORA)):
        lines += ["", f"## {title}"]
        for name in registry.names():
            if registry.origin(name).startswith(OURS):
                cls = registry.get(name)
                shared = SHARED if registry is HEADS else set()
                lines += ["", f"### `{name}`", "", *summary(cls), "", *parameter_lines(cls, shared)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join([*lines, ""]))


# Metrics.


def metrics() -> str:
    """`harness docs metrics`: what a record holds."""
    from harness.records.metrics import METRICS

    lines = [
        "# Metrics",
        "",
        "What a record holds. Label in tables (name in records and frames; unit): meaning. What else tables show:",
        "[tables.md](tables.md#columns).",
        "",
    ]
    for metric in METRICS.values():
        unit = f"; {metric.unit}" if metric.unit else ""
        lines.append(f"- `{metric.label}` (`{metric.name}`{unit}): {escaped(metric.description)}")
    return "\n".join([*lines, ""])


PAGES = {"components": components, "metrics": metrics, "suite_keys": suite_keys}
