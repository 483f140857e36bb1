"""A corpus of documents of a data set on the Hugging Face hub, which are streamed once into token files."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import ClassVar

from harness.corpora.corpus import SPLITS, CorpusFacts, TextFacts
from harness.corpora.overlap import compared
from harness.corpora.pieces import END_OF_TEXT, joined
from harness.corpora.progress import followed
from harness.corpora.subwords import TokenizerSpec, check_tokenizer, counting, folder_of
from harness.corpora.token_files import TextSource, stored
from harness.errors import CorpusError
from harness.registry import CORPORA

VALID_FROM, TEST_FROM = 96, 98  # per cent of the documents
LEAST_DOCUMENTS = 50


@CORPORA.register("hub")
class Hub(TextSource):
    """The first documents of a data set on the Hugging Face hub, with <|endoftext|> between them.

    The first 96 % of the documents are the training split, the next 2 % the validation split and the last 2 % the test
    split, as in the code of the multi-facet softmax. The documents are streamed into token files, once. Neither the
    data set nor its text is kept, and no code of the data set is executed. If the folder
    <data>/hub/<owner>/<name>/<revision> exists (made by `hf download --repo-type dataset --revision ... --local-dir
    ...`), it is read instead. It is not checked that it is this revision.

    Args:
        dataset: 'owner/name' on the hub.
        revision: the full hash of a commit. Names and branches are not accepted, because their content can change.
        documents: the number of documents that are read; at least 50.
        config: the configuration of the data set, if it has several.
        split: the split of the data set. All three splits of this corpus are parts of it.
        text_column: the column with the text of the documents.
        tokenizer: 'gpt2', {bpe: V}, {wordpiece: V}, or {pretrained: FOLDER}, that of a model (as of the corpus `text`).
            To train a tokenizer, the training documents are streamed twice.
    Raises: ValueError for a dataset or revision of another form, or too few documents; CorpusError when the library
        `datasets` is not installed, the hub cannot be reached, or the data set has no such configuration, split, column
        or number of documents.
    Source: the split: laksh-ag/Multi-facet_softmax, preprocessing of OpenWebText.
    """

    options: ClassVar = {"corpus": "hub"}

    def __init__(
        self,
        *,
        dataset: str,
        revision: str,
        documents: int,
        config: str | None = None,
        split: str = "train",
        text_column: str = "text",
        tokenizer: TokenizerSpec = "gpt2",
    ):
        if not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", dataset, re.ASCII):
            raise ValueError(f"dataset: expected 'owner/name' as on huggingface.co/datasets, got '{dataset}'")
        if not re.fullmatch(r"[0-9a-f]{40}", revision):
            raise ValueError(f"revision: expected the 40 hex digits of a commit, got '{revision}'")
        if documents < LEAST_DOCUMENTS:
            raise ValueError(f"documents must be at least {LEAST_DOCUMENTS}, got {documents}")
        check_tokenizer(tokenizer)
        self.dataset, self.revision, self.documents = dataset, revision, documents
        self.config, self.split, self.text_column, self.tokenizer = config, split, text_column, tokenizer

    def __str__(self) -> str:
        return f"hub: {self.dataset} at {self.revision[:12]}"

    def facts(self) -> CorpusFacts:
        """Facts of the documents; what is in each split once they are tokenised."""
        splits = f"split {VALID_FROM} / {TEST_FROM - VALID_FROM} / {100 - TEST_FROM} by documents"
        text = TextFacts(part="document", number=self.documents, characters=None, splits=splits)
        return compared(super().facts(), text, stored(self), str(self))

    @property
    def counting(self) -> str:
        """The counting rule in words."""
        between = END_OF_TEXT if folder_of(self.tokenizer) is None else "one token"
        return f"{counting(self.tokenizer)}, {between} between documents; words are whitespace-separated"

    def content(self) -> str:
        """Return the identity of the text: the hash of the commit decides it."""
        identity = [self.dataset, self.revision, self.config, self.split, self.text_column, self.documents]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()

    def pieces(self, data: Path) -> Iterator[tuple[str, Iterable[str]]]:
        """Yield the splits one after the other from one stream. Each split must be read to its end before the next."""
        valid_from, test_from = (self.documents * share // 100 for share in (VALID_FROM, TEST_FROM))
        counts = valid_from, test_from - valid_from, self.documents - test_from
        stream = followed(self._stream(data), str(self), self.documents, lambda _: 1)
        for name, count in zip(SPLITS, counts, strict=True):
            yield name, joined(islice(stream, count))

    def _stream(self, data: Path) -> Iterator[str]:
        """Yield the requested number of documents, in the order of the data set."""
        found, rows = 0, self._rows(data)
        while found < self.documents:
            try:
                row = next(rows, None)
            except CorpusError:
                raise
            except Exception as cause:  # errors of the library, of file formats or of the network
                raise CorpusError(f"{self}: {_reason(cause)}") from cause
            if row is None:
                raise CorpusError(f"{self}: the split '{self.split}' has {found:,} documents, not {self.documents:,}")
            if not isinstance(row.get(self.text_column), str):
                columns = ", ".join(row)
                raise CorpusError(
                    f"{self}: no text in column '{self.text_column}' of document {found} (has: {columns})"
                )
            found += 1
            yield row[self.text_column]

    def _rows(self, data: Path) -> Iterator[dict]:
        try:
            import datasets
        except ImportError:
            raise CorpusError(f'{self}: needs a library: pip install "output-head-harness[hub]"') from None
        copy = data / "hub" / self.dataset / self.revision
        if not copy.is_dir() and Path(self.dataset).exists():
            raise CorpusError(
                f"{self}: the folder {Path(self.dataset).absolute()} would be read instead of the data set on the hub"
            )
        place, revision = (str(copy), None) if copy.is_dir() else (self.dataset, self.revision)
        yield from datasets.load_dataset(place, self.config, split=self.split, revision=revision, streaming=True)


def _reason(cause: Exception) -> str:
    reason = str(cause).splitlines()[0] if str(cause) else type(cause).__name__
    if isinstance(cause, ConnectionError):
        return f"the hub cannot be reached ({reason})"
    return f"cannot be read ({type(cause).__name__}: {reason})"
