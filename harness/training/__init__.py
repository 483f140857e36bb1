"""How a model is trained and evaluated: every part is a module of its own."""
