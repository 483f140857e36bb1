"""A text and its first part, and how long the rows of a suite take on this machine."""

import time
from pathlib import Path

import torch

from harness.corpora.token_files import TextSource
from harness.errors import ExecutionError
from harness.execution.timed import rows_of, task_alone
from harness.plan.loading import load
from harness.starters.budget import Measured
from harness.trial.setup import fetch_sources, load_planned
from harness.trial.timing import model_times

MOST = 2**24  # characters of a split that are read


def splits_of(source: TextSource, data: Path) -> dict[str, str]:
    """The text of each split, up to MOST characters. Raises CorpusError."""
    found = {}
    for split, pieces in source.pieces(data):
        kept, length = [], 0
        for piece in pieces:  # to its end: the next split follows in the same files
            if length < MOST:
                kept.append(piece)
            length += len(piece)
        found[split] = "".join(kept)
    return found


def size_of(splits: dict[str, str]) -> int:
    """The bytes of all splits in UTF-8."""
    return sum(len(text.encode()) for text in splits.values())


def first_part(splits: dict[str, str], share: float) -> dict[str, str]:
    """The first part of each split, up to a line end if there is one in its second half."""
    parts = {}
    for split, text in splits.items():
        end = int(share * len(text))
        line_end = text.rfind("\n", end // 2, end) + 1
        parts[split] = text[: line_end or end]
    return parts


def measured(suite: Path, *, size: int, data: Path, device: torch.device) -> Measured:
    """Time the rows of a suite on a text of `size` bytes; nothing is written to a results folder.

    Raises: SuiteError; CorpusError; ExecutionError when a row cannot be trained.
    """
    read = load(suite)
    specs = rows_of(read, ())
    began = time.perf_counter()
    fetch_sources(specs, data)
    load_planned(specs[0], data, read.contents_of(specs[0]))
    once = (time.perf_counter() - began) / 60
    faults: list[str] = []
    found = model_times([task_alone(read, spec, data, device) for spec in specs], faults.append)
    if faults:
        raise ExecutionError(faults[0])
    return Measured(bytes=size, once=once, rows=[found[spec.id] for spec in specs])
