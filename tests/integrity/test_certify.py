"""Certificates of trials: what is honest has one whatever its shape, and what cheats has not."""

import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path

import cloudpickle
import handmade
import pytest
import torch
from commands import EVERY_BACKBONE, EVERY_HEAD, TEXT
from disturbed import wait_for

from harness import plan
from harness.distributions import Logits
from harness.heads.softmax import Softmax
from harness.integrity import certifier
from harness.integrity import certify as certifying
from harness.integrity.certifier import NotCertified
from harness.integrity.certify import certify
from harness.records import sidecars, store
from harness.records.record import MEAN_GAP, NLL_GAP, SUM_ERROR
from harness.registry import HEADS
from harness.training.checkpoint import BEST
from harness.trial import stages
from harness.trial.run import run

pytestmark = pytest.mark.system

LSTM = "lstm: {d_model: 8, num_layers: 1}"
TRANSFORMER = "transformer_encoder: {d_model: 8, num_layers: 1, num_heads: 2, d_ff: 8}"
ASKED = "the nll that was counted for a token is not -log_probs of its target, asked in a process of its own"


def suite(tmp_path, heads, backbones=(f"{{{LSTM}}}",), tokens=400, vocab=12, corpus=None, **changes):
    train = {"optimizer": "adam", "lr": 0.01, "epochs": 1, "batch_size": 4, "seq_len": 7, **changes}
    path, markov = tmp_path / "suite.yaml", f"{{markov: {{vocab_size: {vocab}, num_tokens: {tokens}, branching: 3}}}}"
    path.write_text(
        f"name: suite\nversion: 1\ncorpora: [{corpus or markov}]\n"
        f"backbones: [{', '.join(backbones)}]\nheads: [{', '.join(heads)}]\n"
        f"train: {{{', '.join(f'{name}: {value}' for name, value in train.items())}}}\nseeds: [1]\n"
    )
    return plan.load(path)


def ran(spec, tmp_path):
    return run(task_of(spec, tmp_path))


def task_of(spec, tmp_path):
    return partial(handmade.task, runs=tmp_path / "runs")(spec=spec)


def finished(tmp_path, *given, **more):
    """A trial that is finished: its task, and what was counted for the tokens of its test split."""
    (spec,) = suite(tmp_path, *given, **more).trials
    record, task = ran(spec, tmp_path), task_of(spec, tmp_path)
    assert record.status == "ok", record.message
    return task, torch.from_numpy(sidecars.TOKEN_NLL.load(task.runs, record).nll)


def certified(task, test_N, **more):
    """In this process, which has seen the text: an honest head has not remembered it."""
    return certify(task, task.folder / BEST, {"test": test_N}, **more)


WINDOW = "{mfs: {num_partitions: 3, window: 9}}"
# each head on one backbone, each backbone under three heads, and a head that reads a window on each kind of backbone
PAIRS = [
    *zip(EVERY_HEAD, cycle(EVERY_BACKBONE)),
    *((WINDOW, each) for each in (EVERY_BACKBONE[0], *EVERY_BACKBONE[2:])),
]


@pytest.mark.parametrize(("head", "backbone"), PAIRS)
def test_every_head_and_backbone_is_certified_with_room_to_spare(head, backbone, tmp_path):
    (spec,) = suite(tmp_path, [head], [backbone], corpus=TEXT).trials
    record = ran(spec, tmp_path)
    assert (record.status, record.not_certified) == ("ok", ""), record.message
    found = record.certificate
    assert found.positions >= 129  # all of two splits of 37 and 94 tokens
    assert found.sum_error < SUM_ERROR / 10
    assert found.nll_gap < NLL_GAP / 10
    assert found.mean_gap < MEAN_GAP / 10
    assert found.lowest_nll > 0
    directions = {"test", "valid"} | ({"test from the right"} if spec.backbone.name == "bilstm" else set())
    assert found.drawn.keys() == directions


def test_a_head_that_computes_what_a_published_code_does_is_certified_for_that(tmp_path):
    (spec,) = suite(tmp_path, ["{mos: {num_mixtures: 2, compat: {log_epsilon: 1.0e-2}}}"]).trials
    record = ran(spec, tmp_path)
    assert record.status == "ok", record.message
    assert record.certificate.sum_error == pytest.approx(12 * 0.01, rel=1e-3)  # V epsilon
    assert (record.certificate.log_epsilon, record.certificate.vocab_size) == (0.01, 12)


def test_a_perplexity_below_one_is_invalid_and_its_record_counts_though_the_certificate_allows_it(tmp_path):
    (spec,) = suite(tmp_path, ["{mos: {num_mixtures: 2, compat: {log_epsilon: 0.99}}}"]).trials
    record = ran(spec, tmp_path)  # each word's probability is above 0.99, and 1/12 of the rest on average
    assert record.certificate.fault is None
    assert (record.status, record.message[:12]) == ("invalid", "valid_ppl is")
    assert store.load(tmp_path / "runs", spec.id) == record


WAYS = [{}, {"batching": "blocks"}, {"eval_stride": 2}, {"precision": "bf16"}, {"epochs": 0}, {"seq_len": 1}]
WAYS += [{"eval_batches": 1}, {"eval_batch_size": 1}, {"eval_batch_size": 50}]
BOTH_WAYS = [(way, kind) for way in WAYS for kind in (LSTM, TRANSFORMER)]
BOTH_WAYS.remove(({"eval_stride": 2}, LSTM))  # refused: windows are for backbones without state


@pytest.mark.parametrize(("train", "backbone"), BOTH_WAYS)
def test_a_trial_is_certified_however_it_is_evaluated(train, backbone, tmp_path):
    train = {"epochs": 0.1, **train}
    (spec,) = suite(tmp_path, ["{mos: {num_mixtures: 2}}"], [f"{{{backbone}}}"], tokens=6000, **train).trials
    record = ran(spec, tmp_path)
    assert (record.status, record.not_certified) == ("ok", ""), record.message
    found = record.certificate
    assert found.fault is None
    scored = int(record.metrics["scored_test_tokens"])
    assert len(set(found.drawn["test"])) == min(certifying.POSITIONS, scored)
    assert all(0 <= place < 600 for places in found.drawn.values() for place in places)


def test_a_test_split_of_a_few_tokens_is_certified(tmp_path):
    (spec,) = suite(tmp_path, ["softmax"], batch_size=1, tokens=30).trials
    record = ran(spec, tmp_path)
    assert record.status == "ok", record.message
    assert len(record.certificate.drawn["test"]) == record.metrics["scored_test_tokens"]


def test_a_short_text_is_certified_though_most_rows_of_a_batch_have_no_target(tmp_path):
    for _ in range(6):  # the row that is asked beside others is drawn anew
        (spec,) = suite(tmp_path, ["softmax"], batch_size=1, tokens=220, eval_batch_size=20).trials
        task = partial(handmade.task, runs=tmp_path / "runs", fresh=True)(spec=spec)
        record = run(task)
        assert record.status == "ok", record.message
        (task.folder / "record.json").unlink()


KINDS = {  # of the head `cheating` -> what is said of it
    **dict.fromkeys(("scaled", "sigmoid"), "do not sum to 1"),
    "shifted": "below 0, as if its probability were above 1",
    "unnormalised": "they are off by 1.77 ",
    **dict.fromkeys(("constant", "beside_log_probs", "among_targets", "later_states", "honest_alone"), ASKED),
    **dict.fromkeys(("honest_once_asked", "remembers", "most_segments"), ASKED),
}
AHEAD, LARGE = "{looking_ahead: {d_model: 8, num_layers: 1}}", {"tokens": 6_000, "vocab": 60}
# a leak after one word of thirty, at 32 of 600 positions: the 256 that are asked miss all with probability 1e-8
SELDOM = "{looking_ahead: {d_model: 8, num_layers: 1, one_in: 30}}"
CHEATS = {  # head, backbone, further settings, what is said
    **{kind: (f"{{cheating: {{kind: {kind}}}}}", f"{{{LSTM}}}", {}, said) for kind, said in KINDS.items()},
    "ahead": ("softmax", AHEAD, {}, ASKED),
    "ahead of a mixture": ("{mos: {num_mixtures: 2}}", AHEAD, {}, ASKED),
    "told the next tokens": ("{cheating: {kind: told}}", "{telling: {d_model: 8, num_layers: 1}}", {}, ASKED),
    "seldom": ("softmax", SELDOM, LARGE, ASKED),
    "seldom, one column": ("softmax", SELDOM, {**LARGE, "eval_batch_size": 1}, ASKED),
    "seldom, in blocks": ("softmax", SELDOM, {**LARGE, "batching": "blocks"}, ASKED),
    # what is read from the right does not know what was read from the left, nor a row what is in others
    "left known": ("softmax", "{left_known: {d_model: 8, num_layers: 1}}", {}, ASKED),
    "memory of all rows": ("softmax", "{shared_memory: {d_model: 8, num_layers: 1}}", LARGE, ASKED),
    "rows mixed": ("softmax", "{mixing_rows: {d_model: 8, num_layers: 1}}", {}, ASKED),
}


@pytest.mark.parametrize("name", CHEATS)
def test_what_cheats_is_invalid_and_keeps_its_metrics(name, tmp_path, cheating):
    head, backbone, more, said = CHEATS[name]
    (spec,) = suite(tmp_path, [head], [backbone], **more).trials
    record = ran(spec, tmp_path)
    assert record.status == "invalid"
    assert said in record.message
    assert record.message == record.certificate.fault
    assert record.metrics["test_ppl"] > 0


def test_the_same_head_is_certified_where_it_does_not_cheat(tmp_path, cheating):
    (spec,) = suite(tmp_path, ["cheating"]).trials
    assert ran(spec, tmp_path).status == "ok"


@pytest.mark.parametrize(("share", "caught"), [(0.0, False), (0.001, True)])
def test_a_small_lie_on_every_token_is_caught_by_the_mean(share, caught, tmp_path):
    task, test_N = finished(tmp_path, ["softmax"])
    found = certified(task, test_N * (1 - share))
    assert found.nll_gap < NLL_GAP * 1.001
    assert (found.mean_gap > MEAN_GAP) == caught
    assert (found.fault is not None) == caught


def test_nlls_of_other_tokens_are_found_though_their_mean_is_right(tmp_path):
    # Blocks carry no state, so no row is read beside others, which would find this, too.
    task, test_N = finished(tmp_path, ["softmax"], batching="blocks")
    scored_N = ~test_N.isnan()
    test_N[scored_N] = test_N[scored_N].roll(1)
    found = certified(task, test_N)
    assert found.mean_gap <= MEAN_GAP
    assert found.nll_gap > NLL_GAP
    assert ASKED in found.fault


def test_a_lie_about_the_split_that_choices_are_made_by_is_found(tmp_path):
    task, test_N = finished(tmp_path, ["softmax"])
    found = certify(task, task.folder / BEST, {"test": test_N, "valid": torch.full((40,), 0.5)})
    assert ASKED in found.fault


def lie_about_the_best_epoch(trial, built):
    trial.fitted.best = replace(trial.fitted.best, nll_sum=0.99 * trial.fitted.best.nll_sum)


def change_the_text(trial, built):
    built.on_device.train.copy_(built.on_device.train.flip(0))


LATE = {
    "best epoch": (lie_about_the_best_epoch, "was chosen by the validation perplexity"),
    "text": (change_the_text, "the text was changed in memory while the trial ran"),
}


@pytest.mark.parametrize("name", LATE)
def test_what_was_chosen_or_read_before_and_is_otherwise_at_the_end_makes_the_trial_invalid(
    name, tmp_path, monkeypatch
):
    (spec,) = suite(tmp_path, ["softmax"]).trials
    fit, (act, said) = stages.fit, LATE[name]
    monkeypatch.setattr(stages, "fit", lambda trial, built: (fit(trial, built), act(trial, built)))
    record = ran(spec, tmp_path)
    assert record.status == "invalid"
    assert said in record.message


def test_no_nll_of_the_whole_split_is_below_zero_sampled_or_not(tmp_path):
    task, test_N = finished(tmp_path, ["softmax"], tokens=12_000, epochs=0.1)
    alone = 1000
    while alone in certified(task, test_N).drawn["test"]:
        continue
    test_N[alone] = -1.0
    assert "the nll of a test token is -1" in certified(task, test_N).fault
    test_N[alone] = float("inf")
    assert certified(task, test_N).fault == "the nll of a test token is not a finite number"


def test_an_nll_that_is_no_number_is_no_token_that_is_not_scored(tmp_path, monkeypatch):
    (spec,) = suite(tmp_path, ["mixtape"]).trials
    monkeypatch.setattr(Logits, "nll", lambda self, targets: torch.full(targets.shape, float("nan")))
    assert ran(spec, tmp_path).status != "ok"


def test_log_probabilities_that_are_no_numbers_are_a_fault_and_of_another_vocabulary_an_error(tmp_path, monkeypatch):
    task, test_N = finished(tmp_path, ["mixtape"])
    monkeypatch.setattr(Logits, "log_probs", lambda self: self.z_BTV * float("nan"))
    assert "no finite number" in certified(task, test_N).fault
    monkeypatch.setattr(Logits, "log_probs", lambda self: torch.nn.functional.pad(self.z_BTV, (0, 1)))
    with pytest.raises(ValueError, match=r"has shape \(\d+, 1, 13\), expected \(\d+, 1, 12\)"):
        certified(task, test_N)


def test_trials_are_asked_at_different_places_and_those_of_an_earlier_certificate_are_asked_again(tmp_path):
    task, test_N = finished(tmp_path, ["softmax"], tokens=12_000, epochs=0.1)
    first, other = (certified(task, test_N).drawn["test"] for _ in range(2))
    assert first != other
    second = certified(task, test_N, again={"test": first}).drawn["test"]
    assert set(first) < set(second)
    assert certifying.POSITIONS < len(second) <= 2 * certifying.POSITIONS
    assert set(second) - set(first) != set(first)


def test_a_trial_has_the_same_bits_without_its_certificate(tmp_path, monkeypatch):
    (spec,) = suite(tmp_path, ["{mos: {num_mixtures: 2, dropout: 0.1}}"]).trials
    after = []
    monkeypatch.setattr(stages.evaluation, "references", lambda *given: after.append(torch.get_rng_state()) or {})
    whole = ran(spec, tmp_path / "with")
    monkeypatch.setattr(certifier, "certificate", lambda *given, **more: handmade.certificate())
    bare = ran(spec, tmp_path / "without")
    assert whole.weights_sha256 == bare.weights_sha256
    for name in ("test_ppl", "valid_ppl", "last_test_ppl"):
        assert whole.metrics[name] == bare.metrics[name]
    nats = [
        sidecars.TOKEN_NLL.load(tmp_path / name / "runs", each).nll
        for name, each in (("with", whole), ("without", bare))
    ]
    assert torch.equal(*(torch.tensor(each).nan_to_num() for each in nats))
    assert torch.equal(*after)


def test_few_log_probabilities_are_held_at_once(tmp_path, monkeypatch):
    task, test_N = finished(tmp_path, ["mixtape"], tokens=4000)
    monkeypatch.setattr(certifying, "LOG_PROBS", 60)
    sizes, log_probs = [], Logits.log_probs

    def measured(self):
        sizes.append(self.z_BTV.numel())
        return log_probs(self)

    monkeypatch.setattr(Logits, "log_probs", measured)
    positions = certified(task, test_N).positions
    assert max(sizes) == 60  # five positions of twelve words
    assert sum(sizes) == (positions + 24) * 12  # of one row four positions in each of six segments are asked, too


# The process


def asked(task, test_N, **more):
    return certifier.certificate(task, task.folder / BEST, {"test": test_N}, **more)


def test_a_process_of_its_own_finds_what_is_found_here(tmp_path):
    task, test_N = finished(tmp_path, ["softmax"])
    here, there = certified(task, test_N), asked(task, test_N)
    assert there.drawn == here.drawn == {"test": tuple(range(1, 40))}
    assert there.nll_gap == pytest.approx(here.nll_gap, abs=1e-6)


def test_the_process_is_that_of_the_command_where_its_socket_is_and_else_one_of_the_workers_own(tmp_path, monkeypatch):
    task, test_N = finished(tmp_path, ["softmax"])
    ended = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(ended))
    for place in (tmp_path / "on another machine", ended):
        assert asked(replace(task, certifier=place), test_N).fault is None
    given = replace(task, certifier=certifier.start())
    monkeypatch.setattr(certifier, "_started", None)  # another one cannot be started
    assert asked(given, test_N).fault is None


def test_a_class_that_cannot_be_sent_to_another_process_leaves_its_trial_without_certificate(tmp_path, monkeypatch):
    class Locking(Softmax):
        lock = threading.Lock()

    monkeypatch.setitem(HEADS._classes, "locking", Locking)
    (spec,) = suite(tmp_path, ["locking"]).trials
    record = ran(spec, tmp_path)
    assert (record.status, record.certificate) == ("ok", None)
    assert "cannot be sent to another process" in record.not_certified


def test_what_one_certificate_has_seen_the_next_one_has_not(tmp_path, cheating):
    task, test_N = finished(tmp_path, ["{cheating: {kind: honest_once}}"])
    for _ in range(2):
        assert asked(task, test_N).fault is None


def test_a_class_of_this_session_is_asked_as_it_was_when_it_was_first_used(tmp_path, monkeypatch):
    class Remembering(Softmax):
        seen = ()

    monkeypatch.setitem(HEADS._classes, "remembering", Remembering)
    (spec,) = suite(tmp_path, ["remembering"]).trials
    first = certifier._of_session(task_of(spec, tmp_path))
    Remembering.seen = "the text"
    assert certifier._of_session(task_of(spec, tmp_path)) == first
    ((_, _, found),) = cloudpickle.loads(first)
    assert found.seen == ()


def test_questions_of_several_trials_are_answered_at_the_same_time(tmp_path):
    task, test_N = finished(tmp_path, ["softmax"])
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: asked(task, test_N), range(8)))
    assert all(each.fault is None for each in answers)


def test_a_component_that_fails_only_when_it_is_asked_again_is_an_error(tmp_path, cheating):
    (spec,) = suite(tmp_path, ["{cheating: {kind: fails_without_text}}"]).trials
    record = ran(spec, tmp_path)
    assert record.status == "error"
    assert "asked again in a process of its own: RuntimeError: no targets" in record.message


def test_a_process_that_dies_leaves_the_trial_without_certificate(tmp_path, cheating):
    (spec,) = suite(tmp_path, ["{cheating: {kind: dies_without_text}}"]).trials
    record = ran(spec, tmp_path)
    assert (record.status, record.certificate) == ("ok", None)
    assert "the process that certifies has ended" in record.not_certified


def test_without_an_answer_there_is_no_certificate(tmp_path, monkeypatch):
    task, test_N = finished(tmp_path, ["softmax"])
    monkeypatch.setattr(certifier, "MOST_SECONDS", 0.0)
    with pytest.raises(NotCertified, match="no answer"):
        asked(task, test_N)


def test_the_process_ends_with_the_one_that_started_it():
    code = (
        "from pathlib import Path; from multiprocessing.connection import Client;"
        "from harness.integrity import certifier;"
        "address = certifier.start(); Client(str(address), family='AF_UNIX').close(); print(address, flush=True);"
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    )
    address = Path(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip())
    assert address.name == "socket"
    wait_for(lambda: not address.parent.exists())
