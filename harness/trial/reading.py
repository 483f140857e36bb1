"""What a head or backbone reads that no parameter names: files that it opens, and environment variables.

None of it is part of the trial's id, so two rows, or two seeds of one row, may differ in it. An audit hook of Python
sees each file that Python code opens; what a library opens in its own C++ or Rust code is not seen. A file counts if it
is opened while the component's code runs, also by a library as numpy.load; one of Python, of a package or of a cache
does not. An environment variable counts if the component reads it by functions of Python: what a library reads
for itself does not.
"""

import hashlib
import os
import site
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

import harness
from harness.plan.parameters import paths, resolved
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
        self._found: dict[Path | str, str] = {}

    def sentences(self) -> tuple[str, ...]:
        return tuple(self._found.values())

    def file(self, given: Any) -> None:
        """Note a file that is being opened, if a component opens it. Each is read once."""
        if not isinstance(given, str | bytes | os.PathLike) or (who := self._component(by_library=True)) is None:
            return
        place = Path(os.fsdecode(given)).resolve()
        if place in self._found or len(self._found) == MOST or place.suffix in CODE or not place.is_file():
            return
        if any(place.is_relative_to(root) for root in (*self._named, *_packages(), *_of_python(), *_caches())):
            return
        token = _current.set(None)  # the file is opened once more here
        try:
            with place.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        finally:
            _current.reset(token)
        self._found[place] = f"{who}: {printable(place.name)} (sha256 {digest[:12]})"

    def variable(self, name: str, value: str | bytes) -> None:
        """Note an environment variable that a component reads."""
        if (
            name not in self._found
            and len(self._found) < MOST
            and (who := self._component(by_library=False)) is not None
        ):
            digest = hashlib.sha256(os.fsencode(value)).hexdigest()
            self._found[name] = f"{who}: environment variable {printable(name)} (sha256 {digest[:12]})"

    def _component(self, *, by_library: bool) -> str | None:
        """The component that reads; None for the harness, an import, and, if not `by_library`, for a library that reads
        for itself.
        """
        frame, is_reader = sys._getframe(3), True  # the caller of the audit hook
        for _ in range(MOST_FRAMES):
            # what stands above the trial is a script or notebook that runs it, in which a component may be defined
            if frame is None or frame.f_globals.get("__name__") == TRIAL:
                return None
            file = frame.f_code.co_filename
            if file.startswith("<frozen importlib"):
                return None
            if (who := self._modules.get(frame.f_globals.get("__name__"))) is not None:
                return who
            if not by_library and is_reader and file.startswith(tuple(map(str, _packages()))):
                return None
            is_reader &= file.startswith(("<frozen", *map(str, _of_python())))
            frame = frame.f_back
        return None


_current: ContextVar[Readings | None] = ContextVar("readings", default=None)


@contextmanager
def noted(spec: TrialSpec) -> Iterator[Readings]:
    """Note within the block what the head and the backbone of a trial read."""
    modules: dict[str, str] = {}
    named: list[Path] = []
    for kind, registry in (("backbone", BACKBONES), ("head", HEADS)):
        component = getattr(spec, kind)
        cls = registry.get(component.name)
        if not isinstance(cls, StartsFromFiles):  # whose files are part of the id
            before = modules.get(cls.__module__)  # both may be of one file
            modules[cls.__module__] = f"{before} or {kind} {component.name}" if before else f"{kind} {component.name}"
        named += [Path(place) for place in paths(cls, resolved(cls, component.params)).values()]
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
        if event == "open" and (readings := _current.get()) is not None and not _writes(*arguments[1:3]):
            readings.file(arguments[0])

    def getitem(environ: os._Environ, name: Any) -> Any:
        value = get(environ, name)
        if (readings := _current.get()) is not None:
            readings.variable(os.fsdecode(name), value)
        return value

    sys.addaudithook(hook)
    os._Environ.__getitem__ = getitem


def _writes(mode: str | None, flags: int) -> bool:
    """Whether a file is opened to write it; `os.open` gives flags and no mode."""
    return any(letter in mode for letter in "wax+") if mode else bool(flags & (os.O_WRONLY | os.O_RDWR))


@cache
def _packages() -> tuple[Path, ...]:
    """Where packages of Python lie, and this one."""
    found = [str(Path(harness.__file__).parent), *(sysconfig.get_paths()[name] for name in ("purelib", "platlib"))]
    return tuple(Path(root).resolve() for root in (*found, site.getusersitepackages()))


@cache
def _of_python() -> tuple[Path, ...]:
    """Where Python itself lies, and what the machine says of itself."""
    found = [sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib")]
    return tuple(Path(root).resolve() for root in (*found, "/proc", "/sys", "/dev"))


@cache
def _caches() -> tuple[Path, ...]:
    """Where libraries keep what they have made: compiled code, what they have downloaded."""
    found = [Path.home() / ".cache", os.environ.get("XDG_CACHE_HOME"), os.environ.get("TORCHINDUCTOR_CACHE_DIR")]
    compiled = Path(tempfile.gettempdir()).glob("torchinductor_*")
    return tuple(Path(root).resolve() for root in (*filter(None, found), *compiled))
