"""Fingerprints: a hash each of the code of head, backbone, corpus and of the harness' own numbers."""

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import handmade
import pytest

from harness.code import fingerprints
from harness.code.fingerprints import (
    HARNESS,
    KINDS,
    NUMERIC,
    UNKNOWN,
    Fingerprints,
    code_of,
    of_trial,
)
from harness.code.source_code import closure
from harness.machine import environment
from harness.plan.specs import ComponentSpec
from harness.registry import HEADS
from harness.trial.behaviour import changed, is_outdated

SPEC = handmade.record().spec
HEAD = '''\
"""A head."""

from harness.registry import HEADS
from plugmaths import scale


@HEADS.register("plugged")
class Plugged:
    def __init__(self, dims, embedding):
        pass

    def forward(self, hidden):
        return scale * hidden  # a comment
'''


def forget() -> None:
    """As if this process had just begun."""
    fingerprints._code_of.cache_clear()
    fingerprints.harness_code.cache_clear()


@pytest.fixture(autouse=True)
def _afresh():
    forget()
    yield
    forget()


@pytest.fixture
def plugged(tmp_path, monkeypatch):
    """A distribution of two top-level modules, the second of which has the head 'plugged'; its folder."""
    (tmp_path / "plughead.py").write_text(HEAD)
    (tmp_path / "plugmaths.py").write_text("scale = 2.0\n")
    about = tmp_path / "plugged-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 1\n")
    (about / "top_level.txt").write_text("plughead\nplugmaths\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    HEADS.names()
    before = dict(HEADS._classes)
    importlib.import_module("plughead")
    yield tmp_path
    HEADS._classes.clear()
    HEADS._classes.update(before)
    for name in ("plughead", "plugmaths"):
        sys.modules.pop(name, None)


def head_of(name: str) -> Fingerprints:
    forget()
    return of_trial(SPEC.model_copy(update={"head": ComponentSpec(name=name)}))


def edited(place: Path, before: str, after: str) -> None:
    text = place.read_text()
    assert before in text
    place.write_text(text.replace(before, after))


def test_every_component_has_a_hash_of_its_own():
    codes = [code_of(kind, name) for kind, registry in KINDS.items() for name in registry.names()]
    assert UNKNOWN not in {code.sha256 for code in codes}
    files = {code.places[0] for code in codes}
    assert len({code.sha256 for code in codes}) == len(files)  # two corpora of one file have one hash
    assert {"heads/mos.py", "backbones/lstm.py", "harness/corpora/synthetic.py"} <= files
    assert str(code_of("head", "mos")) == "heads/mos.py"


@pytest.mark.system
def test_the_code_of_a_head_counts_and_its_comments_do_not(plugged):
    before = head_of("plugged")
    edited(plugged / "plughead.py", "  # a comment", "")
    edited(plugged / "plughead.py", '"""A head."""', "# no docstring")
    assert head_of("plugged") == before
    edited(plugged / "plughead.py", "scale * hidden", "0 * scale * hidden")
    after = head_of("plugged")
    assert after.head != before.head
    assert after.model_copy(update={"head": before.head}) == before


@pytest.mark.guards("imports-count")
def test_another_module_of_a_plug_ins_distribution_counts(plugged):
    before = head_of("plugged").head
    edited(plugged / "plugmaths.py", "2.0", "0.0")
    assert head_of("plugged").head != before
    assert str(code_of("head", "plugged")) == "plughead.py or a module that it imports (plugmaths.py)"


def test_a_plug_in_that_builds_on_a_head_of_ours_changes_with_it(plugged):
    edited(plugged / "plughead.py", "from plugmaths", "from harness.heads.softmax import Softmax\nfrom plugmaths")
    forget()
    assert "heads/softmax.py" in code_of("head", "plugged").places


def test_within_a_process_the_code_stays_what_it_was(plugged):
    before = head_of("plugged")
    edited(plugged / "plughead.py", "scale * hidden", "0 * scale * hidden")
    assert of_trial(SPEC.model_copy(update={"head": ComponentSpec(name="plugged")})) == before


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """A copy of harness/ whose fingerprint is asked for."""
    shutil.copytree(HARNESS, tmp_path / "harness", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(fingerprints, "HARNESS", tmp_path / "harness")
    return tmp_path / "harness"


@pytest.mark.system
def test_numeric_modules_count_in_the_harness_hash_and_their_comments_do_not(copied):
    found = [fingerprints.harness_code().sha256]
    for pattern in NUMERIC:
        place = sorted(copied.glob(pattern))[0]
        place.write_text(f"{place.read_text()}\nmore = 1  # a comment\n")
        forget()
        found.append(fingerprints.harness_code().sha256)
        place.write_text(place.read_text().replace("  # a comment", ""))
    forget()
    assert fingerprints.harness_code().sha256 == found[-1]
    assert len(set(found)) == len(NUMERIC) + 1


def test_a_module_that_moves_changes_the_harness_hash_and_the_command_line_does_not(copied):
    before = fingerprints.harness_code().sha256
    (copied / "cli" / "suites.py").write_text("")
    (copied / "report" / "notes.py").write_text("")
    forget()
    assert fingerprints.harness_code().sha256 == before
    (copied / "training" / "step.py").rename(copied / "kernels" / "step.py")
    forget()
    assert fingerprints.harness_code().sha256 != before


# What a trial imports of harness/ that computes none of its numbers: a new module goes here or into NUMERIC.
OTHERS = {
    *("__init__.py", "errors.py", "printable.py", "registry.py"),
    *(f"code/{name}.py" for name in ("__init__", "fingerprints", "source_code")),
    "containment.py",
    *(
        f"machine/{name}.py"
        for name in ("__init__", "environment", "files", "limits", "locks", "processes", "stop_request")
    ),
    *(f"records/{name}.py" for name in ("__init__", "contents", "metrics", "plausible", "record")),
    *(f"records/{name}.py" for name in ("replicates", "sealed", "sidecars", "store")),
    *(f"training/{name}.py" for name in ("__init__", "checkpoint", "clocks")),
    *(f"trial/{name}.py" for name in ("__init__", "behaviour", "certifier", "certify", "log", "run", "sessions")),
    *(f"trial/{name}.py" for name in ("task", "timing", "watch")),
}


def test_what_a_trial_imports_is_numeric_or_known_not_to_be():
    imported = {each.file.relative_to(HARNESS).as_posix() for each in closure("harness.trial.run", {"harness"})}
    numeric = {place.relative_to(HARNESS).as_posix() for pattern in NUMERIC for place in HARNESS.glob(pattern)}
    assert {place for place in imported - numeric - OTHERS if not place.startswith("plan/")} == set()
    assert {pattern for pattern in NUMERIC if not list(HARNESS.glob(pattern))} == set()


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
    assert head_of("gone").head == UNKNOWN
    assert changed(handmade.record(spec=gone, code=here)) == ()
    assert changed(handmade.record(code=None)) == ()  # from before code was noted


@pytest.mark.guards("unknown-hash")
@pytest.mark.parametrize("change", [{"harness": "0" * 64}, {"dirty": True}, {"head": UNKNOWN}])
def test_the_harness_a_dirty_tree_and_an_unknown_hash_make_no_record_outdated(change):
    assert changed(handmade.record(code=of_trial(SPEC).model_copy(update=change))) == ()


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


def test_a_tree_is_dirty_where_a_file_is_changed_or_was_never_committed(checkout, tmp_path):
    outside = tmp_path / "outside.py"
    outside.write_text("x = 1\n")
    assert environment.uncommitted([checkout]) is False
    assert environment.uncommitted([outside]) is None
    assert environment.uncommitted([checkout, outside]) is False
    new = checkout.with_name("new.py")
    new.write_text("x = 1\n")
    assert environment.uncommitted([checkout]) is False
    assert environment.uncommitted([new]) is True
    checkout.write_text("x = 2\n")
    assert environment.uncommitted([checkout, outside]) is True


def test_the_commit_is_that_of_the_folder_whatever_git_sets_for_a_hook(checkout, tmp_path, monkeypatch):
    (checkout.parent / "harness").mkdir()
    monkeypatch.setattr(environment.harness, "__file__", str(checkout.parent / "harness" / "__init__.py"))
    found = environment.commit()
    assert re.fullmatch("[0-9a-f]{12}", found)
    for name in environment.ANOTHER_REPOSITORY:
        monkeypatch.setenv(name, str(tmp_path / "another"))
    assert environment.commit() == found
    assert environment.uncommitted([checkout]) is False


def test_a_setting_of_git_hides_no_new_file_and_a_name_in_any_encoding_is_read(checkout, tmp_path, monkeypatch):
    (tmp_path / "gitconfig").write_text("[core]\n\tquotepath = false\n[status]\n\tshowUntrackedFiles = no\n")
    named = os.fsencode(checkout.parent) + b"/\xfcber.py"
    with open(named, "w") as file:
        file.write("x = 1\n")
    new = checkout.with_name("new.py")
    new.write_text("x = 1\n")
    assert environment.uncommitted([new]) is True
    assert environment.uncommitted([Path(os.fsdecode(named))]) is True


def test_the_commit_of_a_project_around_the_harness_is_not_ours(checkout, monkeypatch):
    monkeypatch.setattr(environment.harness, "__file__", str(checkout.parent / "lib" / "harness" / "__init__.py"))
    assert environment.commit() == "unknown"


def test_without_git_no_commit_is_known(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment.commit() == "unknown"
    assert environment.uncommitted([tmp_path / "file.py"]) is None
