"""The parts of a suite file about comparison: the table, and the matching of parameter counts."""

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from harness.plan.strict import Strict

PrintedTableName = Annotated[str, Field(pattern=r"^[a-z0-9_]+/[A-Za-z0-9_.-]+$")]
Shape = Literal["mixtures", "heads", "corpora"]
Test = Literal["paired", "welch"]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _one_line(text: str) -> str:
    if not (text.strip() and text.isprintable()):
        raise ValueError(f"expected one line of printable text, got {json.dumps(text)}")
    return text


class TableSpec(Strict):
    """The content of the suite's table.

    Args:
        rows: what the rows compare; always 'head'.
        shape: the layout. 'mixtures': one row for each corpus, backbone and head. 'heads': one row for each backbone
            and head, with columns for each corpus. 'corpora': rows for each corpus, with one column for each head.
        compare: '<paper>/<table>' of results/published, or a list of them: published numbers that are printed beside
            ours. If several have a number for a row, the first is printed.
        baseline: the head that the others are compared with (the column of the reduction), or None. It is written as
            the plan prints it, 'softmax(projection=True)', or by its name: then the first head of this name. A suite
            that does not give it has the plain softmax, if it has one (harness/plan/left_out.py).
        test: of the difference of two heads: the t test of the differences of each seed, or Welch's of the two means.
        margin: the smallest relative difference of perplexity that is of interest; heads that differ by less are
            equivalent.
        notes: sentences under the table, such as what a paper reports that is no number of a table.
    """

    rows: Literal["head"] = "head"
    shape: Shape = "mixtures"
    compare: Annotated[
        list[PrintedTableName],
        BeforeValidator(_listed, json_schema_input_type=PrintedTableName | list[PrintedTableName]),
        Field(default_factory=list),
    ]
    baseline: str | None = "softmax"
    test: Test = "paired"
    margin: Annotated[float, Field(gt=0, le=0.1)] = 0.01
    notes: list[Annotated[str, AfterValidator(_one_line)]] = Field(default_factory=list)


TOLERANCE = 0.005  # the largest relative difference between the parameter count of a matched trial and the target


def _head_or_number(value: Any) -> Any:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # 1e6 is a float in YAML
    if type(value) is int and 0 < value < 2**63:
        return value
    raise ValueError(f"expected the name of a head or a whole number of parameters, got {json.dumps(value)}")


class MatchSpec(Strict):
    """A comparison at equal numbers of parameters, or at equal training time.

    Numbers of parameters: every trial gets the width at which its total number meets a target. Training time: every
    head gets the epochs that take as long as those of a named head (harness/plan/budgets.py).

    Args:
        params: the target: a number, or a head, which is not changed. With a head, the target is its total number of
            parameters on the same corpus and backbone. A head is written as the plan prints it,
            'softmax(projection=True)', or by its name if only one head of the suite has this name.
        vary: the parameter that is changed: an integer parameter of the head or the backbone whose name begins with d_
            (d_model, d_ff, d_embed, d_gate).
        time: the head whose training time all heads get, written in the same way.
    Source: Parthiban et al. (2021), main table 5, for equal numbers of parameters.
    """

    params: Annotated[int | str | None, BeforeValidator(_head_or_number)] = None
    vary: str | None = None
    time: str | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> "MatchSpec":
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if given in (["params"], ["vary"]):
            raise ValueError(f"the key '{'vary' if given == ['params'] else 'params'}' is missing")
        if given not in (["params", "vary"], ["time"]):
            raise ValueError(f"expected params and vary, or time alone, got {', '.join(given) or 'none of them'}")
        return self

    @property
    def kind(self) -> str:
        """What is equal: 'parameters' or 'training time'."""
        return "parameters" if self.time is None else "training time"

    def __str__(self) -> str:
        if self.time is not None:
            return f"the epochs of each head take as long as those of {self.time}"
        target = f"{self.params:,}" if isinstance(self.params, int) else f"{self.params}'s"
        return f"totals agree with {target} within {100 * TOLERANCE:g} %, by {self.vary}"
