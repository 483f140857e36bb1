"""How many softmaxes, inputs and partitions a head has, by the names of its parameters, for any head."""

from dataclasses import dataclass

from harness.plan.loaded_suite import Suite
from harness.report.evidence.table_rows import Row


@dataclass(frozen=True, slots=True)
class HeadCounts:
    """The counts of a head, with the symbols of the multi-facet poster; None if it has no such parameter.

    Args:
        softmaxes: #S, K: `num_mixtures`, or the sum of `components`.
        inputs: #I: `num_input_layers` times `window` + 1.
        partitions: #P: `num_partitions`.
    """

    softmaxes: int | None
    inputs: int | None
    partitions: int | None


def head_counts(row: Row, suite: Suite) -> HeadCounts:
    """The counts of a row's head. Values that its constructor chooses are those that the plan found."""
    params = {**row.head_params, **suite.settled.get(row.trials[0].id, {})}
    layers, window = _whole(params.get("num_input_layers")), _whole(params.get("window"))
    return HeadCounts(
        softmaxes=_whole(params.get("num_mixtures")) or _total(params.get("components")),
        inputs=None if layers is None else layers * ((window or 0) + 1),
        partitions=_whole(params.get("num_partitions")),
    )


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _total(value: object) -> int | None:
    """The sum of whole numbers in a list or mapping; None for anything else."""
    parts = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(parts, list | tuple) or any(_whole(part) is None for part in parts):
        return None
    return sum(parts) or None
