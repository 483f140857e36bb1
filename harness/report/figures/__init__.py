"""The plots of a suite."""
