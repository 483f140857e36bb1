"""What every head and every backbone must hold, ours and anybody's: `harness check NAME`."""

from harness.conformance.suite import Outcome, Summary, conformance, summary

__all__ = ["Outcome", "Summary", "conformance", "summary"]
