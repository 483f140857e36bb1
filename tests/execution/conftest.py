"""Six tiny trials, and records made by hand."""

from six_trials import place, record_of, suite, tasks

__all__ = ["place", "record_of", "suite", "tasks"]
