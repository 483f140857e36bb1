"""The commands that say what there is: `harness list`, `schema` and `docs`."""

import importlib
import inspect
import json
import math
import re
import sys
from collections.abc import Iterator
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from rich.table import Table
from rich.text import Text

from harness import FOLDER as PACKAGE
from harness import bundled
from harness.cli.commands import COMMANDS, FIRST
from harness.cli.options import Json, argument, console, option, say
from harness.errors import BrokenComponent, DuplicateComponent, ExecutionError, nearest
from harness.machine.files import kept
from harness.machine.source import is_of_package, source_hash
from harness.plan.reader import ENDING, FOLDER, folders, introduction, name_of
from harness.report import screen

if TYPE_CHECKING:  # a list of suites waits for nothing that imports torch
    from harness.plan.parameters import Parameter
    from harness.registry import Registry

FIRST_SUITES = 10  # that a list shows
BROKEN = "broken: "  # begins what is said in the place of parameters
SHORT = 13  # characters of a cost
KINDS = ("heads", "backbones", "corpora")
WORDS = {int: "integer", float: "number", bool: "true | false", str: "text", NoneType: "null", Path: "path"}


def schema() -> None:
    """Print the JSON schema of suite files, with which editors complete keys and mark mistakes."""
    from harness.plan.suite_file import schema_text

    print(schema_text(), end="")


def docs(
    page: Annotated[str | None, argument("The name of a page; without it, the pages are listed.")] = None,
) -> None:
    """Print a page of the documentation as markdown, or the names and titles of all pages."""
    from harness.cli import reference

    pages = {place.stem: partial(place.read_text, encoding="utf-8") for place in bundled("docs").glob("*.md")}
    pages = dict(sorted((pages | reference.PAGES).items()))
    if page is None:
        for name, text in pages.items():
            say(f"{name:<14} {text().partition(chr(10))[0].removeprefix('# ')}")
    elif page in pages:
        say(pages[page]())
    else:
        raise ExecutionError(f"there is no page '{page}'{nearest(page, list(pages))} (known: {', '.join(pages)})")


def list_components(
    what: Annotated[str | None, argument("heads, backbones, corpora or suites.")] = None,
    name: Annotated[str | None, argument("Show this one with its parameters.")] = None,
    everything: Annotated[bool, option("List all commands and suites, not only those to begin with.", "--all")] = False,
    as_json: Json = False,
) -> None:
    """List heads, backbones, corpora or suites: what each is, where it is from, what it costs.

    With a name: its parameters, as a suite gives them. The cost of a head is that of a training step of the output
    layer, in products of hidden states with the output matrix. Without an argument: the commands and the suites to
    begin with, which are yours and the shortest ones.
    """
    if what is None:
        if not as_json:
            _list_commands(everything)
        what = "suites"
    if what not in (*KINDS, "suites"):
        raise ExecutionError(f"harness list {what}: expected heads, backbones, corpora or suites")
    entries = _suites() if what == "suites" else _kept_components(what)
    if name is not None:
        known = [entry["name"] for entry in entries]
        if name not in known:
            raise ExecutionError(f"there is no '{name}' in {what}{nearest(name, known)} (known: {', '.join(known)})")
        entries = [entry for entry in entries if entry["name"] == name]
    some = entries
    if what == "suites" and name is None and not (everything or as_json):
        some = sorted(entries, key=lambda entry: (entry["kind"] != "yours", entry["core_minutes"] or math.inf))
        some = some[:FIRST_SUITES]
    if as_json:
        print(json.dumps(entries, indent=1))
    elif name is not None and what in KINDS:
        _show(entries[0], what)
    else:
        console.print(*_lines(some), sep="\n")
        if len(some) < len(entries):
            say(f"{len(entries) - len(some)} more suites, longer ones: harness list suites --all")


def _list_commands(everything: bool) -> None:
    names = COMMANDS if everything else FIRST
    rows = [(f"harness {name}", COMMANDS[name].summary) for name in names]
    console.print(screen.grid(("command", "what it does"), rows, whole=("command", "what it does")))
    say("" if everything else f"{len(COMMANDS) - len(names)} more commands: harness list --all")
    say("")


def _suites() -> list[dict[str, Any]]:
    """An entry for each suite that is taken by its name, with the name: those of ./suites, and those of the harness."""
    entries = []
    for folder in folders():
        kind = "yours" if folder == FOLDER and len(folders()) > 1 else "bundled"
        for path in sorted(folder.glob(f"*{ENDING}")):
            about, cost, minutes, brief = introduction(path)
            source, about = _cited(about)
            entry = {"name": name_of(path), "from": str(path), "kind": kind, "about": about, "brief": brief}
            entries.append({**entry, "source": source, "cost": cost, "core_minutes": minutes, "parameters": []})
    return entries


def _kept_components(what: str) -> list[dict[str, Any]]:
    """The entries of components, kept where all are of the package and sound: then nothing imports torch."""
    users = Path(what).resolve()
    added = len(importlib.import_module(f"harness.{what}").__path__) > 1  # a folder, by this process
    has_own = added or (users.is_dir() and users != bundled(what).resolve())
    source = source_hash()
    if not source or has_own or entry_points(group=f"harness.{what}"):
        return _components(what)

    def make() -> list[dict[str, Any]] | None:
        found, registry = _components(what), _registry(what)
        texts = [text for each in found for text in each["parameters"]]
        if any(text.startswith(BROKEN) for text in texts) or registry.faults():
            return None
        return found if all(is_of_package(registry.get(each["name"])) for each in found) else None

    return kept("lists", json.dumps([what, str(PACKAGE), source, sys.version]), make) or _components(what)


def _components(what: str) -> list[dict[str, Any]]:
    """An entry for each component. That of a component that cannot be used says why."""
    from harness.plan.names import section
    from harness.plan.parameters import parameters

    registry, entries = _registry(what), []
    for name in registry.names():
        about, brief, source, cost = "", "", "", ""
        try:
            cls = registry.get(name)
            shown = list(map(_written, parameters(cls).values()))
            about = inspect.cleandoc(cls.__doc__ or "").partition("\n")[0]
            brief, source, cost = section(cls, "Brief"), _cited(section(cls, "Source"))[0], section(cls, "Cost")
        except (BrokenComponent, DuplicateComponent) as error:
            shown = [f"{BROKEN}{error}"]
        entry = {"name": name, "from": registry.origin(name), "about": about, "brief": brief}
        entries.append({**entry, "source": source, "cost": cost, "parameters": shown})
    return entries


def _cited(text: str) -> tuple[str, str]:
    """'Yang 2018' and the rest of a text that begins with 'Yang et al. (2018)'; '' and the text without authors."""
    found = re.match(r"([A-Z][\w-]+)(?:(?:,| and|, and) [A-Z][\w-]+)*(?: et al\.)? \((\d{4})\)[,: ]*", text)
    return (f"{found[1]} {found[2]}", text[found.end() :]) if found else ("", text)


def _lines(entries: list[dict[str, Any]]) -> Iterator[Table | Text]:
    """A line for each entry, as wide as the terminal; and why those that cannot be used cannot be used."""
    width = console.width if console.is_terminal else 160
    names, costs = [entry["name"] for entry in entries], list(map(_at_a_glance, entries))
    room = width - max(map(len, ("name", *names))) - max(map(len, ("cost", *costs))) - 2 * screen.GAP
    rows = [(entry["name"], _what_it_is(entry, room), cost) for entry, cost in zip(entries, costs, strict=True)]
    columns = ("name", "what it is", "cost") if any(costs) else ("name", "what it is")
    yield screen.grid(columns, [row[: len(columns)] for row in rows], whole=columns)
    for entry in entries:
        yield from (screen.text(f"{entry['name']}: {why}") for why in entry["parameters"] if why.startswith(BROKEN))


def _what_it_is(entry: dict[str, Any], room: int) -> str:
    """What an entry is, with its source: the whole sentence, or else in brief, or else the start of the sentence."""
    source = f" ({entry['source']})" if entry["source"] else ""
    texts = [entry["about"] + source, *([entry["brief"] + source, entry["brief"]] if entry["brief"] else [])]
    cut = _cut(entry["about"], room - len(source)) + source
    return next((text for text in texts if len(text) <= room), cut)


def _at_a_glance(entry: dict[str, Any]) -> str:
    """The cost in a few characters: '50 min' of a core, where a suite says them; the number of trials; or its start."""
    if (minutes := entry.get("core_minutes")) is not None:
        return f"{math.ceil(minutes)} min" if minutes < 60 else screen.span(minutes)
    trials = re.search(r"\d+ trials", entry["cost"])
    return trials[0] if trials else _cut(entry["cost"].partition(";")[0], SHORT)


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 1].rstrip()}…"


def _show(entry: dict[str, Any], what: str) -> None:
    """What a component is, and for each of its parameters what a suite may give, the default and the meaning."""
    from harness.plan.suite_file import descriptions

    say("\n".join(filter(None, (entry["about"], entry["source"], f"from {entry['from']}"))))
    if entry["parameters"][:1] and entry["parameters"][0].startswith(BROKEN):
        return say(entry["parameters"][0])
    meanings = descriptions(_registry(what).get(entry["name"]))
    rows = []
    for name, _, value in (parameter.partition(": ") for parameter in entry["parameters"]):
        kind, _, default = value.partition(" = ")
        rows.append((name, kind, default or screen.NOTHING, meanings.get(name, screen.NOTHING)))
    console.print(screen.grid(("parameter", "value", "default", "meaning"), rows, whole=("parameter", "default")))


def _registry(what: str) -> "Registry":
    from harness import registry

    return getattr(registry, what.upper())


def _written(parameter: "Parameter") -> str:
    """A parameter as a suite gives it: 'gate: learned | constant = learned', 'd_embed: integer | null = null'."""
    from harness.plan.parameters import REQUIRED
    from harness.plan.specs import value_text

    default = parameter.default
    shown = json.dumps(default) if default is None or isinstance(default, bool) else value_text(default)
    return f"{parameter.name}: {_kind(parameter.annotation)}" + ("" if default is REQUIRED else f" = {shown}")


def _kind(annotation: Any) -> str:
    """What a suite may give for an annotation of Python: 'integer | null', '[integer, ...]', '{text: number}'."""
    origin, arguments = get_origin(annotation), [each for each in get_args(annotation) if each is not Ellipsis]
    if origin is Literal:
        return " | ".join(map(str, arguments))
    if origin in (list, tuple):
        return f"[{_kind(arguments[0])}, ...]"
    if origin is dict:
        return f"{{{_kind(arguments[0])}: {_kind(arguments[1])}}}"
    if arguments:
        return " | ".join(map(_kind, arguments))
    return WORDS.get(annotation, getattr(annotation, "__name__", str(annotation)))
