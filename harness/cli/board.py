"""The commands that compare across suites: `harness leaderboard`, `diff` and `site`."""

import json
import math
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.table import Table
from rich.text import Text

from harness.cli.options import (
    RESULTS,
    Data,
    Json,
    Only,
    Results,
    Set,
    argument,
    console,
    option,
    say,
    warn,
)
from harness.cli.views import study_of
from harness.corpora.download import DEFAULT_DATA
from harness.errors import ExecutionError
from harness.extensions import needed
from harness.machine.files import unsynced
from harness.printable import printable
from harness.records.metrics import METRICS
from harness.report import screen

if TYPE_CHECKING:  # a command waits only for the modules that it works with
    from harness.board.diff import Difference, MetricDifference
    from harness.report.tokens import Context

NAMED = "a trial's id or its first digits; with --suite, a head by its name or as the table shows it."


def leaderboard(
    corpus: Annotated[list[str], option("Show only this corpus. Repeatable.", "--corpus", metavar="NAME")] = [],  # noqa: B006
    everything: Annotated[bool, option("Show the tables in which no row can be ranked, too.", "--all")] = False,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """Rank the finished trials of all suites, in groups with the same text, counting, evaluation and budget."""
    from harness.board.leaderboard import load

    found = load(results, warn)
    if as_json:
        print(json.dumps(found.as_json(corpus), indent=1, allow_nan=False))
        return
    if console.is_terminal:
        for summary in found.summaries(corpus, everything=everything):
            console.print(screen.short(summary, console.width), end="\n\n")
    else:
        say(found.text(corpus, everything=everything))
    say(f"leaderboard: {', '.join(map(str, found.write()))}")


def diff(
    a: Annotated[str, argument(f"The first one: {NAMED}", metavar="A")],
    b: Annotated[str, argument("The second one, which is compared with A.", metavar="B")],
    suite: Annotated[
        Path | None, option("Compare heads of this suite, seed by seed: its file or name.", "--suite", metavar="SUITE")
    ] = None,
    overrides: Set = [],  # noqa: B006 - typer copies it
    only: Only = [],  # noqa: B006
    top: Annotated[int, option("How many contexts of each kind are shown.", min=0)] = 10,
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Show what differs: settings, metrics with intervals, and the test words on which they differ most."""
    from harness.board.diff import difference, of_heads, of_trials
    from harness.plan.selection import chosen_trials

    if suite is None:
        if overrides or only:
            raise ExecutionError("--set and --only select trials of a suite: name the suite with --suite")
        compared = [("", *of_trials(results, a, b))]
    else:
        study = study_of(suite, overrides, results)
        chosen = {trial.id for trial in chosen_trials(study.suite, tuple(only))}
        rows = [row for row in study.rows if chosen.intersection(row.ids)]
        compared = of_heads(rows, study.evidence, a, b)
    found = [difference(one, other, data, top=top, within=within) for within, one, other in compared]
    if as_json:
        content = [asdict(each, dict_factory=_without_nan) for each in found]
        print(json.dumps({"differences": content}, indent=1, allow_nan=False))
        return
    for part in (part for each in found for part in _differences(each)):
        console.print(part)


def _without_nan(items: list[tuple[str, object]]) -> dict[str, object]:
    """null for a standard error that a single block cannot give."""
    return {key: None if value != value else value for key, value in items}


def _differences(found: "Difference") -> Iterator[Table | Text]:
    """A comparison of A and B: settings, metrics, groups of tokens, the contexts in which they differ most, notes."""
    within = f" on {found.within}" if found.within else ""
    a, b = (Text(printable(name), style="bold") for name in (found.a, found.b))
    yield Text.assemble("A: ", a, "; B: ", b, printable(within))
    yield screen.grid(("setting", "A", "B"), [(change.key, change.a, change.b) for change in found.changes])
    yield _metrics(found.metrics)
    for title, bands in {
        "how often training had the token": found.by_frequency,
        "tokens before it in its segment, less one": found.by_position,
    }.items():
        names = (title, "tokens", "B - A, nats", "standard error")
        errors = ["-" if math.isnan(band.error) else f"{band.error:.4f}" for band in bands]
        rows = [
            (band.label, f"{band.tokens:,}", f"{band.mean:+.4f}", error)
            for band, error in zip(bands, errors, strict=True)
        ]
        yield from [screen.grid(names, rows, right=names)] if rows else []
    for title, contexts in {"B is better: fewer nats": found.better, "B is worse: more nats": found.worse}.items():
        numbers = ("A, nats", "B, nats", "in training")
        rows = [(f"{each.a:.2f}", f"{each.b:.2f}", f"{each.count:,}", _in_context(each)) for each in contexts]
        yield from [screen.grid((*numbers, "text"), rows, right=numbers, title=title)] if rows else []
    yield from map(screen.text, found.notes)


def _metrics(metrics: "Iterable[MetricDifference]") -> Table:
    names = ("metric", "A", "B", "B / A - 1", "interval", "n")
    rows = []
    for each in metrics:
        digits = METRICS[each.name].digits
        change = "-" if each.change is None else f"{100 * each.change:+.2f} %"
        interval = "-" if each.low is None else f"[{100 * each.low:+.2f}, {100 * each.high:+.2f}] %"
        interval = "too wide" if each.too_wide else interval
        rows.append((each.name, f"{each.a:,.{digits}f}", f"{each.b:,.{digits}f}", change, interval, str(each.n)))
    title = "B against A: geometric means, intervals of 95 % over n seeds; costs on one device only"
    return screen.grid(names, rows, right=names[1:], title=title)


def _in_context(each: "Context") -> Text:
    before, target, after = map(printable, (each.before, each.target, each.after))
    return Text.assemble(before, (f"[{target}]", "bold"), after)


def site(
    out: Annotated[Path, option("The folder of the site.", "--out", metavar="DIR")] = Path("site"),
    results: Results = RESULTS,
    records: Annotated[
        Path | None, option("Show the exported records in this folder instead: *.zip.", "--records", metavar="DIR")
    ] = None,
    suites: Annotated[Path, option("The folder of the suite files.", "--suites", metavar="DIR")] = Path("suites"),
    submissions: Annotated[
        Path, option("The folder of the submissions. Sources of those that were checked are executed.", metavar="DIR")
    ] = Path("submissions"),
) -> None:
    """Write all results as web pages: boards, suites, leaderboard, plots, data as CSV, and a search by head.

    The folder needs no network and no server: open its index.html, or copy it to any host.
    """
    from harness.board import site

    if records is None:
        files = _files_of_site(results, suites, submissions)
    else:
        with tempfile.TemporaryDirectory(prefix="harness-site-") as imported:
            with unsynced():
                _import(records, Path(imported))
            files = _files_of_site(Path(imported), suites, submissions)
    site.write(files, out)
    say(f"site: {out / 'index.html'} ({len(files)} files, {sum(map(len, files.values())) / 2**20:.1f} MiB)")


def _files_of_site(results: Path, suites: Path, submissions: Path) -> dict[str, bytes]:
    from harness.board import boards, site  # here: matplotlib, jinja2 and pandas take seconds to import

    found = site.studies(results, suites, warn)
    with boards.with_submissions(found, submissions, warn) as (found, received):
        return site.files_of(found, results, suites, warn, received)


def _import(records: Path, results: Path) -> None:
    import_records = needed("harness.exchange.copying:import_records", "--records")
    found = sorted(records.glob("*.zip"))
    if not found:
        raise ExecutionError(f"--records {records} has no file *.zip; `harness export` writes such files")
    for path in found:
        for sentence in import_records(path, results).warnings:
            warn(f"{path}: {sentence}")
