"""Many trials: under Ray Tune or in this process, watched live, logged to MLflow from the driver only."""
