"""`harness inspect` and `sample`: what a finished trial's model says."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from harness.cli import screen
from harness.cli.options import RESULTS, Data, Device, Json, Results, console
from harness.containment.calls import calling, contained
from harness.corpora.download import DEFAULT_DATA
from harness.machine.environment import resolve_device
from harness.model import components

Trial = Annotated[str, typer.Argument(help="A trial's id as `harness plan` shows it, or its first digits.")]


def inspect(
    trial: Trial,
    text: Annotated[str, typer.Option("--text", help="What the next word is asked for.")],
    top: Annotated[int, typer.Option(min=1, help="Words shown of each.")] = 10,
    every: Annotated[bool, typer.Option("--all", help="After each token of the text, not the last alone.")] = False,
    device: Annotated[Device, typer.Option(help="auto: a GPU where there is one.")] = Device.auto,
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """The most probable next words: of the mixture, and of each of its components and facets with its weight."""
    from harness.diagnostics import facets, trained

    model = trained.load(results, trial, data, resolve_device(device.value))
    who = components(model.spec)
    with contained(who), calling(who, "evaluation"):
        positions, is_mixture = facets.inspect(model, text, top=top, every=every)
    if as_json:
        about = {"trial": model.spec.id, "head": str(model.spec.head), "mixture": is_mixture}
        print(json.dumps({**about, "positions": [asdict(position) for position in positions]}, indent=1))
        return
    for position in positions:
        console.print(screen.voices(position))
    if not is_mixture:
        console.print(
            f"{model.spec.head} is no mixture: there are no components to show", highlight=False, markup=False
        )


def sample(
    trial: Trial,
    prompt: Annotated[str, typer.Option("--prompt", help="The text to go on from, at least one token.")],
    tokens: Annotated[int, typer.Option(min=1, help="How many follow.")] = 50,
    temperature: Annotated[float, typer.Option(help="0: always the most probable token.")] = 1.0,
    top_k: Annotated[int | None, typer.Option(help="Draw from so many of the most probable tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Draw from the fewest tokens that have this probability.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="The same seed draws the same text.")] = 1,
    num: Annotated[int, typer.Option(min=1, help="How many texts, all from the same prompt.")] = 1,
    device: Annotated[Device, typer.Option(help="auto: a GPU where there is one.")] = Device.auto,
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Text from a trained model, and how many tokens a second it was drawn at.

    A backbone that carries a state sees all that came before; one that does not, at most as many tokens as its segments
    had in training.
    """
    from harness.diagnostics import trained
    from harness.diagnostics.decoding import Decoder
    from harness.diagnostics.sampling import Choice
    from harness.diagnostics.sampling import sample as draw

    choice = Choice(temperature=temperature, top_k=top_k, top_p=top_p)
    model = trained.load(results, trial, data, resolve_device(device.value))
    prompts_BT = model.ids(prompt).expand(num, -1)
    who = components(model.spec)
    with contained(who), calling(who, "evaluation"):
        drawn = draw(Decoder(model.model, model.spec.train.seq_len), prompts_BT, tokens, choice, seed=seed)
    texts = [
        model.codec.decode([*given, *new])
        for given, new in zip(prompts_BT.tolist(), drawn.tokens_BT.tolist(), strict=True)
    ]
    if as_json:
        rate = {"tokens_per_second": drawn.tokens_per_second}
        print(json.dumps({"trial": model.spec.id, "texts": texts, "ids": drawn.tokens_BT.tolist(), **rate}, indent=1))
        return
    for text in texts:
        console.print(screen.lines(text), soft_wrap=True)
    console.print(f"{drawn.tokens_per_second:,.0f} tokens a second", highlight=False)
