"""Models that others have trained: their tokenizers, and the hidden states of those that stay as they are."""
