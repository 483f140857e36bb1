"""The registry: lazy discovery, duplicates, unknown and broken entries, foreign packages."""

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest
from commands import PATIENCE

import harness.registry
from harness.errors import BrokenComponent, DuplicateComponent, UnknownComponent
from harness.registry import BACKBONES, CORPORA, HEADS, Registry


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An importable package 'zoo' in which a test can put modules; `harness` owned by its root name."""
    folder = tmp_path / "zoo"
    folder.mkdir()
    (folder / "__init__.py").write_text("__distribution__ = 'output-head-harness'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(harness.registry.harness, "__file__", str(tmp_path / "harness" / "__init__.py"))
    monkeypatch.setattr(
        harness.registry, "ZOO", Registry("animal", "zoo", group="harness.zoo", given=()), raising=False
    )
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


@pytest.mark.parametrize("second", ["tiger", "bear"])
def test_a_name_taken_twice_is_one_warning_and_no_other_name_suffers(package, caplog, second):
    (package / "cat.py").write_text(animal("cat"))
    (package / f"{second}.py").write_text(animal("cat") + animal("other", "Other"))
    first, last = sorted(["cat", second])  # modules are imported in this order
    sentence = (
        f"animal 'cat' is registered twice: in zoo/{first}.py and in zoo/{last}.py; give one of them another name"
    )
    zoo = harness.registry.ZOO
    assert zoo.names() == ["cat", "other"]
    assert caplog.messages == [sentence]
    assert zoo.get("other").__name__ == "Other"
    with pytest.raises(DuplicateComponent) as caught:
        zoo.get("cat")
    assert str(caught.value) == sentence


def test_a_name_taken_after_all_modules_were_imported_is_refused_at_once(package):
    (package / "cat.py").write_text(animal("cat"))
    zoo = harness.registry.ZOO
    ours = zoo.get("cat")
    with pytest.raises(DuplicateComponent, match=r"'cat' is registered twice: in zoo/cat\.py and in "):

        @zoo.register("cat")
        class Other:
            pass

    assert zoo.get("cat") is ours


BROKEN = {  # content of a file -> why it cannot be imported
    "import no_such_library\n": "ModuleNotFoundError: No module named 'no_such_library' (line 1)",
    "x = 1\ndef f(\n": "SyntaxError: '(' was never closed (dog.py, line 2)",
    animal("dog") + "x = y\n": "NameError: name 'y' is not defined (line 6)",
    animal("dog").replace("('dog')", ""): "TypeError: register needs a name: write .register('name') above the class,",
    animal("dog") + "import torch\ntorch.set_default_dtype(torch.float64)\n": (
        "zoo/dog.py changed the default dtype (torch.float32 to torch.float64) in its import;"
    ),
    "import sys\nsys.exit(3)\n": "zoo/dog.py raised SystemExit: 3 in its import",
}


def test_an_unknown_name_of_a_file_is_explained_by_what_the_file_registers(package):
    (package / "cat.py").write_text(animal("cat"))
    (package / "dog.py").write_text(animal("cat"))  # after cat.py
    (package / "eel.py").write_text(animal("snake"))
    with pytest.raises(UnknownComponent, match=r"unknown animal 'dog'.*; animal 'cat' is registered twice: in zoo/cat"):
        harness.registry.ZOO.get("dog")
    with pytest.raises(
        UnknownComponent, match=r"unknown animal 'eel'.*; zoo/eel\.py registers 'snake': use that name$"
    ):
        harness.registry.ZOO.get("eel")


@pytest.mark.parametrize("content", BROKEN)
def test_a_module_that_cannot_be_imported_is_one_warning_and_is_named_where_a_name_is_unknown(package, caplog, content):
    (package / "cat.py").write_text(animal("cat"))
    (package / "dog.py").write_text(content)
    zoo = harness.registry.ZOO
    assert zoo.names() == ["cat"]
    assert zoo.names() == ["cat"]
    (sentence,) = caplog.messages
    assert sentence.startswith(f"zoo/dog.py cannot be imported: {BROKEN[content]}")
    assert zoo.get("cat").__name__ == "Animal"
    with pytest.raises(UnknownComponent) as caught:
        zoo.get("dog")
    assert str(caught.value).endswith(f"(known: cat); {sentence}")


@pytest.mark.parametrize("importer", ["ant", "eel"])  # it is imported before the broken module, and after it
def test_a_module_that_imports_a_broken_one_does_not_bring_its_names(package, importer):
    (package / "dog.py").write_text(animal("dog") + "x = y\n")
    (package / f"{importer}.py").write_text(animal(importer) + "import zoo.cat\nimport zoo.dog\n")
    (package / "cat.py").write_text(animal("cat"))
    zoo = harness.registry.ZOO
    assert zoo.names() == ["cat"]
    assert [sentence.split()[0] for sentence in sorted(zoo.faults())] == sorted(["zoo/dog.py", f"zoo/{importer}.py"])


def test_a_broken_module_does_not_take_a_name_from_another(package):
    (package / "ant.py").write_text(animal("cat") + "x = y\n")
    (package / "cat.py").write_text(animal("cat"))
    (package / "dog.py").write_text(animal("cat") + "x = y\n")
    zoo = harness.registry.ZOO
    assert zoo.get("cat").__module__ == "zoo.cat"
    assert len(zoo.faults()) == 2


def test_a_module_that_registers_nothing_is_one_warning(package, caplog):
    (package / "cat.py").write_text(animal("cat"))
    (package / "dog.py").write_text("from zoo.cat import Animal\n\nclass Dog(Animal):\n    pass\n")
    (package / "_legs.py").write_text("LEGS = 4\n")
    assert harness.registry.ZOO.names() == ["cat"]
    sentence = (
        "zoo/dog.py registers no animal: write @ANIMALS.register('dog') above its class "
        "(a file of helper functions needs a name that begins with _)"
    )
    assert caplog.messages == [sentence]
    with pytest.raises(UnknownComponent, match=r"unknown animal 'dog'.*; zoo/dog\.py registers no animal"):
        harness.registry.ZOO.get("dog")


def test_every_module_of_ours_registers_something():
    assert HEADS.faults() == BACKBONES.faults() == CORPORA.faults() == ()


@pytest.mark.parametrize(
    ("signature", "wrong"),
    [
        ("self, d, size: int = 3", "its parameter 'size' must be keyword-only: write (self, dims, *, size: int = 3)"),
        (
            "self, dims, size, legs=4, *, fur=True",
            "its parameter 'size' must be keyword-only: write (self, dims, *, size, legs=4, fur=True)",
        ),
        ("self, *, dims", "its constructor must begin with (self, dims), and is (self, *, dims)"),
        ("self) -> (None", "its constructor must begin with (self, dims), and is (self)"),
        ("self, dims, *, size: int", None),
        ("self, dims, **more", None),
        ("self, *everything", None),
    ],
)
def test_a_constructor_takes_what_it_is_given_and_the_rest_by_keyword(package, monkeypatch, signature, wrong):
    (package / "cat.py").write_text(animal("cat").replace("    pass", f"    def __init__({signature}):\n        pass"))
    zoo = harness.registry.ZOO
    monkeypatch.setattr(zoo, "given", ("dims",))
    assert zoo.names() == ["cat"]
    if wrong is None:
        assert zoo.get("cat").__name__ == "Animal"
        return
    with pytest.raises(BrokenComponent) as caught:
        zoo.get("cat")
    assert str(caught.value) == f"animal 'cat' of zoo/cat.py: {wrong}"


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
    assert harness.registry.ZOO.names() == ["cat"]
    with pytest.raises(DuplicateComponent, match=r"in zoo/cat.py and by plug-in .*outside:Cat"):
        harness.registry.ZOO.get("cat")


def test_a_plugin_that_also_uses_the_decorator_is_one_entry(package, monkeypatch):
    (package.parent / "outside.py").write_text(animal("dog"))
    offer(monkeypatch, ("dog", "outside:Animal"))
    registry = harness.registry.ZOO
    assert registry.get("dog") is registry.get("dog")
    assert registry.names() == ["dog"]
    del sys.modules["outside"]


def test_an_entry_that_is_not_listed_has_no_name_for_suites(package):
    (package / "cat.py").write_text(animal("cat"))
    (package / "yeti.py").write_text(animal("yeti").replace("('yeti')", "('yeti', listed=False)"))
    zoo = harness.registry.ZOO
    assert zoo.names() == ["cat"]
    assert zoo.get("yeti") is not zoo.listed("cat")
    with pytest.raises(UnknownComponent, match="the animal 'yeti' belongs to trials of `ngrams`"):
        zoo.listed("yeti")


@pytest.fixture
def home(package, tmp_path, monkeypatch):
    """The folder `zoo` of a user, whose home is another one than the folder of the package."""
    (tmp_path / "home" / "zoo").mkdir(parents=True)
    monkeypatch.setattr(harness.registry, "_HOME", [tmp_path / "home"])
    return tmp_path / "home" / "zoo"


def test_a_file_of_the_users_folder_is_a_module_of_the_package(package, home):
    (package / "cat.py").write_text(animal("cat"))
    (home / "dog.py").write_text(f"from zoo._legs import FOUR\n{animal('dog')}")
    (home / "_legs.py").write_text("FOUR = 4\n")
    zoo = harness.registry.ZOO
    assert zoo.names() == ["cat", "dog"]
    assert zoo.module("dog") == "zoo.dog"
    assert zoo.origin("dog") == "home/zoo/dog.py"
    assert zoo.faults() == ()


def test_a_file_of_the_users_folder_that_has_nothing_to_do_with_the_harness_is_not_run(package, home):
    (home / "photos.py").write_text("raise SystemExit('another program')\n")
    assert harness.registry.ZOO.names() == []
    assert harness.registry.ZOO.faults() == ()
    with pytest.raises(UnknownComponent, match=r"photos\.py does not import harness, so it is not read as a"):
        harness.registry.ZOO.get("photos")


def test_what_an_editor_leaves_in_the_users_folder_hides_no_component(package, home):
    (home / "dog.py").write_text(animal("dog"))
    (home / "dog.old.py").write_text(animal("dog"))
    (home / ".#dog.py").symlink_to("nobody@nowhere")
    (home / "folder.py").mkdir()
    assert harness.registry.ZOO.names() == ["dog"]
    assert harness.registry.ZOO.is_importable("dog")


def test_a_file_with_the_name_of_one_of_the_package_is_an_error_that_names_both(package, home):
    (package / "cat.py").write_text(animal("cat"))
    (home / "cat.py").write_text(animal("cat", "Other"))
    with pytest.raises(DuplicateComponent) as caught:
        harness.registry.ZOO.get("cat")
    assert str(home / "cat.py") in str(caught.value)
    assert str(package / "cat.py") in str(caught.value)


def test_a_name_of_the_package_in_a_file_of_the_user_is_an_error_that_names_both(package, home):
    (package / "cat.py").write_text(animal("cat"))
    (home / "mine.py").write_text(animal("cat", "Other"))
    with pytest.raises(DuplicateComponent, match=r"in zoo/cat\.py and in home/zoo/mine\.py"):
        harness.registry.ZOO.get("cat")


def test_a_users_file_that_is_the_packages_file_is_no_clash(package, home):
    (package / "cat.py").write_text(animal("cat"))
    (home / "cat.py").write_text(animal("cat"))  # a clone of the project, where a wheel is installed
    assert harness.registry.ZOO.get("cat").__name__ == "Animal"
    assert harness.registry.ZOO.faults() == ()


def test_the_package_itself_may_be_the_users_folder(package, monkeypatch):
    (package / "cat.py").write_text(animal("cat"))
    monkeypatch.setattr(harness.registry, "_HOME", [package.parent])
    assert harness.registry.ZOO.names() == ["cat"]
    assert harness.registry.ZOO.faults() == ()


def test_a_class_of_a_session_is_named_so_and_may_be_defined_again(package):
    zoo = harness.registry.ZOO
    first, second = (type("Fish", (), {"__module__": "__main__"}) for _ in range(2))
    zoo.register("fish")(first)
    zoo.register("fish")(second)
    assert zoo.get("fish") is second
    assert not zoo.is_importable("fish")
    assert zoo.origin("fish") == "this session"


SCRIPT = """\
import sys
import torch
from torch import nn
import harness
from harness.code import hashes
from harness.distributions import Mixture
from harness.errors import ExecutionError

@harness.register_head("mine")
class Mine(nn.Module):
    def __init__(self, dims, embedding, *, scale: float = 1.0):
        super().__init__()
        self.weight = nn.Parameter(scale * torch.randn(dims.vocab_size, dims.layer_dims[-1]))

    def forward(self, hidden):
        return Mixture(hidden.layers[-1].unsqueeze(2), None, self.weight)

if __name__ == "__main__":
    print("code", hashes.of("head", "mine"))
    if sys.argv[1] == "none":
        sys.exit()
    try:
        study = harness.run_suite("mine.yaml", executor=sys.argv[1], tracking=False, device="cpu")
        print("status", *study.frame()["status"])
    except ExecutionError as refused:
        print("refused", refused)
"""
SESSION_SUITE = """\
corpora: [markov: {vocab_size: 12, num_tokens: 400, branching: 3}]
backbones: [lstm: {d_model: 8, num_layers: 1}]
heads: [mine]
seeds: [1]
train: {optimizer: adam, lr: 0.01, epochs: 1, batch_size: 4, seq_len: 7}
measure: {exclusive: false}
"""


@pytest.fixture
def script(tmp_path):
    """A function that runs the script with an executor or none, and returns what its lines begin with -> the rest."""

    def run(executor: str, text: str = SCRIPT) -> dict[str, str]:
        (tmp_path / "mine.yaml").write_text(SESSION_SUITE)
        (tmp_path / "script.py").write_text(text)
        command = [sys.executable, "script.py", executor]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=True)
        return dict(line.partition(" ")[::2] for line in done.stdout.splitlines())

    return run


@pytest.mark.system
def test_it_trains_in_this_process_and_an_edit_changes_its_fingerprint(script):
    first = script("inline")
    assert first["status"] == "ok"
    assert len(first["code"]) == 64
    assert script("none", SCRIPT.replace("scale * torch", "2 * scale * torch"))["code"] != first["code"]


@pytest.mark.system
def test_ray_refuses_it_with_what_to_do(script):
    refused = script("ray")["refused"]
    assert "the head 'mine' is a class of this notebook or script" in refused
    assert "heads/mine.py" in refused


@pytest.mark.parametrize("name", ["hf.x", "awd_lstm.y"])
def test_a_name_below_that_of_an_extension_is_only_unknown(name):
    with pytest.raises(UnknownComponent, match=f"^unknown backbone '{name}'"):
        BACKBONES.get(name)
