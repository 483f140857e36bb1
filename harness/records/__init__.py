"""What is kept of a finished trial: its record, and what lies beside it."""
