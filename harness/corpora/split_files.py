"""The files of a text in a folder: those of each split by the words in their names, or all as one text."""

import os
import re
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

from harness.corpora.corpus import SPLITS
from harness.corpora.documents import SUFFIXES, has_rows
from harness.errors import CorpusError

MAX_NAMES = 5  # of files, in a message
WHOLE = ""  # instead of a split's name: a text that is to be split
NAMES = {  # of splits, as words in the names of files
    "train": ("train", "training", "trainset"),
    "valid": ("valid", "validation", "val", "dev", "validset", "devset"),
    "test": ("test", "testset"),
}
_WORD_OF_NAME = re.compile("[a-z]+")


def files_in(folder: Path) -> dict[str, list[Path]]:
    """Return the files of each split in a folder, {'train': [...], 'valid': [...], 'test': [...]}.

    A file is of a split if a word of its name is one of NAMES, where a word is a row of letters:
    'latest' is not 'test'. A folder without a file of the validation or test split is one text,
    {WHOLE: all .txt, .jsonl and .parquet files}.

    Raises: CorpusError when the folder cannot be read, when a split has no file or several that
    are no documents, or when a file is named after two splits.
    """
    try:
        found = sorted(path for path in folder.iterdir() if os.path.isfile(path))
    except OSError as cause:
        raise CorpusError(f"{folder}: cannot be read ({cause.strerror})") from cause
    found = [path for path in found if not path.name.startswith("._")]  # macOS writes one beside each file
    named = {split: [path for path in found if _is_named(path, split)] for split in SPLITS}
    texts = [path for path in found if path.suffix.lower() in SUFFIXES]
    if texts and not (named["valid"] or named["test"]):
        if len(alike := _seem_named(texts)) > 1:
            listed = ", ".join(path.name for path in alike.values())
            raise CorpusError(
                f"{folder}: {listed} seem to be splits, and their names are not: name them train, valid and test, with "
                "other words apart as in mine.train.jsonl"
            )
        return {WHOLE: texts}
    for first, second in combinations(SPLITS, 2):
        if both := [path for path in named[first] if path in named[second]]:
            raise CorpusError(f"{both[0]}: its name is of two splits, {first} and {second}; rename it")
    for split, files in named.items():
        if len(files) != 1 and not (files and all(map(has_rows, files))):
            raise CorpusError(_not_one(folder, split, named))
    return named


def _is_empty(path: Path) -> bool:
    """Whether a file has no content. What cannot be read is found later."""
    try:
        if not os.path.isfile(path) or path.stat().st_size:
            return False
        with path.open("rb") as file:  # the files of /proc have content and the size 0
            return not file.read(1)
    except OSError:
        return False


def refuse_empty(files: Sequence[Path]) -> None:
    """Raise CorpusError if no file has any content."""
    if all(map(_is_empty, files)):
        where = f"{files[0]}: is" if len(files) == 1 else f"{files[0].parent}: all {len(files)} files are"
        raise CorpusError(f"{where} empty, expected a text")


def _listed(files: Sequence[Path]) -> str:
    more = [f"{len(files) - MAX_NAMES} more"] if len(files) > MAX_NAMES else []
    return ", ".join([*(path.name for path in files[:MAX_NAMES]), *more])


def _seem_named(texts: Sequence[Path]) -> dict[str, Path]:
    """Split -> a file with a word that begins as its name does: testdata.jsonl."""
    found = {}
    for split, beginnings in {"train": ("train",), "valid": ("valid", "eval"), "test": ("test",)}.items():
        for path in texts:
            if any(word.startswith(beginnings) for word in _WORD_OF_NAME.findall(path.name.lower())):
                found.setdefault(split, path)
    return found


def _is_named(path: Path, split: str) -> bool:
    return not set(NAMES[split]).isdisjoint(_WORD_OF_NAME.findall(path.name.lower()))


def _not_one(folder: Path, split: str, named: dict[str, list[Path]]) -> str:
    """What to do where a split has no file, or several that are no documents."""
    words = " or ".join(f"'{word}'" for word in NAMES[split] if not word.endswith("set"))
    found = f"{folder}: expected one file with {words} in its name, found {_listed(named[split]) or 'none'}"
    if named[split]:
        return f"{found}; join them, or give .jsonl or .parquet files, of which a split may have several"
    others = "; ".join(f"{name}: {_listed(files)}" for name, files in named.items() if files)
    if not others:
        return f"{found}, nor another text; folders in it are not read"
    return f"{found} ({others}); a missing split is not cut from another one: add the file, or give all as one file"
