"""Text to ids and back, for words, characters and bytes."""

import pytest

from harness.corpora.local_text import Embedded, Text
from harness.corpora.vocabulary import ByteCodec, CharacterCodec, WordCodec
from harness.errors import CorpusError

WORDS = ("the", "<eos>", "cat", "<unk>")
SOS_WORDS = ("<sos>", "the", "<eos>")


def test_words_are_looked_up_a_line_end_is_eos_and_an_unfinished_line_has_none():
    assert WordCodec(WORDS).encode("the  cat\n\nthe") == [0, 2, 1, 1, 0]
    assert WordCodec(WORDS).encode("the dog\n") == [0, 3, 1]


def test_words_come_back_with_single_spaces_and_line_ends():
    assert WordCodec(WORDS).decode([0, 2, 1, 1, 0, 3]) == "the cat\n\nthe <unk>"
    assert WordCodec(WORDS).decode([0, 1]) == "the\n"


def test_sos_opens_every_line_that_is_begun():
    codec = WordCodec(SOS_WORDS, boundary="sos_eos")
    assert codec.encode("the\nthe") == [0, 1, 2, 0, 1]
    assert codec.encode("the\n") == [0, 1, 2]
    assert codec.decode([0, 1, 2, 0, 1]) == "the\nthe"


def test_a_word_that_cannot_be_said_is_named():
    with pytest.raises(CorpusError, match=r"^the word 'dog' is not in the corpus' vocabulary$"):
        WordCodec(("the", "<eos>")).encode("the dog")


def test_characters_are_spelled_as_the_corpus_spells_them():
    codec = CharacterCodec(("a", "_", "<eos>"), spelled={" ": "_", "\n": "<eos>"})
    assert codec.encode("a a\n") == [0, 1, 0, 2]
    assert codec.decode([0, 1, 0, 2]) == "a a\n"
    with pytest.raises(CorpusError, match="the character 'b' is not in"):
        codec.encode("b")


def test_bytes_of_a_character_that_is_cut_become_a_replacement_character():
    codec = ByteCodec(bytes([0x61, 0xA9, 0xC3]))
    assert codec.encode("aé") == [0, 2, 1]  # UTF-8: c3 a9
    assert codec.decode([0, 2, 1]) == "aé"
    assert codec.decode([0, 2]) == "a\ufffd"


def test_codec_of_the_novel_reads_text_as_the_corpus_does(tmp_path):
    corpus = Embedded().load(tmp_path)
    ids = corpus.codec.encode('"It is a TRUTH,\n')
    assert [corpus.symbols[index] for index in ids] == ['"', "it", "is", "a", "truth", ",", "<eos>"]


def test_codec_of_a_text_gives_the_ids_of_the_corpus(tmp_path):
    (tmp_path / "own.txt").write_text("A b\nb a\n" * 5)
    corpus = Text(path=tmp_path / "own.txt", lowercase=True).load(tmp_path)
    assert corpus.codec.encode("A b\nb a\n" * 4) == corpus.train.tolist()
    corpus = Text(path=tmp_path / "own.txt", level="char").load(tmp_path)
    assert corpus.codec.decode(corpus.train.tolist()) == "A b\nb a\n" * 4
