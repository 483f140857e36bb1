"""Token files: made once, read as they are needed, never believed when torn, by one process at a time."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pooch
import pytest
import torch
from commands import PATIENCE

from harness.corpora import token_files
from harness.corpora.corpus import SPLITS, TextSize
from harness.corpora.local_text import Text
from harness.corpora.pieces import END_OF_TEXT
from harness.corpora.token_files import tokens_folder
from harness.errors import StorageError

pytestmark = pytest.mark.usefixtures("cache")
LINES = "".join(f"the {a}{b} sat on my {b}{a}\n" for a in ("cat", "dog", "caf\u00e9") for b in ("mat", "rat", "hat"))
TEXTS = {"train": LINES * 20, "valid": LINES.replace("sat", "ran"), "test": f"cat sat\n{END_OF_TEXT}\ncaf\u00e9 mat\n"}
SPEC = {"bpe": 280}


@pytest.fixture
def texts(tmp_path) -> Path:
    folder = tmp_path / "texts"
    folder.mkdir()
    for name, text in TEXTS.items():
        (folder / f"{name}.txt").write_text(text)
    return folder


@pytest.fixture
def makings(monkeypatch) -> list:
    """How often tokens were made."""
    made, calls = token_files._make, []
    monkeypatch.setattr(token_files, "_make", lambda *given: (calls.append(1), made(*given)))
    return calls


def load(texts, spec=SPEC, **more):
    return Text(path=texts, tokenizer=spec, **more).load(texts)


def only_folder(cache) -> Path:
    (folder,) = cache.iterdir()
    return folder


def child(texts, code="") -> subprocess.Popen:
    """Another process that loads the same corpus, after `code`."""
    program = (
        "import sys, os, signal\nfrom pathlib import Path\nfrom harness.corpora import token_files\n"
        f"from harness.corpora.local_text import Text\n{code}\n"
        f"corpus = Text(path=Path({str(texts)!r}), tokenizer={SPEC!r}).load(Path())\n"
        "print(len(corpus.train), flush=True)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment, text=True)


def test_splits_are_int32_maps_of_files_whose_text_comes_back(texts, cache):
    corpus = load(texts)
    for name in SPLITS:
        tokens = getattr(corpus, name)
        assert tokens.dtype == torch.int32
        assert corpus.codec.decode(tokens.tolist()) == TEXTS[name]
        assert (only_folder(cache) / f"{name}.int32").stat().st_size == 4 * len(tokens)
    assert corpus.vocab_size == 280
    assert int(corpus.token_counts.sum()) == len(corpus.train)


def test_what_is_written_to_a_tensor_does_not_reach_the_file(texts, cache):
    corpus = load(texts)
    before = (only_folder(cache) / "train.int32").read_bytes()
    corpus.train[0] += 1
    assert (only_folder(cache) / "train.int32").read_bytes() == before


def test_size_of_the_test_split_is_that_of_its_text_after_the_first_token(texts):
    corpus = load(texts)
    first = corpus.codec.decode(corpus.test[:1].tolist())
    assert first == "cat"
    # "cat| sat\n" and "\ncafe mat\n": the mark between documents is no text; e with an accent has two bytes
    assert corpus.test_size == TextSize(words=3, characters=5 + 10, bytes=5 + 11)


def test_facts_need_no_tokens(texts, cache):
    facts = Text(path=texts, tokenizer=SPEC).facts()
    assert (facts.vocab_size, facts.num_tokens) == (280, None)
    assert facts.content == Text(path=texts).facts().content
    assert not cache.exists()


def test_tokens_are_made_once(texts, makings):
    Text(path=texts, tokenizer=SPEC).fetch(texts)
    assert torch.equal(load(texts).train, load(texts).train)
    assert len(makings) == 1


@pytest.mark.parametrize("change", ["tokenizer", "option", "text", "library", "corpus"])
def test_what_decides_the_tokens_decides_the_files(change, texts, makings, cache, monkeypatch):
    load(texts)
    if change == "text":
        (texts / "valid.txt").write_text(LINES + "a cat\n")
    if change == "library":
        monkeypatch.setattr(token_files, "version", lambda name: "0.0.1")
    other = Text(path=texts, tokenizer={"bpe": 270} if change == "tokenizer" else SPEC, lowercase=change == "option")
    if change == "corpus":
        other.options = {"corpus": "another"}
    other.load(texts)
    assert len(makings) == 2
    assert len(list(cache.iterdir())) == 2


@pytest.mark.parametrize("name", ["train.int32", "tokenizer.json", "index.json"])
@pytest.mark.parametrize("damage", ["cut", "changed", "gone", "longer"])
def test_a_torn_or_changed_file_is_noticed_and_made_anew(name, damage, texts, makings, cache):
    before = load(texts).train.tolist()
    file = only_folder(cache) / name
    content = file.read_bytes()
    if damage == "gone":
        file.unlink()
    else:
        middle = len(content) // 2
        changed = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        file.write_bytes({"cut": content[:-4], "longer": content + b"\0\0\0\0", "changed": changed}[damage])
    assert load(texts).train.tolist() == before
    assert len(makings) == 2
    assert file.read_bytes() == content


def test_an_index_of_another_text_is_not_believed(texts, makings, cache):
    load(texts)
    file = only_folder(cache) / "index.json"
    index = json.loads(file.read_text())
    index["identity"]["content"] = "0" * 64
    file.write_text(json.dumps(index))
    load(texts)
    assert len(makings) == 2


@pytest.mark.system
def test_two_processes_at_once_make_them_once(texts, tmp_path):
    log, started = tmp_path / "log", tmp_path / "started"
    started.mkdir()
    code = (
        "import time\nmake = token_files._make\n"
        f"started = Path({str(started)!r})\n(started / str(os.getpid())).touch()\n"
        "while len(list(started.iterdir())) < 2: time.sleep(0.01)\n"  # both begin before either has made them
        f"def slow(*given):\n    open({str(log)!r}, 'a').write('made ')\n    time.sleep(1)\n    make(*given)\n"
        "token_files._make = slow"
    )
    both = [child(texts, code), child(texts, code)]
    printed = {process.communicate(timeout=PATIENCE)[0] for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert log.read_text() == "made "
    assert printed == {f"{len(load(texts).train)}\n"}


@pytest.mark.system
def test_a_process_killed_in_the_midst_leaves_nothing_that_is_used(texts, cache, makings):
    code = (
        "written = token_files.encode\n"
        "def killed(*given, **more):\n"
        "    for number, each in enumerate(written(*given, **more)):\n"
        "        yield each\n"
        "        if killed.split == 2: os.kill(os.getpid(), signal.SIGKILL)\n"  # the copy, which writes the files
        "    killed.split += 1\n"
        "killed.split = 1\n"
        "token_files.encode = killed"
    )
    process = child(texts, code)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 1  # a CorpusError: the copy may have been killed for its memory
    left = sorted(file.name for file in only_folder(cache).iterdir())
    assert "train.int32" in left
    assert any(name.endswith(".tmp") for name in left)
    assert "index.json" not in left
    corpus = load(texts)
    assert corpus.codec.decode(corpus.valid.tolist()) == TEXTS["valid"]
    assert len(makings) == 1
    assert not list(only_folder(cache).glob(".*.tmp"))


def test_a_cache_that_cannot_be_written_is_one_sentence(texts, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "file"))
    with pytest.raises(
        StorageError, match=r"cannot be written to .*name another folder by the environment variable HARNESS_CACHE$"
    ):
        load(texts)


def test_the_cache_is_where_corpora_are_downloaded_to_unless_told_otherwise(monkeypatch):
    monkeypatch.delenv("HARNESS_CACHE")
    assert tokens_folder() == Path(pooch.os_cache("output-head-harness")) / "tokens"
