"""Compare language-model output heads on equal terms. Start reading at `harness.cli` and `harness.trial.run`."""

__version__ = "0.1.0"
DISTRIBUTION = "output-head-harness"
