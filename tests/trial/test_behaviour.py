"""The fingerprint of behaviour: edits that change what a component computes are noticed, all others are not."""

import importlib.util
import inspect
import json
import sys
import types
import zipfile
from functools import cache
from pathlib import Path

import handmade
import pytest
import torch

from harness import distributions, dropout
from harness.code.fingerprints import code_of, harness_code
from harness.corpora import batching
from harness.plan.specs import COUNTED, ComponentSpec, TrainSpec
from harness.records.record import Behaviour
from harness.registry import BACKBONES, HEADS
from harness.training import optimizers, schedules, step
from harness.trial import behaviour

MOS = ComponentSpec(name="mos", params={"num_mixtures": 3, "dropout": 0.2})
TIED = ComponentSpec(name="mos", params={"num_mixtures": 2, "tie_weights": True})
LSTM = ComponentSpec(name="lstm", params={"d_model": 8, "num_layers": 2, "dropout": 0.1})
RECORDS = Path(__file__).parents[2] / "results" / "showcase" / "records"
REGISTRIES = {"head": HEADS, "backbone": BACKBONES}


@cache
def recorded() -> dict[str, dict[str, ComponentSpec | TrainSpec]]:
    """Kind -> the components and settings of the committed records, by their text."""
    found = {"head": {}, "backbone": {}, "harness": {}}
    for archive in sorted(RECORDS.rglob("*.zip")):
        with zipfile.ZipFile(archive) as opened:
            for name in opened.namelist():
                if name.endswith("/record.json"):
                    content = json.loads(opened.read(name))
                    for kind in ("head", "backbone"):
                        component = ComponentSpec.model_validate(content["spec"][kind])
                        found[kind][str(component)] = component
                    if content["status"] == "ok" and (content.get("behaviour") or {}).get("harness") is None:
                        train = TrainSpec.model_validate_json(json.dumps(content["spec"]["train"]))
                        found["harness"][behaviour._key_of_harness(train).partition(" ")[2]] = train
    return found


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of its own, and none in this process."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    behaviour._kept.cache_clear()
    yield tmp_path / "behaviour"
    behaviour._kept.cache_clear()


@pytest.fixture
def record():
    """A function: numbers and hashes of code that differ -> a record of mos on an LSTM by the present code."""

    def make(numbers: Behaviour | None = None, **hashes: str):
        spec = handmade.record().spec.model_copy(update={"head": MOS, "backbone": LSTM})
        here = {kind: code_of(kind, getattr(spec, kind).name).sha256 for kind in ("head", "backbone", "corpus")}
        here["harness"] = harness_code().sha256
        return handmade.record(spec=spec, code=handmade.code(**{**here, **hashes}), behaviour=numbers)

    return make


@pytest.fixture
def edited(tmp_path):
    """A function: kind, spec, text of the component's file, its replacement -> the numbers with the edited file."""

    def numbers(kind: str, spec: ComponentSpec, before: str, after: str):
        registry, place = REGISTRIES[kind], tmp_path / "edited.py"
        cls = registry.get(spec.name)
        source = inspect.getsource(sys.modules[cls.__module__])
        assert before in source
        place.write_text(source.replace(before, after))
        found = importlib.util.spec_from_file_location("edited", place)
        module = importlib.util.module_from_spec(found)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(registry, "register", lambda name, **_: lambda cls: cls)
            found.loader.exec_module(module)
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(registry._classes, spec.name, getattr(module, cls.__name__))
            return behaviour.tried(kind, spec)

    return numbers


def test_the_same_component_gives_the_same_numbers_and_disturbs_no_generator():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    for kind, spec in (("head", MOS), ("backbone", LSTM)):
        found = behaviour.tried(kind, spec)
        assert len(found) > 8
        assert behaviour.tried(kind, spec) == found
    assert torch.equal(torch.get_rng_state(), before)


NOTICED = {
    "a factor": ("head", MOS, "torch.tanh(facets)", "1.01 * torch.tanh(facets)"),
    "a sign": ("head", MOS, "log_prior(self.prior(h_BTD))", "log_prior(-self.prior(h_BTD))"),
    "a dropped bias": ("head", MOS, "self.output.bias,\n", "None,\n"),
    "a dropout rate": ("head", MOS, "[dropout_mask](dropout)", "[dropout_mask](dropout / 2)"),
    "another start": ("head", MOS, "xavier_uniform_(self.latent, self.prior)", "xavier_uniform_(self.prior)"),
    "weights no longer tied": ("head", TIED, "tie_weights=tie_weights, width", "tie_weights=False, width"),
    "a layer's factor": ("backbone", LSTM, "layers.append(h_BTD)", "layers.append(1.001 * h_BTD)"),
    "a dropped dropout": ("backbone", LSTM, "h_BTD = self.dropout(h_BTD)", "pass"),
    "a dropout rate below": ("backbone", LSTM, "Dropout(embedding_dropout)", "Dropout(embedding_dropout / 2)"),
    "another start below": ("backbone", LSTM, "-0.1, 0.1", "-0.11, 0.11"),
    "a state that is lost": ("backbone", LSTM, "None if state is None else state[index]", "None"),
}
UNCHANGED = {
    "a new option": ("head", MOS, "softcap: Cap | None = None,\n", "softcap: Cap | None = None,\n more=1,\n"),
    "a method's name": ("head", MOS, "_log_prior", "_weights"),
    "an equal expression": ("head", MOS, "if num_mixtures < 1", "if not num_mixtures >= 1"),
    "a variable's name": ("backbone", LSTM, "carried", "states"),
}


@pytest.mark.parametrize("edit", [*NOTICED, *UNCHANGED])
def test_an_edit_is_noticed_where_it_changes_results(edited, edit):
    kind, spec, *_ = case = (NOTICED | UNCHANGED)[edit]
    found = edited(*case)
    assert found is not None
    assert behaviour.equal(found, behaviour.tried(kind, spec)) == (edit in UNCHANGED)


# Settings with every part of training between them: a schedule each, clipping, decay, momentum, accumulation, z-loss.
SGD = TrainSpec(
    **{"optimizer": "sgd", "lr": 20.0, "epochs": 40.0, "batch_size": 20, "seq_len": 35, "clip": 0.25, "momentum": 0.9},
    **{"weight_decay": 1e-6, "schedule": {"step": {"after": 6, "factor": 0.8}}, "accumulation": 5},
)
LONG = {"lr": 1e-3, "epochs": 2.0, "batch_size": 64, "seq_len": 128}
WARM = {"z_loss": 1e-4, "schedule": {"warmup": {"steps": 4000, "decay": "linear"}}}
ADAM = TrainSpec(**LONG, **WARM, optimizer="adam", batching="blocks")
SHUFFLED = TrainSpec(**LONG, optimizer="adamw", shuffle=True, eval_stride=64, weight_decay=0.01)
HARNESS_NOTICED = {  # an edit of the harness' own code: settings, module, its text, the replacement
    "a factor of the loss": (SGD, step, "(loss / parts).backward()", "(1.001 * loss / parts).backward()"),
    "a gradient that is not clipped": (SGD, step, "if self.train.clip is not None:", "if False:"),
    "a state that is not carried": (SGD, step, "self._state = state if self.carries else None", "self._state = None"),
    "a dropped part": (SGD, step, "(loss / parts).backward()", "(loss / parts).backward() if not carried else None"),
    "a dropped decay": (SGD, optimizers, '"weight_decay": train.weight_decay', '"weight_decay": 0.0'),
    "a momentum that is lost": (SGD, optimizers, "momentum=train.momentum", "momentum=0.0"),
    "a schedule's factor": (SGD, schedules, "izer, self.settings.factor)", "izer, self.settings.factor**1.01)"),
    "a rate that does not rise": (ADAM, schedules, "return done / warmup", "return 1.0"),
    "a z-loss' sign": (ADAM, distributions, "z_loss=self.z_loss)", "z_loss=-self.z_loss)"),
    "a dropout rate": (SGD, dropout, "return kept.div_(1 - p)", "return kept.div_(1 - p / 2)"),
    "an order of segments": (
        SHUFFLED,
        batching,
        "randperm(self.num_units, generator=generator",
        "arange(self.num_units",
    ),
    "a target's place": (SGD, batching, "(0, 1))", "(0, 2))"),
    "a stride": (SHUFFLED, batching, "width - scored)", "width - scored + 1)"),
}


@pytest.mark.system
@pytest.mark.parametrize("edit", HARNESS_NOTICED)
def test_an_edit_of_the_harness_own_code_is_noticed(edit, monkeypatch):
    train, *edits = HARNESS_NOTICED[edit]
    here = behaviour.tried_harness(behaviour.cut_down(train))
    run_with(monkeypatch, *edits)
    found = behaviour.tried_harness(behaviour.cut_down(train))
    assert None not in (here, found)
    assert not behaviour.equal(found, here)


def run_with(monkeypatch, module, before: str, after: str) -> None:
    """Give the functions and methods of a module the code that they have in an edited text of it."""
    source = inspect.getsource(module)
    assert before in source
    edited = types.ModuleType(module.__name__)
    exec(compile(source.replace(before, after), module.__file__, "exec"), vars(edited))
    for name, here in vars(module).items():
        if getattr(here, "__module__", None) != module.__name__:
            continue
        members = vars(here).items() if isinstance(here, type) else [("", here)]
        for member, function in members:
            if not isinstance(function, types.FunctionType):
                continue
            there = getattr(vars(edited)[name], member) if member else vars(edited)[name]
            if function.__code__.co_freevars == there.__code__.co_freevars:  # torch wraps a step that was used
                monkeypatch.setattr(function, "__code__", there.__code__)


@pytest.mark.parametrize("train", [SGD, ADAM, SHUFFLED, COUNTED], ids=["sgd", "adam", "shuffled", "counted"])
def test_the_harness_own_code_gives_the_same_numbers_again(train):
    found = behaviour.numbers_of_harness(train)
    assert found == behaviour.tried_harness(behaviour.cut_down(train))


def test_numbers_of_the_harness_depend_on_the_parts_of_training_and_not_on_their_sizes():
    assert behaviour.cut_down(SGD) == behaviour.cut_down(SGD.model_copy(update={"lr": 1.0, "clip": 5.0, "epochs": 3.0}))
    assert behaviour.cut_down(SGD) != behaviour.cut_down(SGD.model_copy(update={"clip": None}))


def test_numbers_are_equal_within_the_tolerance_only():
    assert behaviour.equal([1000.0, 1e-9], [1000.0009, 9e-7])
    assert not behaviour.equal([1000.0], [1000.0011])
    assert not behaviour.equal([0.0], [1.1e-6])
    assert not behaviour.equal([1.0], [1.0, 2.0])


def test_a_record_is_outdated_where_source_and_numbers_differ(record):
    now, other = behaviour.of_trial(record().spec), "f" * 64
    head, harness = (
        now.model_copy(update={name: (*getattr(now, name)[:-1], getattr(now, name)[-1] + 1e-3)})
        for name in ("head", "harness")
    )
    for made, changed in (
        (record(), ()),
        (record(head=other), ("head",)),  # a record without numbers
        (record(now, head=other, backbone=other, harness=other), ()),
        (record(head, head=other, backbone=other), ("head",)),
        (record(harness, harness=other), ("harness",)),
        (record(head), ()),  # the source is the same, and nothing is computed
        (record(harness), ()),
        (record(now.model_copy(update={"harness": None}), harness=other), ()),
        (record(now, corpus=other), ("corpus",)),
    ):
        assert behaviour.changed(made) == changed
        assert behaviour.is_outdated(made) == bool(changed)
    assert behaviour.edited(record(head=other)) == ("head",)


def test_numbers_that_are_listed_count_for_records_that_have_none(record, monkeypatch):
    spec, other = record().spec, "f" * 64
    listed = {f"head {other[:12]} {spec.head}": list(behaviour.tried("head", spec.head))}
    monkeypatch.setattr(behaviour, "_listed", lambda: listed)
    assert behaviour.changed(record(head=other)) == ()
    assert behaviour.changed(record(head="e" * 64)) == ("head",)
    numbers = list(behaviour.numbers_of_harness(spec.train))
    for of_harness, changed in ((numbers, ()), ([2 * each for each in numbers], ("harness",))):
        listed[behaviour._key_of_harness(spec.train)] = of_harness
        assert behaviour.changed(record(harness=other)) == changed


def test_what_was_computed_is_kept_on_this_machine(cache, monkeypatch):
    found = behaviour.numbers("head", MOS)
    assert [tuple(json.loads(place.read_text())) for place in cache.glob("*.json")] == [found]
    behaviour._kept.cache_clear()
    monkeypatch.setattr(behaviour, "tried", lambda kind, spec: pytest.fail("it is kept"))
    assert behaviour.numbers("head", MOS) == found


def test_a_component_that_cannot_be_tried_has_no_numbers():
    assert behaviour.tried("head", ComponentSpec(name="adaptive", params={"cutoffs": [100, 500]})) is None
    assert behaviour.tried("head", ComponentSpec(name="mos", params={"num_mixtures": 0})) is None
    assert behaviour.tried("backbone", ComponentSpec(name="gpt2", params={"size": "small"})) is None  # 85M parameters
    assert behaviour.numbers("head", ComponentSpec(name="gone")) is None


SIZES = {"d_model": 8, "num_layers": 1}
ATTENTION = {"num_heads": 2}


@pytest.mark.parametrize("name", sorted({*HEADS.names(), *BACKBONES.names()} - {"adaptive"}))
def test_every_component_has_numbers_with_its_defaults_unless_it_is_too_large(name):
    kind = "head" if name in HEADS.names() else "backbone"
    if name == "hf":
        config = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
        assert behaviour.tried(
            "backbone", ComponentSpec(name=name, params={"config": {"model_type": "llama", **config}})
        )
        return
    sizes = {"d_embed": 8, "d_hidden": 8, "num_layers": 1} if name == "awd_lstm" else SIZES
    params = sizes | (ATTENTION if name in ("gpt2", "transformer_encoder") else {}) if kind == "backbone" else {}
    assert behaviour.tried(kind, ComponentSpec(name=name, params=params)) is not None


@pytest.mark.parametrize("key", sorted(behaviour._listed()))
def test_what_is_listed_still_behaves_so(key):
    """Expected: what the code computed at the commits that made the committed records. Where this fails, an edit of the
    component or of the numeric core has changed its results, and its records are outdated: remove it from the list.
    """
    kind, _, text = key.partition(" ")
    text = text if kind == "harness" else text.partition(" ")[2]
    assert text in recorded()[kind], "no committed record is of it: remove it from the list"
    found = recorded()[kind][text]
    numbers = behaviour.numbers_of_harness(found) if kind == "harness" else behaviour.tried(kind, found)
    assert behaviour.equal(numbers, behaviour._listed()[key])


def test_the_settings_of_all_committed_records_without_numbers_are_listed():
    assert {f"harness {text}" for text in recorded()["harness"]} <= behaviour._listed().keys()
