"""Tokenizers: GPT-2's vocabulary against a loop written from the paper and against transformers; trained ones."""

import json
from itertools import pairwise

import pytest
import regex
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from harness.corpora import pieces as cutting
from harness.corpora.pieces import END_OF_TEXT, TextTokenizer, encode, pieces
from harness.corpora.subwords import SubwordCodec, make_tokenizer, unknown_id
from harness.errors import CorpusError

SAMPLE = "openwebtext-sample/openwebtext_2017_18_small.txt"
WORDS = " ".join(f"{a}{b}{c}" for a in "bdfgk" for b in "aeiou" for c in "lmnrst") + "\n"


class Oracle:
    """Byte-level BPE as Radford et al. (2019), section 2.2, and Sennrich et al. (2016), algorithm 1, tell it: bytes,
    merged pair by pair, always the pair that was learnt first, never over the bounds of categories of characters.
    """

    PATTERN = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")

    def __init__(self, folder):
        self.ids = json.loads((folder / "encoder.json").read_text(encoding="utf-8"))
        lines = (folder / "vocab.bpe").read_text(encoding="utf-8").split("\n")[1:-1]
        self.ranks = {tuple(line.split(" ")): rank for rank, line in enumerate(lines)}
        shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]  # bytes that are written as themselves
        hidden = [byte for byte in range(256) if byte not in shown]
        self.written = {byte: chr(byte) for byte in shown} | {byte: chr(256 + i) for i, byte in enumerate(hidden)}

    def encode(self, text: str) -> list[int]:
        return [index for word in self.PATTERN.findall(text) for index in self.word(word)]

    def word(self, word: str) -> list[int]:
        parts = [self.written[byte] for byte in word.encode()]
        while len(parts) > 1:
            ranks = [self.ranks.get(pair, len(self.ranks)) for pair in pairwise(parts)]
            best = min(ranks)
            if best == len(self.ranks):
                break
            first, second = parts[ranks.index(best)], parts[ranks.index(best) + 1]
            merged, at = [], 0
            while at < len(parts):
                both = parts[at : at + 2] == [first, second]
                merged.append(first + second if both else parts[at])
                at += 2 if both else 1
            parts = merged
        return [self.ids[part] for part in parts]


@pytest.fixture(scope="module")
def gpt2(real_data) -> Tokenizer:
    return make_tokenizer("gpt2", real_data, lambda: [], "here").tokenizer


@pytest.fixture(scope="module")
def sample(real_data) -> str:
    return (real_data / SAMPLE).read_bytes().decode()


def whole(source, text) -> list[int]:
    return [index for piece in encode(source, pieces(text), where="here") for index in piece.ids.tolist()]


def test_ids_are_those_of_the_oracle_and_of_transformers_on_1000_lines(gpt2, sample, real_data):
    from transformers import GPT2TokenizerFast

    folder = real_data / "gpt2-bpe"
    theirs = GPT2TokenizerFast(vocab=str(folder / "encoder.json"), merges=str(folder / "vocab.bpe"))
    oracle = Oracle(folder)
    lines = sample.split("\n")[:1000]
    assert len(lines) == 1000
    codec, source = SubwordCodec(gpt2), make_tokenizer("gpt2", real_data, lambda: [], "here")
    assert codec.decode(whole(source, sample)) == sample
    for line in lines:
        assert codec.encode(line) == oracle.encode(line) == theirs(line).input_ids


@pytest.mark.parametrize(
    "text", ["", " ", "\n\n a", "don't  stop", "\u4f60\u597d \U0001f600!", "a\u00a0 b\r\n\tc", "x" * 300]
)
def test_ids_of_odd_texts_are_those_of_the_oracle(text, gpt2, real_data):
    assert SubwordCodec(gpt2).encode(text) == Oracle(real_data / "gpt2-bpe").encode(text)


def test_end_of_text_is_one_token(gpt2):
    codec = SubwordCodec(gpt2)
    assert codec.encode(f"a{END_OF_TEXT}\n") == [64, 50256, 198]
    assert codec.decode([64, 50256, 198]) == f"a{END_OF_TEXT}\n"


ODD = st.lists(st.sampled_from([" ", "\n", "\t", "\u00a0", "\x1c", "a", "bc", "7", "'s", ",", "\u4f60", END_OF_TEXT]))


@pytest.fixture(scope="module")
def sources(real_data) -> list[TextTokenizer]:
    """GPT-2's, and word pieces."""
    return [make_tokenizer(spec, real_data, lambda: [WORDS], "here") for spec in ("gpt2", {"wordpiece": 70})]


@pytest.mark.system
@settings(deadline=None, max_examples=300)
@given(parts=ODD)
@example(parts=["bc", "\n", "\n", "\n", "\n", "bc"])  # a cut within a run of white space
@example(parts=["bc", "a", "\n", "\n", END_OF_TEXT])  # the run is not cut by what follows it
def test_the_tokens_of_pieces_are_those_of_the_text_and_have_its_bytes(parts, sources):
    text = "".join(parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "PIECE_CHARACTERS", 3)
        patch.setattr(cutting, "BATCH_CHARACTERS", 10)
        assert "".join(pieces(text)) == text
        for source in sources:
            assert whole(source, text) == source.tokenizer.encode(text).ids
            for piece in encode(source, pieces(text), ends=True, where="here"):
                expected = 0 if piece.text == END_OF_TEXT else len(piece.text.encode())
                assert piece.ends[-1:].tolist() == [expected] * bool(len(piece.ids))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Hello world", [5, 11]), (" Hello", [6]), ("\u4f60", [2, 3]), (END_OF_TEXT + "a", [0])],  # e4 bd, a0
)
def test_bytes_of_tokens(text, expected, sources):
    (first, *_) = encode(sources[0], [text], ends=True, where="here")
    assert first.ends.tolist() == expected


@pytest.mark.parametrize(("spec", "expected"), [({"bpe": 300}, " bal\n\u6f22\x00"), ({"wordpiece": 70}, "bal")])
def test_the_texts_of_tokens_are_that_of_the_text(spec, expected, tmp_path):
    codec = SubwordCodec(make_tokenizer(spec, tmp_path, lambda: [WORDS], "here").tokenizer)
    texts, ids = codec.token_bytes(), codec.encode(f" bal\n\u6f22\x00{END_OF_TEXT}")
    last = -1 if "bpe" in spec else -2  # word pieces have [UNK] for what they do not know
    assert b"".join(texts[index] for index in ids[:last]) == expected.encode()
    assert texts[ids[-1]] == b""


@pytest.mark.parametrize("spec", [{"bpe": 300}, {"wordpiece": 90}])
def test_a_trained_tokenizer_is_the_same_every_time(spec, tmp_path):
    descriptions = {make_tokenizer(spec, tmp_path, lambda: [WORDS], "here").tokenizer.to_str() for _ in range(5)}
    assert len(descriptions) == 1
    tokenizer = Tokenizer.from_str(descriptions.pop())
    assert tokenizer.get_vocab_size() == next(iter(spec.values()))
    assert tokenizer.encode(f"bal{END_OF_TEXT}").tokens[-1] == END_OF_TEXT


def test_word_pieces_within_words_are_marked_and_unknown_characters_have_a_token(tmp_path):
    tokenizer = make_tokenizer({"wordpiece": 60}, tmp_path, lambda: [WORDS], "here").tokenizer
    assert set(tokenizer.get_vocab()) >= {"b", "##a", "##l", "[UNK]", END_OF_TEXT}
    codec = SubwordCodec(tokenizer)
    assert codec.decode(codec.encode("bal\n  dem \u4f60")) == "bal dem [UNK]"
    assert unknown_id(tokenizer) == codec.encode("\u4f60")[0]


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (models.BPE(), None),
        (models.BPE({"a": 0, "<unk>": 1}, [], unk_token="<unk>"), 1),
        (models.Unigram([("a", -1.0), ("<unk>", 0.0)], unk_id=1), 1),
        (models.Unigram([("a", -1.0)]), None),
        (models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"), 1),
    ],
)
def test_the_unknown_token_of_a_tokenizer(model, expected):
    assert unknown_id(Tokenizer(model)) == expected


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"bpe": 100_000}, "here: tokenizer: the training split gives bpe at most [0-9]+ entries, not 100000"),
        ({"wordpiece": 100_000}, "the training split gives wordpiece at most [0-9]+ entries, not 100000"),
        ({"wordpiece": 5}, "the training split gives wordpiece at least [0-9]+ entries, not 5"),
    ],
)
def test_a_text_that_does_not_give_the_size_is_an_error_with_the_size_it_gives(spec, message, tmp_path):
    with pytest.raises(CorpusError, match=message) as raised:
        make_tokenizer(spec, tmp_path, lambda: [WORDS], "here")
    kind, reachable = next(iter(spec)), int(str(raised.value).split("entries")[0].split()[-1])
    assert make_tokenizer({kind: reachable}, tmp_path, lambda: [WORDS], "here").vocab_size == reachable


def test_gpt2s_files_that_are_absent_are_named(tmp_path):
    with pytest.raises(CorpusError, match=r"^encoder\.json is not in .*gpt2-bpe: name the folder"):
        make_tokenizer("gpt2", tmp_path, lambda: [], "here")
