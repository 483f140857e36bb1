"""Checks around calls into heads, backbones and corpora, which may be third-party code."""
