"""What each test token costs: kept beside a record, and believed only when it is that record's."""

import io
import math
import zipfile
from dataclasses import replace

import handmade
import numpy as np
import pytest

from harness.errors import RecordError
from harness.records import sidecars, store
from harness.records.record import TrialRecord
from harness.records.sidecars import TokenScores

DIGEST = "ab" * 32
NLL = np.array([math.nan, 1.0, 2.0, math.nan, 3.0], dtype=np.float32)  # a mean of 2 nats over 3 tokens


def scores(nll=NLL) -> TokenScores:
    return TokenScores(nll=nll, count=np.array([5, 0, 2, 1, 9]), offset=np.array([-1, 0, 1, -1, 0]))


def record(**changes) -> TrialRecord:
    """Of a trial whose test tokens cost what NLL says."""
    metrics = {"test_ppl": math.exp(2.0), "scored_test_tokens": 3.0}
    return handmade.record(**{"metrics": metrics, "weights_sha256": DIGEST, **changes})


@pytest.fixture
def place(tmp_path):
    """Where scores are, saved beside a record of theirs."""
    place = store.folder(tmp_path, record().id) / sidecars.TOKEN_NLL.file
    sidecars.save_token_scores(scores(), DIGEST, place)
    return place


def test_what_was_saved_is_loaded_equal_beside_a_record_of_these_weights(place, tmp_path):
    assert sidecars.TOKEN_NLL.load(tmp_path / "elsewhere", record()) is None
    assert sidecars.TOKEN_NLL.load(tmp_path, record(weights_sha256="cd" * 32)) is None  # of a run before
    sidecars.save_token_scores(scores(), DIGEST, tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == place.read_bytes()
    loaded = sidecars.TOKEN_NLL.load(tmp_path, record())
    np.testing.assert_array_equal(loaded.nll, NLL)
    np.testing.assert_array_equal(loaded.count, [5, 0, 2, 1, 9])
    np.testing.assert_array_equal(loaded.offset, [-1, 0, 1, -1, 0])
    np.testing.assert_array_equal(loaded.scored, [False, True, True, False, True])


@pytest.mark.parametrize(
    "metrics",
    [{"test_ppl": math.exp(2.0001), "scored_test_tokens": 3.0}, {"test_ppl": math.exp(2.0), "scored_test_tokens": 4.0}],
)
def test_scores_that_do_not_give_the_perplexity_of_the_record_are_refused(metrics, place, tmp_path):
    with pytest.raises(RecordError, match="do not add up"):
        sidecars.TOKEN_NLL.load(tmp_path, record(metrics=metrics))


@pytest.mark.parametrize(
    "wrong",
    [
        scores(np.array([math.nan, -0.5, 2.5, math.nan, 4.0], dtype=np.float32)),  # a mean of 2 nats, too
        replace(scores(), count=np.array([5, 0, -2, 1, 9])),
        replace(scores(), offset=np.array([-1, 0, 1, -2, 0])),
    ],
    ids=["probability", "count", "offset"],
)
def test_a_probability_above_1_is_refused(wrong, place, tmp_path):
    sidecars.save_token_scores(wrong, DIGEST, place)
    with pytest.raises(RecordError, match="a token has a probability above 1, or a count or offset below 0"):
        sidecars.TOKEN_NLL.load(tmp_path, record())


def test_a_file_cut_anywhere_is_refused(place, tmp_path):
    whole = place.read_bytes()
    for length in range(len(whole)):
        place.write_bytes(whole[:length])
        with pytest.raises(RecordError, match="cannot be read as the losses of the test tokens"):
            sidecars.TOKEN_NLL.load(tmp_path, record())


@pytest.mark.parametrize(
    "arrays",
    [
        {"nll": NLL, "count": np.zeros(5, np.int32)},  # one is missing
        {"nll": NLL, "count": np.zeros(5, np.int32), "offset": np.zeros(4, np.int32)},  # another length
        {"nll": NLL.astype(np.float64), "count": np.zeros(5, np.int32), "offset": np.zeros(5, np.int32)},
        {"nll": NLL[None], "count": np.zeros((1, 5), np.int32), "offset": np.zeros((1, 5), np.int32)},  # no list
        {"nll": np.array([open]), "count": np.zeros(1, np.int32), "offset": np.zeros(1, np.int32)},  # a pickle
    ],
)
def test_other_arrays_are_refused(arrays, place, tmp_path):
    np.savez_compressed(place, weights_sha256=np.array(DIGEST), **arrays)
    with pytest.raises(RecordError, match="cannot be read as the losses of the test tokens"):
        sidecars.TOKEN_NLL.load(tmp_path, record())


def test_a_file_that_swells_when_it_is_unpacked_is_refused_before(place, tmp_path, monkeypatch):
    monkeypatch.setattr(sidecars, "TOKEN_NLL", replace(sidecars.TOKEN_NLL, max_bytes=100_000))
    monkeypatch.setattr(np, "load", None)  # it comes to no unpacking
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("nll", "count", "offset", "weights_sha256"):
            archive.writestr(f"{name}.npy", b"\0" * 30_000)
    assert len(content.getvalue()) < 1_000
    place.write_bytes(content.getvalue())
    with pytest.raises(RecordError, match="more than 100,000 bytes"):
        sidecars.TOKEN_NLL.load(tmp_path, record())


def test_a_head_that_adds_epsilon_may_have_that_much_less_than_nothing(place, tmp_path):
    nll = np.array([math.nan, -0.09, 2.09, math.nan, 4.0], dtype=np.float32)  # -log(1 + 0.1) = -0.095; a mean of 2
    sidecars.save_token_scores(scores(nll), DIGEST, place)
    honest = record(certificate=handmade.certificate(log_epsilon=0.1))
    np.testing.assert_array_equal(sidecars.TOKEN_NLL.load(tmp_path, honest).nll, nll)
    with pytest.raises(RecordError, match="probability above 1"):
        sidecars.TOKEN_NLL.load(tmp_path, record(certificate=handmade.certificate(log_epsilon=0.01)))
