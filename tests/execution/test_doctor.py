"""`harness doctor`: what makes a machine unfit is a problem and exit code 2; what is odd is a note and exit code 0."""

import os
import sys
from collections import namedtuple
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from harness.errors import ExecutionError
from harness.execution import doctor
from harness.kernels import rows
from harness.kernels.forms import LEAN, by_rows
from harness.trial import routes

VARIABLES = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
NOWHERE = Path("/proc/nowhere")
DISK = namedtuple("usage", "total used free")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder as the current one, and nothing in the environment that the doctor could find odd."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path)
    found = SimpleNamespace(route="default", speedup=1.0, error=0.0, exact=True, cpu="A CPU")
    monkeypatch.setattr(routes, "load_probe", lambda again: found)
    return tmp_path


def examined(results=Path("results"), data=Path("data"), **options) -> doctor.Findings:
    return doctor.examine(results, data, **options)


def test_a_fit_machine_leaves_with_0_and_nothing_behind(place, harness):
    done = harness("doctor", "--data", "data")
    assert (done.code, done.err) == (0, "")
    shown = {line.split(":")[0] for line in done.out.splitlines()}
    assert shown >= {"Python", "packages", "results", "data", "memory", "matrix products", "Ray"}
    assert "ray 2." in done.out
    assert "note:" not in done.out
    assert os.listdir(place) == ["home"]
    done = harness("doctor", "--data", "data", "--results", NOWHERE / "results")
    assert done.code == 2
    assert done.err.startswith(f"the results folder {NOWHERE}/results cannot be written (")


# What is planted (a function of monkeypatch and the folder), and how the one sentence begins and ends.


def version(package, found):
    def plant(patch, place):
        actual = doctor._version
        patch.setattr(doctor, "_version", lambda name: found if name == package else actual(name))

    return plant


def lacking(what):
    return lambda patch, place: patch.setattr(doctor, "check_folder", partial(refuse, what))


def refuse(what, folder, warn):
    raise ExecutionError(what)


def environment(**values):
    def plant(patch, place):
        for name, value in values.items():
            patch.setenv(name, value)

    return plant


def returns(name, value):
    return lambda patch, place: patch.setattr(name, lambda *_: value)


def free(bytes_free):
    return returns("shutil.disk_usage", DISK(2**40, 0, bytes_free))


OUT = "or use --executor inline"
PROBLEMS = {
    "old torch": (version("torch", "2.9.1"), "torch is 2.9.1; needed: torch>=2.11", ""),
    "no Ray": (version("ray", None), "ray is not installed; needed: ray[tune]", ""),
    "home": (environment(HOME="/proc/nowhere"), "the home folder /proc/nowhere cannot be written (", OUT),
    "sockets": (environment(RAY_TMPDIR=f"/{'long' * 20}"), "RAY_TMPDIR=/longlong", "; name another folder"),
    "locks": (lacking("it has no locks"), "it has no locks", ""),
    "token": (environment(RAY_AUTH_MODE="disabled"), "RAY_AUTH_MODE=disabled: ", OUT),
    "GPU": (returns("harness.execution.doctor.gpu_faults", ("It is wrong",)), "It is wrong", ""),
}
NOTES = {
    "no MLflow": (version("mlflow", None), "mlflow is not installed; needed: mlflow", ""),
    "disk": (free(2**30), "only 1.0 GiB are free on the disk of ", ""),
}


@pytest.mark.parametrize("name", [*PROBLEMS, *NOTES])
def test_what_keeps_a_run_from_working_is_a_problem_and_what_is_odd_is_a_note(name, place, monkeypatch):
    plant, begin, end = PROBLEMS.get(name) or NOTES[name]
    plant(monkeypatch, place)
    found = examined(gpu=True)
    (sentence,) = found.problems if name in PROBLEMS else found.notes
    assert name in PROBLEMS or found.problems == []
    assert sentence.startswith(begin)
    assert sentence.endswith(end)


def test_a_token_that_others_can_read_is_a_note(place):
    home, file = place / "home", place / "home" / ".ray" / "auth_token"
    file.parent.mkdir()
    file.parent.chmod(0o755)  # whatever the umask
    file.write_text("secret")
    sentence = f"Ray's token {file} can be read by every user of this machine: chmod 600 {file}"
    for of_home, of_file, notes in ((0o755, 0o644, [sentence]), (0o700, 0o644, []), (0o755, 0o600, [])):
        file.chmod(of_file)
        home.chmod(of_home)
        assert examined().notes == notes


def test_neither_ray_nor_mlflow_is_imported(place, monkeypatch):
    for module in ("ray", "mlflow"):
        monkeypatch.setitem(sys.modules, module, None)  # an import of it would raise
    assert examined().problems == []


@pytest.mark.system
def test_planted_batches_find_wrong_forms_and_graphs():
    def wrong(*given):
        result = rows.combine_rows_(*given)
        return result._replace(share=1.01 * result.share)

    right = by_rows("rows", "a kernel", combine=rows.combine_rows_, fits=LEAN.fits)
    faulty = by_rows("faulty", "a wrong kernel", combine=wrong, fits=LEAN.fits)
    cpu = torch.device("cpu")
    assert doctor.faults(cpu, [right, LEAN], record=lambda work: work) == ()
    found = doctor.faults(cpu, [faulty, LEAN], record=lambda work: lambda: None)
    assert [each.partition(",")[0] for each in found] == [
        "Left out on this device: a wrong kernel",
        "Left out on this device: the CUDA graph of the training step",
    ]
    assert "the gradient of the prior is wrong" in found[0]
