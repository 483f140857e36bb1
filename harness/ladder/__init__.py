"""What a head gains over the baseline at several sizes of a backbone, and what that is worth."""
