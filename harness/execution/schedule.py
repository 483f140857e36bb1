"""Trials under Ray Tune: a flat list, first in first out, several at a time. The only module that imports Ray.

Ray schedules and nothing else: a trial is finished when its record verifies, never because Tune says TERMINATED. No
early stopping of any kind: a benchmark that stops slow starters measures nothing.
"""

import logging
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

# Read by Ray when it is imported. Without them one failing trial prints over a hundred lines, and Tune swallows Ctrl-C.
for _name, _value in {
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}.items():
    os.environ.setdefault(_name, _value)

import ray  # noqa: E402
from ray import tune  # noqa: E402

from harness import records  # noqa: E402
from harness.corpora.sources import fetch_corpora  # noqa: E402
from harness.environment import cpus_available, resolve_device  # noqa: E402
from harness.errors import ExecutionError, RecordError  # noqa: E402
from harness.execution.cluster import refuse_homeless_ray, refuse_open_ray  # noqa: E402
from harness.execution.events import Claim, Event, OnEvent  # noqa: E402
from harness.plan.specs import TrialSpec  # noqa: E402
from harness.trial.run import Setting, run  # noqa: E402
from harness.trial.step import refuse_unfit  # noqa: E402
from harness.trial.training import Progress  # noqa: E402

LOCAL = "local"
WORKER_RETRIES = 1  # for a worker that dies; a trial that fails leaves a record and is not retried


def execute(specs: list[TrialSpec], setting: Setting, claim: Claim, on_event: OnEvent, address: str = LOCAL) -> None:
    """Run every trial; workers save the records, `on_event` hears of them in this process.

    Args:
        address: 'local' starts a Ray of our own; anything else joins that cluster, which must see `setting.runs`.
    Raises: ExecutionError when no node can ever hold one trial, or a trial does not fit its device; KeyboardInterrupt
        passes through.
    """
    with _ray(address):
        setting, claim = _fitted(setting, claim, len(specs), address)
        for spec in specs:
            refuse_unfit(spec.train, setting.device)
        fetch_corpora(specs, setting.data)
        scratch = setting.runs / f".tune-{os.getpid()}"
        trainable = tune.with_resources(_trainable, {"cpu": claim.cpus, "gpu": claim.gpus})
        tuner = tune.Tuner(
            trainable,
            param_space={"trial": tune.grid_search([_packed(spec, setting) for spec in specs])},
            tune_config=tune.TuneConfig(
                trial_name_creator=_trial_id, trial_dirname_creator=_trial_id, reuse_actors=False
            ),
            run_config=tune.RunConfig(
                name="tune",
                storage_path=str(scratch),
                verbose=0,
                callbacks=[_Listener(specs, setting, on_event)],
                failure_config=tune.FailureConfig(max_failures=WORKER_RETRIES),
            ),
        )
        try:
            tuner.fit()
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _ray(address: str) -> Iterator[None]:
    """Ray for the length of a block, with the command line's own handling of SIGTERM."""
    refuse_open_ray()
    refuse_homeless_ray()
    local = {"num_cpus": cpus_available(), "include_dashboard": False} if address == LOCAL else {}
    before = signal.getsignal(signal.SIGTERM)
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL, **local)
    except (ConnectionError, ValueError, OSError, RuntimeError) as cause:
        raise ExecutionError(f"Ray does not start with address '{address}': {str(cause).splitlines()[0]}") from cause
    signal.signal(signal.SIGTERM, before)
    try:
        yield
    finally:
        ray.shutdown()


def _fitted(setting: Setting, claim: Claim, num_trials: int, address: str) -> tuple[Setting, Claim]:
    """The device there is, and the claim on it. Raises ExecutionError when no node can hold one trial."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if claim.gpus == 0 and setting.device == "auto":
        device = "cpu"
    elif address == LOCAL:
        device = resolve_device(setting.device).type
    else:
        has_gpu = any(node.get("GPU", 0) for node in nodes)
        device = setting.device if setting.device != "auto" else "cuda" if has_gpu else "cpu"
    gpus = 0.0 if device == "cpu" else claim.gpus or 1.0
    at_once = sum(_room(node, claim.cpus, gpus) for node in nodes)
    if not at_once:
        offered = "; ".join(f"{node.get('CPU', 0):g} CPUs, {node.get('GPU', 0):g} GPUs" for node in nodes)
        raise ExecutionError(f"a trial claims {claim.cpus} CPUs and {gpus:g} GPUs; there is no such node: {offered}")
    shared = setting.shared or min(at_once, num_trials) > 1
    return replace(setting, device=device, threads=claim.cpus, shared=shared), Claim(cpus=claim.cpus, gpus=gpus)


def _room(node: dict[str, float], cpus: int, gpus: float) -> int:
    """Trials that a node holds at once."""
    by_cpu = int(node.get("CPU", 0) // cpus)
    return min(by_cpu, int(node.get("GPU", 0) / gpus + 1e-9)) if gpus else by_cpu


def _packed(spec: TrialSpec, setting: Setting) -> dict[str, Any]:
    """Plain data for a worker."""
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(setting).items()}
    return {"id": spec.id, "spec": spec.model_dump_json(), "setting": plain}


def _trainable(config: dict[str, Any]) -> None:
    """In the worker: one trial, its record saved."""
    packed = config["trial"]
    plain = packed["setting"]
    setting = Setting(**{**plain, "runs": Path(plain["runs"]), "data": Path(plain["data"])})
    spec = TrialSpec.model_validate_json(packed["spec"])
    record = run(spec, setting, lambda progress: tune.report(asdict(progress)))
    records.save(record, setting.runs)


def _trial_id(trial) -> str:
    return trial.config["trial"]["id"]


class _Listener(tune.Callback):
    """Tune's callbacks to our events. A callback that raises would abort the whole fit, so none may."""

    def __init__(self, specs: list[TrialSpec], setting: Setting, on_event: OnEvent):
        self._specs = {spec.id: spec for spec in specs}
        self._setting, self._on_event = setting, on_event
        known, _ = records.load_all(setting.runs, list(self._specs))
        self._before = {trial: records.digest(record) for trial, record in known.items()}

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles its callbacks into its own state file; nothing of ours belongs there."""
        return {}

    def on_trial_start(self, iteration: int, trials: list, trial, **info) -> None:
        """A worker has the trial."""
        self._tell("started", trial)

    def on_trial_result(self, iteration: int, trials: list, trial, result: dict, **info) -> None:
        """A trial reported progress; the bare result at the end of a function is none."""
        if "step" in result:
            progress = Progress(**{name: result[name] for name in Progress.__dataclass_fields__})
            self._tell("progress", trial, progress=progress)

    def on_trial_complete(self, iteration: int, trials: list, trial, **info) -> None:
        """The function returned: its record is there, or the trial is lost."""
        self._finished(trial, "the worker ended without a record")

    def on_trial_error(self, iteration: int, trials: list, trial, **info) -> None:
        """The worker died for good; a record is there only if it died after saving."""
        error = trial.get_error()
        cause = getattr(error, "cause", None) or error
        reason = f"{type(cause).__name__}: {cause}".strip().splitlines()[0] if cause else "no reason given"
        self._finished(trial, f"the worker died ({reason})")

    def _finished(self, trial, otherwise: str) -> None:
        record = None
        try:
            record = records.load(self._setting.runs, _trial_id(trial))
        except RecordError as damaged:
            otherwise = str(damaged)
        if record is not None and records.digest(record) == self._before.get(record.id):
            record = None  # of an earlier run: this one died before it began
        self._tell("finished", trial, record=record, message="" if record else otherwise)

    def _tell(self, kind: str, trial, **what) -> None:
        try:
            self._on_event(Event(kind=kind, spec=self._specs[_trial_id(trial)], **what))
        except Exception as error:
            print(f"watching trial {_trial_id(trial)} failed: {type(error).__name__}: {error}", file=sys.stderr)
