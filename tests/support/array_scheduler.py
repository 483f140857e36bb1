"""A stand-in for SLURM: runs the tasks of a job array as processes of this machine, signals and requeues them.

It reads the `#SBATCH` lines that it needs. As SLURM does, it starts the script anew for each task and each requeue,
sends a preempted task's SIGTERM to its step and not to the script, and the signal of `--signal=B:...` to the script
only.
"""

import os
import re
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from commands import PATIENCE
from disturbed import wait_for

ARRAY_JOB = 7000
# Commands of SLURM that a script calls. srun forwards SIGTERM to the step that it starts, and then makes a mark.
COMMANDS = {
    "srun": """
"$@" &
step=$!
echo $step > "$STAND_IN/step-$SLURM_JOB_ID"
trap 'kill -TERM $step; touch "$STAND_IN/forwarded-$SLURM_JOB_ID"' TERM
while kill -0 $step 2> /dev/null; do wait $step; code=$?; done
exit $code
""",
    "scontrol": '[ "$1" = requeue ] && touch "$STAND_IN/requeue-$2"',
    "sbatch": 'echo "$@" > "$STAND_IN/submitted"',
}


@dataclass
class Task:
    """One task of an array.

    Args:
        number: SLURM_ARRAY_TASK_ID.
        process: the script of its present start.
        codes: exit codes of its starts, one after the other.
    """

    number: int
    process: subprocess.Popen
    codes: list[int] = field(default_factory=list)

    @property
    def job(self) -> str:
        """SLURM_JOB_ID, which stays when the task is requeued."""
        return str(ARRAY_JOB + self.number)


class ArrayScheduler:
    """Runs the array of a script.

    Args:
        script: the batch script; the commands are started in its folder.
        environment: of all commands.
    """

    def __init__(self, script: Path, environment: dict[str, str]):
        self.script, self.folder = script, script.parent
        self.state = self.folder / "stand-in"
        self.state.mkdir()
        for name, body in COMMANDS.items():
            command = self.state / name
            command.write_text(f"#!/bin/bash\n{body}\n")
            command.chmod(0o755)
        self.environment = {
            **environment,
            "STAND_IN": str(self.state),
            "PATH": f"{self.state}{os.pathsep}{environment['PATH']}",
        }
        found = re.findall(r"^#SBATCH --([a-z-]+)(?:=(\S+))?", script.read_text(), flags=re.MULTILINE)
        self.options = dict(found)

    def shell(self, text: str) -> None:
        """Run commands, among them sbatch, as a user types them."""
        subprocess.run(["bash", "-e", "-c", text], cwd=self.folder, env=self.environment, timeout=PATIENCE, check=True)

    def submitted(self) -> list[Task]:
        """Start all tasks of the array that `sbatch --array=1-N script` has named."""
        last, script = re.fullmatch(r"--array=1-(\d+) (\S+)\n", (self.state / "submitted").read_text()).groups()
        assert script == self.script.name
        return [Task(number, self._started(number)) for number in range(1, int(last) + 1)]

    def preempt(self, task: Task) -> None:
        """Send SIGTERM to the task's step; SLURM requeues the task after that, if the script allows it."""
        os.kill(int((self.state / f"step-{task.job}").read_text()), signal.SIGTERM)
        if "requeue" in self.options:
            (self.state / f"requeue-{task.job}").touch()

    def time_ends(self, task: Task) -> None:
        """Send the script the signal for which `--signal=B:NAME@SECONDS` asks. Waits until srun has forwarded it."""
        name = re.fullmatch(r"B:([A-Z0-9]+)@\d+", self.options["signal"])[1]
        task.process.send_signal(signal.Signals[f"SIG{name}"])
        wait_for((self.state / f"forwarded-{task.job}").exists)

    def ended(self, task: Task) -> bool:
        """Wait until the task's present start has ended. Returns False after starting it again, if it was requeued."""
        task.codes.append(task.process.wait(timeout=PATIENCE))
        requeued = self.state / f"requeue-{task.job}"
        if not requeued.exists():
            return True
        requeued.unlink()
        task.process = self._started(task.number)
        return False

    def log(self, task: Task) -> str:
        """What the task has written, in all of its starts."""
        return self._log(task.number).read_text()

    def _started(self, number: int) -> subprocess.Popen:
        variables = {
            "SLURM_SUBMIT_DIR": str(self.folder),
            "SLURM_ARRAY_JOB_ID": str(ARRAY_JOB),
            "SLURM_ARRAY_TASK_ID": str(number),
            "SLURM_JOB_ID": str(ARRAY_JOB + number),
            "SLURM_CPUS_PER_TASK": self.options["cpus-per-task"],
        }
        with self._log(number).open("a" if self.options.get("open-mode") == "append" else "w") as log:
            return subprocess.Popen(
                ["bash", str(self.script)],
                cwd=self.folder,
                env=self.environment | variables,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _log(self, number: int) -> Path:
        pattern = self.options["output"].replace("%A", str(ARRAY_JOB)).replace("%a", str(number))
        return self.folder / pattern
