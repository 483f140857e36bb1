"""Results that are sent in one file: made by `harness submit`, checked by `harness check-submission`."""
