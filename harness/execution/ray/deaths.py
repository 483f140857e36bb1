"""Why Ray's workers died, as Ray tells it. Its memory monitor ends workers when the memory of a machine is used up, by
whatever program.
"""

import re

from harness.execution.ray import MAX_FAILURES
from harness.execution.watcher import EndedForMemory, Watcher

FAILURE = "Failure # "  # begins each failure in the text that Tune keeps of a trial
NODE = re.compile(r"([\d.]+)GB used / ([\d.]+)GB limit")  # of the memory of a machine or container
WORKER = re.compile(r"actual memory used=([\d.]+)GB")  # by a worker that was ended


def for_memory(told: str) -> EndedForMemory | None:
    """What Ray tells of workers that its memory monitor ended; None when it tells of something else."""
    if not (node := NODE.search(told)):
        return None
    used, limit = map(float, node.groups())
    held = max(map(float, WORKER.findall(told)), default=0.0)
    return EndedForMemory(
        f"Ray ended its worker because the memory was used up: {used:g} of {limit:g} GB, of which the worker held "
        f"{held:g}; free memory or use fewer workers (--cpus-per-trial), and start the command again",
        share=held / used,
    )


def give_up(watcher: Watcher, trial: str, told: str) -> None:
    """Report that the workers of a trial died too often, the last one as `told`."""
    if fault := for_memory(told):
        watcher.ended_for_memory(trial, fault)
    else:
        line = (told.splitlines() or ["no reason is known"])[0]
        logs = "Ray's logs say more (harness docs cluster)"
        watcher.died(trial, f"the worker died {MAX_FAILURES + 1} times ({line}); {logs}")


def last(text: str) -> str:
    """The last failure in the text that Tune keeps of a trial, without its number and date."""
    return text.rpartition(FAILURE)[2].partition("\n")[2]
