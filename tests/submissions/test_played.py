"""A submission from `harness submit` to its badges, and what is refused before one is written."""

import json
import shutil

import pytest

from harness.records import store
from harness.submissions import badges
from harness.submissions.archive import unpacked

pytestmark = pytest.mark.system

NAMES = ["format", "records", "plausibility", "certificates", "text", "source", "plan", "code", "a head of its own"]
HEAD = "{mine: {start: 0.2}}"


def earned(place, tmp_path) -> list[str]:
    """The names of the badges of a submission."""
    (tmp_path / "unpacked").mkdir()
    card = unpacked(place, tmp_path / "unpacked").card
    shutil.rmtree(tmp_path / "unpacked")
    return [badge.name for badge in badges.badges_of(badges.verified_notes(place), card) if badge.earned]


def test_an_honest_submission_is_checked_confirmed_and_signed_off(here, sent, harness, tmp_path):
    assert earned(sent, tmp_path) == ["submitted"]
    done = harness("check-submission", sent, "--data", here / "data", "--json", "--keep", "--name", "Max")
    found = json.loads(done.out)
    assert (done.code, found["refused"]) == (0, False), done.out
    outcomes = {each["name"]: each["outcome"] for each in found["checks"]}
    assert outcomes == dict.fromkeys([*NAMES, "harness check", "trained again"], "ok")
    assert found["checks"][-1]["verdict"] == "identical"
    assert earned(sent, tmp_path) == ["submitted", "checked"]

    # the author is no second party; a note that was edited, or is of another file, does not count
    harness("submit", "--confirm", sent, "--name", "ada  EXAMPLE", "--data", here / "data")
    assert earned(sent, tmp_path) == ["submitted", "checked"]
    (note,) = sent.parent.glob("*.confirmed-ada-example.json")
    other = note.with_name(note.name.replace("ada-example", "eve"))
    other.write_text(note.read_text().replace("ada  EXAMPLE", "Eve"))
    assert earned(sent, tmp_path) == ["submitted", "checked"]
    content = badges.Note.model_validate(
        {key: value for key, value in json.loads(note.read_text()).items() if key != "sha256"}
    )
    badges.sealed.save(content.model_copy(update={"who": "Eve"}), other)
    assert earned(sent, tmp_path) == ["submitted", "checked", "run again by a second party"]

    # a full run of the maintainers has its own records, which are here the author's at another time
    sign_off = ("submit", "--sign-off", sent, "--name", "Max", "--agreed", "by mail, 1 March")
    done = harness(*sign_off)
    assert (done.code, "is a copy of the submission's" in done.out) == (1, True)
    runs = store.runs_folder(here / "results", "board")
    records = [store.load(runs, place.parent.name) for place in runs.glob("*/record.json")]
    for worse in (1.004, 1.0):  # of a submission whose numbers are all a little better than the maintainers' own
        for number, record in enumerate(records):
            later = record.environment.model_copy(update={"started": "2026-03-02T00:00:00+00:00"})
            changes = {"environment": later}
            if worse > 1:
                ppl = record.metrics["test_ppl"] * (worse + number * 1e-6)
                changes |= {"metrics": {**record.metrics, "test_ppl": ppl}, "weights_sha256": "ab" * 32}
            store.save(record.model_copy(update=changes), runs)
        done = harness(*sign_off)
        assert ("are on average 0.4 % higher than in the submission" in done.out) == (worse > 1), done.out
    assert done.code == 0, done.err
    assert "full run: 3 trials were trained again, 3 of them to the same bits" in done.out
    assert earned(sent, tmp_path) == ["submitted", "checked", "run again by a second party", "signed off"]
    sent.write_bytes(sent.read_bytes() + b"\n")
    (tmp_path / "unpacked").mkdir()
    assert list(badges.verified_notes(sent)) == []


def test_a_full_run_that_lacks_a_trial_signs_nothing_off(here, sent, harness, tmp_path):
    runs = store.runs_folder(here / "results", "board")
    one = next(each for each in runs.glob("*/record.json") if not json.loads(each.read_text())["tuning"])
    shutil.rmtree(one.parent)
    assert harness("submit", "--sign-off", sent, "--name", "Max", "--agreed", "by mail").code == 1
    assert earned(sent, tmp_path) == ["submitted"]


def test_each_thing_that_is_missing_is_one_sentence_and_nothing_is_written(here, harness):
    runs = store.runs_folder(here / "results", "board")
    of_table = [each for each in runs.glob("*/record.json") if not json.loads(each.read_text())["tuning"]]
    shutil.rmtree(of_table[0].parent)
    (of_table[1].parent / "test_nll.npz").unlink()
    (here / "card.yaml").write_text("name: ''\nauthors: [A]\nlicence: secret\n")
    (here / "heads" / "mine.py").write_text("import os\n" + (here / "heads" / "mine.py").read_text())
    done = harness("submit", "board", "--head", HEAD, "--source", "heads/mine.py")
    *said, last = done.err.splitlines()
    assert (done.code, last) == (2, "6 problems; nothing was run"), done.err
    for text in ("name: ", "licence: expected one of", "card.yaml:1:1: sentence: field required",
                 "the table lacks its trials", "has no scores of its test tokens", "it imports os"):  # fmt: skip
        assert sum(text in line for line in said) == 1, (text, said)
    assert not (here / "submissions").exists()
    done = harness("submit", "nosuch", "--head", HEAD)
    assert (done.code, "\n" in done.err) == (2, True)


def test_a_new_card_is_one_that_can_be_read(here, harness):
    from harness.submissions.card import Card, read_card

    assert harness("submit", "--new-card", "--card", "new.yaml").code == 0
    assert read_card(here / "new.yaml", Card).licence == "Apache-2.0"
    assert harness("submit", "--new-card", "--card", "new.yaml").code == 2
    done = harness("submit", "board", "--head", HEAD, "--card", "new.yaml")
    assert (done.code, "are still those of a new card" in done.err) == (2, True)
