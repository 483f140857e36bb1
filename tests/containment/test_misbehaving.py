"""Components that end the program, raise what cannot be shown, or change what all trials share: each is an error record
that names it, and the trials after it are as if it had not been.
"""

import importlib
import random
import re
import signal
from functools import cache, partial
from itertools import product
from pathlib import Path

import handmade
import numpy as np
import pytest
import torch
from disturbed import result, suite_text
from hostile import misbehaving

from harness import containment, plan
from harness.errors import SuiteError
from harness.registry import BACKBONES, HEADS
from harness.trial.log import MAX_BYTES
from harness.trial.run import run

TRAIN = "train: {optimizer: adam, lr: 0.01, epochs: 1, batch_size: 4, seq_len: 7}"
BACKBONE = "{lstm: {d_model: 8, num_layers: 1, dropout: 0.1}}"

HEADS.names(), BACKBONES.names()  # all others are known before the plug-in's


@pytest.fixture(scope="module", autouse=True)
def known():
    """The plug-in, which other processes find by PYTHONPATH."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(HEADS._classes, "misbehaving", misbehaving.Misbehaving)
        patch.setitem(HEADS._classes, "drawing", misbehaving.Drawing)
        patch.setitem(BACKBONES._classes, "misbehaving_backbone", misbehaving.MisbehavingBackbone)
        yield


@pytest.fixture
def unchanged():
    """A test leaves torch's settings as they were."""
    before = containment.values()
    yield
    assert containment.put_back(before) == []


def trials(folder, *heads, backbones=BACKBONE, more=""):
    path = folder / "tiny.yaml"
    path.write_text(suite_text(*heads, backbones=f"backbones: [{backbones}]", train=TRAIN, more=more))
    return plan.load(path).trials


def trained(folder, *heads, **more):
    """The records of trials that run one after the other in this process."""
    folder.mkdir(exist_ok=True)
    setting = partial(handmade.task, runs=folder / "runs")
    return [run(setting(spec=spec)) for spec in trials(folder, *heads, **more)]


def log_of(folder, record):
    return (folder / "runs" / record.id / "trial.log").read_bytes()


def head(does, where):
    return f"misbehaving: {{does: '{does}', where: {where}}}"


def bits(record):
    return result(record.model_dump())


SAID = {
    "exit 0": "SystemExit: 0",
    "exit 3": "SystemExit: 3",
    "SystemExit": "SystemExit",
    "KeyboardInterrupt": "KeyboardInterrupt",
    "GeneratorExit": "GeneratorExit",
    "Beyond": "Beyond: all bounds",
    "unprintable": "Unprintable, whose text cannot be shown: its __str__ raises RuntimeError",
}
CHANGING = [  # not every processor can flush denormals: torch says so
    does for does in misbehaving.CHANGING if does != "flushing of denormals" or torch.set_flush_denormal(False)
]
BOTH = "head misbehaving on backbone lstm"
PLACES = ["constructor", "forward", "nll"]  # where every deed is tried; some are tried elsewhere, too
ENDING = [*product(SAID, PLACES), *product(["exit 0"], ["training_loss", "backward", "eval"])]
CHANGED = [*product(CHANGING, PLACES), *product(["default dtype", "grad mode"], ["training_loss"])]


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A function: place -> the folder of trials that do each deed there, one after the other in this process; the
    record of each; those of two honest trials after them.
    """

    @cache
    def at(where):
        deeds = [does for does in misbehaving.DEEDS if does not in ("nothing", "long")]
        folder, before = tmp_path_factory.mktemp("ended"), containment.values()
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            *hostile, softmax, drawing = trained(folder, *(head(does, where) for does in deeds), "softmax", "drawing")
        assert containment.put_back(before) == []
        return folder, dict(zip(deeds, hostile, strict=True)), (softmax, drawing)

    return at


@pytest.fixture
def trial(ended, tmp_path):
    """A function: deed, place -> the record and the log of its trial."""

    def find(does, where):
        folder, records, _ = ended(where) if where in PLACES else (tmp_path, {}, ())
        record = records[does] if records else trained(folder, head(does, where))[0]
        return record, log_of(folder, record)

    return find


@pytest.mark.system
@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(("does", "where"), ENDING)
def test_what_would_end_the_program_is_an_error_record_that_names_the_head_and_the_line(does, where, trial):
    record, log = trial(does, where)
    assert record.status == "error"
    if where == "constructor":
        assert record.message.startswith(f"ComponentError: head misbehaving raised {SAID[does]} in its constructor (")
    else:
        assert record.message.startswith(f"ComponentError: {BOTH} raised {SAID[does]} (")
    assert re.search(r" \(misbehaving\.py, line \d+\)$", record.message)
    assert b"misbehaving.py" in log  # the trace


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(("where", "named"), {"constructor": " in its constructor", "forward": ""}.items())
@pytest.mark.parametrize("does", ["exit 0", "KeyboardInterrupt", "default dtype"])
def test_a_backbone_is_named_too(does, where, named, tmp_path):
    backbone = f"{{misbehaving_backbone: {{does: '{does}', where: {where}}}}}"
    (record,) = trained(tmp_path, "softmax", backbones=backbone)
    assert record.status == "error"
    assert "backbone misbehaving_backbone " in record.message
    assert f"{SAID.get(does, does)}" in record.message
    assert named in record.message


@pytest.mark.system
@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(("does", "where"), CHANGED)
def test_a_change_of_torchs_settings_is_an_error_record_that_names_the_head_and_what_it_changed(does, where, trial):
    record, _ = trial(does, where)
    assert record.status == "error"
    if (does, where) == ("grad mode", "nll"):  # restored by the end of the evaluation, which torch fails in
        return
    who = "head misbehaving" if where == "constructor" else BOTH
    assert record.message.startswith(f"ComponentError: {who} changed the {does} (")
    end = " in its constructor" if where == "constructor" else ""
    assert record.message.endswith(f"{end}; a component must leave torch's settings as they are")


@pytest.mark.system
@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("where", PLACES)
def test_the_next_trials_train_as_if_none_of_them_had_been(where, ended, tmp_path):
    alone = trained(tmp_path, "softmax", "drawing")
    _, hostile, after = ended(where)
    assert [record.status for record in (*alone, *after)] == ["ok"] * 4
    assert {record.status for record in hostile.values()} == {"error", "ok"}  # what else is changed is no error
    assert [bits(record) for record in after] == [bits(record) for record in alone]


@pytest.mark.system
def test_what_else_a_component_changes_is_put_back(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    generators = random.getstate(), np.random.get_state()[1].tolist()
    (record,) = trained(tmp_path, head("everything else", "forward"))
    assert record.status == "ok"
    assert Path.cwd() == tmp_path
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert (random.getstate(), np.random.get_state()[1].tolist()) == generators


@pytest.mark.system
def test_a_component_that_draws_from_any_generator_is_honest_and_repeats_by_its_seed(tmp_path):
    random.seed(1), np.random.seed(1)
    first = trained(tmp_path / "1", "drawing")
    random.seed(2), np.random.seed(2)  # whatever the process drew before
    second = trained(tmp_path / "2", "softmax", "drawing")[1:]
    assert [record.status for record in first] == ["ok"]
    assert bits(first[0]) == bits(second[0])


def test_lone_surrogates_are_written_with_backslashes_in_log_and_record(tmp_path):
    (record,) = trained(tmp_path, head("surrogate", "forward"))
    assert (record.status, record.message) == ("error", r"RuntimeError: caf\udce9")
    assert rb"RuntimeError: caf\udce9" in log_of(tmp_path, record)
    log_of(tmp_path, record).decode()  # it is UTF-8


def test_a_message_of_fifty_megabytes_is_short_in_the_record_and_capped_in_the_log(tmp_path):
    (record,) = trained(tmp_path, head("long", "forward"))
    assert record.status == "error"
    assert record.message.startswith("RuntimeError: xxx")
    assert len(record.message) < 3_000
    log = log_of(tmp_path, record)
    assert MAX_BYTES / 2 < len(log) < 2 * MAX_BYTES
    assert b"misbehaving.py" in log
    assert b" bytes left out ..." in log


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("does", [*SAID, *CHANGING])
def test_in_the_plan_it_is_a_located_problem(does, tmp_path):
    with pytest.raises(SuiteError) as refused:
        trials(tmp_path, "softmax", head(does, "plan"))
    (problem,) = refused.value.problems
    assert "tiny.yaml:" in problem
    assert "head misbehaving" in problem
    assert SAID.get(does, f"changed the {does}") in problem
    end = " in its constructor" if does in SAID else "; a component must leave torch's settings as they are"
    assert end in problem


def test_a_real_ctrl_c_within_a_component_is_the_users(tmp_path, monkeypatch):
    monkeypatch.setitem(misbehaving.DEEDS, "nothing", lambda module: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path, head("nothing", "forward"))
    with pytest.raises(KeyboardInterrupt):
        trials(tmp_path, head("nothing", "plan"))


def test_the_exit_by_which_ray_tune_ends_a_trial_passes_and_leaves_no_record(tmp_path):
    def ended(progress):
        raise SystemExit(0)

    setting = partial(handmade.task, runs=tmp_path / "runs")
    (spec,) = trials(tmp_path, "softmax")
    with pytest.raises(SystemExit):
        run(setting(spec=spec), ended)
    assert not (tmp_path / "runs" / spec.id / "record.json").exists()


def test_a_plugin_that_exits_when_it_is_imported_is_a_problem_of_the_plan(tmp_path, harness, monkeypatch):
    entry = type(
        "Entry",
        (),
        {"load": lambda self: importlib.import_module("hostile.exits_at_import"), "value": "x:Y", "dist": None},
    )()
    monkeypatch.setitem(HEADS._plugins, "exits_at_import", entry)
    path = tmp_path / "tiny.yaml"
    path.write_text(suite_text("softmax", "exits_at_import"))
    done = harness("plan", path)
    assert done.code == 2
    assert "head 'exits_at_import' from plug-in" in done.err
    assert "raised SystemExit: 0 in its import" in done.err


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("does", ["exit 0", "KeyboardInterrupt", "unprintable", "default dtype"])
@pytest.mark.parametrize("where", ["constructor", "forward"])
def test_harness_check_says_what_it_did_and_leaves_with_1(does, where, harness):
    done = harness("check", "misbehaving", "--set", f"does={does}", "--set", f"where={where}")
    assert done.code == 1
    assert SAID.get(does, f" changed the {does} (") in done.out
