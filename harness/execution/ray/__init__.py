"""Trials under Ray Tune. Ray is imported in this package only."""
