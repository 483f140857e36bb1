"""Running the trials of a suite: `run_suite`, with Ray Tune or one after the other in this process."""

EXECUTORS = {"ray": "harness.execution.ray.tuner", "inline": "harness.execution.inline"}  # imported when they run
