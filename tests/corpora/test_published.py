"""Penn Treebank and WikiText-2: the published counts, in the facts and in the files themselves."""

import builtins
from pathlib import Path

import pytest

from harness.corpora.corpus import SPLITS
from harness.corpora.published import PennTreebank, WikiText2, WikiText103HeldOut
from harness.errors import CorpusError

# shared/docs/PROTOCOLS.md section 0 and shared/data/PROVENANCE.md: (train, valid, test), V. WikiText-2's train with
# <sos> is 2,088,628 tokens plus its 36,718 lines.
PUBLISHED = [
    (PennTreebank, "eos", (929_589, 73_760, 82_430), 10_000),
    (PennTreebank, "sos_eos", (971_657, 77_130, 86_191), 10_001),
    (WikiText2, "eos", (2_088_628, 217_646, 245_569), 33_278),
    (WikiText2, "sos_eos", (2_125_346, 221_406, 249_927), 33_279),
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

    source = cls(boundary=boundary)
    with monkeypatch.context() as patch:
        patch.setattr(builtins, "open", refuse)
        for method in ("open", "read_text", "read_bytes", "exists", "is_file", "stat"):
            patch.setattr(Path, method, refuse)
        facts = source.facts()
    assert tuple(facts.num_tokens[name] for name in SPLITS) == counts
    assert facts.vocab_size == vocab_size


@pytest.mark.parametrize(("cls", "boundary", "counts", "vocab_size"), PUBLISHED)
def test_loaded_corpus_has_the_published_counts(cls, boundary, counts, vocab_size, load):
    corpus = load(cls, boundary)
    assert tuple(len(getattr(corpus, name)) for name in SPLITS) == counts
    assert corpus.vocab_size == len(corpus.symbols) == len(set(corpus.symbols)) == vocab_size
    assert all(int(getattr(corpus, name).max()) < vocab_size for name in SPLITS)


@pytest.mark.parametrize("cls", FILES)
@pytest.mark.parametrize("boundary", ["eos", "sos_eos"])
def test_ids_are_those_of_a_loop_over_the_words_of_the_files(cls, boundary, load, real_data):
    corpus, begin = load(cls, boundary), ["<sos>"] * (boundary == "sos_eos")
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


def test_content_is_the_same_for_both_boundaries_and_differs_between_corpora():
    ptb, ptb_sos, wikitext2 = PennTreebank(), PennTreebank(boundary="sos_eos"), WikiText2()
    assert ptb.facts().content == ptb_sos.facts().content != wikitext2.facts().content
    assert ptb.facts().counting != ptb_sos.facts().counting


def test_fetch_verifies_the_files_that_are_there(real_data):
    PennTreebank().fetch(real_data)
    names = sorted(path.name for path in (real_data / "ptb").iterdir() if path.name.startswith("ptb."))
    assert names == ["ptb.test.txt", "ptb.train.txt", "ptb.valid.txt"]


def test_load_without_the_files_says_which_is_absent(tmp_path):
    with pytest.raises(CorpusError, match=r"^ptb\.train\.txt is not in .*ptb$"):
        PennTreebank().load(tmp_path)


def test_a_tokenizer_leaves_the_facts_to_the_files_and_the_content_as_it_is():
    facts = PennTreebank(tokenizer="gpt2", detokenize=True).facts()
    assert (facts.vocab_size, facts.num_tokens) == (50_257, None)
    assert facts.content == PennTreebank().facts().content
    assert "detokenised" in facts.counting
    assert "one <eos> per line" in facts.counting


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
