"""What is no longer there, each with what to use instead."""

INSTEAD = {"Label: in a docstring": "a class method says the name, as label(cls, p) of heads/mos.py"}
