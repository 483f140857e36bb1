"""A head that makes another backbone of the one that it is given: refused as it is built, invalid after training."""

from functools import partial

import handmade
import pytest
import torch
from disturbed import suite_text

from harness import plan
from harness.distributions import uniform_output_
from harness.errors import ComponentError, SuiteError
from harness.heads.softmax import Softmax
from harness.model import LanguageModel, build_backbone, build_head, handles_of
from harness.plan.specs import ComponentSpec
from harness.registry import HEADS
from harness.trial.run import run

TRAIN = "train: {optimizer: adam, lr: 0.01, epochs: 1, batch_size: 4, seq_len: 7}"


def scaled(module, inputs, output):
    return 2 * output


DEEDS = {
    "freezes": (
        lambda embedding: embedding.weight.requires_grad_(False),
        "has changed whether the backbone's embedding.weight is learned",
    ),
    "hooks": (lambda embedding: embedding.register_forward_hook(scaled), "has put a hook on the backbone's embedding"),
    "hooks before": (
        lambda embedding: embedding.register_forward_pre_hook(lambda module, inputs: None),
        "has put a hook on the backbone's embedding",
    ),
    "hooks the gradient": (
        lambda embedding: embedding.weight.register_hook(lambda gradient: 10 * gradient),
        "has put a hook on the backbone's embedding",
    ),
    "replaces forward": (
        lambda embedding: setattr(embedding, "forward", lambda tokens: 0 * embedding.weight[tokens]),
        "has put a hook on the backbone's embedding",
    ),
}


@pytest.fixture(params=DEEDS)
def deed(request, monkeypatch):
    """A head 'taking' that does a deed where its parameter says. Returns what is said of it."""
    act, said = DEEDS[request.param]

    class Taking(Softmax):
        def __init__(self, dims, embedding, *, late: bool = False):
            super().__init__(dims, embedding)
            self.given = [embedding]  # in a list, so that it is no part of the head
            self.late = late
            if not late:
                act(embedding)

        def forward(self, hidden):
            if self.late and self.training:
                act(self.given.pop())
                self.late = False
            return super().forward(hidden)

    HEADS.names()
    monkeypatch.setitem(HEADS._classes, "taking", Taking)
    return said


def trials(folder, head):
    path = folder / "tiny.yaml"
    path.write_text(suite_text(head, train=TRAIN))
    return plan.load(path).trials


def test_a_head_that_does_it_in_its_constructor_is_a_problem_of_the_plan(deed, tmp_path):
    with pytest.raises(SuiteError) as refused:
        trials(tmp_path, "taking")
    (problem,) = refused.value.problems
    assert (
        f"head taking {deed}; a head may use the embedding's matrix, and must leave the backbone as it is, " in problem
    )


def test_a_head_that_initialises_the_embedding_anew_is_refused_unless_the_suite_asks_for_it(monkeypatch):
    class Anew(Softmax):
        def __init__(self, dims, embedding, *, init_range: float | None = None):
            super().__init__(dims, embedding, tie_weights=True)
            if init_range is None:
                torch.nn.init.normal_(embedding.weight)
            uniform_output_(self.output, init_range)

    HEADS.names()
    monkeypatch.setitem(HEADS._classes, "anew", Anew)
    backbone = build_backbone(ComponentSpec(name="lstm", params={"d_model": 8}), 12)
    with pytest.raises(ComponentError, match="head anew has changed the first values of the backbone's embedding; a"):
        build_head(ComponentSpec(name="anew"), backbone, 12, None)
    asked = ComponentSpec(name="anew", params={"init_range": 0.1})
    assert build_head(asked, backbone, 12, None).output.weight is backbone.embedding.weight


def test_a_scale_of_the_input_gradients_is_no_deed_because_the_suite_asks_for_it():
    backbone = build_backbone(ComponentSpec(name="lstm", params={"d_model": 8}), 12)
    params = {"tie_weights": True, "input_gradient_scale": 5.0}
    assert not LanguageModel(
        backbone, build_head(ComponentSpec(name="softmax", params=params), backbone, 12, None)
    ).taken_over


@pytest.mark.system
def test_a_head_that_does_it_while_it_trains_makes_its_trial_invalid(deed, tmp_path):
    (spec, *_) = trials(tmp_path, "taking: {late: true}")
    record = run(partial(handmade.task, runs=tmp_path / "runs")(spec=spec))
    assert record.status == "invalid"
    assert deed in record.message


def test_every_kind_of_hook_is_seen():
    embedding = build_backbone(ComponentSpec(name="lstm", params={"d_model": 8}), 12).embedding
    body = torch.nn.Module()
    body.embedding = embedding
    for register in (
        lambda: embedding.register_full_backward_pre_hook(lambda module, gradients: None),
        lambda: embedding.register_full_backward_hook(lambda module, into, out: None),
        lambda: embedding.weight.register_post_accumulate_grad_hook(lambda weight: None),
    ):
        before = handles_of(body)
        register()
        assert handles_of(body) != before


@pytest.mark.parametrize("name", ["lstm", "transformer_encoder", "gpt2"])
def test_training_and_evaluation_are_no_deeds(name):
    params = {"d_model": 8, "num_heads": 2} if name != "lstm" else {"d_model": 8}
    backbone = build_backbone(ComponentSpec(name=name, params=params), 12)
    before = handles_of(backbone)
    for mode in (True, False):
        hidden = backbone.train(mode)(torch.ones(2, 3, dtype=torch.int64))
        hidden = getattr(hidden, "layers", hidden)
        hidden[-1].sum().backward()
    assert handles_of(backbone) == before
