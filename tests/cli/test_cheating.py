"""Heads that cheat, from `harness run` to the leaderboard: exit code 1, no rank, no first place."""

import json
import re

import pytest
from commands import table_rows

pytestmark = pytest.mark.system

KINDS = ["scaled", "shifted", "sigmoid", "constant", "unnormalised", "beside_log_probs", "among_targets"]
KINDS += ["later_states", "honest_alone", "honest_once_asked", "remembers", "most_segments"]
SUITE = f"""\
name: cheats
version: 1
corpora: [{{markov: {{vocab_size: 12, num_tokens: 400, branching: 3}}}}]
backbones: [{{lstm: {{d_model: 8, num_layers: 1}}}}, {{looking_ahead: {{d_model: 8, num_layers: 1}}}}]
heads: [softmax, {{cheating: {{kind: [none, {", ".join(KINDS)}]}}}}]
train: {{optimizer: adam, lr: 0.01, epochs: 2, batch_size: 4, seq_len: 7}}
seeds: [1]
measure: {{exclusive: false}}
table: {{baseline: softmax}}
"""


@pytest.fixture
def cheats(tmp_path, monkeypatch, cheating, harness):
    """The command that ran them, in its folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "cheats.yaml").write_text(SUITE)
    return harness("run", "suites/cheats.yaml", "--executor", "inline", "--no-tracking")


def test_every_cheat_is_invalid_from_the_run_to_the_leaderboard(cheats, tmp_path, harness):
    assert cheats.code == 1
    records = [json.loads(path.read_text()) for path in tmp_path.glob("results/runs/cheats/*/record.json")]
    honest = {
        (each["spec"]["backbone"]["name"], each["spec"]["head"]["name"]) for each in records if each["status"] == "ok"
    }
    assert honest == {("lstm", "softmax"), ("lstm", "cheating")}
    assert {each["status"] for each in records} == {"ok", "invalid"}
    assert sum(each["status"] == "invalid" for each in records) == len(KINDS) + 2 + len(KINDS)
    best = min(each["metrics"]["test_ppl"] for each in records if each["status"] == "ok")
    assert min(each["metrics"]["test_ppl"] for each in records) < 0.01 * best  # they would lead

    table = (tmp_path / "results" / "tables" / "cheats.md").read_text()
    rows = [line for line in table.splitlines() if line.startswith("| ") and "invalid" in line]
    assert len(rows) == len(KINDS) + 2 + len(KINDS)
    for row in rows:
        assert "**" not in row
        assert " 0/1: 1 invalid " in row
        assert re.search(r"\d\.\d\d", row) is None  # no perplexity, no time
    assert harness("table", "suites/cheats.yaml", "--wide").out.count(": invalid: ") == len(rows)
    assert "- invalid: the certificate of a trial failed" in table

    board = harness("leaderboard", "--json")
    (group,) = json.loads(board.out)["groups"]
    assert [(row["head"]["name"], row["certified"]) for row in group["rows"]] == [
        ("softmax", True),
        ("cheating", True),
    ] or [(row["head"]["name"], row["certified"]) for row in group["rows"]] == [("cheating", True), ("softmax", True)]
    assert len(group["invalid"]) == len(rows)
    shown = harness("leaderboard").out
    assert f"Left out: {len(rows)} rows with invalid trials" in shown
    assert "softmax on looking_ahead" in shown

    again = harness("run", "suites/cheats.yaml", "--executor", "inline", "--no-tracking")
    assert again.code == 1
    assert "nothing to run" in again.out
    assert (
        f"invalid: {len(rows)} of these trials; --retry-failed runs such a trial again, once its head or its backbone "
        "is mended (harness docs certificates)"
    ) in again.out.splitlines()
    assert "failed:" not in again.out
    page = harness("report", "suites/cheats.yaml")
    assert page.code == 0, page.err
    html = (tmp_path / "results" / "reports" / "cheats.html").read_text()
    assert f"{len(rows)} trials failed" in html
    assert html.count(">failed</td>") == len(rows)
    assert html.count("<p>Once its head or its backbone is mended:</p>") == len(rows)
    listed = harness("runs", "cheats", "--json")
    assert sum(trial["status"] == "invalid" for trial in json.loads(listed.out)["trials"]) == len(rows)
    one = next(each["spec"]["id"] for each in records if each["status"] == "invalid")
    other = next(each["spec"]["id"] for each in records if each["status"] == "ok")
    compared = harness("diff", one, other)
    assert compared.code == 2
    assert "ended as 'invalid'" in compared.err
    mended = "`harness run cheats --retry-failed` trains it again, once its head or its backbone is mended"
    assert mended.replace("cheats", "SUITE") in compared.err
    assert mended in harness("verify", one).out
    heads = harness("diff", "softmax", "cheating(kind=scaled)", "--suite", "suites/cheats.yaml")
    assert heads.code == 2
    assert "trials of softmax and cheating(kind=scaled) are invalid: mend the head or its backbone" in heads.err


def test_an_invalid_trial_is_run_again_with_retry_failed_alone(cheats, tmp_path, harness):
    places = sorted(tmp_path.glob("results/runs/cheats/*/record.json"))
    before = {path: path.stat().st_mtime_ns for path in places}
    harness("run", "suites/cheats.yaml", "--executor", "inline", "--no-tracking", "--retry-failed",
            "--only", "head=cheating,kind=scaled,backbone=lstm")  # fmt: skip
    changed = [path for path in places if path.stat().st_mtime_ns != before[path]]
    assert [json.loads(path.read_text())["status"] for path in changed] == ["invalid"]
    assert table_rows((tmp_path / "results" / "tables" / "cheats.md").read_text())
