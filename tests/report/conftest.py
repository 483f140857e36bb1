"""A suite from YAML, and records made by hand: no trial is run for a test of the tables."""

from made_tables import record_of, suite_of, table_of, with_curve  # noqa: F401 - fixtures
