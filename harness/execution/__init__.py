"""Running the trials of a suite: `run_suite`, with Ray Tune, in this process one after the other, or as jobs of SLURM."""

EXECUTORS = {  # imported when they run
    "ray": "harness.execution.ray.tuner",
    "inline": "harness.execution.inline",
    "slurm": "harness.execution.slurm",
}
