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


def known_lengths(tokenizer: Tokenizer) -> np.ndarray:
    """Return (V,) int32, the bytes of each token's text as far as its name shows them. In byte-level BPE the name has a
    character for each byte.
    """
    byte_level, vocabulary = isinstance(tokenizer.decoder, decoders.ByteLevel), tokenizer.get_vocab()
    added = {index: token.content for index, token in tokenizer.get_added_tokens_decoder().items()}
    lengths_V = np.zeros(max(vocabulary.values(), default=-1) + 1, dtype=np.int32)
    for name, index in vocabulary.items():
        if index in added:
            lengths_V[index] = len(added[index].encode())
        elif byte_level or _BYTE.fullmatch(name):
            lengths_V[index] = len(name) if byte_level else 1
        else:
            lengths_V[index] = len(name.replace(_BLANK, " ").encode())
    return lengths_V


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
