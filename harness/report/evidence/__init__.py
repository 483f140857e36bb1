"""What a suite's records say: rows, statistics, comparisons, printed numbers."""
