"""The tables that commands print: of `list`, `diff` and others; those of `plan` are in plan_tables.py."""

import math
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from harness.printable import printable
from harness.records.metrics import METRICS

if TYPE_CHECKING:  # a command waits only for the modules that it works with
    from harness.conformance import Summary
    from harness.diagnostics.facets import Position
    from harness.report.diff import Difference, MetricDifference
    from harness.report.tokens import Band, Context


def components(entries: list[dict[str, Any]]) -> Table:
    """A row for each component: its name, where it comes from, its parameters."""
    shown = Table("name", "from", "parameters")
    for entry in entries:
        parameters = Text("\n").join(map(_shown, entry["parameters"]))
        shown.add_row(_shown(entry["name"]), _shown(entry["from"]), parameters)
    return shown


def summaries(rows: "list[Summary]") -> Table:
    """A row for each checked component: its worst error of each check that measures one, and the time it took."""
    measured = list(dict.fromkeys(check for row in rows for check in row.worst))
    shown = Table("name", "variants", "passed", *(f"worst error: {check}" for check in measured), "seconds")
    for row in rows:
        errors = [f"{row.worst[check]:.0e}" if check in row.worst else "-" for check in measured]
        succeeded = f"{row.checks - len(row.failures)} of {row.checks}" if row.checks else "none"
        succeeded += f", {row.not_run} not run" if row.not_run else ""
        shown.add_row(row.name, str(row.variants), succeeded, *errors, f"{row.seconds:.1f}")
    return shown


def voices(position: "Position") -> Table:
    """The predictions after a token: a column for the mixture, each component and each facet, with its weight, its
    words and their probabilities.
    """
    shown = Table(title=_shown(f"after '{position.token}'"))
    for voice in position.voices:
        owned = f"\n{voice.owns}" if voice.owns else ""
        shown.add_column(Text(f"{voice.name}\n{voice.weight:.3f}{owned}"), overflow="fold")
    for row in zip_longest(
        *([f"{word} {p:.4f}" for word, p in voice.words] for voice in position.voices), fillvalue=""
    ):
        shown.add_row(*map(_shown, row))
    return shown


def differences(found: "Difference") -> Iterator[Table | Text]:
    """A comparison of A and B: settings, metrics, groups of tokens, the contexts in which they differ most, notes."""
    within = f" on {found.within}" if found.within else ""
    yield Text.assemble("A: ", (printable(found.a), "bold"), "; B: ", (printable(found.b), "bold"), printable(within))
    settings = Table("setting", "A", "B")
    for change in found.changes:
        settings.add_row(*map(_shown, (change.key, change.a, change.b)))
    yield settings
    yield _metrics(found.metrics)
    for title, bands in {
        "how often training had the token": found.by_frequency,
        "tokens before it in its segment, less one": found.by_position,
    }.items():
        if bands:
            yield _bands(title, bands)
    for title, contexts in {"B is better: fewer nats": found.better, "B is worse: more nats": found.worse}.items():
        if contexts:
            yield _contexts(title, contexts)
    yield from map(_shown, found.notes)


def _metrics(metrics: "Iterable[MetricDifference]") -> Table:
    shown = Table("metric", title="B against A: geometric means, intervals of 95 %, p not corrected")
    for column in ("A", "B", "B / A - 1", "interval", "over", "p, paired t", "p, sign-flip", "more seeds for 1 %", "n"):
        shown.add_column(column, justify="left" if column == "over" else "right")
    for each in metrics:
        digits = METRICS[each.name].digits
        interval = "-" if each.low is None else f"[{100 * each.low:+.2f}, {100 * each.high:+.2f}] %"
        interval = "too wide" if each.too_wide else interval
        tests = ["-" if p is None else f"{p:.2g}" for p in (each.p_t, each.p_sign_flip)]
        more = "-" if each.more_seeds is None else " to ".join(f"{n:,}" for n in dict.fromkeys(each.more_seeds))
        values = (f"{each.a:,.{digits}f}", f"{each.b:,.{digits}f}", f"{100 * each.change:+.2f} %", interval)
        shown.add_row(*map(_shown, (each.name, *values, each.over or "-", *tests, more, str(each.n))))
    return shown


def _bands(title: str, bands: "Iterable[Band]") -> Table:
    shown = Table(title, "tokens", "B - A, nats", "standard error")
    for column in shown.columns:
        column.justify = "right"
    for band in bands:
        error = "-" if math.isnan(band.error) else f"{band.error:.4f}"
        shown.add_row(*map(_shown, (band.label, f"{band.tokens:,}", f"{band.mean:+.4f}", error)))
    return shown


def _contexts(title: str, contexts: "Iterable[Context]") -> Table:
    """The target is in brackets, and bold if the terminal can show that."""
    shown = Table(title=title)
    for column in ("A, nats", "B, nats", "in training"):
        shown.add_column(column, justify="right")
    shown.add_column("text", overflow="fold")
    for each in contexts:
        before, target, after = map(printable, (each.before, each.target, each.after))
        text = Text.assemble(before, (f"[{target}]", "bold"), after)
        shown.add_row(f"{each.a:.2f}", f"{each.b:.2f}", f"{each.count:,}", text)
    return shown


def span(minutes: float) -> str:
    """'2 h 05 min', '5.2 min'."""
    return f"{minutes:.1f} min" if minutes < 60 else f"{int(minutes // 60)} h {int(minutes % 60):02} min"


def lines(text: str) -> Text:
    """A text of several lines, with its control characters replaced."""
    return Text("\n").join(map(_shown, text.split("\n")))


def command() -> str:
    """The command that starts this program: its name, or its path when its environment is not activated."""
    script, here = Path(sys.executable).with_name("harness"), Path.cwd()
    if shutil.which("harness") or not script.exists():
        return "harness"
    return shlex.quote(str(script.relative_to(here) if script.is_relative_to(here) else script))


def _shown(text: str) -> Text:
    """A text as it is: not read as markup, and with its control characters replaced."""
    return Text(printable(text))
