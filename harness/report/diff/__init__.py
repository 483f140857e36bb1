"""`harness diff`: what differs between two trials, or between two heads."""
