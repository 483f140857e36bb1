"""Where components are found by name: one class, one instance for each kind. The only module-level mutable state.

A component of ours registers itself with the decorator; the first look-up in any process imports every module of the
kind's package, so worker processes need no set-up. Third parties name theirs in the entry-point groups
`harness.heads` and `harness.backbones`; these are listed without importing and loaded only when asked for.
"""

import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import harness
from harness.containment.calls import calling, first_line, marked_signals
from harness.containment.shared_state import TORCH
from harness.errors import BrokenComponent, ComponentError, DuplicateComponent, HarnessError, UnknownComponent


def nearest(name: str, known: list[str]) -> str:
    """'; did you mean ...?' when one of the known names is close, else ''."""
    matches = difflib.get_close_matches(str(name), known, n=1)
    return f"; did you mean '{matches[0]}'?" if matches else ""


class Registry:
    """Names of one kind of component and the classes behind them.

    Args:
        kind: what an entry is called in messages: 'head', 'backbone', 'corpus'.
        package: the package whose modules register entries of this kind.
        group: entry-point group in which other distributions offer theirs, or None.
    """

    def __init__(self, kind: str, package: str, group: str | None = None):
        self.kind, self.package, self.group = kind, package, group
        self._classes: dict[str, type] = {}
        self._plugins: dict[str, EntryPoint] = {}
        self._discovered = False

    def register(self, name: str) -> Callable[[type], type]:
        """Class decorator. Raises DuplicateComponent, naming both places, when the name is taken."""

        def add(cls: type) -> type:
            taken = self._classes.get(name)
            if taken is not None and _place(taken) != _place(cls):
                raise DuplicateComponent(
                    f"{self.kind} '{name}' is registered twice: in {_place(taken)} and in {_place(cls)}"
                )
            self._classes[name] = cls
            return cls

        return add

    def get(self, name: str) -> type:
        """The class called `name`.

        Raises: UnknownComponent with the nearest match and the known names; BrokenComponent, with its cause chained,
        when a plug-in is known but cannot be imported.
        """
        self._discover()
        if name in self._classes:
            return self._classes[name]
        if name in self._plugins:
            return self._load(name)
        known = self.names()
        raise UnknownComponent(f"unknown {self.kind} '{name}'{nearest(name, known)} (known: {', '.join(known)})")

    def names(self) -> list[str]:
        """All known names, sorted; plug-ins are listed without importing them."""
        self._discover()
        return sorted({*self._classes, *self._plugins})

    def origin(self, name: str) -> str:
        """Where an entry comes from: 'heads/mos.py', or the plug-in's distribution and entry point."""
        self._discover()
        if name in self._plugins:
            return _plugin_place(self._plugins[name])
        return _place(self.get(name))

    def module(self, name: str) -> str:
        """The name of the module that defines an entry; of a plug-in the one that it names, which is not imported.

        Raises: UnknownComponent.
        """
        self._discover()
        return self._plugins[name].module if name in self._plugins else self.get(name).__module__

    def _load(self, name: str) -> type:
        who = f"{self.kind} '{name}' from {_plugin_place(self._plugins[name])}"
        try:
            with marked_signals(), calling(who, "its import", TORCH):
                return self._plugins[name].load()
        except ComponentError as cause:
            raise BrokenComponent(str(cause)) from cause
        except Exception as cause:
            raise BrokenComponent(f"{who} cannot be imported: {first_line(cause)}") from cause

    def _discover(self) -> None:
        if self._discovered:
            return
        package = importlib.import_module(self.package)
        _refuse_foreign(package)
        for module in pkgutil.iter_modules(package.__path__):
            self._import(f"{self.package}.{module.name}")
        for entry in entry_points(group=self.group) if self.group else ():
            taken = self._classes.get(entry.name)
            other = self._plugins.get(entry.name)
            if taken is not None or (other is not None and other.value != entry.value):
                first = _place(taken) if taken is not None else _plugin_place(other)
                raise DuplicateComponent(
                    f"{self.kind} '{entry.name}' is registered twice: in {first} and by {_plugin_place(entry)}"
                )
            self._plugins[entry.name] = entry
        self._discovered = True

    def _import(self, module: str) -> None:
        try:
            with marked_signals(), calling(module, "its import", TORCH):
                importlib.import_module(module)
        except HarnessError:
            raise
        except Exception as cause:
            where = importlib.util.find_spec(module).origin
            raise BrokenComponent(f"{where} cannot be imported: {first_line(cause)}") from cause


def _place(cls: type) -> str:
    """'heads/mos.py' for a class of ours, the file's path for any other."""
    path = Path(inspect.getfile(cls))
    root = Path(harness.__file__).parent.parent
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def _plugin_place(entry: EntryPoint) -> str:
    owner = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown distribution"
    return f"plug-in {owner} ({entry.value})"


def _refuse_foreign(package) -> None:
    """`heads` and `backbones` are common names: another distribution's package of that name must not win in silence."""
    found, ours = Path(next(iter(package.__path__))), Path(harness.__file__).parent.parent  # a bare folder has no file
    owner = package.__name__.partition(".")[0]
    marker = getattr(importlib.import_module(owner), "__distribution__", None)
    if owner != "harness" and (found.parent != ours or marker != harness.DISTRIBUTION):
        raise HarnessError(
            f"the package '{owner}' found at {found} is not ours: expected {ours / owner} of {harness.DISTRIBUTION}; "
            "another distribution or folder of that name hides it"
        )


HEADS = Registry("head", package="heads", group="harness.heads")
BACKBONES = Registry("backbone", package="backbones", group="harness.backbones")
CORPORA = Registry("corpus", package="harness.corpora")
