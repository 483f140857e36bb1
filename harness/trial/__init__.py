"""One trial: build -> fit -> evaluate -> time. Read `harness.trial.run` first; each verb is a module of its own."""
