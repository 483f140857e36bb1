"""Experiments on untrained layers, which need no suite and no corpus."""
