"""The commands on records as files: `harness export`, `import` and `verify`."""

import hashlib
import json
import shlex
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.options import RESULTS, Data, Device, Json, Only, Results, argument, errors, option, say, warn
from harness.corpora.download import DEFAULT_DATA
from harness.plan.reader import suite_name
from harness.printable import counted

if TYPE_CHECKING:  # a command waits only for the modules that it works with
    from harness.verification.measured import VerificationOptions
    from harness.verification.verify import StoredRecord, Verdict


def export(
    file: Annotated[Path, argument("The file to write, for example records.zip.")],
    suite: Annotated[
        list[str], option("Only this suite, by its name or file. Repeatable.", "--suite", metavar="SUITE")
    ] = [],  # noqa: B006
    trial: Annotated[list[str], option("Only this trial. Repeatable.", "--trial", metavar="ID")] = [],  # noqa: B006
    results: Results = RESULTS,
    no_token_nll: Annotated[
        bool, option("Leave out the scores of test tokens, which are the largest part.", "--no-token-nll")
    ] = False,
) -> None:
    """Write the records, timings, token scores and diagnostics of finished trials into one file, without weights."""
    from harness.exchange.copying import export_records
    from harness.records import sidecars

    chosen = {"suites": tuple(map(suite_name, suite)), "trials": tuple(trial)}
    written = export_records(results, file, **chosen, token_nll=not no_token_nll, warn=warn)
    number = Counter(name for each in written for name in each.files)
    suites = {each.suite for each in written}
    parts = [f"{counted(len(written), 'record')} of {counted(len(suites), 'suite')}"]
    parts.append(counted(number[sidecars.TIMING.file], "timing"))
    if not no_token_nll:
        parts.append(f"token scores of {counted(number[sidecars.TOKEN_NLL.file], 'trial')}")
    if diagnosed := number[sidecars.DIAGNOSES.file]:
        parts.append(f"diagnostics of {counted(diagnosed, 'trial')}")
    say(f"{', '.join(parts)}: {file}")


def import_records(
    file: Annotated[Path, argument("A file that `harness export` wrote.")],
    results: Results = RESULTS,
    replace: Annotated[
        bool,
        option("Replace records of the same trials that differ. The replaced ones are kept as backups.", "--replace"),
    ] = False,
) -> None:
    """Copy the records of a file into the results folder. All of it is checked first, and nothing in it is executed."""
    from harness.exchange import copying

    imported = copying.import_records(file, results, replacing=replace)
    new, known = counted(imported.new, "new record"), f"{imported.known} known already"
    say(f"{new}, {imported.replaced} replaced, {known}: {results / 'runs'}")
    if imported.replicate:
        trained = counted(imported.replicate, "other training")
        say(f"{trained} of trials that are here, kept as replicates; the records that are here count")
        say("harness table SUITE --wide says how far apart the results are")
    for sentence in imported.warnings:
        warn(sentence)


def verify(
    record: Annotated[
        str, argument("A record.json, a trial's id or its first digits, or a file that `harness export` wrote.")
    ],
    retrain: Annotated[
        bool, option("Train each trial again, in a folder that is removed afterwards.", "--retrain")
    ] = False,
    only: Only = [],  # noqa: B006 - typer copies it
    minutes: Annotated[
        float | None, option("With --retrain: end a training after so many, and compare the curves so far.", min=0.01)
    ] = None,
    named_files: Annotated[
        bool, option("Open the texts and weights that a record names by their path.", "--named-files")
    ] = False,
    device: Annotated[Device, option("auto: as in the record, if this machine has it.")] = Device.auto,
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Compare records with what their weights, or the same training, give on this machine.

    identical: the same bits. plausible: within the spread of the row's other seeds. Any other verdict, and a record
    that cannot be checked, gives exit code 1.
    """
    from harness.report.retraining import by_lot
    from harness.verification.measured import VerificationOptions
    from harness.verification.verify import find_records

    options = VerificationOptions(data=data, device=device.value, named_files=named_files, minutes=minutes)
    verdicts, weightless = [], []
    for given in find_records(record, results, tuple(only)):
        made = given.record
        if made is not None and made.status == "ok" and not made.tuning and given.best is None:
            weightless.append(made.id)
        verdicts.append(_verify_one(given, options, retrain))
        if not as_json:
            say(str(verdicts[-1]))
    totals = Counter(verdict.outcome for verdict in verdicts)
    if as_json:
        print(json.dumps({"records": [asdict(each) for each in verdicts], "totals": totals}, indent=1))
    else:
        by_outcome = ", ".join(f"{number} {outcome}" for outcome, number in totals.items())
        say(f"{counted(len(verdicts), 'record')}: {by_outcome}")
        if len(weightless) > 1 and not retrain:  # they are of one file
            with Path(record).open("rb") as file:
                one = by_lot(weightless, hashlib.file_digest(file, "sha256").digest())
            command = shlex.join(["harness", "verify", record, "--retrain", "--only", f"id={one}"])
            say(f"`{command}` trains one of those without weights again, drawn by lot")
    raise typer.Exit(0 if all(verdict.good for verdict in verdicts) else 1)


def _verify_one(given: "StoredRecord", options: "VerificationOptions", retrain: bool) -> "Verdict":
    from harness.execution.live import LiveView
    from harness.verification.verify import verify_record

    specs = [given.record.spec] if retrain and given.record is not None else []
    # written in full: a component of a record need not be installed here
    with LiveView(specs, errors, lambda kind, spec: str(getattr(spec, kind))) as view:
        return verify_record(given, options, retrain=retrain, on_event=view)
