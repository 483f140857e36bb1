"""Which code a trial was run by."""
