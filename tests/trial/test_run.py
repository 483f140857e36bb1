"""A trial from spec to record: statuses, routes, measures, that the numbers mean what they should; what its workers'
ends mean. The further workers of a data-parallel trial: tests/gpu/test_data_parallel.py.
"""

import signal
from dataclasses import replace
from pathlib import Path

import handmade
import pytest
import torch
from disturbed import suite_text
from torch._subclasses import FakeTensor
from trained import before_steps, loaded, outcome, ran

from harness import plan
from harness.corpora.vocabulary import UNK
from harness.errors import CorpusError, StorageError
from harness.kernels import products
from harness.kernels.products import Products
from harness.plan.suite_file import DynamicSpec, MeasureSpec
from harness.records import metrics, sidecars, store
from harness.registry import CORPORA, HEADS
from harness.training.checkpoint import BEST, Checkpoints, load_weights, weights_sha256
from harness.training.evaluation import Score
from harness.trial import routes
from harness.trial.log import LOG_NAME
from harness.trial.run import Ended, Failed, settle
from harness.trial.setup import load_planned
from harness.trial.trained import rebuilt
from harness.trial.workers import LostWorker


@pytest.fixture
def execute(tiny_suite, tmp_path):
    """A function: overrides, number of a trial, what its task has -> the record of a trial of the tiny suite."""

    def execute(*overrides, number=0, **task):
        return ran(plan.load(tiny_suite, overrides).trials[number], tmp_path, **task)

    return execute


def log_of(record, runs) -> str:
    return (store.folder(runs, record.id) / LOG_NAME).read_text()


def before_heads(monkeypatch, act) -> None:
    """`act` is called before each forward pass of softmax, with the head; but not where FLOPs are counted."""
    plain = HEADS.get("softmax").forward

    def forward(self, hidden):
        if not isinstance(hidden.layers[-1], FakeTensor):
            act(self)
        return plain(self, hidden)

    monkeypatch.setattr(HEADS.get("softmax"), "forward", forward)


def test_the_record_is_of_the_best_weights_and_what_each_test_token_costs_which_lie_beside_it(execute, tmp_path):
    record = execute()
    weights = load_weights(store.folder(tmp_path, record.id) / BEST, torch.device("cpu"))
    assert record.weights_sha256 == weights_sha256(weights)
    assert set(record.metrics) <= set(metrics.METRICS)
    assert record.metrics["valid_ppl"] == min(point.valid_ppl for point in record.curve)
    kept = sidecars.TOKEN_NLL.load(tmp_path, record)  # which compares it with the record
    corpus = load_planned(record.spec, Path("no data"), None)
    assert kept.count.tolist() == [corpus.train.tolist().count(token) for token in corpus.test.tolist()]
    without = execute(number=1, measure=MeasureSpec(token_nll=False))
    assert sidecars.TOKEN_NLL.load(tmp_path, without) is None


def test_the_digest_of_weights_sees_values_names_and_types():
    weights = {"a": torch.zeros(2), "b": torch.ones(())}
    others = [
        {"a": torch.zeros(2), "b": torch.full((), 1.0000001)},
        {"a": torch.zeros(2), "c": torch.ones(())},
        {"a": torch.zeros(2).double(), "b": torch.ones(())},
        {"a": torch.zeros(1, 2), "b": torch.ones(())},
    ]
    assert weights_sha256(dict(reversed(weights.items()))) == weights_sha256(weights)
    assert len({weights_sha256(each) for each in [weights, *others]}) == 5


@pytest.mark.parametrize(
    ("overrides", "status", "message"),
    [
        (["train.optimizer=sgd", "train.lr=1e38"], "diverged", "Diverged: training loss is nan"),
        # what is refused before anything is trained
        (["train.precision=tf32"], "error", "ExecutionError: train.precision is tf32"),
        (["train.cuda_graph=on"], "error", "ExecutionError: train.cuda_graph is on"),
        (["train.eval_stride=3"], "error", "ExecutionError: train.eval_stride is for backbones without state"),
    ],
)
def test_a_trial_that_cannot_end_well_has_a_status_one_line_and_a_log(execute, tmp_path, overrides, status, message):
    record = execute(*overrides)
    assert record.status == status
    assert record.message.startswith(message)
    assert "\n" not in record.message
    assert "Traceback" in log_of(record, tmp_path)
    assert record.curve == ()


def test_a_perplexity_that_no_record_may_hold_is_a_trial_that_diverged(execute, tmp_path, monkeypatch):
    score = Score(nll_sum=700.0, num_scored=1, num_counted=1)  # e^700 is 1e304, which is a float
    monkeypatch.setattr("harness.training.evaluation.evaluate", lambda *arguments, **more: (score, None))
    record = execute()
    assert record.status == "diverged"
    assert record.message.startswith("Diverged: test perplexity is 1.0142320547350045e+304")
    assert store.load(tmp_path, record.id) == record


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RuntimeError("planted\nsecond line"), "error"),
        (MemoryError(), "oom"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), "oom"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes"), "oom"),
    ],
)
def test_a_failure_inside_a_trial_is_its_status_and_what_was_measured_is_kept(error, status, execute, monkeypatch):
    calls = []

    def fail(head):
        calls.append(head.training)
        if calls.count(True) > 2 * 15:  # 100 tokens a column: 99 targets in segments of 7 are 15 steps an epoch
            raise error

    before_heads(monkeypatch, fail)
    record = execute("train.epochs=5")
    assert (record.status, [point.epoch for point in record.curve]) == (status, [1, 2])
    assert record.message.startswith(type(error).__name__)
    assert record.weights_sha256 is None
    assert record.metrics["params_total"] > record.metrics["params_head"] > 0


def test_a_trial_that_cannot_be_saved_when_it_is_asked_to_stop_says_so(tiny_suite, tmp_path, monkeypatch):
    def full(self, *_):
        raise StorageError("no space left")

    monkeypatch.setattr(Checkpoints, "save", full)
    spec = plan.load(tiny_suite).trials[0]
    with (
        before_steps(lambda number: signal.raise_signal(signal.SIGINT)),
        pytest.raises((StorageError, KeyboardInterrupt)) as raised,  # pytest itself ends at a KeyboardInterrupt
    ):
        ran(spec, tmp_path)
    assert (raised.type, str(raised.value)) == (StorageError, "no space left")
    said = "interrupted: the process was asked to end, and the trial is not saved: no space left"
    assert said in log_of(spec, tmp_path)


@pytest.mark.parametrize(("proven", "allowed"), [("onednn", "bf16"), ("default", "ieee")])
def test_every_product_takes_the_proven_route_and_evaluation_is_in_float32(proven, allowed, execute, monkeypatch):
    backend, seen, asked = torch.backends.mkldnn.matmul, set(), []
    before = backend.fp32_precision
    before_heads(monkeypatch, lambda head: seen.add((head.training, products.current(), backend.fp32_precision)))
    monkeypatch.setattr(routes, "checked_route", lambda route: asked.append(route) or proven)
    record = execute("train.precision=bf16", "train.epochs=1", route="onednn")
    assert record.status == "ok", record.message
    expected = [(True, Products("bf16", proven)), (False, Products("fp32", proven))]
    assert seen == {(*each, allowed) for each in expected}
    assert backend.fp32_precision == before
    assert products.current() == Products()
    assert asked == ["onednn"]
    assert (record.environment.matmul_route, record.environment.cuda_graph) == (proven, False)


@pytest.mark.system
def test_torch_threads_are_set_for_the_trial_and_put_back(execute, monkeypatch):
    seen = set()
    before_heads(monkeypatch, lambda head: seen.add(torch.get_num_threads()))
    assert execute(threads=2).environment.threads == 2
    assert seen == {2}
    assert torch.get_num_threads() == 1


@pytest.fixture
def task(tiny_suite, tmp_path):
    """That of a trial whose workers were ended."""
    spec = plan.load(tiny_suite).trials[0]
    train = spec.train.model_copy(update={"data_parallel": 2})
    return handmade.task(spec.model_copy(update={"train": train}), tmp_path, executor="ray")


def test_the_record_of_the_first_worker_or_of_what_a_further_one_raised_stands(task):
    settle(task, {0: LostWorker("gone"), 1: Failed("oom", "MemoryError: planted", "Traceback: here")})
    record = store.load(task.runs, task.id)
    assert (record.status, record.message) == ("oom", "MemoryError: planted")
    assert "worker 1 of 2:\nTraceback: here" in (task.folder / "trial.log").read_text()
    settle(task, {0: Ended("ended"), 1: Failed("error", "another", "")})
    assert store.load(task.runs, task.id) == record
    with pytest.raises(LostWorker):  # it is the one to be replaced
        settle(replace(task, replaces=store.digest(record)), {1: RuntimeError("killed")})


@pytest.mark.parametrize(
    ("failures", "fault", "message"),
    [
        ({0: StorageError("a full disk"), 1: LostWorker("gone")}, StorageError, "a full disk"),
        ({0: CorpusError("no corpus"), 1: LostWorker("gone")}, CorpusError, "no corpus"),
        # a lost worker is for others to follow
        ({}, LostWorker, "the workers could not be started"),
        ({0: LostWorker("gone"), 1: RuntimeError("the actor died")}, LostWorker, "actor died"),
    ],
    ids=str,
)
def test_what_is_no_fault_of_the_trial_leaves_no_record(task, failures, fault, message):
    with pytest.raises(fault, match=message):
        settle(task, failures)
    assert store.load(task.runs, task.id) is None


TRAIN = "train: {optimizer: adam, lr: 0.01, epochs: 1, batch_size: 4, seq_len: 7}"
NEW = {"test_calibration_error", "test_entropy", "start_valid_ppl", "inference_batch"} | {
    f"inference_ms_per_batch{more}" for more in ("", "_iqr")
}
ALL = MeasureSpec(start=True, inference_batch=2, calibration=True)
DYNAMIC = MeasureSpec(dynamic=DynamicSpec(batch_size=4))


TEXT = suite_text("softmax", corpus="{embedded: {characters: 1500}}", train=TRAIN)


@pytest.fixture
def executed(tmp_path):
    """A function: measures, changes of the suite -> the record of its trial on a novel's beginning."""

    def execute(measure=None, *overrides, trial=0):
        spec = loaded(tmp_path, TEXT, *overrides).trials[trial]
        return ran(spec, tmp_path / str(measure), measure=measure or MeasureSpec())

    return execute


def test_measures_are_in_the_record_where_they_are_asked_for_and_change_no_result(executed):
    plain, asked = executed(), executed(ALL)
    assert outcome(plain)[:2] == outcome(asked)[:2]
    assert plain.id == asked.id
    assert not NEW & set(plain.metrics)
    assert set(asked.metrics) >= NEW
    assert asked.metrics["inference_batch"] == 2
    untrained = executed(ALL, "train.epochs=0").metrics
    assert untrained["start_valid_ppl"] == untrained["valid_ppl"]
    assert untrained["best_epoch"] == 0


@pytest.mark.needs("awd")
def test_dynamic_evaluation_has_columns_of_its_own_and_changes_no_other_number(executed):
    plain, asked = executed(), executed(DYNAMIC)
    assert outcome(plain)[:2] == outcome(asked)[:2]
    settings = {"dynamic_lr", "dynamic_decay", "dynamic_epsilon", "dynamic_seq_len", "dynamic_batch_size"}
    assert set(asked.metrics) - set(plain.metrics) == {"dynamic_valid_ppl", "dynamic_test_ppl"} | settings
    assert DynamicSpec.of_metrics(asked.metrics) == DYNAMIC.dynamic
    assert asked.metrics["dynamic_test_ppl"] != pytest.approx(asked.metrics["test_ppl"], rel=1e-4)
    counted = executed(DYNAMIC, "ngrams=[2]", 'corpora=["embedded"]', trial=-1)
    assert counted.status == "ok", counted.message
    assert "dynamic_test_ppl" not in counted.metrics


def test_a_head_that_learns_the_bytes_of_tokens_has_those_of_the_corpus_when_a_trial_is_loaded(tmp_path):
    (spec,) = loaded(tmp_path, TEXT.replace("- softmax", "- byte_loss: {num_bytes: 3}")).trials
    record = ran(spec, tmp_path / "runs")
    assert record.status == "ok", record.message
    corpus = CORPORA.get("embedded")(characters=1500).load(Path())
    head = rebuilt(record, tmp_path / "runs" / spec.id / BEST, corpus, torch.device("cpu")).model.head
    expected = []
    for word in corpus.symbols:
        symbols = [] if word in (UNK, "<eos>") else [*word.encode(), 256]
        expected.append((symbols + [-1] * 3)[:3])
    assert head.symbols_Vn.tolist() == expected
