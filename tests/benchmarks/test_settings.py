"""Sizes and heads by their short names."""

import pytest
import torch

from harness.benchmarks import settings
from harness.errors import ExecutionError

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def test_a_mixture_is_named_by_its_size():
    assert settings.component("mos12") == ("mos", {"num_mixtures": 12})
    assert [settings.mixtures(name) for name in ("softmax", "mos7", "mfs", "sigsoftmax")] == [1, 7, 3, 1]
    for wrong in ("mos", "mos0", "mos-2", "mixture"):
        with pytest.raises(ExecutionError, match=f"--heads {wrong}: expected "):
            settings.component(wrong)


def test_a_setting_takes_other_tokens_and_more_on_a_gpu():
    sizes = [settings.setting_of("gpt2-small", device, tokens).tokens for device in (CPU, CUDA) for tokens in (None, 9)]
    assert sizes == [1024, 9, 4096, 9]
