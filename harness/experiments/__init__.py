"""Experiments on untrained layers and heads, which need no suite and no corpus."""
