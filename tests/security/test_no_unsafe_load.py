"""What a file holds is data: nothing in the tree unpickles, evaluates, unpacks or hands to a shell what it reads."""

import ast
import hashlib
import io
import pickle
import pickletools
import zipfile
from pathlib import Path

import pytest
import torch

from harness.errors import Damaged, HarnessError
from harness.training.checkpoint import SEAL, load_weights, save

ROOT = Path(__file__).parents[2]
FOLDERS = ("harness", "heads", "backbones", "benchmarks", "tests")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if path != Path(__file__))
UNPICKLERS = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
REFUSALS = (pickle.UnpicklingError, HarnessError)
SHELLS = {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"}
# Our own sources: with faults planted in them; the head in the README; the notebook.
EXECUTE_THEIR_OWN = {
    "tests/docs/test_notebook.py",
    "tests/meta/mutants.py",
    "tests/system/test_mutants.py",
    "tests/test_readme.py",
}
# A class of a notebook goes to the process that certifies, over a socket in a folder that only its user can open.
UNPICKLE_THEIR_OWN = {"harness/integrity/certifier.py", "tests/integrity/test_certify.py"}


def dotted(node: ast.AST) -> str:
    """'torch.load' of the function that a call calls."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def faults(text: str, name: str = "harness/x.py") -> list[str]:
    """The unsafe calls and imports of a source."""
    found, unpicklers = [], {"yaml"} if name in UNPICKLE_THEIR_OWN else {"yaml", *UNPICKLERS}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            found += [f"import {module}" for module in modules if module.partition(".")[0] in unpicklers]
        if isinstance(node, ast.Call):
            called, given = dotted(node.func), {keyword.arg: keyword.value for keyword in node.keywords}
            last = called.rpartition(".")[2]
            weights_only = given.get("weights_only")
            safe = isinstance(weights_only, ast.Constant) and weights_only.value is True
            found += [called] * (called in SHELLS or last in {"extractall", "extract", "unpack_archive"})
            found += [called] * (called == "torch.load" and not safe)
            found += [called] * (called in {"eval", "exec", "__import__"} and name not in EXECUTE_THEIR_OWN)
            found += [f"{called}(shell=)"] * ("shell" in given)
            pickles = given.get("allow_pickle", ast.Constant(False))
            found += [f"{called}(allow_pickle=)"] * (ast.unparse(pickles) != "False")
            found += [f"{called}(weights_only=)"] * (weights_only is not None and not safe)
    return found


@pytest.mark.system
def test_no_unsafe_load_and_no_shell_in_the_tree():
    named = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in SOURCES}
    assert len(named) > 300
    assert {name: found for name, text in named.items() if (found := faults(text, name))} == {}


UNSAFE = """\
import pickle
from joblib import load
import yaml
eval(text)
exec(text)
os.system(text)
torch.load(place)
torch.load(place, weights_only=False)
torch.load(place, weights_only=trusted)
self.load(place, weights_only=False)
numpy.load(place, allow_pickle=True)
subprocess.run(text, shell=True)
archive.extractall()
archive.extract(name)
shutil.unpack_archive(place)
"""


def test_no_unsafe_load_goes_unnoticed():
    assert [line for line in UNSAFE.splitlines() if not faults(line)] == []


def test_no_unsafe_load_is_seen_where_there_is_none():
    assert faults("torch.load(place, weights_only=True); model.eval(); archive.extractfile(name)") == []


class _Payload:
    """Touches a file when it is unpickled by the default rules."""

    def __init__(self, place: Path):
        self.place = place

    def __reduce__(self):
        return Path.touch, (self.place,)


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: {"weight": x}, lambda x: {"weight": torch.ones(2), "x": [x]}])
def test_no_unsafe_load_of_a_checkpoint_runs_its_payload(wrap, tmp_path):
    made = tmp_path / "made"
    place = tmp_path / "best.pt"
    save({"weights": wrap(_Payload(made))}, place)
    with pytest.raises(REFUSALS):
        load_weights(place, torch.device("cpu"))
    assert not made.exists()


def test_no_unsafe_load_of_a_plain_pickle_runs_its_payload(tmp_path):
    made, place = tmp_path / "made", tmp_path / "best.pt"
    content = pickle.dumps(_Payload(made), protocol=2)
    assert any(opcode.name == "REDUCE" for opcode, *_ in pickletools.genops(content))
    place.write_bytes(content + SEAL + hashlib.sha256(content).digest())
    with pytest.raises(REFUSALS):
        load_weights(place, torch.device("cpu"))
    assert not made.exists()


def test_weights_that_are_weights_are_loaded(tmp_path):
    save({"weights": {"weight": torch.ones(2)}}, tmp_path / "best.pt")
    assert torch.equal(load_weights(tmp_path / "best.pt", torch.device("cpu"))["weight"], torch.ones(2))


def packed(content: bytes) -> bytes:
    """The same archive with compressed members."""
    written = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    return written.getvalue()


ONE, MANY = torch.zeros(1), torch.zeros(1000)


@pytest.mark.parametrize(
    ("content", "change", "reason"),
    [
        ({"weights": {"w": torch.zeros(10**6)}}, packed, "it is compressed, which this harness does not do"),
        ({"weights": {"w": ONE.expand(10**9)}}, bytes, "its tensors have more than 10 times as many bytes as the file"),
        ({"weights": {f"{each}": MANY for each in range(100)}}, bytes, "its tensors have more than 10 times as many"),
        ({"weights": {"w": MANY.as_strided((900, 100), (1, 1))}}, bytes, "its tensors have more than 10 times"),
        ({"weights": {"w": torch.zeros(10**9, device="meta")}}, bytes, "it holds no weights of a model"),
        ({"weights": {"w": ONE.to_sparse()}}, bytes, "it holds no weights of a model"),
        ({"weights": {"w": bytearray(3)}}, bytes, "it holds no weights of a model"),
        ({"weights": [ONE]}, bytes, "it holds no weights of a model"),
        ([ONE], bytes, "it holds no weights of a model"),
    ],
)
def test_weights_that_unpack_out_of_proportion_are_refused(content, change, reason, tmp_path):
    written = io.BytesIO()
    torch.save(content, written)
    changed = change(written.getvalue())
    (tmp_path / "best.pt").write_bytes(changed + SEAL + hashlib.sha256(changed).digest())
    with pytest.raises(Damaged) as caught:
        load_weights(tmp_path / "best.pt", "cpu")
    said = str(caught.value)
    assert said.startswith(f"{tmp_path / 'best.pt'}: {reason}")
    assert said.endswith("train the trial again (--force)")


def test_weights_that_share_a_storage_are_read(tmp_path):
    save({"weights": {"embedding": MANY, "output": MANY}}, tmp_path / "best.pt")
    assert load_weights(tmp_path / "best.pt", "cpu").keys() == {"embedding", "output"}
