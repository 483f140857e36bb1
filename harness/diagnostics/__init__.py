"""What a trained head expresses: read from records and checkpoints, without the machinery that made them."""
