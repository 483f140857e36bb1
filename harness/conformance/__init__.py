"""What every head and every backbone must hold, ours and anybody's: `harness check NAME`."""

from harness.conformance.suite import Outcome, conformance

__all__ = ["Outcome", "conformance"]
