"""What fits into a time: the model, how much of the text, and how many epochs, by measured times of training steps.

Every row has the same trials, RATES for tuning and SEEDS for the table, all of full length. What gives way where the
time is short is the size of the model and the part of the text, not the seeds: with fewer no row has a verdict.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.trial.timing import ModelTime

SEEDS = 6  # the fewest with a verdict (RANK_SEEDS, harness/report/statistics.py)
RATES = 5  # tried for each row
RUN_MINUTES = 0.5  # of a run beside its trials: the start, the times of the rows, the table
SHORTER = 0.97  # of the text, at each try
ALPHABET = 200  # different characters, up to which they are few enough to be tokens of a small text
LEAST = 20_000  # bytes of a text: with less its last tenth, on which rows are compared, is a page


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A model and its vocabulary, with the text that they need.

    Args:
        least: bytes of the text.
        bpe: the entries of byte-level BPE; None: characters, or the vocabulary of a pretrained model.
        d_model: the width; 0 for a pretrained model, which has one.
        epochs: the fewest.
        steps: the fewest of a trial: a short text is read more often.
    """

    least: int
    bpe: int | None = None
    d_model: int = 0
    epochs: int
    steps: int

    def epochs_of(self, steps: int) -> int:
        """The epochs of a trial with so many steps in each."""
        return max(self.epochs, math.ceil(self.steps / steps))


# With 24 epochs the validation perplexity of mixtures on prose and source code of these lengths fell by almost 1 % an
# epoch where harness/report/convergence.py looks, and for some seeds by more.
CHARACTERS = Size(least=LEAST, d_model=48, epochs=32, steps=1000)
SUBWORDS = (
    Size(least=600_000, bpe=2000, d_model=96, epochs=32, steps=1000),
    Size(least=200_000, bpe=1000, d_model=64, epochs=32, steps=1000),
    Size(least=50_000, bpe=500, d_model=48, epochs=32, steps=1000),
)
PRETRAINED = Size(least=LEAST, epochs=8, steps=80)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What trials run on.

    Args:
        workers: trials at the same time.
        start: seconds that a trial takes beside training and evaluation.
    """

    workers: int
    start: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The times of a model on the first part of a text.

    Args:
        bytes: of this part.
        once: minutes to make its tokens, and the states of a frozen model.
        rows: the time of each row; with another part, the numbers of steps and batches are in proportion.
    """

    bytes: int
    once: float
    rows: Sequence[ModelTime]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Args:
    bytes: of the text, of all splits together.
    minutes: of the whole suite.
    """

    bytes: int
    epochs: int
    minutes: float


def sizes(*, size: int, characters: int, pretrained: bool) -> tuple[Size, ...]:
    """The sizes that suit a text, the largest first; () for a text that is too small for any.

    Args:
        size, characters: bytes, and different characters of the text.
    """
    if pretrained:
        known = (PRETRAINED,)
    elif characters <= ALPHABET:
        known = (*SUBWORDS, CHARACTERS)
    else:  # as in Chinese: subwords of bytes are fewer
        known = (*SUBWORDS[:-1], replace(SUBWORDS[-1], least=LEAST))
    return tuple(each for each in known if each.least <= size)


def with_part(size: Size, measured: Measured, part: int, machine: Machine) -> Budget:
    """The suite with so many bytes of the text."""
    ratio, minutes = part / measured.bytes, 0.0
    epochs = size.epochs_of(max(1, round(ratio * measured.rows[0].steps)))
    for row in measured.rows:
        counts = ("steps", "valid_batches", "test_batches")
        here = replace(row, **{name: max(1, round(ratio * getattr(row, name))) for name in counts})
        minutes += (RATES + SEEDS) * (here.minutes(epochs) + machine.start / 60)
    whole = RUN_MINUTES + ratio * measured.once + minutes / machine.workers
    return Budget(bytes=part, epochs=epochs, minutes=whole)


def fitting(size: Size, measured: Measured, *, most: int, minutes: float, machine: Machine) -> Budget | None:
    """The suite with the largest part of a text of `most` bytes that fits into the minutes; None if the least that the
    size needs does not.
    """
    part = most
    while part >= size.least:
        found = with_part(size, measured, part, machine)
        if found.minutes <= minutes:
            return found
        part = int(SHORTER * part)
    found = with_part(size, measured, size.least, machine)
    return found if found.minutes <= minutes else None
