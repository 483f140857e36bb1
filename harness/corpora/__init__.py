"""Corpora: sources of text (download or local file), vocabularies and tokenizers, counting rules, and batching."""
