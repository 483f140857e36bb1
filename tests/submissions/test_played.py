"""A submission from `harness submit` to its badges."""

import json

import pytest

from harness.records import store
from harness.submissions import badges
from harness.submissions.archive import unpacked

pytestmark = pytest.mark.system


def test_an_honest_submission_is_checked_confirmed_and_signed_off(here, sent, harness, tmp_path):
    done = harness("check-submission", sent, "--data", here / "data", "--json", "--keep")
    found = json.loads(done.out)
    assert (done.code, found["refused"]) == (0, False), done.out
    assert {each["name"]: each["outcome"] for each in found["checks"]} == dict.fromkeys(
        ("format", "records", "plausibility", "certificates", "text", "source", "plan", "code", "a head of its own",
         "harness check", "trained again"), "ok")  # fmt: skip
    assert found["checks"][-1]["verdict"] == "identical"
