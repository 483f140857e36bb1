"""As tests/report has them: a suite from YAML, and records made by hand."""

from made_tables import record_of, suite_of  # noqa: F401 - fixtures
