"""Hashes of the code that a trial was run with."""
