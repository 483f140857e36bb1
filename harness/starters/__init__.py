"""Files to start from (`harness new`): a head or a backbone, or a suite that fits a time."""
