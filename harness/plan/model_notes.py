"""What a reader of a plan or table has to know about the pretrained models of a suite, in sentences."""

from typing import NamedTuple

from harness.corpora.corpus import CorpusFacts
from harness.corpora.pieces import TextTokenizer
from harness.plan.components import Component, Construction
from harness.printable import counted


class PlanNote(NamedTuple):
    """A sentence without its full stop.

    Args:
        in_table: a reader of the table would be misled without it.
    """

    text: str
    in_table: bool = True


def model_notes(
    facts: list[CorpusFacts],
    backbones: list[Component],
    heads: list[Component],
    construction: Construction,
) -> tuple[PlanNote, ...]:
    """Return the notes on what the folders hold, on tokenizers, on first tokens, and on heads that
    start at random beside heads that start from the model.
    """
    found = []
    tokenizers = [each.tokenizer for each in facts if each.tokenizer is not None]
    for backbone in backbones:
        key, name = str(backbone.spec), backbone.name
        body = construction.bodies[key]
        if not body.is_pretrained:
            continue
        found += map(PlanNote, body.notes)
        for tokenizer in tokenizers:
            found += _on_ids(tokenizer)
            found += _on_first_token(tokenizer, name, body.first_token)
        from_model, at_random = [], []
        for head in heads:
            starts = from_model if (key, str(head.spec)) in construction.from_model else at_random
            starts.append(head.name)
        if from_model and at_random:
            found.append(PlanNote(_on_starts(at_random, name)))
    return tuple(dict.fromkeys(found))


def _on_ids(tokenizer: TextTokenizer) -> list[PlanNote]:
    """A note where the tokenizer has more or fewer ids than the model has rows."""
    ids, rows = max(tokenizer.tokenizer.get_vocab().values()) + 1, tokenizer.vocab_size
    if ids == rows:
        return []
    if ids < rows:
        what = f"the last {rows - ids:,} stand for no token, and are part of the softmax as in the model"
    else:
        first = tokenizer.tokenizer.id_to_token(rows)
        what = f"a text with the token {first!r} (id {rows:,}) or a later one is refused"
    sizes = f"the tokenizer has {counted(ids, 'id')}, the model {counted(rows, 'row')}"
    return [PlanNote(f"{tokenizer.where}: {sizes}: {what}", in_table=ids > rows)]


def _on_first_token(tokenizer: TextTokenizer, backbone: str, ours: int | None) -> list[PlanNote]:
    """A note where the tokenizer puts another token before a text than the backbone reads before each
    segment.
    """

    def token(number: int) -> str:
        return f"{tokenizer.tokenizer.id_to_token(number)!r} (id {number:,})"

    theirs = tokenizer.puts_first
    if theirs == ours:
        return []
    if theirs is None:
        text = (
            f"{backbone} reads {token(ours)} before each segment, and the tokenizer of "
            f"{tokenizer.where} puts nothing before a text: the model may never have seen it there"
        )
        return [PlanNote(text)]
    here = "nothing is" if ours is None else f"{token(ours)} is"
    text = (
        f"the tokenizer of {tokenizer.where} puts {token(theirs)} before each text, so the model was "
        f"probably trained with it, and with {backbone} {here} put there: set first_token: {theirs}"
    )
    return [PlanNote(text)]


def _on_starts(at_random: list[str], backbone: str) -> str:
    start = "starts" if len(at_random) == 1 else "start"
    return (
        f"on {backbone}, {', '.join(at_random)} {start} from random weights, beside heads that start "
        "from the model's: a difference says how far training has come, not which head is better"
    )
