"""`harness inspect` and `sample`: what the model of a finished trial predicts and writes."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from harness.cli import screen
from harness.cli.options import RESULTS, Data, Device, Json, Results, console, say
from harness.corpora.download import DEFAULT_DATA
from harness.machine.environment import resolve_device

Trial = Annotated[str, typer.Argument(help="A trial's id as `harness plan` shows it, or its first digits.")]


def inspect(
    trial: Trial,
    text: Annotated[str, typer.Option("--text", help="The text before the predicted word.")],
    top: Annotated[int, typer.Option(min=1, help="How many words are shown for each component.")] = 10,
    every: Annotated[
        bool, typer.Option("--all", help="Predict after every token of the text, not only the last.")
    ] = False,
    device: Annotated[Device, typer.Option(help="auto: a GPU if there is one.")] = Device.auto,
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Show the most probable next words: of the mixture, and of each component and facet with its weight."""
    from harness.diagnostics import facets, trained

    model = trained.load(results, trial, data, resolve_device(device.value))
    positions, is_mixture = facets.inspect(model, text, top=top, every=every)
    if as_json:
        about = {"trial": model.spec.id, "head": str(model.spec.head), "mixture": is_mixture}
        print(json.dumps({**about, "positions": [asdict(position) for position in positions]}, indent=1))
        return
    for position in positions:
        console.print(screen.voices(position))
    if not is_mixture:
        say(f"{model.spec.head} is not a mixture, so it has no components to show")


def sample(
    trial: Trial,
    prompt: Annotated[str, typer.Option("--prompt", help="The start of the text, at least one token.")],
    tokens: Annotated[int, typer.Option(min=1, help="How many tokens are drawn.")] = 50,
    temperature: Annotated[
        float, typer.Option(help="Logits are divided by it. With 0, the most probable token is always taken.")
    ] = 1.0,
    top_k: Annotated[int | None, typer.Option(help="Draw from this many of the most probable tokens.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Draw from the fewest tokens that together have this probability.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="The same seed draws the same text.")] = 1,
    num: Annotated[int, typer.Option(min=1, help="How many texts are drawn, all from the same prompt.")] = 1,
    device: Annotated[Device, typer.Option(help="auto: a GPU if there is one.")] = Device.auto,
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Write text with a trained model, and show how many tokens a second were drawn.

    A backbone with a recurrent state sees the whole text. Any other sees at most as many tokens as its training
    segments had.
    """
    from harness.diagnostics import sampling, trained

    choice = sampling.Choice(temperature=temperature, top_k=top_k, top_p=top_p)
    model = trained.load(results, trial, data, resolve_device(device.value))
    drawn = sampling.continue_text(model, prompt, tokens, choice, seed=seed, copies=num)
    if as_json:
        print(json.dumps({"trial": model.spec.id, **asdict(drawn)}, indent=1))
        return
    for text in drawn.texts:
        console.print(screen.lines(text), soft_wrap=True)
    say(f"{drawn.tokens_per_second:,.0f} tokens a second")
