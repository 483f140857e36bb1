"""The key `ngrams` of a suite: n-gram models, each counted once on each corpus, without backbone, head and seed."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from harness.plan.strict import Strict

NGRAM_BACKBONE, NGRAM_HEAD = "last_tokens", "kneser_ney"  # what such a trial is made of; a suite does not name them
MAX_ORDER = 20


class NgramSpec(Strict):
    """One n-gram model.

    Args:
        order: n, the tokens of context and the predicted one.
        cache: interpolate with a unigram cache, whose window and weight are chosen on the validation split.
    """

    order: Annotated[int, Field(ge=1, le=MAX_ORDER)]
    cache: bool = False

    @property
    def head_params(self) -> dict[str, Any]:
        """The parameters of the head that are not at their default."""
        return {"order": self.order} | ({"cache": True} if self.cache else {})


def _order_only(value: Any) -> Any:
    return {"order": value} if type(value) is int else value


NgramList = list[Annotated[NgramSpec, BeforeValidator(_order_only, json_schema_input_type=int | NgramSpec)]]
