"""The registry: lazy discovery, duplicates, unknown and broken entries, foreign packages."""

import sys
from importlib.metadata import EntryPoint

import pytest

import harness.registry
from harness.errors import BrokenComponent, DuplicateComponent, HarnessError, UnknownComponent
from harness.registry import HEADS, Registry


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An importable package 'zoo' in which a test can put modules; `harness` owned by its root name."""
    folder = tmp_path / "zoo"
    folder.mkdir()
    (folder / "__init__.py").write_text("__distribution__ = 'output-head-harness'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(harness.registry.harness, "__file__", str(tmp_path / "harness" / "__init__.py"))
    monkeypatch.setattr(harness.registry, "ZOO", Registry("animal", "zoo", group="harness.zoo"), raising=False)
    yield folder
    for module in [m for m in sys.modules if m.partition(".")[0] == "zoo"]:
        del sys.modules[module]


def animal(name, cls="Animal"):
    return f"from harness.registry import ZOO\n\n@ZOO.register({name!r})\nclass {cls}:\n    pass\n"


def offer(monkeypatch, *entries):
    points = [EntryPoint(name, value, "harness.zoo") for name, value in entries]
    monkeypatch.setattr(harness.registry, "entry_points", lambda group: [p for p in points if p.group == group])


def test_our_heads_are_found_without_any_import_of_theirs():
    assert {"softmax", "mos"} <= set(HEADS.names())
    assert HEADS.get("mos").__name__ == "MixtureOfSoftmaxes"
    assert HEADS.origin("mos") == "heads/mos.py"


def test_modules_are_imported_at_the_first_look_up_and_not_before(package):
    (package / "cat.py").write_text(animal("cat"))
    assert "zoo.cat" not in sys.modules
    assert harness.registry.ZOO.names() == ["cat"]
    assert "zoo.cat" in sys.modules


def test_an_unknown_name_gives_the_nearest_and_the_known_ones(package):
    (package / "cat.py").write_text(animal("cat"))
    (package / "zebra.py").write_text(animal("zebra"))
    with pytest.raises(UnknownComponent, match=r"unknown animal 'zebre'; did you mean 'zebra'\? \(known: cat, zebra\)"):
        harness.registry.ZOO.get("zebre")


def test_a_name_taken_twice_names_both_places(package):
    (package / "cat.py").write_text(animal("cat"))
    (package / "tiger.py").write_text(animal("cat"))
    with pytest.raises(DuplicateComponent, match=r"'cat' is registered twice: in zoo/cat.py and in zoo/tiger.py"):
        harness.registry.ZOO.names()


def test_a_module_of_ours_that_cannot_be_imported_is_named_with_its_cause(package):
    (package / "cat.py").write_text("import no_such_library\n")
    with pytest.raises(BrokenComponent, match=r"cat\.py cannot be imported: ModuleNotFoundError.*no_such_library"):
        harness.registry.ZOO.names()


def test_plugins_are_listed_without_importing_and_loaded_when_asked_for(package, monkeypatch):
    (package.parent / "outside.py").write_text("class Dog:\n    pass\n")
    offer(monkeypatch, ("dog", "outside:Dog"))
    assert harness.registry.ZOO.names() == ["dog"]
    assert "outside" not in sys.modules
    assert harness.registry.ZOO.get("dog").__name__ == "Dog"
    del sys.modules["outside"]


def test_a_broken_plugin_fails_only_when_asked_for_and_keeps_its_cause(package, monkeypatch):
    (package / "cat.py").write_text(animal("cat"))
    offer(monkeypatch, ("dog", "no_such_package:Dog"))
    assert harness.registry.ZOO.names() == ["cat", "dog"]
    assert harness.registry.ZOO.get("cat").__name__ == "Animal"
    with pytest.raises(
        BrokenComponent, match=r"'dog' from plug-in .*no_such_package:Dog.*ModuleNotFoundError"
    ) as caught:
        harness.registry.ZOO.get("dog")
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_a_plugin_with_a_name_of_ours_is_refused(package, monkeypatch):
    (package / "cat.py").write_text(animal("cat"))
    offer(monkeypatch, ("cat", "outside:Cat"))
    with pytest.raises(DuplicateComponent, match=r"in zoo/cat.py and by plug-in .*outside:Cat"):
        harness.registry.ZOO.names()


def test_a_plugin_that_also_uses_the_decorator_is_one_entry(package, monkeypatch):
    (package.parent / "outside.py").write_text(animal("dog"))
    offer(monkeypatch, ("dog", "outside:Animal"))
    registry = harness.registry.ZOO
    assert registry.get("dog") is registry.get("dog")
    assert registry.names() == ["dog"]
    del sys.modules["outside"]


def test_a_package_of_another_distribution_is_refused_with_both_paths(package):
    (package / "__init__.py").write_text("")
    with pytest.raises(HarnessError, match=r"the package 'zoo' found at .*zoo is not ours: expected .*zoo"):
        harness.registry.ZOO.names()


def test_a_bare_folder_of_that_name_is_refused(package):
    (package / "__init__.py").unlink()
    with pytest.raises(HarnessError, match=r"the package 'zoo' found at .*zoo is not ours: expected .*zoo"):
        harness.registry.ZOO.names()


def test_a_package_that_lies_elsewhere_is_refused(package, monkeypatch, tmp_path):
    monkeypatch.setattr(harness.registry.harness, "__file__", str(tmp_path / "site" / "harness" / "__init__.py"))
    with pytest.raises(HarnessError, match="is not ours"):
        harness.registry.ZOO.names()


def test_an_entry_that_is_not_listed_has_no_name_for_suites(package):
    (package / "cat.py").write_text(animal("cat"))
    (package / "yeti.py").write_text(animal("yeti").replace("('yeti')", "('yeti', listed=False)"))
    zoo = harness.registry.ZOO
    assert zoo.names() == ["cat"]
    assert zoo.get("yeti") is not zoo.listed("cat")
    with pytest.raises(UnknownComponent, match="the animal 'yeti' belongs to trials of `ngrams`"):
        zoo.listed("yeti")
