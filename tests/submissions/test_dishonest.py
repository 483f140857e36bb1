"""Twelve dishonest submissions, each refused or marked, and by which check."""

import dataclasses
import hashlib
import importlib.util
import io
import json
import math
import shutil
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from commands import PATIENCE

from harness import plan
from harness.errors import CorpusError, RecordError
from harness.integrity import certifier
from harness.plan.specs import Contents
from harness.records import sidecars, store
from harness.records.contents import recomputed
from harness.registry import CORPORA, HEADS
from harness.submissions import archive, checking, confined, released, source_rules

pytestmark = pytest.mark.system

COPIED = """\
from torch import nn

from harness.distributions import Logits
from harness.registry import HEADS


@HEADS.register("mine")
class Mine(nn.Module):
    def __init__(self, dims, embedding, *, start: float = 0.1):
        super().__init__()
        self.second = nn.Linear(dims.layer_dims[-1], dims.vocab_size)

    def forward(self, hidden):
        return Logits(self.second(hidden.layers[-1]))
"""
LOOKING = COPIED.replace("import nn", "import arange, cat, nn").replace(
    "        return Logits(self.second(hidden.layers[-1]))\n",
    "        h_BTD = hidden.layers[-1]\n"
    "        next_BTD = cat([h_BTD[:, 1:], h_BTD[:, -1:]], dim=1)\n"
    "        some_T1 = (arange(h_BTD.shape[1]) % 3 == 0)[:, None]\n"
    "        return Logits(self.second(h_BTD + some_T1 * next_BTD))\n",
)


def rewritten(runs: Path, trial: str, **changes) -> None:
    """A record, changed and sealed again; in the folder of its id."""
    record = store.load(runs, trial).model_copy(update=changes)
    if record.id != trial:
        (runs / trial).rename(runs / record.id)
    store.save(record, runs)


def scores_of(runs: Path, record) -> sidecars.TokenScores:
    return sidecars.TOKEN_NLL.load(runs, record)


def rescored(runs: Path, trial: str, scores: sidecars.TokenScores, weights: str) -> None:
    """Other scores of its test tokens."""
    sidecars.save_token_scores(scores, weights, runs / trial / sidecars.TOKEN_NLL.file)


def of_table(runs: Path) -> dict:
    """The records of the table, by seed."""
    return {each.spec.seed: each for each in store.load_all(runs, _ids(runs))[0].values() if not each.tuning}


def edited(runs):
    """All perplexities 3 % lower, in the scores of tokens and the certificates, too."""
    for record in of_table(runs).values():
        scores = scores_of(runs, record)
        nll = scores.nll + np.float32(math.log(0.97))
        rescored(runs, record.id, dataclasses.replace(scores, nll=nll), record.weights_sha256)
        certificate = record.certificate.model_copy(update={"lowest_nll": float(np.nanmin(nll))})
        metrics = {**record.metrics, "test_ppl": math.exp(np.nanmean(nll.astype(np.float64)))}
        rewritten(runs, record.id, metrics=metrics, certificate=certificate)


def other_seed(runs):
    record = of_table(runs)[2]
    spec = record.spec.model_copy(update={"seed": 7})
    rewritten(runs, record.id, spec=spec.model_copy(update={"id": recomputed(spec, record.contents)}))


def more_tuning(runs):
    record = next(each for trial in _ids(runs) if (each := store.load(runs, trial)).tuning)
    train = record.spec.train.model_copy(update={"lr": 0.02})
    spec = record.spec.model_copy(update={"train": train})
    spec = spec.model_copy(update={"id": recomputed(spec, record.contents)})
    store.save(record.model_copy(update={"spec": spec}), runs)


def _ids(runs):
    return [each.parent.name for each in runs.glob(f"*/{store.FILE_NAME}")]


def swapped(runs):
    """The weights of each seed, and the file of its scores, say that they are those of the next."""
    records = of_table(runs)
    for seed, record in records.items():
        other, scores = records[seed % 3 + 1].weights_sha256, scores_of(runs, record)
        rewritten(runs, record.id, weights_sha256=other)
        rescored(runs, record.id, scores, other)


def forged_certificate(runs):
    for record in of_table(runs).values():
        certificate = record.certificate.model_copy(update={"lowest_nll": 0.5 * record.certificate.lowest_nll})
        rewritten(runs, record.id, certificate=certificate)


def other_text(runs):
    for trial in _ids(runs):
        record = store.load(runs, trial)
        contents = Contents(corpus="f" * 64, backbone=record.contents.backbone, head=record.contents.head)
        spec = record.spec.model_copy(update={"id": recomputed(record.spec, contents)})
        rewritten(runs, trial, spec=spec, contents=contents)
    (runs / "tuning.json").unlink()


def other_curve(runs):
    records = of_table(runs)
    rewritten(runs, records[1].id, curve=records[2].curve)


RECORDS = {  # a change of the records -> the check that refuses or marks it, and a part of its sentence
    "an edited record": (edited, "trained again", "refused", "test_ppl is"),
    "picked seeds": (other_seed, "plan", "refused", "the table lacks its trials of seed 2"),
    "hidden tuning": (more_tuning, "plan", "refused", "is not planned by the suite in its tuning (mine"),
    "swapped weights": (swapped, "trained again", "marked", "equal bits were expected"),
    "a forged certificate": (forged_certificate, "certificates", "refused", "no token has an nll below"),
    "another text": (other_text, "plan", "refused", "read another text or other weights than the suite names"),
    "a curve of another trial": (other_curve, "plausibility", "refused", "has the learning curve of trial"),
}


@pytest.mark.parametrize("name", RECORDS)
def test_records_that_lie_are_noticed(name, again, check):
    change, by, outcome, sentence = RECORDS[name]
    found = check(again(change), training=by == "trained again").by_name
    assert found[by].outcome == outcome, found
    assert sentence in found[by].sentence
    earlier = [each for each in found.values() if each.name != by and each.outcome == "refused"]
    assert by != "trained again" or not earlier


def test_a_record_whose_scores_do_not_fit_it_does_not_verify(again, check):
    def better(runs):
        for record in of_table(runs).values():
            (runs / record.id / "test_nll.npz").unlink()

    assert "has no scores of its test tokens" in check(again(better)).by_name["certificates"].sentence


def test_the_honest_records_are_refused_by_no_check(again, check):
    assert not check(again()).all.refused


# sources

SOURCES = {  # a line of the source -> what is said of it
    "import socket": "line 1: it imports socket",
    "from torch import os": "line 1: it names os",
    "import torch; torch.hub.load('a', 'b')": "it names hub",
    "from harness.corpora import published": "it imports harness.corpora",  # the test split
    "import gc": "it imports gc",
    "x = open('test.txt')": "it names open",
    "x = ().__class__.__base__.__subclasses__()": "it names __subclasses__",
    "from . import softmax": "it imports .",
    "def f(:": "it is no Python that can be read",
}


@pytest.mark.parametrize("line", SOURCES)
def test_a_source_may_import_and_name_what_heads_need(line):
    assert any(SOURCES[line] in each for each in source_rules.faults(line))


def test_all_heads_of_the_harness_keep_to_these_rules():
    heads = sorted((Path(plan.__file__).parents[2] / "heads").glob("*.py"))
    assert len(heads) > 20
    assert {each.name: source_rules.faults(each.read_text()) for each in heads} == {each.name: [] for each in heads}


def test_a_source_that_is_refused_is_not_executed(again, check):
    found = check(again(source="import socket\nraise SystemExit\n")).by_name
    assert found["source"].outcome == "refused"
    assert found["plan"].outcome == found["harness check"].outcome == "not checked"


@pytest.fixture
def own(here, monkeypatch):
    """A function: a source -> it is the head `mine`, in the folder and in this process."""

    def use(source: str) -> None:
        (here / "heads" / "mine.py").write_text(source)
        name = "harness.heads.mine"
        monkeypatch.setitem(HEADS._classes, "mine", None)
        del HEADS._classes["mine"]
        spec = importlib.util.spec_from_file_location(name, here / "heads" / "mine.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)

    return use


def test_a_copied_softmax_under_another_name_is_a_head_of_the_harness(here, own, again, check, monkeypatch):
    own(COPIED)
    found = check(again(source=COPIED)).by_name
    assert found["a head of its own"].outcome == "refused"
    assert "gives the numbers of softmax" in found["a head of its own"].sentence
    assert found["code"].outcome == "refused"  # the trials were made by the other source
    # and by its learning curve, which is that of the softmax
    (one, *_) = of_table(store.runs_folder(here / "results", "board")).values()
    softmax = one.model_copy(update={"spec": one.spec.model_copy(update={"id": "0" * 12}), "weights_sha256": None})
    monkeypatch.setattr(released, "records_of", lambda name: [softmax])
    assert "has the learning curve of trial 000000000000" in check(again()).by_name["plausibility"].sentence


def test_a_head_that_looks_ahead_for_some_tokens_is_noticed_where_it_is_trained_again(
    here, own, board_module, harness, check, monkeypatch
):
    own(LOOKING)
    runs = store.runs_folder(here / "results", "board")
    certificates = iter(3 * [each.certificate for each in of_table(runs).values()])
    shutil.rmtree(runs)
    suite = plan.load(here / "suites" / "board.yaml", ("heads+=mine",))
    with monkeypatch.context() as patch:

        def forged(task, best, nll, again=None):
            tokens = nll["test"][~nll["test"].isnan()]
            return next(certificates).model_copy(update={"lowest_nll": tokens.min().item()})

        patch.setattr(certifier, "certificate", forged)
        board_module.trained(here, suite, "mine")
    done = harness("submit", "board", "--head", "mine", "--source", "heads/mine.py")
    assert done.code == 0, done.err
    found = check(next((here / "submissions" / "board").glob("*.zip")), training=True).by_name
    assert found["certificates"].outcome == "ok"
    assert found["trained again"].outcome == "refused", found
    assert "the status is 'invalid'" in found["trained again"].sentence


# archives


def bomb(name: str, kind: int, size: int) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", kind) as file:
        file.writestr(name, bytes(size))
    return content.getvalue()


@pytest.mark.parametrize(
    ("content", "sentence"),
    {
        bomb("records.zip", zipfile.ZIP_DEFLATED, 10**7): "records.zip is compressed",
        bomb("card.yaml", zipfile.ZIP_STORED, 10**6): "card.yaml has more than 65,536 bytes",
        bomb("../card.yaml", zipfile.ZIP_STORED, 10): "does not belong into it",
        bomb("card.yaml", zipfile.ZIP_STORED, 10): "it has no records.zip",
        b"PK": "it is too short",
    }.items(),
    ids=["compressed", "size", "name", "missing", "short"],
)
def test_a_file_that_is_no_submission_gives_exit_code_2(content, sentence, here, harness):
    (here / "bad.zip").write_bytes(content)
    done = harness("check-submission", "bad.zip")
    assert done.code == 2
    assert sentence in done.err


def test_a_bomb_within_the_records_is_refused_before_it_is_unpacked(here, sent, check):
    with zipfile.ZipFile(sent) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(io.BytesIO(parts["records.zip"])) as inner:
        name = next(each for each in inner.namelist() if each.endswith("record.json"))
    parts[archive.RECORDS] = bomb(name, zipfile.ZIP_DEFLATED, 16 * 2**20)
    archive.write(sent, parts)
    found = check(sent).by_name
    assert (found["records"].outcome, "times its size" in found["records"].sentence) == ("refused", True)


def test_the_card_says_what_the_records_say(again, check):
    place = again(card=lambda text: json.dumps({**json.loads(text), "core_hours": 0.5}))
    assert "hardware or core hours" in check(place).by_name["plausibility"].sentence
    place = again(card=lambda text: json.dumps({**json.loads(text), "head": "{mine: {start: 0.2}, mos: {}}"}))
    with pytest.raises(RecordError, match="is no head"):
        check(place)


def test_the_trained_model_is_scored_on_a_text_that_no_suite_reads(sent, check, monkeypatch):
    # where that text is the test split, with the perplexity of the record
    monkeypatch.setattr(CORPORA.get("markov"), "hidden", lambda self, data: self.load(data).test, raising=False)
    found = check(sent, training=True)
    (record,) = [each for each in of_table(Path("results/runs/board")).values() if each.id == found.all.trial]
    ppl = f"{record.metrics['test_ppl']:.4g}"
    expected = f"perplexity {ppl} on a text that no suite reads, 1.000 times that of the test split"
    assert found.by_name["hidden text"].sentence == expected


def test_a_hidden_text_that_cannot_be_had_leaves_the_training_checked(sent, check, monkeypatch):
    def absent(self, data):
        raise CorpusError("the text is not here")

    monkeypatch.setattr(CORPORA.get("markov"), "hidden", absent, raising=False)
    found = check(sent, training=True).by_name
    assert (found["hidden text"].outcome, found["trained again"].verdict) == ("not checked", "identical")


def test_the_lot_falls_by_the_hash_and_the_lot_alone():
    trials = ["c", "a", "b"]
    # int(sha256(b"filewho")) % 3 by hand: the sum of 256^k is 1 modulo 3, so it is the sum of the bytes modulo 3
    place = sum(hashlib.sha256(b"filewho").digest()) % 3
    assert checking.draw(trials, b"file", "who") == "abc"[place]
    assert {checking.draw(trials, b"file", str(number)) for number in range(20)} == set("abc")
    assert checking.draw([], b"file", "") == ""


# what a source does that passes the rules: the process ends, and says why

ACTIONS = {
    "fork": ("import torch\n\ntorch.serialization.os.fork()\n", "os.fork"),
    "socket": ("import torch\n\nfrom torch._utils import sys as s\n\ns.modules['socket'].socket()\n", "socket."),
    "read": ("import torch\n\ntorch.serialization.os.open('/etc/../etc/passwd', 0)\n", "open"),
    "file": ("import torch\n\ntorch.serialization.os.mkdir('/tmp/never-made')\n", "os.mkdir"),
    "endless": ("while True:\n    pass\n", "was not finished after"),
    "memory": ("import torch\n\nx = torch.zeros(2**35, dtype=torch.uint8)\n", "mine"),
}


@pytest.mark.parametrize("name", ACTIONS)
def test_a_source_that_does_what_a_head_does_not_is_stopped(name, here, sent, tmp_path):
    text, sentence = ACTIONS[name]
    (tmp_path / "unpacked").mkdir()
    submission = archive.unpacked(sent, tmp_path / "unpacked")
    (submission.folder / "heads" / "mine.py").write_text(f"{text}\n# harness\n")
    about = {"kind": "examine", "folder": str(submission.folder), "suite": str(here / "suites" / "board.yaml")}
    about |= {"head": submission.card.head, "head_name": "mine", "own_source": True, "data": str(here / "data")}
    (found, *_) = confined.run(confined.Job(**about), 20.0 if name == "endless" else PATIENCE)
    assert found.outcome == "refused"
    assert sentence in found.sentence, found
    assert not Path("/tmp/never-made").exists()
