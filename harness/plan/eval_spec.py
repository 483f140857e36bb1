"""What is evaluated: the settings of a suite that decide what a perplexity means."""

from typing import Literal

from harness.plan.strict import Strict


class EvalSpec(Strict):
    """How the validation and the test split are scored. TrainSpec.evaluation derives it from the mapping `train`.

    Functions that evaluate take an EvalSpec and no TrainSpec: a setting that changes what they compute has to be a
    field here, with the name that it has in TrainSpec. Trials that differ in a field are in different groups of the
    leaderboard (harness/report/leaderboard/groups.py).

    Args:
        seq_len, batching, eval_batch_size, eval_stride, eval_batches: as in harness.plan.specs.TrainSpec.
    """

    seq_len: int
    batching: Literal["stream", "blocks"]
    eval_batch_size: int
    eval_stride: int | None
    eval_batches: int | None
