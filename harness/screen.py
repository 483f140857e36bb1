"""Tables on the terminal: what `harness list` and `harness check --all` show."""

from typing import Any

from rich.table import Table
from rich.text import Text

from harness.conformance import Summary


def components(entries: list[dict[str, Any]]) -> Table:
    """A row for each component: its name, where it comes from, its parameters."""
    shown = Table("name", "from", "parameters")
    for entry in entries:
        shown.add_row(*map(Text, [entry["name"], entry["from"], "\n".join(entry["parameters"])]))
    return shown


def summaries(rows: list[Summary]) -> Table:
    """A row for each checked component: its worst error of each check that measures one, and the time it took."""
    measured = list(dict.fromkeys(check for row in rows for check in row.worst))
    shown = Table("name", "variants", "passed", *(f"worst error: {check}" for check in measured), "seconds")
    for row in rows:
        errors = [f"{row.worst[check]:.0e}" if check in row.worst else "-" for check in measured]
        passed = f"{row.checks - len(row.failures)} of {row.checks}" if row.checks else "none"
        shown.add_row(row.name, str(row.variants), passed, *errors, f"{row.seconds:.1f}")
    return shown
