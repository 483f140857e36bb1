"""Finished trials without training: their models as they are built, on a corpus of letters."""

import handmade
import pytest
import torch
from subjects import Spelling

from harness import plan
from harness.corpora.corpus import Corpus, CorpusFacts
from harness.model import build
from harness.records import store
from harness.registry import CORPORA
from harness.training import checkpoint

SUITE = """\
name: {name}
version: 1
corpora: [{{letters: {{}}}}]
backbones: [{{lstm: {{d_model: 8, num_layers: 1}}}}, {{transformer_encoder: {{d_model: 8, num_heads: 2}}}}]
heads: [softmax, mixtape, {{mfs: {{num_partitions: 2, num_input_layers: 1, window: 1}}}}]
train: {{optimizer: adam, lr: 0.01, epochs: 1, batch_size: 4, seq_len: 7}}
seeds: [1]
"""


class Letters:
    """A corpus of letters."""

    content, codec = "0" * 64, Spelling("abcdefghijkl")

    def facts(self):
        sizes = {"train": 60, "valid": 12, "test": 12}
        return CorpusFacts(vocab_size=12, num_tokens=sizes, content=self.content, counting="letters")

    def fetch(self, data):
        """Nothing to fetch."""

    def load(self, data):
        ids = torch.arange(12)
        return Corpus(vocab_size=12, train=ids.repeat(5), valid=ids, test=ids, codec=self.codec)


@pytest.fixture
def letters(monkeypatch):
    """The corpus 'letters'."""
    CORPORA.names()
    monkeypatch.setitem(CORPORA._classes, "letters", Letters)
    return Letters


@pytest.fixture
def finish(letters, tmp_path):
    """A function: suite name, status -> the trials by 'head on backbone', each with a record, and weights where ok."""

    def write(name: str = "letters", status: str = "ok", seed: int = 1):
        path = tmp_path / "suites" / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(SUITE.format(name=name).replace("seeds: [1]", f"seeds: [{seed}]"))
        runs = store.runs_folder(tmp_path / "results", name)
        trials = {f"{each.head.name} on {each.backbone.name}": each for each in plan.load(path).trials}
        for spec in trials.values():
            counts = torch.full((12,), 5)
            model = build(spec.backbone, spec.head, vocab_size=12, seed=seed, token_counts=counts)
            record = handmade.record(
                suite=name, spec=spec, status=status, weights_sha256=checkpoint.weights_sha256(model.state_dict())
            )
            store.save(record, runs)
            if status == "ok":
                checkpoint.save({"weights": model.state_dict()}, store.folder(runs, spec.id) / checkpoint.BEST)
        return trials

    return write
