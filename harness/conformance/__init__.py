"""Checks that every head and backbone must pass, those of plug-ins too. Command: `harness check NAME`."""

from harness.conformance.variants import CheckOutcome, Summary, conformance, summary

__all__ = ["CheckOutcome", "Summary", "conformance", "summary"]
