"""The table of a suite: its columns, layouts, formats and notes."""
