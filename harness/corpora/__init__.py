"""From text to token ids: sources (download, checksum, local file), vocabularies, counting rules, batching."""
