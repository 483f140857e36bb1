"""How a model is trained and evaluated. Read `harness.training.loop` first, then `harness.training.parts`."""
