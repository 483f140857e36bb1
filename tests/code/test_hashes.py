"""Hashes of the code of head, backbone and corpus, and the commit of the harness."""

import importlib
import json
import re
import shutil
import subprocess
import sys

import handmade
import known
import pytest

from harness.code import hashes
from harness.code.hashes import KINDS, LISTED, UNKNOWN, changed, is_outdated, of, of_trial
from harness.machine import environment
from harness.plan.specs import ComponentSpec
from harness.registry import HEADS

SPEC = handmade.record().spec
HEAD = '''\
"""A head."""

from harness.registry import HEADS
from plugged_head.maths import scaled


@HEADS.register("plugged")
class Plugged:
    def __init__(self, dims, embedding):
        pass

    def forward(self, hidden):
        return scaled(hidden)  # a comment
'''


@pytest.fixture
def plugged(tmp_path, monkeypatch):
    """A function: an edit of head.py, one of maths.py -> the hash of the head 'plugged' of such a package."""
    folder = tmp_path / "plugged_head"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    HEADS.names()
    before = dict(HEADS._classes)

    def edited(head=("", ""), maths=("", "")):
        (folder / "__init__.py").write_text("")
        (folder / "head.py").write_text(HEAD.replace(*head))
        (folder / "maths.py").write_text("def scaled(x: float) -> float:\n    return 2 * x\n".replace(*maths))
        for name in [name for name in sys.modules if name.startswith("plugged_head")]:
            del sys.modules[name]
        HEADS._classes.pop("plugged", None)
        importlib.invalidate_caches()
        importlib.import_module("plugged_head.head")
        return of("head", "plugged")

    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield edited
    HEADS._classes.clear()
    HEADS._classes.update(before)
    for name in [name for name in sys.modules if name.startswith("plugged_head")]:
        del sys.modules[name]


def test_the_code_of_a_users_head_counts_and_what_computes_nothing_does_not(plugged):
    before = plugged()
    assert plugged(head=("  # a comment", "")) == before
    assert plugged(head=('"""A head."""', "# no docstring")) == before
    assert plugged(head=("dims, embedding)", "dims: object, embedding: object) -> None")) == before
    assert plugged(head=("scaled(hidden)", "0 * scaled(hidden)")) != before
    assert plugged(maths=("2 * x", "3 * x")) != before  # a module of its package whose function it uses
    assert plugged(maths=("x: float", "x")) == before


def test_every_component_of_the_package_has_a_hash_that_is_listed():
    """`make golden` lists it, where it computes what it computed before."""
    listed = json.loads(hashes.KNOWN.read_text())
    for kind, registry in KINDS.items():
        for name in registry.names():
            if f"harness.{ {'head': 'heads', 'backbone': 'backbones'}.get(kind, 'corpora') }" in registry.module(name):
                assert of(kind, name)[:LISTED] in listed[f"{kind} {name}"], f"{kind} {name}: run `make golden`"


NEEDED = {"backbone awd_lstm": "awd", "backbone hf": "pretrained"}
CASES = [
    pytest.param(component, params, marks=pytest.mark.needs(NEEDED.get(component)))
    for component, every in known.CASES.items()
    for params in every
]


@pytest.mark.parametrize(("component", "params"), CASES, ids=str)
def test_a_component_computes_what_it_computed_when_its_hash_was_listed(component, params, request, monkeypatch):
    if component.startswith("corpus"):
        monkeypatch.setenv("HARNESS_DATA", str(request.getfixturevalue("real_data")))
    found = known.numbers_of(component, params)
    if found is None:
        pytest.skip("its files are not found")
    before = json.loads(known.NUMBERS.read_text())[f"{component} {json.dumps(params, sort_keys=True)}"]
    assert known.equal(found, before), "its records are outdated: `make golden` begins its list of hashes anew"


def test_other_numbers_begin_the_lists_of_a_component_and_of_those_that_are_compared_by_it_anew(tmp_path, monkeypatch):
    listed, numbers = tmp_path / "known.json", tmp_path / "numbers.json"
    components = ("head one", "head two", "head three", "head gone")
    listed.write_text(json.dumps({component: ["0" * LISTED] for component in components}))
    numbers.write_text(json.dumps({"head one {}": [1.0], "head three {}": [3.0]}))
    found = {"head one": [1.5], "head three": [3.0], "head gone": None}
    monkeypatch.setattr(known, "KNOWN", listed)
    monkeypatch.setattr(known, "NUMBERS", numbers)
    monkeypatch.setattr(known, "CASES", {"head one": [{}], "head three": [{}], "head gone": [{}]})
    monkeypatch.setattr(known, "LIKE", {"head two": "head one"})
    monkeypatch.setattr(known, "numbers_of", lambda component, params: found[component])
    monkeypatch.setattr(hashes, "of", lambda kind, name: "1" * 64)
    known.main()
    old, new = "0" * LISTED, "1" * LISTED
    assert json.loads(listed.read_text()) == {
        "head gone": [old],  # its files are not found
        "head one": [new],
        "head three": [old, new],
        "head two": [new],
    }
    assert json.loads(numbers.read_text()) == {"head one {}": [1.5], "head three {}": [3.0]}


def test_a_record_whose_code_is_another_here_is_outdated():
    here = of_trial(SPEC)
    record = handmade.record(code=here)
    assert changed(record) == ()
    assert not is_outdated(record)
    other = here.model_copy(update={"head": "0" * 64, "corpus": "0" * 64})
    assert changed(handmade.record(code=other)) == ("head", "corpus")
    assert is_outdated(handmade.record(code=other))
    assert not is_outdated(handmade.record(code=other, status="diverged"))
    gone = SPEC.model_copy(update={"head": ComponentSpec(name="gone")})
    assert of_trial(gone).head == UNKNOWN
    assert changed(handmade.record(spec=gone, code=here)) == ()
    assert changed(handmade.record(code=None)) == ()  # from before code was noted


def test_an_unknown_hash_makes_no_record_outdated():
    assert changed(handmade.record(code=of_trial(SPEC).model_copy(update={"head": UNKNOWN}))) == ()


def test_hashes_that_are_listed_give_the_same_numbers(monkeypatch):
    here = of_trial(SPEC)
    before = here.model_copy(update={"head": "0" * 64})
    assert changed(handmade.record(code=before)) == ("head",)
    monkeypatch.setattr(hashes, "_known", lambda: {"head softmax": ["0" * LISTED, here.head[:LISTED]]})
    assert changed(handmade.record(code=before)) == ()
    monkeypatch.setattr(hashes, "_known", lambda: {"head softmax": ["0" * LISTED]})  # the code here was edited since
    assert changed(handmade.record(code=before)) == ("head",)


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A git checkout with one committed file. git reads no configuration of the user."""
    if shutil.which("git") is None:
        pytest.skip("there is no git: whether a file is committed is not known then")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    place = tmp_path / "checkout" / "committed.py"
    place.parent.mkdir()
    place.write_text("x = 1\n")
    who = ["-c", "user.name=A Test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "One"]):
        subprocess.run(["git", "-C", str(place.parent), *command], check=True)
    return place


def test_the_commit_is_that_of_the_folder_whatever_git_sets_for_a_hook(checkout, tmp_path, monkeypatch):
    (checkout.parent / "harness").mkdir()
    monkeypatch.setattr(environment.harness, "__file__", str(checkout.parent / "harness" / "__init__.py"))
    found = environment.commit()
    assert re.fullmatch("[0-9a-f]{12}", found)
    for name in environment.ANOTHER_REPOSITORY:
        monkeypatch.setenv(name, str(tmp_path / "another"))
    assert environment.commit() == found


def test_the_commit_of_a_project_around_the_harness_is_not_ours(checkout, monkeypatch):
    monkeypatch.setattr(environment.harness, "__file__", str(checkout.parent / "lib" / "harness" / "__init__.py"))
    assert environment.commit() == "unknown"


def test_without_git_no_commit_is_known(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment.commit() == "unknown"
