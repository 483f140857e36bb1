"""Fingerprints: which code a trial was run by. A hash each of its head, backbone, corpus and of the harness' numbers.

    head, backbone, corpus    the module that defines it, and what that imports of its own package or distribution, of
                              `heads` and of `backbones`: nothing of harness/ (see harness/code/source_code.py)
    harness                   the modules that compute numbers, NUMERIC below, by their paths: moving a module changes
                              the hash, too

Comments, docstrings and formatting change none of them. A hash is computed once in a process and then kept, so it is of
the code as it was when the process began, and nothing is executed for it.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Annotated, Protocol

from pydantic import BaseModel, ConfigDict, Field

import harness
from harness.code.source_code import closure, sha256_of_file
from harness.errors import HarnessError
from harness.machine import environment
from harness.plan.specs import TrialSpec
from harness.registry import BACKBONES, CORPORA, HEADS

KINDS = {"head": HEADS, "backbone": BACKBONES, "corpus": CORPORA}
UNKNOWN = "unknown"
SHOWN = 12  # digits of a hash that a reader is shown
COMPONENT_PACKAGES = frozenset({"heads", "backbones"})
HARNESS = Path(harness.__file__).parent
NUMERIC = (
    "distributions.py",
    "model.py",
    "protocols.py",
    "random_streams.py",
    "corpora/*.py",
    "kernels/*.py",
    "machine/proofs.py",
    "training/cuda_graph.py",
    "training/data_parallel.py",
    "training/evaluation.py",
    "training/loop.py",
    "training/optimization.py",
    "training/step.py",
    "trial/conditions.py",
    "trial/run.py",
    "trial/sources.py",
)
Hash = Annotated[str, Field(pattern=rf"^([0-9a-f]{{64}}|{UNKNOWN})$")]


class Fingerprints(BaseModel):
    """The code of one trial, as SHA-256 hashes; 'unknown' where there is no Python source to read.

    Args:
        dirty: True where one of these files is not as git's last commit has it, or not in it at all; None where none of
            them is in a checkout. A file that git ignores, or that is outside of any checkout, counts as clean.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    head: Hash
    backbone: Hash
    corpus: Hash
    harness: Hash
    dirty: bool | None = None

    @property
    def components(self) -> tuple[str, ...]:
        """The hashes of head, backbone and corpus, in the order of KINDS."""
        return tuple(getattr(self, kind) for kind in KINDS)


class Result(Protocol):
    """The part of a TrialRecord that is read here; records are a later room. `code` is None in records of old versions."""

    spec: TrialSpec
    status: str
    code: Fingerprints | None


@dataclass(frozen=True, slots=True)
class Code:
    """The code of one component: its hash, and the files it is of, the component's own first."""

    sha256: str
    places: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()

    def __str__(self) -> str:
        """'heads/mos.py', or 'plug/head.py or a module that it imports (plug/maths.py)'."""
        own, *others = self.places or (UNKNOWN,)
        return f"{own} or a module that it imports ({', '.join(others)})" if others else own


def of_trial(spec: TrialSpec) -> Fingerprints:
    """The fingerprints of the code that runs a trial here; 'unknown' for a component that is not known here."""
    codes = {kind: code_of(kind, getattr(spec, kind).name) for kind in KINDS}
    files = {file for code in (*codes.values(), harness_code()) for file in code.files}
    hashes = {kind: code.sha256 for kind, code in codes.items()}
    return Fingerprints(**hashes, harness=harness_code().sha256, dirty=_dirty(frozenset(files)))


@cache
def code_of(kind: str, name: str) -> Code:
    """The code of a component: kind 'head', 'backbone' or 'corpus', and its name."""
    try:
        module = KINDS[kind].module(name)
    except HarnessError:
        return Code(UNKNOWN)
    own = module.partition(".")[0]
    packages = COMPONENT_PACKAGES | _distributed_with(own) if own != "harness" else frozenset()
    found = [each for each in closure(module, packages) if own != "harness" or each.name == module]
    ordered = sorted(found, key=lambda each: each.name != module)
    told = [each.place for each in ordered if each.name == module or not each.place.endswith("__init__.py")]
    files = tuple(each.file for each in ordered if each.file is not None)
    return Code(_combined((each.name, each.sha256) for each in found), tuple(told), files)


@cache
def harness_code() -> Code:
    """The code of the harness' own that computes numbers."""
    files = sorted(file for pattern in NUMERIC for file in HARNESS.glob(pattern))
    hashes = ((file.relative_to(HARNESS).as_posix(), sha256_of_file(file)) for file in files)
    return Code(_combined(hashes), tuple(f"harness/{pattern}" for pattern in NUMERIC), tuple(files))


def changed(record: Result) -> tuple[str, ...]:
    """Of 'head', 'backbone', 'corpus' those whose code is another here than what a record was made by. None where the
    record does not say, or the code here is unknown.
    """
    if record.code is None:
        return ()
    here = {kind: code_of(kind, getattr(record.spec, kind).name).sha256 for kind in KINDS}
    hashes = {kind: {getattr(record.code, kind), here[kind]} for kind in KINDS}
    return tuple(kind for kind, both in hashes.items() if len(both) > 1 and UNKNOWN not in both)


def is_outdated(record: Result) -> bool:
    """Whether a record is ok, and the code of one of its components has changed since."""
    return record.status == "ok" and bool(changed(record))


def _combined(hashes: Iterable[tuple[str, str | None]]) -> str:
    """One hash of several named ones; 'unknown' where there is none, or one of them is not known."""
    named = list(hashes)
    if not named or any(sha256 is None for _, sha256 in named):
        return UNKNOWN
    return hashlib.sha256("\n".join(f"{name} {sha256}" for name, sha256 in named).encode()).hexdigest()


def _distributed_with(package: str) -> frozenset[str]:
    """A top-level module or package, and the others of its distribution: a plug-in may consist of several."""
    if package in COMPONENT_PACKAGES:
        return frozenset()
    owners = packages_distributions()
    own = set(owners.get(package, ()))
    return frozenset({package, *(name for name, names in owners.items() if own & set(names) and name != "harness")})


@cache
def _dirty(files: frozenset[Path]) -> bool | None:
    return environment.uncommitted(files)
