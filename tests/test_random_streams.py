"""Named random streams: fixed for ever, independent by name, and without side effects."""

import hashlib
import random

import numpy as np
import torch

from harness.random_streams import (
    generator_states,
    own_generators,
    seeded,
    set_generator_states,
    stream_seed,
    substream,
)


def test_a_stream_seed_is_a_prefix_of_sha256_of_seed_and_names():
    digest = hashlib.sha256(b"7/dropout/3/41").digest()
    assert stream_seed(7, "dropout", 3, 41) == int.from_bytes(digest[:8], "big") >> 1


def test_streams_differ_by_seed_and_by_name():
    seeds = {stream_seed(s, n) for s in range(50) for n in ("backbone", "head", "data", "dropout")}
    assert len(seeds) == 200


def test_a_seeded_block_leaves_the_global_generator_as_it_was():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    with seeded(1, "head"):
        torch.rand(100)
    assert torch.equal(torch.rand(3), expected)


def test_a_substream_depends_on_the_stream_and_its_name_and_not_on_what_was_drawn():
    def drawn(seed: int, name: str, before: int) -> list[float]:
        with seeded(seed, "head"):
            torch.rand(before)
            with substream(name):
                return torch.rand(3).tolist()

    with seeded(stream_seed(1, "head"), "output"):  # the stream that it is, by its definition
        expected = torch.rand(3).tolist()
    assert drawn(1, "output", 0) == drawn(1, "output", 100) == expected
    assert drawn(2, "output", 0) != expected
    assert drawn(1, "other", 0) != expected


def test_a_substream_does_not_move_the_draws_after_it():
    with seeded(1, "head"):
        expected = torch.rand(3)
    with seeded(1, "head"):
        with substream("output"):
            torch.rand(100)
        assert torch.equal(torch.rand(3), expected)


def test_own_generators_begin_at_streams_of_their_seed_and_are_put_back():
    def drawn() -> tuple:
        return random.random(), np.random.rand(), torch.rand(()).item()

    def within(seed: int) -> tuple:
        with own_generators(seed, torch.device("cpu")):
            return drawn()

    before = generator_states(torch.device("cpu"))
    first, again, other = within(1), within(1), within(2)
    assert first == again
    assert all(one != two for one, two in zip(first, other, strict=True))
    expected = drawn()
    set_generator_states(before, torch.device("cpu"))
    assert drawn() == expected
