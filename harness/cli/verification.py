"""`harness verify`: check records against weights or a new training."""

import json
from collections import Counter
from dataclasses import asdict
from typing import Annotated

import typer

from harness.cli.options import RESULTS, Data, Device, Json, Only, Results, errors, say
from harness.corpora.download import DEFAULT_DATA
from harness.execution.live import LiveView
from harness.printable import counted
from harness.verification.measured import VerificationOptions
from harness.verification.verify import StoredRecord, Verdict, find_records, verify_record


def verify(
    record: Annotated[
        str,
        typer.Argument(help="A record.json, a trial's id or its first digits, or a file that `harness export` wrote."),
    ],
    retrain: Annotated[
        bool, typer.Option("--retrain", help="Train each trial again, in a folder that is removed afterwards.")
    ] = False,
    only: Only = [],  # noqa: B006 - typer copies it
    named_files: Annotated[
        bool, typer.Option("--named-files", help="Open the texts and weights that a record names by their path.")
    ] = False,
    device: Annotated[Device, typer.Option(help="auto: as in the record, if this machine has it.")] = Device.auto,
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Compare records with what their weights, or the same training, give on this machine.

    identical: the same bits. plausible: within the spread of the row's other seeds. Any other verdict, and a record
    that cannot be checked, gives exit code 1.
    """
    options = VerificationOptions(data=data, device=device.value, named_files=named_files)
    verdicts = []
    for given in find_records(record, results, tuple(only)):
        verdicts.append(_verify_one(given, options, retrain))
        if not as_json:
            say(str(verdicts[-1]))
    totals = Counter(verdict.outcome for verdict in verdicts)
    if as_json:
        print(json.dumps({"records": [asdict(each) for each in verdicts], "totals": totals}, indent=1))
    else:
        by_outcome = ", ".join(f"{number} {outcome}" for outcome, number in totals.items())
        say(f"{counted(len(verdicts), 'record')}: {by_outcome}")
    raise typer.Exit(0 if all(verdict.good for verdict in verdicts) else 1)


def _verify_one(given: StoredRecord, options: VerificationOptions, retrain: bool) -> Verdict:
    specs = [given.record.spec] if retrain and given.record is not None else []
    # written in full: a component of a record need not be installed here
    with LiveView(specs, errors, lambda kind, spec: str(getattr(spec, kind))) as view:
        return verify_record(given, options, retrain=retrain, on_event=view)
