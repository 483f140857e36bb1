"""What pairs trials of one seed, whatever the head: the same segments in one order, the same start and the same masks
of the backbone; seen from within whole trials.
"""

from types import SimpleNamespace

import pytest
import torch
from disturbed import suite_text
from trained import loaded, ran

from harness import plan
from harness.training.step import EagerStep

BACKBONES = """\
backbones:
  - lstm: {d_model: 8, num_layers: 2, dropout: 0.5}
  - transformer_encoder: {d_model: 8, num_layers: 2, num_heads: 2, d_ff: 8, dropout: 0.5, layer_dropout: 0.5}"""
SUITE = suite_text("softmax", "{mos: {num_mixtures: 3, dropout: 0.5}}", backbones=BACKBONES, seeds="[1, 2]")


@pytest.fixture(scope="module", params=["in order", "shuffled"])
def seen(request, tmp_path_factory):
    """What went through each trial's steps, by backbone, head and seed: segments, the backbone's initial weights, and
    what it gave in the first step, when the weights were still those.
    """
    folder, found, step = tmp_path_factory.mktemp("pairing"), {}, EagerStep.__call__
    suite = loaded(folder, SUITE, f"train.shuffle={str(request.param == 'shuffled').lower()}", "train.epochs=2")
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
            record = ran(spec, folder)
        assert record.status == "ok", record.message
    return found


def same(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> bool:
    return len(ours) == len(theirs) > 0 and all(map(torch.equal, ours, theirs))


@pytest.mark.parametrize("backbone", ["lstm", "transformer_encoder"])
def test_heads_under_one_seed_share_segments_start_and_masks_and_another_seed_has_others(seen, backbone):
    softmax, mos, other = (seen[backbone, *each] for each in (("softmax", 1), ("mos", 1), ("softmax", 2)))
    assert same(softmax.segments, mos.segments)
    assert softmax.start.keys() == mos.start.keys()
    assert same(list(softmax.start.values()), list(mos.start.values()))
    assert same(softmax.hidden, mos.hidden)  # of equal weights and inputs: equal masks, in every layer
    assert not torch.equal(softmax.start["embedding.weight"], other.start["embedding.weight"])
    assert not any(map(torch.equal, softmax.hidden, other.hidden))


def test_backbones_under_one_seed_see_one_order_which_follows_the_seed_where_it_is_shuffled(seen, request):
    assert same(seen["lstm", "mos", 1].segments, seen["transformer_encoder", "mos", 1].segments)
    one, other = (seen["lstm", "softmax", seed].segments for seed in (1, 2))
    assert same(one, other) == ("in order" in request.node.callspec.id)
    half = len(one) // 2
    assert same(one[:half], one[half:]) == ("in order" in request.node.callspec.id)  # two epochs
