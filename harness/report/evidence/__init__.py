"""What reports are made of: records, rows, statistics, comparisons, printed numbers."""
