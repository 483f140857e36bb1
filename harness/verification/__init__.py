"""Is a record true? It is compared with what its weights, or the same training once more, give on this machine."""
