"""Who trains a trial: the workers, as one of them sees them. A trial has one, unless it is data-parallel."""

from dataclasses import replace

from harness.training.evaluation import Score


class LostWorker(Exception):
    """Another worker of the trial has ended. That is no failure of the trial: it is resumed from its checkpoint."""


class Workers:
    """The one worker of a trial; `WorkersOfTorch` (harness/gpu/data_parallel.py) are several, of which the first has
    rank 0. Once they have trained to the end, and wait for each other no more, they are `dismissed`.
    """

    rank, number, dismissed = 0, 1, False

    def from_first(self, *numbers: float) -> list[float]:
        """The numbers that the first worker has given, in every worker. All workers have to call it."""
        return list(numbers)

    def agreed(self, score: Score) -> Score:
        """The first worker's score: on a GPU the scores of the others may differ in the last digits."""
        return replace(score, nll_sum=self.from_first(score.nll_sum)[0])

    def explains(self, error: BaseException) -> bool:
        """Whether an error was raised because another worker has ended."""
        return False
