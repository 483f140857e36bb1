"""From a YAML file to a Suite and its list of TrialSpec.

Planning starts no trial, downloads no file and allocates no model.
"""

from harness.plan.load import load
from harness.plan.loaded_suite import Suite
from harness.plan.selection import select
from harness.plan.specs import ComponentSpec, TrainSpec, TrialSpec

__all__ = ["ComponentSpec", "Suite", "TrainSpec", "TrialSpec", "load", "select"]
