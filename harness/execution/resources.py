"""What trials take of what the nodes have: on which device, how many at once. Ray is not imported."""

from dataclasses import replace

from harness.errors import ExecutionError
from harness.execution.events import Claim
from harness.machine.environment import resolve_device
from harness.plan.specs import TrialSpec
from harness.trial.setting import Setting

Node = dict[str, float]  # a resource's name -> how much of it a node has: 'CPU', 'GPU'


def refuse_contradiction(specs: list[TrialSpec], claim: Claim) -> None:
    """Raises ExecutionError when the workers of a trial and the GPUs it claims do not go together."""
    for workers in sorted({spec.train.data_parallel for spec in specs}):
        shares = workers == 1 and (claim.gpus or 0) <= 1
        if not shares and claim.gpus not in (None, 0, workers):
            raise ExecutionError(
                f"a trial claims {claim.gpus:g} GPUs and train.data_parallel is {workers}: each worker takes one GPU, "
                "and a trial of one worker at most one; change resources.gpus in the suite, or --gpus-per-trial"
            )


def fitted(
    setting: Setting, claim: Claim, specs: list[TrialSpec], nodes: list[Node], *, local: bool
) -> tuple[Setting, Claim, int | None]:
    """The device there is, the claim of one worker on it, and how many trials may run at once. None where Tune finds
    that out by itself: on a cluster, which may grow; but of data-parallel trials it does not count the workers.

    Args:
        nodes: those of the cluster; `local` when there is this machine only.
    Raises: ExecutionError when the nodes cannot hold one trial.
    """
    workers = max((spec.train.data_parallel for spec in specs), default=1)
    if claim.gpus == 0 and setting.device == "auto":
        device = "cpu"
    elif local:
        device = resolve_device(setting.device).type
    else:
        has_gpu = any(node.get("GPU", 0) for node in nodes)
        device = setting.device if setting.device != "auto" else "cuda" if has_gpu else "cpu"
    gpus = 0.0 if device == "cpu" else (claim.gpus or workers) / workers
    rooms = [_room(node, claim.cpus, gpus) for node in nodes]
    at_once = sum(rooms) // workers
    if not at_once:
        offered = "; ".join(f"{node.get('CPU', 0):g} CPUs, {node.get('GPU', 0):g} GPUs" for node in nodes)
        claimed = f"{claim.cpus} CPUs and {gpus:g} GPUs"
        if workers == 1:
            raise ExecutionError(f"a trial claims {claimed}; there is no such node: {offered}")
        raise ExecutionError(f"a trial claims {workers} times {claimed}; the nodes do not have them: {offered}")
    shared = setting.shared or min(at_once, len(specs)) > 1
    side_by_side = min(len(specs) * workers, max(rooms))
    setting = replace(setting, device=device, threads=claim.cpus, shared=shared, memory_share=1 / max(side_by_side, 1))
    return setting, Claim(cpus=claim.cpus, gpus=gpus), at_once if local or workers > 1 else None


def _room(node: Node, cpus: int, gpus: float) -> int:
    """Workers that a node holds at once."""
    by_cpu = int(node.get("CPU", 0) // cpus)
    return min(by_cpu, int(node.get("GPU", 0) / gpus + 1e-9)) if gpus else by_cpu
