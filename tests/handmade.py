"""Objects made by hand that several tests start from."""

from harness.records import Environment


def environment(**changes) -> Environment:
    """Where and by what a trial was run, with what a test changes."""
    values = {
        "device": "a processor",
        "threads": 1,
        "load_average": 0.25,
        "shared": False,
        "python": "3.11.7",
        "torch": "2.13.0",
        "harness": "0.1.0",
        "commit": "abc",
        "executor": "inline",
        "started": "2026-01-02T03:04:05+00:00",
        "finished": "2026-01-02T03:05:05+00:00",
    }
    return Environment(**{**values, **changes})
