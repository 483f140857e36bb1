"""Heads, backbones and corpora may be anybody's code: what one raises or changes ends with the call."""
