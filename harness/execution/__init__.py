"""Many trials: under Ray Tune or in this process, one after the other."""
