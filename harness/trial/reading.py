"""What a head or backbone reads that no parameter names: files that it opens, and environment variables.

None of it is part of the trial's id, so two rows, or two seeds of one row, may differ in it. An audit hook of Python
sees each file that Python code opens; what a library opens in its own C++ or Rust code is not seen. A file or variable
counts if a function of the component's module is at work.
"""

import hashlib
import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

from harness.plan.parameters import paths
from harness.plan.specs import TrialSpec
from harness.printable import printable
from harness.protocols import StartsFromFiles
from harness.registry import BACKBONES, HEADS

MOST = 20  # files and variables that are noted
MOST_FRAMES = 100
TRIAL = "harness.trial.run"
CODE = (".py", ".pyc", ".so", ".pyd")


class Readings:
    """What was read, as 'head mine: words.txt (sha256 0123456789ab)'.

    Args:
        modules: the module of a component -> what the component is called.
        named: places that parameters name.
    """

    def __init__(self, modules: dict[str, str], named: list[Path]):
        self._modules, self._named = modules, [place.resolve() for place in named]
        self._found: dict[str, None] = {}

    def sentences(self) -> tuple[str, ...]:
        return tuple(self._found)

    def file(self, given: Any, mode: str) -> None:
        """Note a file that is being opened, if a component opens it to read it."""
        if not isinstance(given, str | bytes | os.PathLike) or "w" in mode or "a" in mode or "x" in mode:
            return
        who = self._component()
        place = Path(os.fsdecode(given)).resolve()
        if who is None or place.suffix in CODE or not place.is_file():
            return
        if any(place.is_relative_to(root) for root in (*self._named, *_of_python())):
            return
        token = _current.set(None)  # the file is opened once more here
        try:
            with place.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        finally:
            _current.reset(token)
        self._note(f"{who}: {printable(place.name)} (sha256 {digest[:12]})")

    def variable(self, name: str, value: str | None) -> None:
        """Note an environment variable that a component reads."""
        if (who := self._component()) is not None:
            shown = "not set" if value is None else f"sha256 {hashlib.sha256(os.fsencode(value)).hexdigest()[:12]}"
            self._note(f"{who}: environment variable {printable(name)} ({shown})")

    def _note(self, sentence: str) -> None:
        if len(self._found) < MOST:
            self._found[sentence] = None

    def _component(self) -> str | None:
        """The component whose function is at work; None for the harness and libraries alone, or an import."""
        frame = sys._getframe(2)
        for _ in range(MOST_FRAMES):
            # what stands above the trial is a script or notebook that runs it, in which a component may be defined
            if frame is None or frame.f_globals.get("__name__") == TRIAL:
                return None
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                return None
            if (who := self._modules.get(frame.f_globals.get("__name__"))) is not None:
                return who
            frame = frame.f_back
        return None


_current: ContextVar[Readings | None] = ContextVar("readings", default=None)


@contextmanager
def noted(spec: TrialSpec) -> Iterator[Readings]:
    """Note within the block what the head and the backbone of a trial read."""
    modules, named = {}, []
    for kind, registry in (("backbone", BACKBONES), ("head", HEADS)):
        component = getattr(spec, kind)
        cls = registry.get(component.name)
        if not isinstance(cls, StartsFromFiles):  # whose files are part of the id
            modules[cls.__module__] = f"{kind} {component.name}"
        named += [Path(place) for place in paths(cls, component.params).values()]
    readings = Readings(modules, named)
    _install()
    token = _current.set(readings)
    try:
        yield readings
    finally:
        _current.reset(token)


@cache
def _install() -> None:
    """Python has no way to remove an audit hook, so there is one for the process."""
    get = os._Environ.__getitem__

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and (readings := _current.get()) is not None:
            readings.file(arguments[0], arguments[1] or "r")

    def getitem(environ: os._Environ, name: str) -> str:
        if (readings := _current.get()) is not None:
            readings.variable(name, environ._data.get(environ.encodekey(name)) and get(environ, name))
        return get(environ, name)

    sys.addaudithook(hook)
    os._Environ.__getitem__ = getitem


@cache
def _of_python() -> tuple[Path, ...]:
    """Where Python and its packages lie, and what the machine says of itself."""
    roots = {sys.prefix, sys.base_prefix, *(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))}
    return tuple(Path(root).resolve() for root in (*roots, "/proc", "/sys", "/dev"))
