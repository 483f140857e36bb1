"""What a plan asks of models, kept in the cache of the machine: a later command need not import and build them again.

Kept is what was found of components of the package that read no file. It depends on their settings, on the source of
the whole package, and on the versions of what they are built with. All else is built again by every command.
"""

import json
import sys
from dataclasses import dataclass
from importlib.metadata import version

from harness.machine.source import is_of_package, source_hash
from harness.plan.identity import Identified
from harness.plan.parameters import paths

BUILT_WITH = ("torch", "transformers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """What is asked of a backbone.

    Args:
        fits: its states are as wide as its embedding, so that a plain softmax fits.
        positions: the number of tokens that it can read at most; None without a limit.
        is_pretrained: it has an output layer of its own.
        notes: what its files hold, in sentences.
        first_token: the id that it reads before each segment.
        non_embedding: N, its parameters without those of embeddings, of tokens and of positions.
    """

    fits: bool
    positions: int | None
    is_pretrained: bool
    notes: tuple[str, ...]
    first_token: int | None
    non_embedding: int


def key_of(vocab_size: int, backbone: Identified, heads: list[Identified], batch: tuple[int, int] | None) -> str | None:
    """Return everything that decides how models are built, and their FLOPs are counted; None where other code or files
    have a part in it.
    """
    for each in (backbone, *heads):
        if not is_of_package(each.cls) or paths(each.cls, each.spec.params):
            return None
    source = source_hash()
    if not source:
        return None
    specs = [each.spec.model_dump(mode="json") for each in (backbone, *heads)]
    return json.dumps([vocab_size, specs, batch, source, sys.version, *map(version, BUILT_WITH)])
