"""Registries that find heads, backbones and corpora by name. They are the only mutable state at module level.

A component of this project registers itself with the decorator `register`. The first look-up in a process imports every
module of the package, so worker processes need no set-up. Other distributions name their components in the entry-point
groups `harness.heads` and `harness.backbones`. These plug-ins are listed without importing them, and imported when a
component is looked up by its name.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import harness
from harness.containment.calls import calling, first_line, marked_signals
from harness.containment.shared_state import TORCH
from harness.errors import (
    BrokenComponent,
    ComponentError,
    DuplicateComponent,
    HarnessError,
    UnknownComponent,
    nearest,
)


class Registry:
    """The names of one kind of component and their classes.

    Args:
        kind: the word for an entry in messages: 'head', 'backbone', 'corpus'.
        package: the package whose modules register entries of this kind.
        group: the entry-point group of plug-ins from other distributions, or None.
    """

    def __init__(self, kind: str, package: str, group: str | None = None):
        self.kind, self.package, self.group = kind, package, group
        self._classes: dict[str, type] = {}
        self._unlisted: set[str] = set()
        self._plugins: dict[str, EntryPoint] = {}
        self._discovered = False

    def register(self, name: str, *, listed: bool = True) -> Callable[[type], type]:
        """Return a class decorator that registers a class under a name.

        Args:
            listed: whether a suite may name it. An entry that is not listed is of trials that the harness makes.
        Raises: DuplicateComponent, with both places, when the decorator finds that the name is used already.
        """

        def add(cls: type) -> type:
            taken = self._classes.get(name)
            if taken is not None and _place(taken) != _place(cls):
                raise DuplicateComponent(
                    f"{self.kind} '{name}' is registered twice: in {_place(taken)} and in {_place(cls)}"
                )
            self._classes[name] = cls
            if not listed:
                self._unlisted.add(name)
            return cls

        return add

    def get(self, name: str) -> type:
        """Return the class called `name`, listed or not.

        Raises: UnknownComponent with the nearest match and the known names; BrokenComponent, with its cause chained,
        when a plug-in of that name cannot be imported.
        """
        self._discover()
        if name in self._classes:
            return self._classes[name]
        if name in self._plugins:
            return self._load(name)
        known = self.names()
        raise UnknownComponent(f"unknown {self.kind} '{name}'{nearest(name, known)} (known: {', '.join(known)})")

    def listed(self, name: str) -> type:
        """Return the class called `name`, if a suite may name it. Raises as `get` does."""
        self._discover()
        if name in self._unlisted:
            raise UnknownComponent(f"the {self.kind} '{name}' belongs to trials of `ngrams`; a suite does not name it")
        return self.get(name)

    def names(self) -> list[str]:
        """Return the names that a suite may use, sorted. Plug-ins are listed without importing them."""
        self._discover()
        return sorted({*self._classes, *self._plugins} - self._unlisted)

    def origin(self, name: str) -> str:
        """Return where an entry comes from: 'heads/mos.py', or the distribution and entry point of a plug-in."""
        self._discover()
        if name in self._plugins:
            return _plugin_place(self._plugins[name])
        return _place(self.get(name))

    def module(self, name: str) -> str:
        """Return the name of the module that defines an entry. A plug-in's module is not imported.

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
    """Return 'heads/mos.py' for a class of this project, and the path of the file for any other class."""
    path = Path(inspect.getfile(cls))
    root = Path(harness.__file__).parent.parent
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def _plugin_place(entry: EntryPoint) -> str:
    owner = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown distribution"
    return f"plug-in {owner} ({entry.value})"


def _refuse_foreign(package) -> None:
    """Raise HarnessError if the package `heads` or `backbones` is not the one of this project.

    These are common names: another distribution or folder of the same name may come first on the import path.
    """
    # __path__ instead of __file__: a folder without __init__.py has no __file__
    found, ours = Path(next(iter(package.__path__))), Path(harness.__file__).parent.parent
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
