"""A loaded corpus."""

import torch

from harness.corpora.corpus import Corpus


def test_splits_are_moved_to_a_device_but_for_memory_maps():
    tokens, mapped = torch.arange(5), torch.arange(5, dtype=torch.int32)
    moved = Corpus(vocab_size=5, train=mapped, valid=tokens, test=tokens).to(torch.device("meta"))
    assert (moved.valid.device.type, moved.test.device.type, moved.vocab_size) == ("meta", "meta", 5)
    assert moved.train is mapped
