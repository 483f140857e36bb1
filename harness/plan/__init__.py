"""YAML -> Suite -> list of TrialSpec. Nothing is started, downloaded or allocated here."""

from harness.plan.load import load
from harness.plan.selection import select
from harness.plan.specs import ComponentSpec, Suite, TrainSpec, TrialSpec

__all__ = ["ComponentSpec", "Suite", "TrainSpec", "TrialSpec", "load", "select"]
