"""The commands for results that are sent to others: `harness submit` and `check-submission`."""

import json
import secrets
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.options import RESULTS, Data, Json, Results, argument, option, say, say_files, warn
from harness.corpora.download import DEFAULT_DATA
from harness.errors import ExecutionError

if TYPE_CHECKING:
    from harness.submissions.checking import Checked

FOLDER = Path("submissions")
Minutes = Annotated[
    float | None, option("End the second training after so many, and compare the curve so far.", min=0.01)
]
PUBLIC = "all of it becomes public: names, hardware, versions and times of the trials, and each test token's score"


def submit(
    suite: Annotated[str | None, argument("A suite that comes with the harness.", metavar="SUITE")] = None,
    head: Annotated[
        str | None, option("The head: a name, or '{mine: {k: 3}}' as in a suite.", "--head", metavar="SPEC")
    ] = None,
    card: Annotated[Path, option("The card: who made it, and what it is.", "--card")] = Path("card.yaml"),
    new_card: Annotated[bool, option("Write a commented card to start from, and end.", "--new-card")] = False,
    source: Annotated[Path | None, option("The head's source, where it is not found.", "--source")] = None,
    to: Annotated[Path, option("The folder of submissions.", "--to")] = FOLDER,
    confirm: Annotated[
        Path | None, option("Check a submission as a second party, and note it beside the file.", "--confirm")
    ] = None,
    sign_off: Annotated[
        Path | None, option("Compare it with your full run in --results, and note it.", "--sign-off")
    ] = None,
    name: Annotated[str | None, option("Who confirms it, or gives the sign-off.", "--name", metavar="WHO")] = None,
    agreed: Annotated[str, option("With --sign-off: where the author agreed.", "--agreed", metavar="TEXT")] = "",
    minutes: Minutes = None,
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
) -> None:
    """Write the trials of a head in a suite into one file for others, checked first; or note a check of such a file.

    The trials are those of `harness run SUITE --set 'heads+=SPEC'`. Exit code 2: something is missing, and nothing was
    written.
    """
    if new_card:
        _new_card(card)
    elif confirm is not None or sign_off is not None:
        if name is None or (sign_off is not None and not agreed) or (confirm is not None and sign_off is not None):
            raise ExecutionError("expected --confirm FILE --name WHO, or --sign-off FILE --name WHO --agreed TEXT")
        if confirm is not None:
            _confirm(confirm, name, data, minutes)
        else:
            _sign_off(sign_off, name, agreed, results, data)
    elif suite is None or head is None:
        raise ExecutionError("harness submit: expected SUITE --head SPEC --card FILE; --new-card writes a card")
    else:
        from harness.submissions import sending

        wish = sending.Wish(suite=suite, head=head, card=card, source=source, results=results, to=to)
        made = sending.make(wish)
        of_head = f", {made.source} under {made.card.licence}" if made.source else ""
        say(f"{made.trials} trials of the table, {made.tuning} of the tuning{of_head}, and this card:")
        say(made.card.model_dump_json(indent=1, exclude_none=True))
        say(PUBLIC)
        say_files("submission", [made.place])
        say(f"next: harness check-submission {made.place}")


def check_submission(
    file: Annotated[Path, argument("A file that `harness submit` wrote.")],
    minutes: Minutes = None,
    no_training: Annotated[bool, option("Train no trial again.", "--no-training")] = False,
    keep: Annotated[bool, option("Note the result beside the file, for its badges.", "--keep")] = False,
    name: Annotated[str | None, option("Who checks, for --keep.", "--name", metavar="WHO")] = None,
    data: Data = DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Check a submission: its records, its source, and one trial that is trained again, drawn by the file's hash.

    Exit code 0: nothing is refused; 1: something is; 2: it is no submission. The source is executed with limits, which
    do not hold a hostile author: use a machine without secrets.
    """
    if keep and (name is None or no_training):
        raise ExecutionError("--keep notes a whole check: expected --name WHO, and no --no-training")
    found = _checked(file, data, minutes, training=not no_training)
    if as_json:
        print(json.dumps({**asdict(found), "refused": found.refused}, indent=1))
    else:
        _show(found)
    if keep:
        from harness.submissions import badges

        place = badges.write(file, "checked", found, name)
        if not as_json:
            say(f"noted: {place}")
    raise typer.Exit(1 if found.refused else 0)


def _new_card(place: Path) -> None:
    from harness.machine.files import write_atomically
    from harness.submissions.card import NEW_CARD

    if place.exists():
        raise ExecutionError(f"{place} exists already; name another file by --card")
    write_atomically(place, NEW_CARD.encode())
    say(f"card: {place}; fill it in")


def _confirm(place: Path, name: str, data: Path, minutes: float | None) -> None:
    from harness.submissions.badges import write

    found = _checked(place, data, minutes, training=True, lot=secrets.token_hex(8))
    _show(found)
    _noted(write(place, "confirmed", found, name), found)


def _sign_off(place: Path, name: str, agreed: str, results: Path, data: Path) -> None:
    from harness.submissions.badges import write
    from harness.submissions.full_run import compared

    own = compared(place, results)
    found = _checked(place, data, None, training=False)
    found = replace(found, checks=(*found.checks, own), trial="")
    _show(found)
    _noted(write(place, "signed off", found, name, agreed), found)


def _noted(note: Path, found: "Checked") -> None:
    say(f"noted: {note}; commit it beside the submission")
    raise typer.Exit(1 if found.refused else 0)


def _checked(place: Path, data: Path, minutes: float | None, *, training: bool, lot: str = "") -> "Checked":
    from harness.submissions import confined
    from harness.submissions.checking import MINUTES, Options, checked

    if confined.has_network():
        warn("no process without network can be made here, so the source runs with it")
    options = Options(data=data, minutes=MINUTES if minutes is None else minutes, training=training, lot=lot)
    return checked(place, options)


def _show(found: "Checked") -> None:
    for each in found.checks:
        say(str(each))
    number = sum(each.outcome == "refused" for each in found.checks)
    say(
        f"{found.suite}, {found.head}: {f'{number} of {len(found.checks)} refused' if number else 'nothing is refused'}"
    )
