"""Why Ray's workers died, in Ray's words. Its memory monitor ends workers when a machine has no memory left, whatever
program uses it.
"""

import re

from harness.execution.ray import MAX_FAILURES
from harness.execution.watcher import EndedForMemory, Watcher

FAILURE = "Failure # "  # begins each failure in the text that Tune keeps of a trial
NODE = re.compile(r"([\d.]+)GB used / ([\d.]+)GB limit")  # of the memory of a machine or container
WORKER = re.compile(r"actual memory used=([\d.]+)GB")  # by a worker that was ended


def for_memory(said: str) -> EndedForMemory | None:
    """Ray's words on workers that its memory monitor ended, read; None when they are about something else."""
    if not (node := NODE.search(said)):
        return None
    used, limit = map(float, node.groups())
    held = max(map(float, WORKER.findall(said)), default=0.0)
    return EndedForMemory(
        f"Ray ended its worker because the memory was used up: {used:g} of {limit:g} GB, of which the worker held "
        f"{held:g}; free memory or use fewer workers (--cpus-per-trial), and start the command again",
        share=held / used,
    )


def give_up(watcher: Watcher, trial: str, said: str) -> None:
    """Report that the workers of a trial died too often, the last one as `said`."""
    if fault := for_memory(said):
        watcher.ended_for_memory(trial, fault)
    else:
        line = (said.splitlines() or ["no reason is known"])[0]
        logs = "Ray's logs say more (harness docs cluster)"
        watcher.died(trial, f"the worker died {MAX_FAILURES + 1} times ({line}); {logs}")


def last(text: str) -> str:
    """The last failure in the text that Tune keeps of a trial, without its number and date."""
    return text.rpartition(FAILURE)[2].partition("\n")[2]
