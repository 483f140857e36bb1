"""The commands on records as files: `harness runs`, `export`, `import` and `verify`."""

import hashlib
import json
import shlex
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.filesize import decimal
from rich.text import Text

from harness.cli.options import RESULTS, Data, Device, Json, Only, Results, argument, console, errors, option, say, warn
from harness.corpora.download import DEFAULT_DATA
from harness.errors import ExecutionError, nearest
from harness.plan.reader import suite_name
from harness.printable import counted
from harness.records.plausible import moment
from harness.report import screen

if TYPE_CHECKING:  # a command waits only for the modules that it works with
    from harness.verification.measured import VerificationOptions
    from harness.verification.verify import StoredRecord, Verdict


def runs(
    suite: argument(
        str | None, "The name of a suite, or its file: show its trials one by one.", metavar="SUITE"
    ) = None,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """List the suites in the results folder, the time they took and their size. Only records are read, and of a suite's
    file the labels.

    Nothing is removed here: a person removes folders that are not needed any more.
    """
    from harness.report import history

    suite = None if suite is None else suite_name(suite)
    known = history.suites(results)
    if suite is not None and suite not in known:
        others = f"{nearest(suite, known)} (there are: {', '.join(known)})" if known else ""
        raise ExecutionError(f"{results / 'runs'} holds no suite '{suite}'{others}")
    width = console.width if console.is_terminal else None
    names = known if suite is None else [suite]
    records = {name: history.records_of(results, name, warn) for name in names}
    lines = {name: history.trials(results, name, found) for name, found in records.items()}
    if suite is not None:
        rows = history.named(suite, records[suite], lines[suite])
        content, shown = {"suite": suite, "trials": rows}, table_of_trials(rows, width)
    else:
        rows = [history.total(results, name, of_suite) for name, of_suite in lines.items()]
        content, shown = {"suites": rows}, table_of_suites(rows, width)
    if as_json:
        print(json.dumps(content, indent=1))
    elif rows:
        console.print(*shown, sep="\n", highlight=False)
        say(f"folder: {results / 'runs' / (suite or '<suite>')}")
    else:
        say(f"{results / 'runs'} holds no records: run a suite first")


def table_of_suites(rows: Iterable[dict[str, Any]], width: int | None) -> screen.Shown:
    """A line for each suite: its records by status, and the time they took."""
    cells = []
    for row in rows:
        counts = [f"{count} {status}" for status, count in row["records"].items()]
        counts += [f"{row['interrupted']} interrupted"] if row["interrupted"] else []
        wall = "-" if row["wall_minutes"] is None else screen.span(row["wall_minutes"])
        about = [_utc(row["finished"]), decimal(row["bytes"]), ", ".join(row["devices"]) or "-"]
        cells.append([row["suite"], ", ".join(counts) or "none", screen.span(row["device_minutes"]), wall, *about])
    keep, right = ("suite", "records", "device time", "wall time"), ("device time", "wall time", "disk")
    names = (*keep, "last finished (UTC)", "disk", "devices")
    yield from screen.table(names, cells, keep=keep, right=right, width=width)
    yield Text("device time: training, summed over trials; wall time: from the first start to the last end")


def table_of_trials(rows: Iterable[dict[str, Any]], width: int | None) -> screen.Shown:
    """A line for each trial that has a record; the status of a tuning trial is like 'ok, tuning'."""
    cells = []
    for row in rows:
        measured = ["-" if row[name] is None else f"{row[name]:.2f}" for name in ("test_ppl", "minutes")]
        status = f"{row['status']}, tuning" if row["tuning"] else row["status"]
        about = [_utc(row["finished"]), row["backbone"], row["device"], decimal(row["bytes"])]
        cells.append([row["id"], row["head"], row["corpus"], str(row["seed"]), status, *measured, *about])
    keep = ("trial", "head", "corpus", "seed", "status", "test ppl", "minutes")
    names = (*keep, "finished (UTC)", "backbone", "device", "disk")
    right = ("seed", "test ppl", "minutes", "disk")
    yield from screen.table(names, cells, keep=keep, right=right, width=width)


def _utc(finished: str | None) -> str:
    """'2026-01-02 03:04'."""
    return "-" if finished is None else f"{moment(finished):%Y-%m-%d %H:%M}"


def export(
    file: argument(Path, "The file to write, for example records.zip."),
    suite: option(list[str], "Only this suite, by its name or file. Repeatable.", "--suite", metavar="SUITE") = [],  # noqa: B006
    trial: option(list[str], "Only this trial. Repeatable.", "--trial", metavar="ID") = [],  # noqa: B006
    results: Results = RESULTS,
    no_token_nll: option(
        bool, "Leave out the scores of test tokens, which are the largest part.", "--no-token-nll"
    ) = False,
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
    file: argument(Path, "A file that `harness export` wrote."),
    results: Results = RESULTS,
    replace: option(
        bool, "Replace records of the same trials that differ. The replaced ones are kept as backups.", "--replace"
    ) = False,
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
    record: argument(str, "A record.json, a trial's id or its first digits, or a file that `harness export` wrote."),
    retrain: option(bool, "Train each trial again, in a folder that is removed afterwards.", "--retrain") = False,
    only: Only = [],  # noqa: B006 - typer copies it
    named_files: option(bool, "Open the texts and weights that a record names by their path.", "--named-files") = False,
    device: option(Device, "auto: as in the record, if this machine has it.") = Device.auto,
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

    options = VerificationOptions(data=data, device=device.value, named_files=named_files)
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
