"""What a plan keeps of models: taken by the next command, and never where something of it has changed."""

import json
import os
from dataclasses import replace

import pytest

from harness.machine import source as source_module
from harness.plan import kept_models
from harness.plan.components import Component, Construction
from harness.plan.kept_models import key_of
from harness.plan.loading import load
from harness.plan.specs import ComponentSpec
from harness.registry import BACKBONES, HEADS

SUITE = """\
name: kept
version: 1
corpora: [markov: {vocab_size: 20, num_tokens: 2000}]
backbones: [lstm: {d_model: 8, num_layers: 1}]
heads: [softmax, mos: {num_mixtures: 2}]
train: {epochs: 1, lr: 1.0}
seeds: 1
"""


@pytest.fixture(autouse=True)
def source(monkeypatch):
    """A hash of the source that no edit during the tests changes."""
    monkeypatch.setattr(kept_models, "source_hash", lambda: "the source")


@pytest.fixture
def suite(tmp_path, monkeypatch):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    place = tmp_path / "kept.yaml"
    place.write_text(SUITE)
    return place


def component(kind, name, **params):
    registry = {"head": HEADS, "backbone": BACKBONES}[kind]
    return Component(ComponentSpec(name=name, params=params), registry.get(name))


def key(vocab_size=10, backbone=None, heads=None, batch=None):
    lstm = component("backbone", "lstm", d_model=8)
    return key_of(vocab_size, backbone or lstm, heads or [component("head", "mos", num_mixtures=2)], batch)


def test_a_second_plan_is_what_is_kept_and_builds_no_model_and_a_file_of_another_form_is_not_used(suite, monkeypatch):
    first = load(suite)
    (place,) = (suite.parent / "cache" / "models").glob("*.json")
    content = json.loads(place.read_text())
    for other in ("[{}, []]", '[{"notes": []}, [[1, 2]]]', "nothing"):
        place.write_text(other)
        assert [row.params for row in load(suite).rows] == [row.params for row in first.rows]
    monkeypatch.setattr(Construction, "_build", lambda *given: pytest.fail("a model was built"))
    second = load(suite)
    assert second.possible_trials == first.possible_trials
    assert [(row.params, row.settled) for row in second.rows] == [(row.params, row.settled) for row in first.rows]
    assert (second.control_notes, second.notes) == (first.control_notes, first.notes)
    content[1][0][0] = [5, 4]
    place.write_text(json.dumps(content))
    assert load(suite).rows[0].params == (5, 4)


def test_other_settings_and_another_version_of_a_library_are_kept_apart(monkeypatch):
    mos, before, version = component("head", "mos", num_mixtures=2), key(), kept_models.version
    others = [
        key(vocab_size=11),
        *(key(batch=batch) for batch in ((2, 3), (2, 4), (3, 3))),
        key(backbone=component("backbone", "lstm", d_model=9)),
        key(heads=[component("head", "mos", num_mixtures=3)]),
        key(heads=[mos, mos]),
    ]
    for library in ("torch", "transformers"):
        monkeypatch.setattr(kept_models, "version", lambda name, it=library: "0.0" if name == it else version(name))
        others.append(key())
    assert len({before, *others} - {None}) == 10


@pytest.mark.needs("pretrained")
def test_a_component_that_reads_files_or_is_not_of_the_package_is_not_kept(tmp_path):
    assert key(backbone=component("backbone", "gpt2", weights="pretrained", path=str(tmp_path))) is None
    assert key(backbone=component("backbone", "hf", model=str(tmp_path))) is None
    mos = component("head", "mos")
    assert key(heads=[mos]) is not None

    class Own(mos.cls):
        """Defined in this file, under the name of one of the package."""

    assert key(heads=[replace(mos, cls=Own)]) is None


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of one file, older than the process."""
    for folder in ("harness", "heads", "backbones"):
        (tmp_path / folder).mkdir()
    (tmp_path / "heads" / "mos.py").write_text("b = 2")
    monkeypatch.setattr(source_module.harness, "FOLDER", tmp_path / "harness")
    monkeypatch.setattr(source_module, "BEGUN", os.stat(tmp_path / "heads" / "mos.py").st_ctime + 3600)
    return tmp_path


def test_an_edit_of_any_file_changes_the_hash_of_the_source_and_nothing_is_kept_after_one(package, monkeypatch):
    found = [source_module.source_hash(), source_module.source_hash()]
    for place, text in (("heads/mos.py", "b = 3"), ("harness/model.py", "a = 2"), ("backbones/new.py", "")):
        (package / place).write_text(text)
        found.append(source_module.source_hash())
    assert len(set(found)) == len(found) - 1
    monkeypatch.setattr(source_module, "BEGUN", os.stat(package / "heads" / "mos.py").st_ctime - 1)
    assert source_module.source_hash() == ""
    monkeypatch.setattr(kept_models, "source_hash", lambda: "")
    assert key() is None


def test_a_model_with_a_problem_is_not_kept(suite):
    suite.write_text(SUITE.replace("num_mixtures: 2", "num_mixtures: 0"))
    with pytest.raises(Exception, match="num_mixtures"):
        load(suite)
    assert not list((suite.parent / "cache").glob("models/*.json"))
