"""The web page of a suite."""
