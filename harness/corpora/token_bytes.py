"""The bytes of a text that each of its tokens stands for, so that every choice of scored tokens has an exact size.

Together the tokens of a piece of text have all its bytes, in the order of the text. White space that a tokenizer drops
belongs to the token after it, or to the last token. A character that is divided between tokens of bytes (byte-level
BPE, `<0xE6>` of byte fallback) is divided into its bytes of UTF-8. So is a character that other tokens share, as far as
the names of the tokens show how.
"""

import re
from collections.abc import Sequence

import numpy as np
from tokenizers import Tokenizer, decoders

_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_BLANK = "\u2581"  # how SentencePiece writes a blank
# Byte-level BPE writes a byte as the character of its number, or where that cannot be seen, as one
# of those from 256
_SEEN = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
_UNSEEN = [byte for byte in range(256) if byte not in _SEEN]
_BYTES = {chr(byte): byte for byte in _SEEN}
_BYTES |= {chr(256 + number): byte for number, byte in enumerate(_UNSEEN)}


def texts_of_tokens(tokenizer: Tokenizer) -> list[bytes]:
    """Return the bytes of each token's text as far as its name shows them, in the order of the ids;
    b"" for an id without a token. In byte-level BPE the name has a character for each byte.
    """
    byte_level, vocabulary = isinstance(tokenizer.decoder, decoders.ByteLevel), tokenizer.get_vocab()
    added = {index: token.content for index, token in tokenizer.get_added_tokens_decoder().items()}
    texts = [b""] * (max(vocabulary.values(), default=-1) + 1)
    for name, index in vocabulary.items():
        if index in added:
            texts[index] = added[index].encode()
        elif byte_level and _BYTES.keys() >= set(name):
            texts[index] = bytes(_BYTES[each] for each in name)
        elif byte_level:  # a character stands for no byte: for the library, the name is the text
            texts[index] = name.encode()
        elif _BYTE.fullmatch(name):
            texts[index] = bytes.fromhex(name[3:5])
        else:
            texts[index] = name.replace(_BLANK, " ").encode()
    return texts


def texts_without_marks(tokenizer: Tokenizer) -> list[bytes]:
    """Return the same without what only marks the place in a word, such as ## of WordPiece; b"" for
    special tokens.
    """
    texts, model = texts_of_tokens(tokenizer), tokenizer.model
    added = tokenizer.get_added_tokens_decoder()
    before = getattr(model, "continuing_subword_prefix", None) or ""
    after = getattr(model, "end_of_word_suffix", None) or ""
    for index, text in enumerate(texts):
        if index not in added:
            texts[index] = text.removeprefix(before.encode()).removesuffix(after.encode())
        elif added[index].special:
            texts[index] = b""
    return texts


def known_lengths(tokenizer: Tokenizer) -> np.ndarray:
    """Return (V,) int32, the bytes of each token's text as far as its name shows them."""
    return np.array([len(text) for text in texts_of_tokens(tokenizer)], dtype=np.int32)


def ends_in_bytes(
    text: str, ids_N: np.ndarray, offsets: Sequence[tuple[int, int]], lengths_V: np.ndarray
) -> np.ndarray:
    """Return (N,) int32, the number of bytes of a text up to the end of each of its tokens.

    Args:
        offsets: first and last character of each token. A token with a part of a character's bytes has the character.
        lengths_V: of known_lengths.
    """
    if not len(ids_N):
        return np.zeros(0, dtype=np.int32)
    bytes_C = np.concatenate([[0], np.cumsum(utf8_lengths(text))])
    start_N, end_N = np.array(offsets, dtype=np.int64).T
    end_N = np.maximum.accumulate(end_N).clip(0, len(text))  # an odd tokenizer may give more
    whole_N = np.append(start_N[1:] >= end_N[:-1], True)  # the token ends where a character does
    known_N = np.cumsum(lengths_V[ids_N])
    last_N = np.maximum.accumulate(np.where(whole_N, np.arange(len(ids_N)), -1))  # the last such token
    before_N = np.where(last_N < 0, 0, bytes_C[end_N[last_N]])
    within_N = before_N + known_N - np.where(last_N < 0, 0, known_N[last_N])
    least_N, most_N = bytes_C[np.maximum(end_N - 1, 0)], bytes_C[end_N]
    ends_N = np.where(whole_N, most_N, np.clip(within_N, least_N, most_N))
    ends_N[-1] = bytes_C[-1]
    return ends_N.astype(np.int32)


def gives_back(tokenizer: Tokenizer, ids_N: Sequence[int], text: str) -> bool:
    """Whether the tokens of a piece of text give back every byte of it. A blank at its beginning, which a tokenizer may
    put there or take away, does not count.
    """
    found = tokenizer.decode(ids_N, skip_special_tokens=False)
    return found.removeprefix(" ") == text.removeprefix(" ")


def utf8_lengths(text: str) -> np.ndarray:
    """Return (C,) int64, the number of bytes of each character in UTF-8."""
    codes = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    return 1 + (codes >= 0x80).astype(np.int64) + (codes >= 0x800) + (codes >= 0x10000)
