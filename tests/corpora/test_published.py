"""Published corpora: known counts, the layout of their files in words and in characters, and their text as prose."""

import builtins
import hashlib
import zipfile
from pathlib import Path

import golden
import pytest
import torch

from harness.corpora.corpus import SPLITS, TextSize
from harness.corpora.download import PinnedFile
from harness.corpora.published import (
    Enwik8,
    PennTreebank,
    PennTreebankCharacters,
    Text8,
    TinyShakespeare,
    WikiText2,
    WikiText103HeldOut,
    detokenize_ptb,
    detokenize_wikitext,
)
from harness.errors import CorpusError

# shared/docs/PROTOCOLS.md section 0 and shared/data/PROVENANCE.md: (train, valid, test), V. WikiText-2's train with
# <sos> is 2,088,628 tokens plus its 36,718 lines.
PUBLISHED = [
    (PennTreebank, "eos", (929_589, 73_760, 82_430), 10_000),
    (PennTreebank, "sos_eos", (971_657, 77_130, 86_191), 10_001),
    (WikiText2, "eos", (2_088_628, 217_646, 245_569), 33_278),
    (WikiText2, "sos_eos", (2_125_346, 221_406, 249_927), 33_279),
    # Mahoney's page: 10^8 bytes each; 27 and 205 symbols: Al-Rfou et al. (2018).
    (PennTreebankCharacters, None, (5_017_482, 393_042, 442_423), 50),
    (Text8, None, (90_000_000, 5_000_000, 5_000_000), 27),
    (Enwik8, None, (90_000_000, 5_000_000, 5_000_000), 205),
]
FILES = {PennTreebank: "ptb/ptb.{}.txt", WikiText2: "wikitext-2/wiki.{}.tokens"}


@pytest.fixture(scope="module")
def load(real_data):
    """Each corpus is read once."""
    loaded = {}

    def get(cls, boundary):
        if (cls, boundary) not in loaded:
            loaded[cls, boundary] = cls(boundary=boundary).load(real_data)
        return loaded[cls, boundary]

    return get


@pytest.mark.parametrize(("cls", "boundary", "counts", "vocab_size"), PUBLISHED)
def test_facts_are_the_published_counts_and_touch_no_file(cls, boundary, counts, vocab_size, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("facts() touched a file")

    source = cls() if boundary is None else cls(boundary=boundary)
    with monkeypatch.context() as patch:
        patch.setattr(builtins, "open", refuse)
        for method in ("open", "read_text", "read_bytes", "exists", "is_file", "stat"):
            patch.setattr(Path, method, refuse)
        facts = source.facts()
    assert tuple(facts.num_tokens[name] for name in SPLITS) == counts
    assert facts.vocab_size == vocab_size


def test_the_content_is_that_of_the_files_however_they_are_read():
    ptb, ptb_sos, pieces = (
        PennTreebank(**params).facts()
        for params in ({}, {"boundary": "sos_eos"}, {"tokenizer": "gpt2", "detokenize": True})
    )
    assert ptb.content == ptb_sos.content == pieces.content != WikiText2().facts().content
    assert len({ptb.counting, ptb_sos.counting, pieces.counting}) == 3
    assert (pieces.vocab_size, pieces.num_tokens) == (50_257, None)
    assert "detokenised" in pieces.counting


@pytest.mark.parametrize(("cls", "file"), [(PennTreebank, r"ptb\.train\.txt"), (Enwik8, "enwik8")])
def test_an_absent_file_is_named(cls, file, tmp_path):
    with pytest.raises(CorpusError, match=rf"^{file} is not in .*: name the folder"):
        cls().load(tmp_path)


@pytest.mark.system
@pytest.mark.parametrize("cls", FILES)
@pytest.mark.parametrize("boundary", ["eos", "sos_eos"])
def test_ids_are_those_of_a_loop_over_the_words_of_the_files(cls, boundary, load, real_data):
    corpus, begin = load(cls, boundary), ["<sos>"] * (boundary == "sos_eos")
    facts = cls(boundary=boundary).facts()
    assert {name: len(getattr(corpus, name)) for name in SPLITS} == facts.num_tokens
    assert corpus.vocab_size == len(corpus.symbols) == facts.vocab_size
    for split in SPLITS:
        text = (real_data / FILES[cls].format(split)).read_text(encoding="utf-8")
        expected = [word for line in text.removesuffix("\n").split("\n") for word in [*begin, *line.split(), "<eos>"]]
        if split == "train":
            assert corpus.symbols == tuple(dict.fromkeys(expected))
        ids = getattr(corpus, split).tolist()
        assert [corpus.symbols[index] for index in ids] == expected
        if split == "test":
            assert corpus.codec.encode(text) == ids
    assert corpus.uncounted_id == (corpus.symbols.index("<sos>") if begin else None)
    assert corpus.test_size is None


@pytest.mark.system
@pytest.mark.parametrize(
    ("cls", "detokenize"), [(PennTreebank, True), (WikiText103HeldOut, False), (WikiText103HeldOut, True)]
)
def test_words_of_tokens_are_the_original_ones_after_the_first(cls, detokenize, real_data):
    corpus = cls(tokenizer="gpt2", detokenize=detokenize).load(real_data)
    text = corpus.codec.decode(corpus.test.tolist())
    first = corpus.codec.decode(corpus.test[:1].tolist())
    # " no", "no": the first word. " ", "\n": WikiText begins with a blank line, a word in itself where it is a token.
    words = {" no": 1, "no": 1, " ": 0, "\n": 1}[first]
    assert corpus.test_size.words == {PennTreebank: 82_430, WikiText103HeldOut: 245_569}[cls] - words
    assert corpus.test_size.characters == len(text) - len(first)
    assert corpus.test_size.bytes == len(text.encode()) - len(first)
    assert (" n't" in text or " @-@ " in text) == (not detokenize)


def test_tokens_of_the_original_text_are_the_files_byte_for_byte(real_data):
    corpus = WikiText103HeldOut().load(real_data)
    assert len(corpus.train) == 0
    for name in ("valid", "test"):
        text = (real_data / f"wikitext-103-heldout/wiki.{name}.tokens").read_bytes()
        assert corpus.codec.decode(getattr(corpus, name).tolist()).encode() == text


ENWIK = "<b>caf\u00e9 a</b>\n ab c".encode()  # 20 bytes, 13 of them different


def packed(folder: Path, monkeypatch, cls, content: bytes, *, tokens, vocab_size: int) -> None:
    """A small archive in place of the pinned one."""
    whole = cls.FILES["whole"]
    place = folder / whole.archive.path
    place.parent.mkdir()
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr(whole.url, content)
    pin = PinnedFile(whole.archive.path, "unused", hashlib.sha256(place.read_bytes()).hexdigest())
    file = PinnedFile(whole.path, whole.url, hashlib.sha256(content).hexdigest(), archive=pin)
    monkeypatch.setattr(cls, "FILES", {"whole": file})
    monkeypatch.setattr(cls, "TOKENS", dict(zip(SPLITS, tokens, strict=True)))
    monkeypatch.setattr(cls, "VOCAB_SIZE", vocab_size)


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


def test_counts_that_are_not_the_known_ones_are_an_error(tmp_path, monkeypatch):
    packed(tmp_path, monkeypatch, Text8, b"ab ba" + b"a bb", tokens=(3, 2, 4), vocab_size=3)
    Text8().fetch(tmp_path)
    assert Text8().load(tmp_path).test_size == TextSize(words=1, characters=3, bytes=3)  # without the word of a byte
    monkeypatch.setattr(Text8, "VOCAB_SIZE", 27)
    with pytest.raises(CorpusError, match=r"text8/text8: .* 3 symbols; expected"):
        Text8().load(tmp_path)


PROSE = golden.read("prose")


@pytest.mark.parametrize(("corpus", "tokens", "text"), [(corpus, *each) for corpus in PROSE for each in PROSE[corpus]])
def test_tokens_become_prose(corpus, tokens, text):
    assert {"wikitext": detokenize_wikitext, "ptb": detokenize_ptb}[corpus](tokens) == text


def test_penn_treebank_is_the_file_symbol_by_symbol_and_the_word_level_text(real_data):
    corpus = PennTreebankCharacters().load(real_data)
    for name in SPLITS:
        expected = (real_data / f"ptb-char/ptb.char.{name}.txt").read_text().replace("\n", " <eos> ").split()
        if name == "train":
            assert corpus.symbols == tuple(dict.fromkeys(expected))
        assert [corpus.symbols[index] for index in getattr(corpus, name).tolist()] == expected
    text = corpus.codec.decode(corpus.test.tolist())
    assert text.split() == (real_data / "ptb/ptb.test.txt").read_text().split()
    assert corpus.codec.encode(text) == corpus.test.tolist()
    # 82,430 words with one <eos> per line; the first character, n of no, ends none of them
    assert corpus.test_size == TextSize(words=82_430, characters=442_422, bytes=442_422)


def test_tiny_shakespeare_is_split_as_in_nanogpt(real_data):
    corpus = TinyShakespeare().load(real_data)
    text = (real_data / "embed" / "tiny_shakespeare.txt").read_text(encoding="utf-8")
    cut = int(0.9 * len(text))  # data/shakespeare_char/prepare.py
    assert (len(corpus.train), len(corpus.valid) + len(corpus.test)) == (cut, len(text) - cut)
    symbols = list(dict.fromkeys(text))
    assert corpus.vocab_size == len(symbols) == 65
    whole = torch.cat([corpus.train, corpus.valid, corpus.test])
    assert "".join(symbols[each] for each in whole.tolist()) == text
