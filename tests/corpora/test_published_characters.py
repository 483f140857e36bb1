"""Penn Treebank in characters, text8 and enwik8: known counts, and the layout of each on files of a few bytes."""

import hashlib
import zipfile
from pathlib import Path

import pytest
import torch

from harness.corpora.corpus import SPLITS, TextSize
from harness.corpora.download import PinnedFile
from harness.corpora.published import Enwik8, PennTreebankCharacters, Text8
from harness.errors import CorpusError

# shared/data/PROVENANCE.md; Mahoney's page: 10^8 bytes each; 27 and 205 symbols: Al-Rfou et al. (2018).
KNOWN = [
    (PennTreebankCharacters, (5_017_482, 393_042, 442_423), 50),
    (Text8, (90_000_000, 5_000_000, 5_000_000), 27),
    (Enwik8, (90_000_000, 5_000_000, 5_000_000), 205),
]
ENWIK = "<b>caf\u00e9 a</b>\n ab c".encode()  # 20 bytes, 13 of them different


def packed(folder: Path, monkeypatch, cls, content: bytes, *, tokens, vocab_size: int) -> None:
    """A small archive in place of the pinned one."""
    name = cls.FILES[0].url
    place = folder / cls.FILES[0].archive.path
    place.parent.mkdir()
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr(name, content)
    pin = PinnedFile(cls.FILES[0].archive.path, "unused", hashlib.sha256(place.read_bytes()).hexdigest())
    file = PinnedFile(cls.FILES[0].path, name, hashlib.sha256(content).hexdigest(), archive=pin)
    monkeypatch.setattr(cls, "FILES", (file,))
    monkeypatch.setattr(cls, "TOKENS", dict(zip(SPLITS, tokens, strict=True)))
    monkeypatch.setattr(cls, "VOCAB_SIZE", vocab_size)


@pytest.mark.parametrize(("cls", "counts", "vocab_size"), KNOWN)
def test_facts_are_known_without_a_file(cls, counts, vocab_size):
    facts = cls().facts()
    assert tuple(facts.num_tokens[name] for name in SPLITS) == counts
    assert facts.vocab_size == vocab_size


def test_contents_differ():
    assert len({cls().facts().content for cls, *_ in KNOWN}) == 3


def test_penn_treebank_is_the_file_symbol_by_symbol(real_data):
    corpus = PennTreebankCharacters().load(real_data)
    for name in SPLITS:
        expected = (real_data / f"ptb-char/ptb.char.{name}.txt").read_text().replace("\n", " <eos> ").split()
        if name == "train":
            assert corpus.symbols == tuple(dict.fromkeys(expected))
        assert [corpus.symbols[index] for index in getattr(corpus, name).tolist()] == expected


def test_penn_treebank_comes_back_as_the_word_level_text(real_data):
    corpus = PennTreebankCharacters().load(real_data)
    words = (real_data / "ptb/ptb.test.txt").read_text().split()
    text = corpus.codec.decode(corpus.test.tolist())
    assert text.split() == words
    assert corpus.codec.encode(text) == corpus.test.tolist()
    # 82,430 words with one <eos> per line; the first character, n of no, ends none of them
    assert corpus.test_size == TextSize(words=82_430, characters=442_422, bytes=442_422)


def test_bytes_are_cut_in_three_and_numbered_as_they_first_appear(tmp_path, monkeypatch):
    packed(tmp_path, monkeypatch, Enwik8, ENWIK, tokens=(14, 2, 4), vocab_size=len(set(ENWIK)))
    source = Enwik8()
    source.fetch(tmp_path)
    corpus = source.load(tmp_path)
    values = list(dict.fromkeys(ENWIK))
    ids = [values.index(byte) for byte in ENWIK]
    assert [getattr(corpus, name).tolist() for name in SPLITS] == [ids[:14], ids[14:16], ids[16:]]
    assert corpus.train.dtype == torch.int32
    assert corpus.symbols[ids[6]] == "<0xC3>"
    assert corpus.codec.decode(ids) == ENWIK.decode()
    assert corpus.test_size == TextSize(
        words=2, characters=3, bytes=3
    )  # "ab c" after its first byte, which ends no word


def test_a_first_byte_that_is_a_word_is_not_counted(tmp_path, monkeypatch):
    packed(tmp_path, monkeypatch, Text8, b"ab ba" + b"a bb", tokens=(3, 2, 4), vocab_size=3)
    Text8().fetch(tmp_path)
    assert Text8().load(tmp_path).test_size == TextSize(words=1, characters=3, bytes=3)


def test_counts_that_are_not_the_known_ones_are_an_error(tmp_path, monkeypatch):
    packed(tmp_path, monkeypatch, Text8, b"ab ba" + b"a bb", tokens=(3, 2, 4), vocab_size=27)
    Text8().fetch(tmp_path)
    with pytest.raises(CorpusError, match=r"text8/text8: .* 3 symbols; expected"):
        Text8().load(tmp_path)


def test_an_absent_file_is_named(tmp_path):
    with pytest.raises(CorpusError, match=r"^enwik8 is not in .*enwik8$"):
        Enwik8().load(tmp_path)
