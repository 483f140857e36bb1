"""Registries that find heads, backbones and corpora by name. They are the only mutable state at module level.

A component registers itself with the decorator `register`. The first look-up in a process imports every module of the
package, and every file of the user's folder heads or backbones that names `harness` (`use_home`): it becomes a module
of the package, `harness.heads.cosine`, wherever the folder is. Other distributions name their components in the
entry-point groups `harness.heads` and `harness.backbones`. These plug-ins are listed without importing them, and
imported when a component is looked up by its name. A class of a notebook is registered by `register` in a cell.

A file that cannot be imported, or that registers nothing, and a name that is registered twice are one warning each, to
the logger of this module. Only looking up a name that is then unknown or not unique is an error.
"""

import importlib
import inspect
import logging
import pkgutil
import sys
import traceback
from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

import harness
from harness.containment import first_line, guarded
from harness.errors import (
    BrokenComponent,
    ComponentError,
    DuplicateComponent,
    UnknownComponent,
    nearest,
)
from harness.extensions import lack_of
from harness.printable import sentence

LOG = logging.getLogger(__name__)


class Registry:
    """The names of one kind of component and their classes.

    Args:
        kind: the word for an entry in messages: 'head', 'backbone', 'corpus'.
        package: the package whose modules register entries of this kind. A folder of its last name in the user's
            home, as ./heads, is a part of it, if `group` is given.
        group: the entry-point group of plug-ins from other distributions, or None.
        given: the names of the constructor's arguments that the harness gives. Its other parameters are keyword-only.
    """

    def __init__(self, kind: str, package: str, group: str | None = None, given: tuple[str, ...] | None = None):
        self.kind, self.package, self.group, self.given = kind, package, group, given
        self._classes: dict[str, type] = {}
        self._modules: dict[str, str] = {}  # name -> the module that registered it
        self._unlisted: set[str] = set()
        self._plugins: dict[str, EntryPoint] = {}
        self._twice: dict[str, tuple[str, str]] = {}  # name -> the second module that registered it, a sentence
        self._faults: list[str] = []
        self._unread: dict[str, str] = {}  # name of a file of the user -> why it is not imported
        self._discovered = False

    def register(self, name: str, *, listed: bool = True) -> Callable[[type], type]:
        """Return a class decorator that registers a class under a name.

        Args:
            listed: whether a suite may name it. An entry that is not listed is of trials that the harness makes.
        Raises: DuplicateComponent, with both places, when a name is used already and the package's modules have all
            been imported. While they are imported, a second class is left out, and looking up the name is an error.
        """
        if not isinstance(name, str):
            raise TypeError(f"register needs a name: write .register('name') above the class, got {name!r}")

        def add(cls: type) -> type:
            taken, module = self._classes.get(name), inspect.currentframe().f_back.f_globals["__name__"]
            if taken is not None and _place(taken) != _place(cls):
                message = self._both(name, f"in {_place(taken)}", f"in {_place(cls)}")
                if self._discovered:
                    raise DuplicateComponent(message)
                self._twice[name] = module, message
                return cls
            self._classes[name], self._modules[name] = cls, module
            if not listed:
                self._unlisted.add(name)
            return cls

        return add

    def get(self, name: str) -> type:
        """Return the class called `name`, listed or not.

        Raises: UnknownComponent with the nearest match, the known names, and the files that cannot be used;
        DuplicateComponent when several places register the name; BrokenComponent when the class does not take the
        arguments that the harness gives, or, with its cause chained, when a plug-in of that name cannot be imported.
        """
        self._discover()
        if name in self._twice:
            raise DuplicateComponent(self._twice[name][1])
        if name in self._classes or name in self._plugins:
            found = self._classes[name] if name in self._classes else self._load(name)
            if wrong := _misfit(found, self.given):
                raise BrokenComponent(f"{self.kind} '{name}' of {self.origin(name)}: {wrong}")
            return found
        if "." not in name and (lack := lack_of(f"{self.package}.{name}")):
            raise UnknownComponent(f"the {self.kind} '{name}' {lack}")
        known = self.names()
        others = f"{nearest(name, known)} (known: {', '.join(known)})"
        raise UnknownComponent("; ".join([f"unknown {self.kind} '{name}'{others}", *self.faults(name)]))

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

    def imported(self) -> dict[str, type]:
        """Return the classes of the names that are there without importing a plug-in."""
        self._discover()
        return {name: cls for name, cls in self._classes.items() if name not in self._twice}

    def faults(self, name: str = "") -> tuple[str, ...]:
        """Return a sentence for each file of the package that cannot be used, or that registers nothing; and for the
        user's file called `name` if it is not read.
        """
        self._discover()
        file, found = f"{self.package}.{name}", []
        if name in self._unread:
            found.append(self._unread[name])
        found += [message for module, message in self._twice.values() if module == file]
        if others := [f"'{other}'" for other, module in self._modules.items() if module == file]:
            found.append(f"{self.package}/{name}.py registers {', '.join(others)}: use that name")
        return (*found, *self._faults)

    def add_folder(self, folder: Path) -> None:
        """Import the files of one more folder as those of the user's folder. A name that is taken is not used."""
        self._discover()
        self._adopt(importlib.import_module(self.package), folder)

    def origin(self, name: str) -> str:
        """Return where an entry comes from: 'heads/mos.py', or the distribution and entry point of a plug-in."""
        self._discover()
        if name in self._plugins:
            return _plugin_place(self._plugins[name])
        return _place(self._classes[name] if name in self._classes else self.get(name))

    def is_importable(self, name: str) -> bool:
        """Return whether another process can find an entry: of the package, of the user's folder, of a plug-in, or not
        known here.
        """
        found = self._classes.get(name)
        return found is None or name in self._plugins or found.__module__.startswith(f"{self.package}.")

    def module(self, name: str) -> str:
        """Return the name of the module that defines an entry. A plug-in's module is not imported.

        Raises: UnknownComponent.
        """
        self._discover()
        return self._plugins[name].module if name in self._plugins else self.get(name).__module__

    def _load(self, name: str) -> type:
        who = f"{self.kind} '{name}' from {_plugin_place(self._plugins[name])}"
        try:
            with guarded(who, "its import"):
                return self._plugins[name].load()
        except ComponentError as cause:
            raise BrokenComponent(str(cause)) from cause
        except Exception as cause:
            raise BrokenComponent(f"{who} cannot be imported: {first_line(cause)}") from cause

    def _discover(self) -> None:
        if self._discovered:
            return
        package = importlib.import_module(self.package)
        for module in pkgutil.iter_modules(package.__path__):
            self._import(f"{self.package}.{module.name}")
        if self.group:
            self._adopt(package, home() / package.__name__.rpartition(".")[2])
        for entry in entry_points(group=self.group) if self.group else ():
            taken = self._classes.get(entry.name)
            other = self._plugins.get(entry.name)
            if taken is not None or (other is not None and other.value != entry.value):
                first = f"in {_place(taken)}" if taken is not None else f"by {_plugin_place(other)}"
                self._twice[entry.name] = entry.module, self._both(entry.name, first, f"by {_plugin_place(entry)}")
            else:
                self._plugins[entry.name] = entry
        self._discovered = True
        for message in (*self._faults, *(message for _, message in self._twice.values())):
            LOG.warning("%s", sentence(message))

    def _adopt(self, package: ModuleType, folder: Path) -> None:
        """Make a folder of the user a part of the package, and import its files. A file that is equal to the package's
        file of that name, as in a clone, is that file; another one of that name is a fault.
        """
        bundled = Path(package.__path__[0])
        if not folder.is_dir() or folder.samefile(bundled):
            return
        package.__path__.append(str(folder))
        for file in sorted(each for each in folder.glob("[!.]*.py") if each.is_file()):
            if not file.stem.isidentifier():
                continue  # no module can be called so: a copy that an editor has made
            ours, source = bundled / file.name, file.read_bytes()
            if ours.is_file() and ours.read_bytes() != source:
                message = f"{file} has the name of a file of the harness, {ours}, and is not used: rename it"
                self._twice[file.stem] = f"{self.package}.{file.stem}", message
            elif not ours.is_file() and b"harness" in source:
                self._import(f"{self.package}.{file.stem}")
            elif not ours.is_file():
                self._unread[file.stem] = f"{file} does not import harness, so it is not read as a {self.kind}"

    def _import(self, module: str) -> None:
        """Import a module of the package. If it fails, nothing of it stays registered."""
        place = Path(importlib.util.find_spec(module).origin)
        try:
            with guarded(_relative(place), "its import"):
                importlib.import_module(module)
        except Exception as cause:
            reason = str(cause) if isinstance(cause, ComponentError) else first_line(cause) + _line(cause, place)
            self._faults.append(f"{_relative(place)} cannot be imported: {reason}")
            sys.modules.pop(module, None)
            self._forget()
        else:
            registered = {*self._modules.values(), *(second for second, _ in self._twice.values())}
            if self.given is not None and module not in registered and not place.name.startswith("_"):
                decorator = f"@{self.kind.upper()}S.register('{place.stem}')"
                self._faults.append(
                    f"{_relative(place)} registers no {self.kind}: write {decorator} above its class "
                    "(a file of helper functions needs a name that begins with _)"
                )

    def _forget(self) -> None:
        """Remove what was registered by modules whose import has failed; Python does not keep such modules."""
        for name in [name for name, module in self._modules.items() if module not in sys.modules]:
            self._classes.pop(name, None)
            del self._modules[name]
        self._twice = {name: both for name, both in self._twice.items() if both[0] in sys.modules}

    def _both(self, name: str, first: str, second: str) -> str:
        return f"{self.kind} '{name}' is registered twice: {first} and {second}; give one of them another name"


def _place(cls: type) -> str:
    """Return 'heads/mos.py' for a class of this project, and the path of the file for any other class."""
    of_session = cls.__module__ == "__main__"  # a notebook, a script or a prompt
    return "this session" if of_session else _relative(Path(inspect.getfile(cls)))


def _relative(path: Path) -> str:
    """Return the path of a file of this project from its root, and any other path unchanged."""
    root = Path(harness.__file__).parent.parent
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def _line(cause: Exception, place: Path) -> str:
    """Return ' (line 12)', where a file raised; '' if it did not, or if the message of `cause` has it."""
    lines = [frame.lineno for frame in traceback.extract_tb(cause.__traceback__) if frame.filename == str(place)]
    return f" (line {lines[-1]})" if lines else ""


@cache
def _misfit(cls: type, given: tuple[str, ...] | None) -> str:
    """Return what is wrong with the signature of a constructor; '' if it takes the given arguments, and the others by
    keyword only.
    """
    if given is None:
        return ""
    try:
        signature = inspect.signature(cls).replace(return_annotation=inspect.Signature.empty)
    except (TypeError, ValueError):
        return ""  # it has no signature; this is reported where its parameters are read
    kinds, parameters = inspect.Parameter, list(signature.parameters.values())
    if any(each.kind is kinds.VAR_POSITIONAL for each in parameters):
        return ""
    positional = [each for each in parameters if each.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
    first = ", ".join(("self", *given))
    if len(positional) < len(given):
        found = ", ".join(filter(None, ("self", str(signature)[1:-1])))
        return f"its constructor must begin with ({first}), and is ({found})"
    extra = positional[len(given) :]
    if not extra:
        return ""
    others = ", ".join(map(str, [*extra, *parameters[len(positional) :]]))
    return f"its parameter '{extra[0].name}' must be keyword-only: write ({first}, *, {others})"


def _plugin_place(entry: EntryPoint) -> str:
    owner = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown distribution"
    return f"plug-in {owner} ({entry.value})"


def home() -> Path:
    """Return the folder whose folders heads and backbones belong to the user: the current one, unless set."""
    return _HOME[-1] if _HOME else Path.cwd()


def use_home(folder: Path) -> None:
    """Look for the user's heads and backbones in this folder from now on. A worker is not in the user's folder."""
    _HOME[:] = [folder]


_HOME: list[Path] = []
HEADS = Registry("head", package="harness.heads", group="harness.heads", given=("dims", "embedding"))
BACKBONES = Registry("backbone", package="harness.backbones", group="harness.backbones", given=("vocab_size",))
CORPORA = Registry("corpus", package="harness.corpora")


def register_head(name: str) -> Callable[[type], type]:
    """Return a class decorator that makes a class of a notebook or script a head of this process.

    Commands, Ray's workers and other people cannot use it, so train it with `executor="inline"`. For them, save the
    class as heads/<name>.py in the current folder.

    Raises: as `Registry.register`.
    """
    return HEADS.register(name)
