"""The wheel, installed for an empty folder: bundled suites, heads of the user's folder, the same fingerprints."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import PATIENCE, WITHOUT_GPU
from texts import lines

from harness.code.hashes import KINDS, of

ROOT = Path(__file__).parents[2]
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "showcase", "tests", "build", "*.egg-info", "runs")
SUITE = """\
name: mine
corpora: [text: {path: ../my_text.txt}]
backbones: [convolution: {d_model: 8, num_layers: 1}]
heads: [latent: {d_latent: [4, 6]}]
seeds: [1]
train: {optimizer: adam, lr: 0.01, epochs: 1, batch_size: 4, seq_len: 7}
measure: {exclusive: false}
"""
HASHES = """\
import json
from harness.code.hashes import KINDS, of
print(json.dumps({f"{kind} {name}": of(kind, name) for kind in KINDS for name in KINDS[kind].names()}))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with the installed wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, folder / "source", ignore=LEFT_OUT)  # a build leaves files beside its sources
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", folder / "site", folder / "source"], check=True, capture_output=True)
    return folder / "site"


@pytest.fixture
def call(site, tmp_path):
    """A function that runs Python with the wheel in the user's folder, which is empty at first."""
    (tmp_path / "home").mkdir()
    environment = {**os.environ, **WITHOUT_GPU, "PYTHONPATH": str(site)}

    def call(*arguments: str) -> subprocess.CompletedProcess:
        command, folder = [sys.executable, *arguments], tmp_path / "home"
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE)

    call.home = tmp_path / "home"
    call.harness = lambda *arguments: call("-m", "harness", *arguments)
    return call


def test_it_has_one_name_at_top_level(site):
    names = {place.name for place in site.iterdir()} - {"bin", "__pycache__"}
    assert "harness" in names
    assert {name for name in names if not name.endswith(".dist-info")} == {"harness"}


def test_its_components_have_the_hashes_of_the_clone(call):
    here = {f"{kind} {name}": of(kind, name) for kind in KINDS for name in KINDS[kind].names()}
    done = call("-c", HASHES)
    assert json.loads(done.stdout) == here, done.stderr


def test_in_an_empty_folder_a_bundled_suite_runs_by_its_name(call, site):
    listed = json.loads(call.harness("list", "suites", "--json").stdout)
    assert {each["kind"] for each in listed} == {"bundled"}
    quickstart = {each["name"]: Path(each["from"]) for each in listed}["quickstart"]
    assert quickstart.is_relative_to(site)
    short = ("--set", "train.epochs=0.02", "--only", "head=softmax,seed=1", "--executor", "inline", "--no-timing")
    done = call.harness("run", "quickstart", *short, "--no-tracking")
    assert (done.returncode, done.stderr) == (0, "")
    table = call.home / "results" / "tables" / "quickstart.epochs=0.02.md"
    assert "softmax" in table.read_text(encoding="utf-8")
    assert "harness docs tables" in table.read_text(encoding="utf-8")
    assert call.harness("docs", "tables").stdout.startswith("# ")
    assert sorted(place.name for place in call.home.iterdir()) == ["results"]


def test_a_head_and_a_backbone_of_the_folder_train_under_ray(call):
    assert call.harness("new", "head", "latent").returncode == 0
    assert call.harness("new", "backbone", "convolution").returncode == 0
    (call.home / "suites").mkdir()
    (call.home / "suites" / "mine.yaml").write_text(SUITE)
    (call.home / "my_text.txt").write_text(lines(60, seed=1))
    done = call.harness("run", "mine", "--no-tracking", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    records = [json.loads(place.read_text()) for place in (call.home / "results/runs/mine").glob("*/record.json")]
    assert [record["status"] for record in records] == ["ok"] * 2
    codes = {record["code"]["head"] for record in records}
    assert codes == set(json.loads(call("-c", HASHES).stdout)["head latent"].split())
    (trial,) = [record["spec"] for record in records if record["spec"]["head"]["params"] == {"d_latent": 4}]
    assert trial["backbone"]["name"] == "convolution"
    head = call.home / "heads" / "latent.py"
    head.write_text(head.read_text().replace("torch.tanh(self", "torch.sin(self"))
    planned = " ".join(call.harness("plan", "mine").stdout.split())
    assert "heads/latent.py changed since these 2 records were made" in planned


def test_a_file_of_the_folder_with_the_name_of_a_bundled_one_is_an_error_that_names_both(call, site):
    (call.home / "heads").mkdir()
    shutil.copy(site / "harness" / "heads" / "softmax.py", call.home / "heads")  # the bundled one is no clash
    (call.home / "heads" / "mos.py").write_text("import harness\n")
    done = call.harness("plan", "quickstart")
    assert done.returncode == 2
    for place in (call.home / "heads" / "mos.py", site / "harness" / "heads" / "mos.py"):
        assert str(place) in done.stderr
    assert "softmax" not in done.stderr
