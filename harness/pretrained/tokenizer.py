"""The tokenizer of a model folder as transformers writes it: `tokenizer.json`, read by the tokenizers library.

No code of the folder is executed. Special tokens of a template (a first token, a last token) are not put into a text;
`puts_first` of the tokenizer says which one would be.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from harness.corpora.limited import GIB, limited
from harness.corpora.pieces import END_OF_TEXT, MAX_VOCAB, NOT_THE_LIBRARYS, TextTokenizer
from harness.errors import CorpusError
from harness.machine.files import read_bounded

FILE = "tokenizer.json"
MAX_BYTES = 64 * 1024**2  # Gemma's has 33 MB
MAX_CONFIG_BYTES = 4 * 1024**2
MOST_MEMORY, MEMORY_OF_BYTE = GIB, 64  # that reading the file may take


def read_tokenizer(folder: Path) -> TextTokenizer:
    """Read the tokenizer of a model folder.

    V is `vocab_size` in config.json, the model's number of rows, which may be more or less than the tokenizer
    has ids; without it the tokenizer's number of ids. Between documents is `<|endoftext|>` if the tokenizer has
    it, else `eos_token` in tokenizer_config.json, else `eos_token_id` in generation_config.json or config.json.

    Raises: CorpusError when tokenizer.json is missing, larger than 64 MiB or no tokenizer; when it has dropout; or when
    a file beside it is no JSON or gives an impossible V.
    """
    content = _content(folder, FILE, MAX_BYTES)
    if content is None:
        raise CorpusError(
            f"{folder}: has no {FILE}; the tokenizer of a model is read from this file only, which transformers writes "
            "by save_pretrained of a fast tokenizer"
        )
    tokenizer, of_template = _parsed(content, str(folder))
    config, generation, about = (
        _json(folder, name) for name in ("config.json", "generation_config.json", "tokenizer_config.json")
    )
    if isinstance(of_text := config.get("text_config"), dict):  # of a model for texts and images
        config = {**of_text, **config}
    ids = max(tokenizer.get_vocab().values(), default=-1) + 1
    size = config.get("vocab_size", ids)
    if not 0 < ids <= MAX_VOCAB:
        raise CorpusError(
            f"{folder / FILE}: has {ids:,} ids; a vocabulary has 1 to {MAX_VOCAB:,}; take another tokenizer"
        )
    if not (isinstance(size, int) and 0 < size <= MAX_VOCAB):
        raise CorpusError(f"{folder / 'config.json'}: vocab_size must be an integer from 1 to {MAX_VOCAB:,}")
    return TextTokenizer(
        where=folder.name,
        tokenizer=tokenizer,
        sha256=hashlib.sha256(content).hexdigest(),
        vocab_size=size,
        end_of_text=_end_of_text(tokenizer, about, generation, config),
        puts_first=_puts_first(tokenizer, of_template, about),
    )


@lru_cache(maxsize=2)
def _parsed(content: bytes, where: str) -> tuple[Tokenizer, int | None]:
    """Return the tokenizer without its template, and the id of the token that the template puts before a text."""
    most = MOST_MEMORY + MEMORY_OF_BYTE * len(content)
    (first,) = limited(lambda send: send(_first(_bare(content, where), where)), f"{where}: {FILE}", most)
    tokenizer = _bare(content, where)
    tokenizer.post_processor = None  # it puts special tokens around a text, and may leave white space out of offsets
    return tokenizer, first


def _bare(content: bytes, where: str) -> Tokenizer:
    with _only_tokenizers(where):
        tokenizer = Tokenizer.from_str(content.decode())
        tokenizer.no_truncation()
        tokenizer.no_padding()
    if getattr(tokenizer.model, "dropout", None):
        raise CorpusError(
            f"{where}: {FILE} has dropout, with which a text has other tokens each time; set it to null there"
        )
    return tokenizer


def _first(tokenizer: Tokenizer, where: str) -> int | None:
    with _only_tokenizers(where):
        with_template = tokenizer.encode("a")
    return with_template.ids[0] if with_template.special_tokens_mask[:1] == [1] else None


@contextmanager
def _only_tokenizers(where: str) -> Iterator[None]:
    try:
        yield
    except NOT_THE_LIBRARYS:
        raise
    except BaseException:  # the library raises no narrower type
        raise CorpusError(
            f"{where}: {FILE} is not a tokenizer of the tokenizers library; write it by save_pretrained of a fast "
            "tokenizer"
        ) from None


def _puts_first(tokenizer: Tokenizer, of_template: int | None, about: dict) -> int | None:
    """The id of the token of the template, else of `bos_token` where tokenizer_config.json says `add_bos_token`,
    which releases of transformers before the fifth heed.
    """
    name = _text(about.get("bos_token"))
    if of_template is not None or name is None or about.get("add_bos_token") is not True:
        return of_template
    return tokenizer.token_to_id(name)


def _text(token: Any) -> str | None:
    """The text of a token in tokenizer_config.json, which is a string or a mapping; None if it is neither."""
    token = token.get("content") if isinstance(token, dict) else token
    return token if isinstance(token, str) else None


def _end_of_text(tokenizer: Tokenizer, about: dict, generation: dict, config: dict) -> int | None:
    for token in (END_OF_TEXT, _text(about.get("eos_token"))):
        if token is not None and (found := tokenizer.token_to_id(token)) is not None:
            return found
    for index in (generation.get("eos_token_id"), config.get("eos_token_id")):
        first = index[0] if isinstance(index, list) and index else index
        if isinstance(first, int) and 0 <= first < MAX_VOCAB and tokenizer.id_to_token(first) is not None:
            return first
    return None


def _json(folder: Path, name: str) -> dict[str, Any]:
    """Return the mapping of a JSON file; {} if there is no such file."""
    content = _content(folder, name, MAX_CONFIG_BYTES)
    if content is None:
        return {}
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        raise CorpusError(f"{folder / name}: is not JSON; copy the file again") from None
    if not isinstance(found, dict):
        raise CorpusError(f"{folder / name}: is not a JSON object; copy the file again")
    return found


def _content(folder: Path, name: str, max_bytes: int) -> bytes | None:
    """Return the content of a file in a model folder; None if there is none."""
    if not folder.is_dir():
        raise CorpusError(f"{folder}: no such folder; a path in a suite begins at the suite's folder")
    try:
        return read_bounded(folder / name, max_bytes)
    except FileNotFoundError:
        return None
    except OSError as cause:
        raise CorpusError(f"{folder / name}: cannot be read ({cause.strerror})") from cause
