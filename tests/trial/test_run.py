"""A trial from spec to record: statuses, repeatability, and that the numbers mean what they should."""

import signal
from functools import partial
from pathlib import Path

import handmade
import pytest
import torch

from harness import plan
from harness.errors import StorageError
from harness.kernels import products
from harness.kernels.products import Products
from harness.plan.suite_file import MeasureSpec
from harness.records import metrics, sidecars, store
from harness.registry import HEADS
from harness.training.checkpoint import BEST, Checkpoints, load_weights, weights_sha256
from harness.training.evaluation import Score
from harness.training.step import EagerStep
from harness.trial.log import LOG_NAME
from harness.trial.run import run
from harness.trial.setup import load_planned


def load(tmp_path, text, *overrides):
    path = tmp_path / "suite.yaml"
    path.write_text(text)
    return plan.load(path, overrides)


def execute(spec, tmp_path, name="suite"):
    setting = partial(handmade.task, runs=tmp_path / "runs")
    return run(setting(spec=spec))


def test_the_same_spec_twice_gives_the_same_weights_and_scores(tiny_suite, tmp_path):
    spec = plan.load(tiny_suite).trials[-1]
    first, second = (execute(spec, tmp_path / name) for name in ("a", "b"))
    assert first.weights_sha256 == second.weights_sha256
    scores = [{k: v for k, v in r.metrics.items() if "ppl" in k or "params" in k} for r in (first, second)]
    assert scores[0] == scores[1]
    assert [p.valid_ppl for p in first.curve] == [p.valid_ppl for p in second.curve]


def test_the_record_is_of_the_best_weights_that_lie_beside_it(tiny_suite, tmp_path):
    spec = plan.load(tiny_suite).trials[0]
    record = execute(spec, tmp_path)
    folder = store.folder(tmp_path / "runs", spec.id)
    weights = load_weights(folder / BEST, torch.device("cpu"))
    assert record.weights_sha256 == weights_sha256(weights)
    assert set(record.metrics) <= set(metrics.METRICS)
    assert record.metrics["valid_ppl"] == min(point.valid_ppl for point in record.curve)


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


def test_divergence_is_a_status_with_one_line_and_a_log(tiny_suite, tmp_path):
    spec = plan.load(tiny_suite, ("train.optimizer=sgd", "train.lr=1e38")).trials[0]
    record = execute(spec, tmp_path)
    assert record.status == "diverged"
    assert "loss is" in record.message
    assert "\n" not in record.message
    assert "Traceback" in (store.folder(tmp_path / "runs", spec.id) / LOG_NAME).read_text()


@pytest.mark.guards("perplexity-of-record")
def test_a_perplexity_that_no_record_may_hold_is_a_trial_that_diverged(tiny_suite, tmp_path, monkeypatch):
    score = Score(nll_sum=700.0, num_scored=1, num_counted=1)  # e^700 is 1e304, which is a float
    monkeypatch.setattr("harness.training.evaluation.evaluate", lambda *arguments, **more: (score, None))
    record = execute(plan.load(tiny_suite).trials[0], tmp_path)
    assert record.status == "diverged"
    assert record.message.startswith("Diverged: test perplexity is 1.0142320547350045e+304")
    assert store.load(tmp_path / "runs", record.id) == record


def test_a_trial_that_fails_late_keeps_what_it_had_measured(tiny_suite, tmp_path, monkeypatch):
    calls = []
    forward = HEADS.get("softmax").forward

    def fails_in_the_third_epoch(self, hidden):
        calls.append(self.training)
        if calls.count(True) > 2 * 15:  # 100 tokens a column: 99 targets in segments of 7 are 15 steps an epoch
            raise RuntimeError("planted")
        return forward(self, hidden)

    monkeypatch.setattr(HEADS.get("softmax"), "forward", fails_in_the_third_epoch)
    record = execute(plan.load(tiny_suite, ("train.epochs=5",)).trials[0], tmp_path)
    assert (record.status, [point.epoch for point in record.curve]) == ("error", [1, 2])
    assert record.metrics["params_total"] > record.metrics["params_head"] > 0


@pytest.mark.guards("failure-as-status", "no-memory-is-oom")
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RuntimeError("planted\nsecond line"), "error"),
        (torch.OutOfMemoryError("CUDA out of memory"), "oom"),
        (MemoryError(), "oom"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes"), "oom"),
    ],
)
def test_a_failure_inside_a_trial_is_its_status(error, status, tiny_suite, tmp_path, monkeypatch):
    def fail(self, hidden):
        raise error

    monkeypatch.setattr(HEADS.get("softmax"), "forward", fail)
    record = execute(plan.load(tiny_suite).trials[0], tmp_path)
    assert record.status == status
    assert record.message.startswith(type(error).__name__)
    assert record.weights_sha256 is None


def test_ctrl_c_is_not_swallowed(tiny_suite, tmp_path, monkeypatch):
    def interrupted(self, hidden):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(HEADS.get("softmax"), "forward", interrupted)
    with pytest.raises(KeyboardInterrupt):
        execute(plan.load(tiny_suite).trials[0], tmp_path)


@pytest.mark.guards("cannot-be-saved")
def test_a_trial_that_cannot_be_saved_when_it_is_asked_to_stop_says_so(tiny_suite, tmp_path, monkeypatch):
    def full(self, *_):
        raise StorageError("no space left")

    def begin(self):
        signal.raise_signal(signal.SIGINT)
        return begun(self)

    begun = EagerStep.begin_epoch
    monkeypatch.setattr(EagerStep, "begin_epoch", begin)
    monkeypatch.setattr(Checkpoints, "save", full)
    spec = plan.load(tiny_suite).trials[0]
    with pytest.raises((StorageError, KeyboardInterrupt)) as raised:  # pytest itself ends at a KeyboardInterrupt
        execute(spec, tmp_path)
    assert (raised.type, str(raised.value)) == (StorageError, "no space left")
    log = (store.folder(tmp_path / "runs", spec.id) / LOG_NAME).read_text()
    assert "interrupted: the process was asked to end, and the trial is not saved: no space left" in log


@pytest.mark.parametrize(("proven", "allowed"), [("onednn", "bf16"), ("default", "ieee")])
def test_every_product_takes_the_proven_route_and_evaluation_is_in_float32(
    proven, allowed, tiny_suite, tmp_path, monkeypatch
):
    backend, forward, seen = torch.backends.mkldnn.matmul, HEADS.get("softmax").forward, set()
    before = backend.fp32_precision

    def spy(self, hidden):
        seen.add((self.training, products.current(), backend.fp32_precision))
        return forward(self, hidden)

    asked = []
    monkeypatch.setattr(HEADS.get("softmax"), "forward", spy)
    monkeypatch.setattr(products, "checked_route", lambda route: asked.append(route) or proven)
    spec = plan.load(tiny_suite, ("train.precision=bf16", "train.epochs=1")).trials[0]
    setting = partial(handmade.task, runs=tmp_path, route="onednn")
    record = run(setting(spec=spec))
    assert record.status == "ok", record.message
    expected = [(True, Products("bf16", proven)), (False, Products("fp32", proven))]
    assert seen == {(*each, allowed) for each in expected}
    assert backend.fp32_precision == before
    assert products.current() == Products()
    assert asked == ["onednn"]
    assert (record.environment.matmul_route, record.environment.cuda_graph) == (proven, False)


@pytest.mark.parametrize("setting", ["train.precision=tf32", "train.cuda_graph=on"])
def test_what_the_device_cannot_do_is_an_error_of_one_sentence(setting, tiny_suite, tmp_path):
    record = execute(plan.load(tiny_suite, (setting,)).trials[0], tmp_path)
    assert record.status == "error"
    assert record.message.startswith(f"ExecutionError: {setting.replace('=', ' is ')}")


@pytest.mark.guards("torch-threads")
def test_torch_threads_are_set_for_the_trial_and_put_back(tiny_suite, tmp_path, monkeypatch):
    seen = []
    forward = HEADS.get("softmax").forward
    monkeypatch.setattr(
        HEADS.get("softmax"), "forward", lambda self, h: (seen.append(torch.get_num_threads()), forward(self, h))[1]
    )
    spec = plan.load(tiny_suite).trials[0]
    setting = partial(handmade.task, runs=tmp_path, threads=2)
    assert run(setting(spec=spec)).environment.threads == 2
    assert set(seen) == {2}
    assert torch.get_num_threads() == 1


def test_what_each_test_token_costs_is_kept_beside_the_record(tiny_suite, tmp_path):
    suite = plan.load(tiny_suite)
    record = execute(suite.trials[-1], tmp_path)
    kept = sidecars.TOKEN_NLL.load(tmp_path / "runs", record)  # which compares it with the record
    corpus = load_planned(suite.trials[-1], Path("no data"), suite.contents)
    assert kept.nll.shape == (len(corpus.test),)
    assert kept.count.tolist() == [corpus.train.tolist().count(token) for token in corpus.test.tolist()]


def test_a_suite_may_keep_no_scores_of_tokens(tiny_suite, tmp_path):
    spec, measure = plan.load(tiny_suite).trials[-1], MeasureSpec(token_nll=False)
    setting = partial(
        handmade.task,
        runs=tmp_path / "runs",
        measure=measure,
    )
    record = run(setting(spec=spec))
    assert sidecars.TOKEN_NLL.load(tmp_path / "runs", record) is None
