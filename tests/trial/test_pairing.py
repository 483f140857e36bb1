"""What pairs trials of one seed, whatever the head: the same segments in one order, the same start and the same masks
of the backbone; seen from within whole trials.
"""

from functools import partial
from types import SimpleNamespace

import handmade
import pytest
import torch

from harness import plan
from harness.training.step import EagerStep
from harness.trial.run import run

SUITE = """\
name: pairing
version: 1
corpora: [{markov: {vocab_size: 12, num_tokens: 300, branching: 3}}]
backbones:
  - lstm: {d_model: 8, num_layers: 2, dropout: 0.5}
  - transformer_encoder: {d_model: 8, num_layers: 2, num_heads: 2, d_ff: 8, dropout: 0.5, layer_dropout: 0.5}
heads: [softmax, {mos: {num_mixtures: 3, dropout: 0.5}}]
train: {optimizer: adam, lr: 0.01, epochs: 2, batch_size: 4, seq_len: 7}
seeds: [1, 2]
"""


@pytest.fixture(scope="module", params=["in order", "shuffled"])
def seen(request, tmp_path_factory):
    """What went through each trial's steps, by backbone, head and seed: segments, the backbone's initial weights, and
    what it gave in the first step, when the weights were still those.
    """
    folder, found = tmp_path_factory.mktemp("pairing"), {}
    (folder / "suite.yaml").write_text(SUITE)
    suite = plan.load(folder / "suite.yaml", (f"train.shuffle={str(request.param == 'shuffled').lower()}",))
    setting = partial(handmade.task, runs=folder / "runs")
    step = EagerStep.__call__
    for spec in plan.select(suite.trials, ("seed=1", "head=softmax")):
        trial = SimpleNamespace(model=None, segments=[], start=None, hidden=[])
        found[spec.backbone.name, spec.head.name, spec.seed] = trial

        def watched(self, segment, trial=trial):
            if trial.model not in (None, self.model):  # the small model by which a record's code is known
                return step(self, segment)
            if trial.model is None:
                trial.model = self.model
                backbone = self.model.backbone
                trial.start = {name: value.clone() for name, value in backbone.state_dict().items()}
                hook = backbone.register_forward_hook(lambda _, args, hidden: trial.hidden.extend(hidden.layers))
            trial.segments.append(torch.stack([segment.inputs, segment.targets]))
            step(self, segment)
            if len(trial.segments) == 1:
                hook.remove()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(EagerStep, "__call__", watched)
            record = run(setting(spec=spec))
        assert record.status == "ok", record.message
    return found


def same(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> bool:
    return len(ours) == len(theirs) > 0 and all(map(torch.equal, ours, theirs))


@pytest.mark.parametrize("backbone", ["lstm", "transformer_encoder"])
def test_heads_under_one_seed_share_segments_start_and_masks(seen, backbone):
    softmax, mos = (seen[backbone, head, 1] for head in ("softmax", "mos"))
    assert same(softmax.segments, mos.segments)
    assert softmax.start.keys() == mos.start.keys()
    assert same(list(softmax.start.values()), list(mos.start.values()))
    assert same(softmax.hidden, mos.hidden)  # of equal weights and inputs: equal masks, in every layer


@pytest.mark.parametrize("backbone", ["lstm", "transformer_encoder"])
def test_another_seed_starts_elsewhere_under_other_masks(seen, backbone):
    one, other = (seen[backbone, "softmax", seed] for seed in (1, 2))
    assert not torch.equal(one.start["embedding.weight"], other.start["embedding.weight"])
    assert not any(map(torch.equal, one.hidden, other.hidden))


def test_backbones_under_one_seed_see_the_same_order(seen):
    assert same(seen["lstm", "mos", 1].segments, seen["transformer_encoder", "mos", 1].segments)


def test_the_order_follows_the_seed_where_it_is_shuffled(seen, request):
    one, other = (seen["lstm", "softmax", seed].segments for seed in (1, 2))
    assert same(one, other) == ("in order" in request.node.callspec.id)
    half = len(one) // 2
    assert same(one[:half], one[half:]) == ("in order" in request.node.callspec.id)  # two epochs
