"""Checks that every head and backbone must pass, those of plug-ins too. Command: `harness check NAME`."""

from harness.conformance.variants import Outcome, Summary, conformance, summary

__all__ = ["Outcome", "Summary", "conformance", "summary"]
