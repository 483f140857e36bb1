"""Time and memory of commands on many finished records: `python -m harness.benchmarks.scale`.

It makes results folders of synthetic finished trials (benchmarks/synthetic.py). Then each command runs in its own
process, and its time and peak memory are measured. Commands that do not exist are listed and left out.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict

from harness import cli
from harness.benchmarks.machine import high_load
from harness.benchmarks.measurement import save_with_table, slug
from harness.benchmarks.synthetic import EPOCHS, ROWS, make
from harness.benchmarks.tables import markdown_table
from harness.machine import environment

# Command -> its arguments, and the limit of its seconds at 1,000 trials; None for no limit.
COMMANDS: dict[str, tuple[tuple[str, ...], float | None]] = {
    "plan": (("suites/scale.yaml",), 5),
    "table": (("suites/scale.yaml",), 5),
    "leaderboard": ((), 5),
    "report": (("suites/scale.yaml",), 20),
    "export": (("records.zip",), None),
    "import": (("records.zip", "--results", "imported"), None),
    "sync": ((), 60),
}
AT, PAGE_MIB = 1_000, 10  # the number of trials for which the limits hold; the limit for the page


class Cost(BaseModel):
    """One command on one folder.

    Args:
        seconds: the elapsed time, which depends on the load of the machine.
        processor_seconds: the processor time.
        page_mib: the size of the largest page that it wrote; None if it wrote none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    command: str
    trials: int
    seconds: float
    processor_seconds: float
    peak_mib: float
    page_mib: float | None = None


class Costs(BaseModel):
    """All commands on all folders, and the machine."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: Literal["scale"] = "scale"
    device: str
    python: str
    commit: str
    started: str
    load_average: float
    contended: tuple[str, ...]
    absent: tuple[str, ...]
    costs: tuple[Cost, ...]


def measure(trials: list[int], commands: list[str]) -> Costs:
    """Measure every command on folders with the given numbers of trials."""
    load = environment.load_average()
    known = set(cli.COMMANDS)
    costs = []
    for number in trials:
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder), number)
            for command in commands:
                if command in known:
                    costs.append(_run(command, Path(folder), number))
                    print(_line(costs[-1]), file=sys.stderr, flush=True)
    return Costs(
        device=environment.device_name(torch.device("cpu")),
        python=sys.version.split()[0],
        commit=environment.commit(),
        started=environment.now(),
        load_average=round(load, 2),
        contended=tuple(high_load(load, 1)),
        absent=tuple(command for command in commands if command not in known),
        costs=tuple(costs),
    )


def markdown(measured: Costs) -> str:
    """Return the table with a description of the measurement."""
    found = [["command", "finished trials", "seconds", "of the processor", "may take", "peak MiB", "page MiB"]]
    for cost in measured.costs:
        limit = COMMANDS[cost.command][1] if cost.trials == AT else None
        page = "-" if cost.page_mib is None else f"{cost.page_mib:.1f}"
        may = "-" if limit is None else f"{limit:g}"
        found.append(
            [
                cost.command,
                f"{cost.trials:,}",
                f"{cost.seconds:.1f}",
                f"{cost.processor_seconds:.1f}",
                may,
                f"{cost.peak_mib:.0f}",
                page,
            ]
        )
    flag = f"CONTENDED: {'; '.join(measured.contended)}. " if measured.contended else ""
    absent = f"\n- Not there: {', '.join(measured.absent)}." if measured.absent else ""
    return f"""\
# What commands cost on many finished records, on {measured.device}

Made by `python -m harness.benchmarks.scale --save`: synthetic records with curves of {EPOCHS} epochs, scores of
test tokens beside each, one process a command. A page may have {PAGE_MIB} MiB.

{markdown_table(found)}
{absent}
- {flag}Python {measured.python}, load {measured.load_average:.2f} at the start, harness at {measured.commit},
  {measured.started}.
"""


def main(given: list[str] | None = None) -> None:
    """Measure, print the table, and with --save write it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, nargs="+", default=[100, AT], help=f"multiples of {ROWS}")
    parser.add_argument("--only", nargs="+", choices=list(COMMANDS), default=list(COMMANDS), metavar="COMMAND")
    parser.add_argument("--make", type=Path, metavar="DIR", help="only make the folder of the first number of trials")
    parser.add_argument("--save", action="store_true", help="write results/bench and results/tables")
    options = parser.parse_args(given)
    if options.make is not None:
        make(options.make, options.trials[0])
        return
    measured = measure(options.trials, options.only)
    print(markdown(measured))
    if options.save:
        for place in save_with_table(f"scale_{slug(measured.device)}", measured, markdown(measured), Path("results")):
            print(place)


def _run(command: str, folder: Path, trials: int) -> Cost:
    """Run one command in its own process. Raises RuntimeError with the last line of its output if it fails."""
    environ = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parent.parent.parent)}
    with tempfile.TemporaryFile() as errors:
        started = time.perf_counter()
        arguments = [sys.executable, "-m", "harness.cli", command, *COMMANDS[command][0]]
        process = subprocess.Popen(arguments, cwd=folder, env=environ, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            lines = errors.read().decode(errors="replace").strip().splitlines() or [f"exit code {process.returncode}"]
            raise RuntimeError(f"harness {command} on {trials} trials: {lines[-1]}")
    pages = [page.stat().st_size for page in folder.rglob("*.html")] if command == "report" else []
    page = max(pages) / 2**20 if pages else None
    busy, peak = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
    return Cost(command=command, trials=trials, seconds=seconds, processor_seconds=busy, peak_mib=peak, page_mib=page)


def _line(cost: Cost) -> str:
    return f"{cost.command} on {cost.trials:,} trials: {cost.seconds:.1f} s, {cost.peak_mib:.0f} MiB"


if __name__ == "__main__":
    main()
