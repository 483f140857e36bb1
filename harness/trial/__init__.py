"""One trial: build -> fit -> evaluate -> time. Read `harness.trial.run` first, then `harness.trial.stages`."""
