"""Books in English of the nineteenth century, each from a pinned file: words, subwords or characters."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import ClassVar, Literal
from urllib.parse import quote

import torch
from torch import Tensor

from harness.corpora import download
from harness.corpora.corpus import SPLITS, Corpus
from harness.corpora.download import PinnedFile
from harness.corpora.pieces import joined
from harness.corpora.published import Published
from harness.corpora.subwords import TokenizerSpec, check_tokenizer, counting
from harness.corpora.token_files import TextSource
from harness.corpora.vocabulary import (
    COUNTING,
    WordCodec,
    character_corpus,
    encode_splits,
    line_tokens,
    vocabulary,
    words_and_marks,
)
from harness.registry import CORPORA

_URL = "https://raw.githubusercontent.com/mlschmitt/classic-books-markdown"
_COMMIT = "944882722e9a96fa6cf2739dc2ea757e101f412f"
BOOKS = {  # the author and title in the source, and the SHA-256 of the file there
    "train": {
        "Charlotte Bronte/Villette": "71e072499cb9bff755e7d92ab35fee8999f858713b677424fd61dadadb1052f8",
        "Emily Bronte/Wuthering Heights": "410c6b344cf438d406f1e241defbcd54393ace51b2c0ec1dc1d9d27960a296ba",
        "Anne Bronte/Agnes Grey": "34ad5268dc4b26b7951c9cb6dc531358b10400cec5c63116dd7cff40e5f2b233",
        "Elizabeth Gaskell/Cranford": "cd7e4679e9fd12780f8358f90536e3737b76926f016f6aca057763f57c025ea9",
        "Charles Dickens/Hard Times": "9d663a938fa4da54f9fc62accd5b2e4d62649e4690b2310fe5dc345b56254775",
        "Anthony Trollope/The Warden": "454208aee9cb1fe0aeafe95d44c33d72c470f47892ed07bb7e90d20e09502b24",
        "Anthony Trollope/Barchester Towers": "92bfff649bf83f4a14d78ab51445a5628fa53c992d5c09bd2fea2ec083afa0f7",
        "Anthony Trollope/Framley Parsonage": "87891524cc2cfb6f1a232ef148d8dfead435abacd282536f0da897d39437070d",
        "Wilkie Collins/After Dark": "88c9595f0501e24697f39c144308a7f176dd2c918dbabc6ec263a3980564f112",
        "George Eliot/Silas Marner": "ab43f779b7b317843e6433445cbe48f0418e27e23a7218486a7b80ea5473a273",
        "Mary Elizabeth Braddon/Lady Audley's Secret": (
            "b1b48bee0eaf0e4095b54f079a83dc0873df815b2478c73c144e34d6b1091973"
        ),
        "Bram Stoker/Dracula": "8f27d5c749abd3d1e5f90ac0722936b8115597c522675c5a29aad0e667c50c14",
    },
    "valid": {
        "Jane Austen/Northanger Abbey": "798cf00687e650ec8ccc81da50aa56eb6532944ee2672cc70a6d0d72db1d1ee2",
    },
    "test": {
        "Samuel Butler/Erewhon": "1ab888bd7a498b494676ac86c6c32c8d3c78557dc7ef7a6ce87f71e2d85295d0",
        "Oscar Wilde/The Picture of Dorian Gray": "c31ad16ae72b187f85180bb20eacf8388fbe01ea3e4b3dee78c1447ef49209b0",
    },
}
# No suite reads it. `harness check-submission` scores a model on it that it has trained itself.
HIDDEN = {
    "Olive Schreiner/The Story of an African Farm": "cba0836304a3487c872c6de53ce4133e1b52ca714f9f94ad094c1abddc38a874",
}
HEADER_ENDS = "-------\n"  # after title, author and year
RULE = 1  # part of the key of token files: increase it with every change of `plain`
RARE = {"word": 7, "char": 20}  # symbols that the training split has less often are <unk>


def _file(book: str, sha256: str) -> PinnedFile:
    _, title = book.split("/")
    return PinnedFile(f"english_novels/{title}.md", f"{_URL}/{_COMMIT}/{quote(book)}.md", sha256)


def plain(markdown: str) -> str:
    """Return the text of a book: a paragraph a line, with blank lines between. Marks of emphasis stay."""
    text = markdown.replace("\r\n", "\n").partition(HEADER_ENDS)[2]
    text = re.sub(r"^#+ *", "", text, flags=re.MULTILINE)
    text = re.sub(r"[ \t\xa0]+", " ", text)
    text = re.sub(r" *\n *", "\n", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


@CORPORA.register("english_novels")
class EnglishNovels(Published, TextSource):
    """Fifteen books in English of 1817 to 1897 in the public domain: twelve to train on, 8.5 million characters.

    Validation is Northanger Abbey, and test are Erewhon and The Picture of Dorian Gray. No author is in two splits, and
    all died before 1926. A paragraph is a line.

    Args:
        level: 'word': in lower case, with punctuation marks as tokens; words that the training split has less than 7
            times become <unk>, and V = 10,270. 'char': every character is a token, with line ends; those that it has
            less than 20 times become <unk>, and V = 90.
        tokenizer: instead of them 'gpt2', {bpe: V} or {wordpiece: V}, trained on the training split, or {pretrained:
            FOLDER}, that of a model (as of the corpus `text`). Between books is an end-of-text token.
    Raises: CorpusError when a file is absent and cannot be downloaded, or has another content, or the folder has no
        readable tokenizer; ValueError when a tokenizer is asked for at character level.
    Source: mlschmitt/classic-books-markdown, which says that all titles are in the public domain.
    """

    FILES: ClassVar = {book: _file(book, sha256) for books in BOOKS.values() for book, sha256 in books.items()}
    TOKENS: ClassVar = {
        "word": {"train": 1_932_388, "valid": 94_283, "test": 192_542},
        "char": {"train": 8_486_230, "valid": 431_889, "test": 876_528},
    }
    VOCAB_SIZE: ClassVar = {"word": 10_270, "char": 90}
    options: ClassVar = {"corpus": "english_novels", "rule": RULE}

    def __init__(self, *, level: Literal["word", "char"] = "word", tokenizer: TokenizerSpec | None = None):
        if tokenizer is not None:
            check_tokenizer(tokenizer)
            if level != "word":
                raise ValueError("level: has no meaning with a tokenizer, because its tokens are not characters")
        self.level, self.tokenizer = level, tokenizer

    def __str__(self) -> str:
        return "english_novels"

    @property
    def counting(self) -> str:
        """The counting rule in words."""
        if self.tokenizer is not None:
            return f"{counting(self.tokenizer)}, line ends included; words are whitespace-separated"
        return (
            f"{COUNTING['eos']} (a paragraph is a line)" if self.level == "word" else "characters, line ends included"
        )

    def sizes(self) -> tuple[int, dict[str, int]]:
        """Return the known counts; no file is read."""
        return self.VOCAB_SIZE[self.level], dict(self.TOKENS[self.level])

    def fetch(self, data: Path) -> None:
        """Download missing files, verify all files, and with a tokenizer make the token files."""
        Published.fetch(self, data)
        TextSource.fetch(self, data)

    def untokenized(self, data: Path) -> Corpus:
        """Read the words or the characters."""
        texts = {name: "\n".join(self._books(name, data)) for name in SPLITS}
        if self.level == "char":
            return character_corpus(texts, min_count=RARE["char"], where=str(self))
        splits = {name: line_tokens(map(words_and_marks, texts[name].splitlines()), "eos") for name in SPLITS}
        symbols = vocabulary(splits["train"], min_count=RARE["word"], unknown=True)
        codec = WordCodec(symbols, boundary="eos", words=words_and_marks)
        return encode_splits(splits, symbols, where=str(self), codec=codec)

    def pieces(self, data: Path) -> Iterator[tuple[str, Iterable[str]]]:
        """Yield the splits in pieces for the tokenizer, with an end-of-text token after each book but the last."""
        return ((name, joined(self._books(name, data))) for name in SPLITS)

    def hidden(self, data: Path) -> Tensor:
        """(N,) int64, the tokens of a second test text, which no suite reads. Missing files are downloaded."""
        texts = []
        for book, sha256 in HIDDEN.items():
            file = download.fetch(_file(book, sha256), data)
            texts.append(plain(file.read_text(encoding="utf-8")))
        return torch.tensor(self.load(data).codec.encode("\n".join(texts)))

    def _books(self, split: str, data: Path) -> list[str]:
        files = [download.verified(self.FILES[book], data) for book in BOOKS[split]]
        return [plain(file.read_text(encoding="utf-8")) for file in files]
