"""Fingerprints of the code that a trial was run with: one hash each of its head, backbone and corpus, and of the
harness.

    head, backbone, corpus    the module that defines the component, and the modules that it imports from its own
                              distribution, from `harness.heads` and from `harness.backbones`. Other modules of the
                              harness are not included. `harness.heads.mos` is hashed as `heads.mos`, wherever its file
                              lies: in a clone, in an installed wheel, in the folder of a user.
    harness                   the modules that compute numbers, NUMERIC below, with their paths: moving a module changes
                              the hash, too.

Comments, docstrings and formatting change none of the hashes. A hash is computed once in a process and then kept, so it
describes the code at the start of the process. No code is executed to compute it.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import harness
from harness.code import source_code
from harness.code.source_code import COMPONENT_PACKAGES, closure, hashed_name, is_within
from harness.errors import HarnessError
from harness.machine import environment
from harness.plan.specs import TrialSpec
from harness.records.record import UNKNOWN, Fingerprints
from harness.registry import BACKBONES, CORPORA, HEADS

KINDS = {"head": HEADS, "backbone": BACKBONES, "corpus": CORPORA}
SHOWN = 12  # digits of a hash that are shown
HARNESS = Path(harness.__file__).parent
NUMERIC = (
    "distributions.py",
    "dropout.py",
    "model.py",
    "protocols.py",
    "random_streams.py",
    "corpora/*.py",
    "kernels/*.py",
    "training/averaging.py",
    "training/cuda_graph.py",
    "training/data_parallel.py",
    "training/dynamic_evaluation.py",
    "training/evaluation.py",
    "training/loop.py",
    "training/optimizers.py",
    "training/parts.py",
    "training/schedules.py",
    "training/step.py",
    "trial/frozen.py",
    "trial/setup.py",
    "trial/stages.py",
)


# Code of corpora that was moved to other files and computes the same tokens: its hash there -> its hash here. A test
# compares the tokens (tests/corpora/test_moved.py). Code that is edited afterwards has another hash, which is not here.
MOVED = {
    # published.py took in published_characters.py and detokenizers.py
    "d4bbd0353a7c4f488715e1af4b3cf88d94ecc4796348f3587e9fd558f85e6d23": (
        "2ec85c6e24368542b32e37f63bd124740d2d3d761f62d88220d25546d7abb5ca"
    ),
    "95ff763c3f9ead1d8fae59f3e9add6169e8d7a0f58c2a46f8edbeb47c9a94cd5": (
        "2ec85c6e24368542b32e37f63bd124740d2d3d761f62d88220d25546d7abb5ca"
    ),
    # local_text.py, whose imports are of vocabulary.py
    "bffde37c3b790f2ddd5b9b8852c415550085e087c3905a7230d890b4725c8cd0": (
        "e38edc52c96d537b8f0b5deeea9acca3a9180ce1da66dc6f2ba52bb18f42b272"
    ),
    # published.py and local_text.py, since they take the tokenizers of models and local_text.py documents
    "2ec85c6e24368542b32e37f63bd124740d2d3d761f62d88220d25546d7abb5ca": (
        "217e01ef3009dd226e668cbec04b86242d67b45e8c6324e6fa84693feb4ff15c"
    ),
    "e38edc52c96d537b8f0b5deeea9acca3a9180ce1da66dc6f2ba52bb18f42b272": (
        "24b099cabf47b008993c64cee23e2666ecd41fd5f7ada46abf7ec49b1d46d759"
    ),
    # markov.py and spamlang.py became synthetic.py
    "74d9aa0d46e9ef326fdd5941bf8b4387b65d7e5f413d4e10f29c5e6bf76445c4": (
        "3ec4d1b01ea3921736709419d38c5a436be378cf85e405efcd7bf6d3750a13b2"
    ),
    "18dee1fbdebbb0cfa2d417b1c1e44fe151c78ea0809c8492686d5539d5d9aad9": (
        "3ec4d1b01ea3921736709419d38c5a436be378cf85e405efcd7bf6d3750a13b2"
    ),
    # published.py, local_text.py and hub.py, since TextSource tokenises for all of them
    "217e01ef3009dd226e668cbec04b86242d67b45e8c6324e6fa84693feb4ff15c": (
        "027404ee850e28335f6026639a89d48643b8304edef03d42e3c443dbdf33e240"
    ),
    "24b099cabf47b008993c64cee23e2666ecd41fd5f7ada46abf7ec49b1d46d759": (
        "8ea9c07186f7d5b95aa42e7d3a9ada44fea025f523a436b26cd0e3d1be1a248c"
    ),
    "678555436faa93ea773ef24f61386465baaf5e3c1a758694968a2bfbef4102de": (
        "66f76f9833a7090db572279b435a4030b8345176a05f04829f04c2cf182d2450"
    ),
    # local_text.py, since it splits texts of few lines, and split_files.py finds the files of splits. Texts that have
    # other tokens now, with a mark of byte order or other splits, have another content, so other trials.
    "8ea9c07186f7d5b95aa42e7d3a9ada44fea025f523a436b26cd0e3d1be1a248c": (
        "949c435acff847d1f8a46228e3bc3422e99572d50cfb53b00eb10dadfccbb366"
    ),
    # backbones/hf.py, since it takes an output matrix from the files even where config.json ties it. Of such folders
    # it computes something else than before, and plan and table say so (harness/plan/model_notes.py)
    "fdbce801f03091d5300914ec5102062ac0051384a22b54967492af8b1549b7d7": (
        "8a0391f894e308facc93d7249876cd12fa11cc1e8c7f35da56a07e7427005de6"
    ),
}


@dataclass(frozen=True, slots=True)
class Code:
    """The code of one component: its hash and its files, with the component's own file first."""

    sha256: str
    places: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()

    def __str__(self) -> str:
        """'heads/mos.py', or 'plug/head.py or a module that it imports (plug/maths.py)'."""
        own, *others = self.places or (UNKNOWN,)
        return f"{own} or a module that it imports ({', '.join(others)})" if others else own


def of_trial(spec: TrialSpec) -> Fingerprints:
    """Return the fingerprints of the installed code for a trial; 'unknown' for a component that is not installed."""
    codes = {kind: code_of(kind, getattr(spec, kind).name) for kind in KINDS}
    files = {file for code in (*codes.values(), harness_code()) for file in code.files}
    hashes = {kind: code.sha256 for kind, code in codes.items()}
    return Fingerprints(**hashes, harness=harness_code().sha256, dirty=_dirty(frozenset(files)))


def moved(sha256: str) -> str:
    """Return the hash that code of this hash has where it was moved to; the same hash if it was not moved."""
    while sha256 in MOVED:
        sha256 = MOVED[sha256]
    return sha256


def code_of(kind: str, name: str) -> Code:
    """Return the code of a component, given its kind ('head', 'backbone' or 'corpus') and its name. That of a module is
    read once in a process; a class of a notebook may be defined again.
    """
    try:
        module = KINDS[kind].module(name)
    except HarnessError:
        return Code(UNKNOWN)
    if module == "__main__":
        return Code(source_code.sha256_of_class(KINDS[kind].get(name)) or UNKNOWN)
    return _code_of(module)


@cache
def _code_of(module: str) -> Code:
    packages = {module} if is_within(module, {"harness.corpora"}) else _packages(module)
    found = [each for each in closure(module, packages) if is_within(each.name, packages)]
    ordered = sorted(found, key=lambda each: each.name != module)
    places = [each.place for each in ordered if each.name == module or not each.place.endswith("__init__.py")]
    files = tuple(each.file for each in ordered if each.file is not None)
    return Code(_combined((hashed_name(each.name), each.sha256) for each in found), tuple(places), files)


@cache
def harness_code() -> Code:
    files = sorted(file for pattern in NUMERIC for file in HARNESS.glob(pattern))
    hashes = ((file.relative_to(HARNESS).as_posix(), source_code.sha256_of_file(file)) for file in files)
    return Code(_combined(hashes), tuple(f"harness/{pattern}" for pattern in NUMERIC), tuple(files))


@cache
def code_within(module: str, package: str) -> str:
    """Return one hash of a module and of all modules of a package of the harness that it imports."""
    found = closure(module, {package.partition(".")[0]})
    return _combined((each.name, each.sha256) for each in found if each.name.startswith(f"{package}."))


def _combined(hashes: Iterable[tuple[str, str | None]]) -> str:
    """Return one hash of several hashes with names; 'unknown' if there are none or one of them is unknown."""
    named = list(hashes)
    if not named or any(sha256 is None for _, sha256 in named):
        return UNKNOWN
    return hashlib.sha256("\n".join(f"{name} {sha256}" for name, sha256 in named).encode()).hexdigest()


def _packages(module: str) -> set[str]:
    """Return the packages of components, and those of a plug-in's distribution: it may consist of several."""
    if is_within(module, {"harness"}):
        return set(COMPONENT_PACKAGES)
    own, owners = module.partition(".")[0], packages_distributions()
    together = {name for name, names in owners.items() if set(names) & set(owners.get(own, ()))}
    return {*COMPONENT_PACKAGES, own, *(together - {"harness"})}


@cache
def _dirty(files: frozenset[Path]) -> bool | None:
    return environment.uncommitted(files)
