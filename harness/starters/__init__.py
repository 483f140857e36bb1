"""Files to start from (`harness new`): a head or a backbone (`components`), a suite that fits a time (`suite`)."""
