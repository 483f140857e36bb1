"""Running the trials of a suite: `run_suite`, with Ray Tune, one after the other in this process, or as SLURM jobs."""

EXECUTORS = {  # imported when they run
    "ray": "harness.execution.ray.tuner",
    "inline": "harness.execution.inline",
    "slurm": "harness.execution.slurm",
}
