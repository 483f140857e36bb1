"""The poster's table as a ladder of two sizes: what its printed numbers give, without any training."""

from pathlib import Path

import pytest

from harness import plan
from harness.ladder.printed import sentences, shares
from harness.report import study

SUITE = Path(__file__).parents[2] / "suites" / "ladder_poster.yaml"


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    suite = plan.load(SUITE)
    return study.load(suite, tmp_path_factory.mktemp("results"), warn=lambda sentence: None).findings


def test_shares_of_the_step_from_small_to_medium(found):
    # (p - p_head) / (p - p_next) with table 1: 18.72, 18.29, 15.89 and 24.06, 23.45, 20.34
    openwebtext, wikipedia = shares(found)
    assert openwebtext.share == pytest.approx((18.72 - 18.29) / (18.72 - 15.89), rel=1e-12)
    assert wikipedia.share == pytest.approx((24.06 - 23.45) / (24.06 - 20.34), rel=1e-12)
    assert openwebtext.claim.answer == "yes"  # 'around 15 %'
    assert wikipedia.claim is None


def test_the_sentence_of_the_poster(found):
    (said,) = sentences(found, found.rows)
    assert said == (
        "MFS, by printed numbers: 15.2 % of the step from GPT-2 85.1M to GPT-2 302M on OpenWebText "
        "[printed: 15 %, reproduced: yes], 16.4 % of the step from GPT-2 85.1M to GPT-2 302M on Wikipedia."
    )
