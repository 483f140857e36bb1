"""The parts of training: each is saved, resumed, and unchanged by a CUDA graph's warm-up, because it is in the list."""

import random

import handmade
import numpy as np
import pytest
import torch
from small import CORPUS, LSTM, model, spec
from trained import Halves

from harness.plan.suite_file import CheckpointSpec
from harness.training import loop
from harness.training.checkpoint import Checkpoints, Position
from harness.training.loop import Training
from harness.training.parts import ModelState

STEPS, CPU = 4, torch.device("cpu")  # of an epoch: 83 tokens in 4 columns of 20: segments of 5 + 5 + 5 + 4 targets
DROPPING = LSTM.model_copy(update={"params": {**LSTM.params, "dropout": 0.3}})
NAMES = {"model", "optimizer", "generators", "schedule", "averaging", "clocks", "fitted"}


def training(folder, **more) -> Training:
    train = spec(optimizer="adam", lr=0.1, schedule={"plateau": {"factor": 0.5}})
    return handmade.training(model(DROPPING), CORPUS, train, folder, **more)


def test_a_checkpoint_holds_every_part_and_within_an_epoch_the_step(tmp_path):
    done = training(tmp_path)
    assert done.parts.keys() == NAMES
    done.fit()
    newest = Checkpoints(tmp_path).newest("0" * 12)
    assert (newest.parts.keys(), newest.position) == (NAMES, Position(4))
    Checkpoints(tmp_path).remove()
    with handmade.interrupted_before(STEPS + 2):
        training(tmp_path, pace=CheckpointSpec(minutes=1e-9)).fit()
    newest = Checkpoints(tmp_path).newest("0" * 12)
    assert (newest.parts.keys(), newest.position) == (NAMES | {"step"}, Position(2, 2))


def test_averaged_weights_are_validated_kept_and_left_in_the_model_and_others_trained(tmp_path, monkeypatch):
    plain = training(tmp_path / "plain")
    plain.fit()
    monkeypatch.setattr(loop, "make_averaging", Halves)
    averaged = training(tmp_path / "averaged")
    averaged.fit()
    # swapped before and after each of three validations, and at the end
    assert averaged.averaging.swaps == 2 * 3 + 1
    assert [p.train_loss for p in averaged.fitted.curve] == [p.train_loss for p in plain.fitted.curve]
    assert [p.valid_ppl for p in averaged.fitted.curve] != [p.valid_ppl for p in plain.fitted.curve]
    assert all(map(torch.equal, averaged.averaging.average, plain.model.parameters()))
    best = Checkpoints(tmp_path / "averaged").best_weights(averaged.fitted.best_epoch, CPU)
    averaged.model.load_state_dict(best)
    assert averaged._score()[0] == averaged.fitted.best


@pytest.mark.needs("gpu")
def test_a_graph_is_recorded_without_a_change_of_any_part(tmp_path, monkeypatch):
    from harness.gpu.cuda_graph import GraphStep

    monkeypatch.setattr(loop, "make_averaging", Halves)
    seen = []

    def prepare(step, segment, parts):
        def record(work):
            work()
            parts["averaging"].update()
            random.random()
            np.random.rand()
            return work

        before = {name: repr(part.state_dict()) for name, part in parts.items() if name != "optimizer"}
        made = GraphStep(step, segment, record, parts)
        seen.append({name: repr(parts[name].state_dict()) == state for name, state in before.items()})
        return made

    eager, graph = training(tmp_path / "eager"), training(tmp_path / "graph", prepare=prepare)
    eager.fit()
    graph.fit()
    assert seen == [dict.fromkeys(NAMES - {"optimizer"}, True)]
    assert all(map(torch.equal, eager.model.parameters(), graph.model.parameters()))
    assert all(map(torch.equal, eager.averaging.average, graph.averaging.average))


def test_buffers_that_torch_does_not_save_are_part_of_the_model_also_of_one_that_makes_them_later():
    one, later = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    one.register_buffer("count", torch.zeros(()), persistent=False)
    ModelState(later).load_state_dict(ModelState(one).state_dict())
    assert torch.equal(later.weight, one.weight)
