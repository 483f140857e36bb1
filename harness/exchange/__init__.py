"""Copies records between machines: exports the finished trials of a results folder to one file, and imports them."""
