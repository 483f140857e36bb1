"""Two data-parallel workers without Ray: processes of their own, started afresh (this file, run as a script), since
forking pytest, which has threads, can hang for ever. They do everything once, and the tests look at what they left.
"""

import json
import os
import subprocess
import sys
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from harness import plan
from harness.corpora.batching import training_segments
from harness.gpu.data_parallel import WorkersOfTorch, parallel
from harness.machine.stop_request import Interrupted
from harness.model import build
from harness.plan.specs import ComponentSpec, TrainSpec
from harness.plan.suite_file import CheckpointSpec
from harness.random_streams import stream_seed
from harness.records import store
from harness.training.optimizers import make_optimizer
from harness.training.step import EagerStep
from harness.trial.run import Failed, follow, run
from harness.trial.task import Task
from harness.trial.workers import LostWorker, Workers

pytestmark = pytest.mark.system
V, SEED = 11, 5
TOKENS = torch.randint(V, (130,), generator=torch.Generator().manual_seed(0))  # 4 columns of 32: 7 + 7 + 7 + 7 + 3
LSTM = ComponentSpec(name="lstm", params={"d_model": 6, "num_layers": 2, "dropout": 0.0})
TRANSFORMER = ComponentSpec(
    name="transformer_encoder",
    params={"d_model": 6, "num_layers": 3, "num_heads": 2, "d_ff": 5, "dropout": 0.0, "layer_dropout": 0.0},
)
CASES = {  # Adam's eps: its default makes whole steps of the rounding of a gradient that is zero, a key's bias'
    "lstm softmax": (LSTM, ComponentSpec(name="softmax"), {"clip": 0.2}),
    "lstm mos tied with a z-loss": (
        *(LSTM, ComponentSpec(name="mos", params={"num_mixtures": 3, "tie_weights": True})),
        {"momentum": 0.5, "z_loss": 0.1},
    ),
    "lstm mos in parts": (LSTM, ComponentSpec(name="mos", params={"num_mixtures": 3}), {"accumulation": 2}),
    "transformer mfs": (TRANSFORMER, ComponentSpec(name="mfs", params={"num_partitions": 2, "window": 1}), {}),
    "transformer adam": (TRANSFORMER, ComponentSpec(name="softmax"), {"optimizer": "adam", "lr": 0.01, "eps": 1e-3}),
}
SUITE = """\
name: tiny
version: 1
corpora: [{markov: {vocab_size: 12, num_tokens: 400, branching: 3}}]
backbones:
  - lstm: {d_model: 8, num_layers: 2, dropout: DROPOUT}
  - transformer_encoder: {d_model: 8, num_layers: 2, num_heads: 2, d_ff: 8, dropout: DROPOUT, layer_dropout: 0.0}
heads: [{mos: {num_mixtures: 2}}]
train: {optimizer: adam, lr: 0.01, schedule: {plateau: {factor: 0.5}}, epochs: 3, batch_size: 4, seq_len: 7}
seeds: [1]
measure: {start: true}
"""
STEPS = 15  # an epoch: 400 tokens in 4 columns of 100, 99 targets in segments of 7
CUT = 20  # step, over the whole trial, before which workers are interrupted


def step_of(name: str, workers: int = 1, dtype=torch.float64, seed: int = 1) -> EagerStep:
    backbone, head, changes = CASES[name]
    settings = {"optimizer": "sgd", "lr": 0.5, "epochs": 1, "batch_size": 4, "seq_len": 7, **changes}
    model = build(backbone, head, vocab_size=V, seed=seed).to(dtype)
    train = TrainSpec(data_parallel=workers, **settings)
    return EagerStep(model, make_optimizer(model, train), train)


def trained(step) -> torch.Tensor:
    """The loss summed over an epoch."""
    step.begin_epoch()
    for number, segment in enumerate(training_segments(TOKENS, batch_size=4, seq_len=7)):
        torch.manual_seed(SEED + number)
        step(segment)
    return step.loss_sum


def trials(folder: Path, workers: int, dropout: float = 0.0) -> tuple:
    """The trials of the LSTM and of the transformer."""
    path = folder / f"suite{os.getpid()}.yaml"
    path.write_text(SUITE.replace("DROPOUT", str(dropout)))
    return plan.load(path, (f"train.data_parallel={workers}",)).trials


def setting_of(runs: Path, measure, minutes: float = 10.0) -> partial:
    pace = CheckpointSpec(minutes=minutes)
    where = {"suite": "tiny", "runs": runs, "data": runs, "device": "cpu", "executor": "inline"}
    return partial(Task, **where, checkpoint=pace, measure=measure)


class Worker:
    """In a worker's process: what is done there, each part once.

    Args:
        folder: where both leave what the tests look at.
    """

    def __init__(self, rank: int, folder: Path):
        self.rank, self.folder = rank, folder
        self.found: dict = {}

    def do(self) -> None:
        """All of it; the last part ends the process group."""
        store = f"file://{self.folder}/store"
        limit = timedelta(seconds=1000)
        dist.init_process_group("gloo", init_method=store, rank=self.rank, world_size=2, timeout=limit)
        self.steps()
        self.masks()
        self.unlike()
        measure = plan.load(self._suite()).measure
        self.whole = setting_of(self.folder / "whole", measure)
        self.cut = setting_of(self.folder / "cut", measure, minutes=1e-9)
        self.disturbed()
        (self.folder / f"found{self.rank}.json").write_text(json.dumps(self.found))
        self.lost()

    def steps(self) -> None:
        for name in CASES:
            for dtype in (torch.float64, torch.float32):
                own, logged = step_of(name, 2, dtype), []
                step = parallel(own, self._segments()[0], workers=WorkersOfTorch(self.rank, 2), log=logged.append)
                kept = {"loss": trained(step), "state": step.state_dict(), "resumable": step.resumable}
                kept |= {"parameters": [each.detach() for each in own.parameters], "logged": logged}
                torch.save(kept, self.folder / f"{name}-{dtype}-{self.rank}.pt")

    def masks(self) -> None:
        seen, own = [], step_of("lstm softmax", 2)
        own.model.register_forward_pre_hook(
            lambda *given: seen.append((torch.initial_seed(), given[1][0].inputs.tolist()))
        )
        step = parallel(own, self._segments()[0], workers=WorkersOfTorch(self.rank, 2), log=lambda text: None)
        trained(step)
        self.found["seeds"] = [seed for seed, _ in seen]
        self.found["rows"] = seen[0][1]

    def unlike(self) -> None:
        self.found["unlike"] = ""
        try:
            WorkersOfTorch(self.rank, 2).refuse_unlike(step_of("lstm softmax", 2, seed=self.rank).model)
        except RuntimeError as error:
            self.found["unlike"] = str(error)

    def disturbed(self) -> None:
        """Trials with dropout, undisturbed and interrupted; then without, for the curve."""
        for spec in trials(self.folder, 2, dropout=0.1):
            self._trial(spec, self.whole)
            advance, done = EagerStep.advance, []

            def interrupted(step, *given, advance=advance, done=done):
                done.append(1)
                if len(done) > CUT:
                    raise Interrupted
                return advance(step, *given)

            EagerStep.advance = interrupted
            with suppress(KeyboardInterrupt):
                self._trial(spec, self.cut)
            EagerStep.advance = advance
            assert len(done) == CUT + 1
            self._trial(spec, self.cut)
        for spec in trials(self.folder, 2):
            self.found["dismissed"] = self._trial(spec, self.whole).dismissed

    def lost(self) -> None:
        """The second worker goes away in the midst of a trial."""
        (spec, _) = trials(self.folder, 2)
        failing = setting_of(self.folder / "lost", self.whole.keywords["measure"])
        advance = EagerStep.advance

        def leaving(step, *given):
            if self.rank:
                raise MemoryError("planted")
            return advance(step, *given)

        EagerStep.advance = leaving
        try:
            self._trial(spec, failing)
            ended = "well"
        except Failed as failed:
            ended = [failed.status, failed.message, "planted" in failed.trace]
            dist.destroy_process_group()  # what the end of its process does
        except LostWorker:
            ended = "lost"
        (self.folder / f"ended{self.rank}.json").write_text(json.dumps(ended))

    def _trial(self, spec, setting: partial) -> Workers:
        workers = WorkersOfTorch(self.rank, 2)
        if self.rank:
            follow(setting(spec=spec), workers)
        else:
            run(setting(spec=spec), workers=workers)
        return workers

    def _segments(self):
        return training_segments(TOKENS, batch_size=4, seq_len=7)

    def _suite(self) -> Path:
        trials(self.folder, 2)
        return self.folder / f"suite{os.getpid()}.yaml"


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """What two workers left, by the name of their folder's files."""
    folder = tmp_path_factory.mktemp("parallel")
    logs = [(folder / f"log{rank}").open("w") for rank in (0, 1)]
    started = [
        subprocess.Popen([sys.executable, __file__, str(rank), str(folder)], stderr=logs[rank]) for rank in (0, 1)
    ]
    try:
        codes = [process.wait(timeout=1000) for process in started]
    finally:
        for process, log in zip(started, logs, strict=True):
            process.kill()
            log.close()
    assert codes == [0, 0], "\n".join((folder / f"log{rank}").read_text()[-3000:] for rank in (0, 1))
    found = [json.loads((folder / f"found{rank}.json").read_text()) for rank in (0, 1)]
    ended = [json.loads((folder / f"ended{rank}.json").read_text()) for rank in (0, 1)]
    return SimpleNamespace(folder=folder, found=found, ended=ended)


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-12), (torch.float32, 2e-6)], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_two_workers_train_as_one_with_the_whole_batch(left, name, dtype, atol):
    whole = step_of(name, dtype=dtype)
    before = [each.detach().clone() for each in whole.parameters]
    loss = trained(whole).item()
    first, second = (torch.load(left.folder / f"{name}-{dtype}-{rank}.pt", weights_only=True) for rank in (0, 1))
    for one, other, expected in zip(first["parameters"], second["parameters"], whole.parameters, strict=True):
        torch.testing.assert_close(one, expected, rtol=0, atol=atol)
        assert torch.equal(one, other)
    assert max((a - b).abs().max().item() for a, b in zip(whole.parameters, before, strict=True)) > 0.01
    assert first["loss"].item() == second["loss"].item() == pytest.approx(loss, rel=atol)


def test_a_step_whose_state_other_workers_carry_is_not_resumable(left):
    carried, none = (
        torch.load(left.folder / f"{name}-{torch.float64}-0.pt", weights_only=True)
        for name in ("lstm softmax", "transformer mfs")
    )
    assert not carried["resumable"]
    assert none["resumable"]
    assert none["state"]["loss_sum"] == none["loss"]
    assert none["state"]["carried"] is None


def test_the_first_worker_draws_as_one_alone_and_the_others_from_streams_of_their_own(left):
    first, second = (found["seeds"] for found in left.found)
    assert first == [SEED + number for number in range(5)]
    assert second == [stream_seed(SEED + number, "worker", 1) for number in range(5)]


def test_each_worker_has_its_rows(left):
    (segment, *_) = training_segments(TOKENS, batch_size=4, seq_len=7)
    assert [found["rows"] for found in left.found] == [segment.inputs[:2].tolist(), segment.inputs[2:].tolist()]


def test_other_weights_than_the_firsts_are_refused(left):
    assert [found["unlike"] for found in left.found] == ["", "worker 1 of 2 starts from other weights than the first"]


@pytest.mark.parametrize("index", [0, 1], ids=["lstm", "transformer"])
def test_the_curve_is_that_of_one_worker_with_the_whole_batch(left, tmp_path, index):
    ours = store.load(left.folder / "whole", trials(tmp_path, 2)[index].id)
    spec = trials(tmp_path, 1)[index]
    alone = run(setting_of(tmp_path, plan.load(next(tmp_path.glob("*.yaml"))).measure)(spec=spec))
    assert (ours.status, ours.spec.train.data_parallel, ours.environment.cuda_graph) == ("ok", 2, False)
    for mine, theirs in zip(ours.curve, alone.curve, strict=True):
        assert mine.train_loss == pytest.approx(theirs.train_loss, rel=2e-6)
        assert mine.valid_ppl == pytest.approx(theirs.valid_ppl, rel=1e-5)
        assert (mine.epoch, mine.lr) == (theirs.epoch, theirs.lr)
    for name in ("start_valid_ppl", "valid_ppl", "test_ppl", "last_test_ppl", "best_epoch"):
        assert ours.metrics[name] == pytest.approx(alone.metrics[name], rel=1e-5)
    assert left.found[0]["dismissed"]
    assert left.found[1]["dismissed"]


@pytest.mark.parametrize(
    ("index", "position"),
    [(0, f"epoch 2, {0} steps"), (1, f"epoch 2, {CUT - STEPS} steps")],
    ids=["lstm", "transformer"],
)
def test_an_interrupted_trial_goes_on_from_where_nothing_is_carried_to_the_same_bits(left, tmp_path, index, position):
    spec = trials(tmp_path, 2, dropout=0.1)[index]
    whole, cut = (store.load(left.folder / name, spec.id) for name in ("whole", "cut"))
    assert (whole.environment.sessions, cut.environment.sessions) == (1, 2)
    assert f"goes on from its checkpoint: {position} done" in (left.folder / "cut" / spec.id / "trial.log").read_text()
    assert cut.weights_sha256 == whole.weights_sha256
    assert [(p.train_loss, p.valid_ppl) for p in cut.curve] == [(p.train_loss, p.valid_ppl) for p in whole.curve]


def test_only_the_first_worker_writes(left, tmp_path):
    for spec in trials(tmp_path, 2, dropout=0.1):
        names = sorted(path.name for path in (left.folder / "cut" / spec.id).iterdir())
        assert names == ["best.pt", "record.json", "test_nll.npz", "trial.log"]
        log = (left.folder / "cut" / spec.id / "trial.log").read_text()
        assert log.count(f"trial {spec.id}: ") == 2  # the first worker's sessions


def test_a_worker_that_fails_says_how_and_the_first_leaves_no_record(left, tmp_path):
    assert left.ended == ["lost", ["oom", "MemoryError: planted", True]]
    spec = trials(tmp_path, 2)[0]
    assert store.load(left.folder / "lost", spec.id) is None
    assert (
        "interrupted: another worker of this trial has ended"
        in (left.folder / "lost" / spec.id / "trial.log").read_text()
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    Worker(int(sys.argv[1]), Path(sys.argv[2])).do()
