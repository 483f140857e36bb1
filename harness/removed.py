"""What users may still type and what is no longer there, each with what to use instead."""

from harness.errors import ExecutionError

# As it is typed: a command, an option of all commands or of one, a value, or a key of suites.
INSTEAD = {
    "--overwrite": "tables, pages and plots are always replaced; copy those that you want to keep",
    "harness bench": "'harness plan SUITE --time' and 'harness run SUITE --dry-run' time the steps of a suite; in a "
    "clone, python benchmarks/head.py compares losses",
    "harness experiment expressiveness": "'harness diagnose SUITE' measures what trained heads can express",
    "harness experiment --head": "'harness diagnose SUITE' measures what trained heads can express",
    "Label: in a docstring": "a class method says the name, as label(cls, p) of heads/mos.py",
    "harness plan --memory": "'harness run SUITE --dry-run' prints the memory that a step needs, as measured",
}


def refuse(*typed: str) -> None:
    """Raises ExecutionError if one of these was removed, with what to use instead."""
    for each in typed:
        if each in INSTEAD:
            raise ExecutionError(f"'{each}' was removed: {INSTEAD[each]}")
