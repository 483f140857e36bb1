"""What a suite compares: the rows and the printed numbers of its table, and heads at equal numbers of parameters."""

import json
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from harness.plan.strict import Strict

PrintedTableName = Annotated[str, Field(pattern=r"^[a-z0-9_]+/[A-Za-z0-9_.-]+$")]
Shape = Literal["mixtures", "heads", "corpora"]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


class TableSpec(Strict):
    """What the suite's table shows.

    Args:
        rows: what the rows compare; 'head'.
        shape: how they are laid out. 'mixtures': a line for each corpus, backbone and head. 'heads': a line for each
            backbone and head, columns for each corpus. 'corpora': lines for each corpus, a column for each head.
        compare: '<paper>/<table>' of results/published to print beside ours, one or a list: the first that has a
            number for a row gives it.
        baseline: the head against which reduction is counted, by name, or None.
    """

    rows: Literal["head"] = "head"
    shape: Shape = "mixtures"
    compare: Annotated[list[PrintedTableName], BeforeValidator(_listed), Field(default_factory=list)]
    baseline: str | None = None


TOLERANCE = 0.005  # of the target: how near the total of a matched trial comes to it


def _head_or_number(value: Any) -> Any:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # 1e6 is a float in YAML
    if type(value) is int and 0 < value < 2**63:
        return value
    raise ValueError(f"expected the name of a head or a whole number of parameters, got {json.dumps(value)}")


class MatchSpec(Strict):
    """A comparison at equal numbers of parameters: every trial gets the width at which its total meets a target.

    Args:
        params: the target: the total of this head, which stays as it is, on the same corpus and backbone; or a number.
            A head is named as the plan prints it, 'softmax(projection=True)', or by its name where only one has it.
        vary: the width: an integer parameter whose name begins with d_ (d_model, d_ff, d_embed, d_gate), of the head or
            of the backbone.
    Source: Parthiban et al. (2021), main table 5.
    """

    params: Annotated[int | str, BeforeValidator(_head_or_number)]
    vary: str

    def __str__(self) -> str:
        target = f"{self.params:,}" if isinstance(self.params, int) else f"{self.params}'s"
        return f"totals agree with {target} within {100 * TOLERANCE:g} %, by {self.vary}"
