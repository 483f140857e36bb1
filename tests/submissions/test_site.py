"""Boards on the site: their pages with submissions and history, the pages of submissions, and the feed."""

import dataclasses
import json
import math
import re
import statistics
import sys
from pathlib import Path
from types import SimpleNamespace

import handmade
import pytest

from harness import plan
from harness.exchange.copying import export_records
from harness.records import store
from harness.registry import HEADS
from harness.submissions import archive, badges
from harness.submissions.card import FullCard
from harness.submissions.checking import Checked
from harness.submissions.outcomes import Check

pytestmark = [pytest.mark.system, pytest.mark.needs("board"), pytest.mark.needs("ladder")]

SUITE = """\
# In brief: board of a test
name: board_small
version: 1
corpora: [{markov: {vocab_size: 12, num_tokens: 400, branching: 3}}]
backbones: [{lstm: {num_layers: 1, dropout: 0.1}}]
heads: [softmax, mos: {num_mixtures: 2}]
ladder: {sizes: [{d_model: 4}, {d_model: 8}]}
train: {optimizer: adam, lr: 0.01, epochs: 2, batch_size: 4, seq_len: 7}
seeds: 6
measure: {exclusive: false}
table: {baseline: softmax}
"""
HEAD = '''\
"""A softmax with a temperature for each word. </pre><script>of_source()</script>"""

import torch
from torch import nn

from harness.distributions import Logits
from harness.registry import HEADS


@HEADS.register("scaled")
class Scaled(nn.Module):
    """log p = log_softmax(exp(a) * (W h + b)), with a scale a for each word."""

    def __init__(self, dims, embedding, *, start: float = 0.1):
        super().__init__()
        self.output = nn.Linear(dims.layer_dims[-1], dims.vocab_size)
        self.scale = nn.Parameter(torch.full((dims.vocab_size,), start))

    def forward(self, hidden):
        return Logits(self.scale.exp() * self.output(hidden.layers[-1]))
'''
CARD = {
    "sentence": "Each word has a temperature <img src=http://example.org/x.png>.",
    "authors": ("Ada <b>Example</b>",),
    "licence": "MIT",
    "suite": "board_small",
    "date": "2026-03-01",
    "hardware": ("a processor",),
    "core_hours": 0.1,
    "harness": "0.1.0",
}
NAME = "<script>of_card()</script>"
PPLS = {"softmax": (100.0, 80.0), "mos": (95.0, 78.0), "scaled": (96.0, 70.0)}  # of the small and the large size


def forget() -> None:
    """Make `scaled` a head of this process no more."""
    import harness.heads

    for registry in (HEADS._classes, HEADS._modules):
        registry.pop("scaled", None)
    sys.modules.pop("harness.heads.scaled", None)
    harness.heads.__path__[:] = [
        each for each in harness.heads.__path__ if not re.search("/(author|[0-9]/heads)$", each)
    ]


def finish(suite: plan.Suite, results: Path, head: str) -> None:
    """Save a record of each trial of a head: its perplexity is that of PPLS and the seed."""
    for row in suite.rows:
        for trial in row.trials:
            if trial.head.name == head:
                ppl = PPLS[head][row.size - 1] + trial.seed
                digest = f"{trial.seed:02x}{row.size:02x}" + trial.id * 5
                about = {"contents": suite.contents_of(trial), "weights_sha256": digest}
                metrics = {"test_ppl": ppl, "valid_ppl": ppl}
                made = handmade.record(suite=suite.name, spec=trial, metrics=metrics, **about)
                store.save(made, store.runs_folder(results, suite.name))


def submitted(folder: Path, name: str, spec: str, *, source: str | None = HEAD, label: str = NAME, **card) -> Path:
    """Write a submission with the trials of `scaled` with some parameters."""
    suite = plan.load(folder / "suites" / "board_small.yaml", (f"heads+={spec}",))
    results = folder / name
    finish(suite, results, "scaled")
    export_records(results, folder / f"{name}.zip")
    card = FullCard(name=label, head=spec, **{**CARD, **card})
    parts = {archive.CARD: card.model_dump_json().encode(), archive.RECORDS: (folder / f"{name}.zip").read_bytes()}
    if source is not None:
        parts[archive.SOURCE] = source.encode()
    place = folder / "submissions" / "board_small" / f"{name}.zip"
    place.parent.mkdir(parents=True, exist_ok=True)
    archive.write(place, parts)
    return place


def checked(place: Path, outcome: str = "ok") -> None:
    """Write the note of the maintainers' checks beside a submission."""
    import hashlib

    digest = hashlib.sha256(place.read_bytes()).hexdigest()
    about = {"suite": "board_small", "head": "scaled", "digest": digest, "trial": ""}
    checks = (
        Check("format", "ok", "three members"),
        Check("plan", outcome, "what the <i>suite</i> plans"),
        Check("trained again", "ok", "to the same bits", verdict="identical"),
    )
    badges.write(place, "checked", Checked(**about, checks=checks), "maintainers")


def as_author(folder: Path) -> None:
    """Make `scaled` a head of this process, as in the folder of its author."""
    (folder / "author").mkdir()
    (folder / "author" / "scaled.py").write_text(HEAD)
    HEADS.add_folder(folder / "author")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The files of a site with a board, a checked submission, one that was refused and one that was not checked."""
    from harness.cli.board import _files_of_site

    folder = tmp_path_factory.mktemp("site")
    (folder / "suites").mkdir()
    suite = folder / "suites" / "board_small.yaml"
    suite.write_text(SUITE)
    small = folder / "suites" / "small.yaml"
    small.write_text(handmade.changed(("lr: 0.01", "lr: 0.02")))
    for head in ("softmax", "mos"):
        finish(plan.load(suite), folder / "results", head)
    few = plan.load(small)
    for trial in few.trials:
        record = handmade.record(suite="small", spec=trial, contents=few.contents_of(trial))
        store.save(record, store.runs_folder(folder / "results", "small"))
    as_author(folder)
    checked(submitted(folder, "first", "{scaled: {start: 0.2}}"))
    checked(submitted(folder, "wrong", "{scaled: {start: 0.3}}", label="Wrong"), "refused")
    submitted(folder, "unseen", "{scaled: {start: 0.4}}", label="Unseen")
    forget()  # the site has the source of the submission alone
    files = _files_of_site(folder / "results", folder / "suites", folder / "submissions")
    yield SimpleNamespace(files=files, folder=folder)
    forget()


def text_of(made, name: str) -> str:
    return made.files[name].decode().replace("<wbr>", "")


def gain(size: int, head: str, control: str) -> list[float]:
    """By hand: log of the control's perplexity less that of the head, of each seed."""
    return [math.log(PPLS[control][size] + seed) - math.log(PPLS[head][size] + seed) for seed in range(1, 7)]


def test_a_board_has_a_page_with_its_submissions_and_who_was_first_when(made):
    page = text_of(made, "boards/board_small.html")
    assert "suites/board_small.html" not in made.files
    history = page[page.index("Who was first when") : page.index("<h2>Submissions</h2>")]
    lines = re.findall(r"<tbody.*?</tbody>", history, re.DOTALL)
    assert len(lines) == 2
    for text in (">2026-01-02<", ">MoS 2<", "the suite"):
        assert text in lines[0]
    assert 'href="../submissions/board_small/first.html"' in lines[1]
    for size in (0, 1):
        assert f"{statistics.fmean(gain(size, 'scaled', 'softmax')):+.4f}" in lines[1]
    listed = page[page.index("<h2>Submissions</h2>") :]
    for name, why in {"first": "in the table", "wrong": "refused: plan", "unseen": "not checked yet"}.items():
        assert re.search(rf'submissions/board_small/{name}\.html".*?{why}<', listed, re.DOTALL)
    assert page.count('aria-label="Loss and gain by size"') == 1
    assert 'aria-label="Change against the strongest control' in page


def test_only_the_numbers_of_a_checked_submission_are_shown(made):
    found = json.loads(made.files["results.json"])
    (board,) = found["boards"]
    assert [row["label"] for row in board["rows"]] == ["softmax", "MoS 2", NAME]
    assert "Wrong" not in made.files["data/trials.csv"].decode()
    page = text_of(made, "submissions/board_small/unseen.html")
    assert "None are shown: not checked yet." in page
    assert "<svg" not in page
    assert "<svg" in text_of(made, "submissions/board_small/first.html")


def test_the_command_of_a_row_names_no_head_of_another_submission(made):
    page = text_of(made, "boards/board_small.html")
    commands = re.findall(r'<p class="command"><code>(harness run .*? --only .*?)</code>', page)
    assert len(commands) == 6
    assert [command for command in commands if "heads+=" in command] == commands[4:]
    assert all("scaled" in command for command in commands[4:])


def test_the_feed_has_what_the_tables_have(made):
    found = json.loads(made.files["results.json"])
    assert found["schema"] == 1
    (board,) = found["boards"]
    mine = board["rows"][-1]
    assert (mine["head"], mine["submission"]) == ("scaled(start=0.2)", "submissions/board_small/first.html")
    for size, row in enumerate(mine["sizes"]):
        expected = gain(size, "scaled", "softmax")
        assert row["gain"]["nats"] == pytest.approx(statistics.fmean(expected))
        assert (row["gain"]["pairs"], row["seeds"]) == (6, [1, 2, 3, 4, 5, 6])
        # the t quantile of 5 degrees of freedom is 2.5706
        half = 2.570582 * statistics.stdev(expected) / math.sqrt(6)
        assert row["gain"]["low"] == pytest.approx(statistics.fmean(expected) - half, rel=1e-5)
        assert row["test_ppl"] == pytest.approx(PPLS["scaled"][size] + 3.5)
    control = board["rows"][0]["sizes"][0]["gain"]
    assert control == {"nats": 0.0, "low": None, "high": None, "pairs": None}
    assert [first["label"] for first in board["history"]] == ["MoS 2", NAME]
    states = {each["file"]: each["without_numbers"] for each in found["submissions"]}
    assert states == {"first.zip": None, "wrong.zip": "refused: plan", "unseen.zip": "not checked yet"}
    badges_of = {each["file"]: [badge["name"] for badge in each["badges"]] for each in found["submissions"]}
    assert badges_of == {"first.zip": ["submitted", "checked"], "wrong.zip": ["submitted"], "unseen.zip": ["submitted"]}


def test_a_submission_has_a_page_with_what_it_is_and_how_to_run_it(made):
    page = text_of(made, "submissions/board_small/first.html")
    said = "harness run board_small --set &#39;heads+={scaled: {start: 0.2}}&#39; --only head=scaled"
    assert said in page
    assert "return Logits(self.scale.exp() * self.output(hidden.layers[-1]))" in page
    assert "12 of 12 trials have a certificate, asked at 768 positions." in page  # 64 each
    refused = text_of(made, "submissions/board_small/wrong.html")
    assert ">refused<" in refused
    assert "what the &lt;i&gt;suite&lt;/i&gt; plans" in refused


def test_texts_of_strangers_are_escaped_and_no_page_loads_anything(made):
    for name in (name for name in made.files if name.endswith(".html")):
        page = made.files[name].decode()
        assert not [text for text in ("<script>of_", "<img", "<b>Example") if text in page], name
        assert not re.search(r"""(src|xlink:href)=["']?https?:""", page.replace("&lt;img src=http:", "")), name
        assert page.count("<script>") == 1, name
    assert "&lt;script&gt;of_card()" in text_of(made, "submissions/board_small/first.html")


def test_every_link_leads_to_a_file_and_every_file_is_linked(made):
    from harness.board.site import _OF_SITE

    linked = set()
    for page in (name for name in made.files if name.endswith(".html")):
        for link in re.findall(r'href="([^"#:]+)"', text_of(made, page)):
            linked.add((Path("/") / Path(page).parent / link).resolve().relative_to("/").as_posix())
    assert linked == made.files.keys()
    assert all(_OF_SITE.fullmatch(name) for name in made.files)


def test_boards_come_first_and_suites_that_rank_no_row_are_folded_away(made):
    page = text_of(made, "index.html")
    headings = re.findall("<h2>(.*?)</h2>", page)
    assert headings[:2] == ["Boards", "Submissions"]
    folded = re.search(
        r"<h2>Suites that rank no row</h2>\s*<details><summary>1 suite</summary>.*?</details>", page, re.S
    )
    assert 'href="suites/small.html"' in folded[0]
    assert "boards/board_small.html" not in folded[0]


def test_a_newer_file_replaces_that_of_its_authors_and_no_name_is_taken_twice(tmp_path):
    from harness.submissions.received import read

    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "board_small.yaml").write_text(SUITE)
    forget()
    as_author(tmp_path)
    given = {  # name -> its source, its parameter, its authors
        "a_old": (HEAD, 0.2, ("Ada",)),
        "b_renewed": (HEAD, 0.2, ("ada", "Bob")),
        "c_with_another_parameter": (HEAD, 0.3, ("Ada",)),
        "d_of_another_person": (HEAD + "# mine\n", 0.4, ("Eve",)),
        "e_that_opens_files": ("import os\n" + HEAD, 0.5, ("Max",)),
    }
    for name, (source, start, authors) in given.items():
        checked(submitted(tmp_path, name, f"{{scaled: {{start: {start}}}}}", source=source, authors=authors))
    (tmp_path / "submissions" / "board_small" / "damaged.zip").write_bytes(b"PK")
    said = []
    forget()  # of those below the first one gives the head
    found = read(tmp_path / "submissions", tmp_path / "unpacked", said.append)
    assert {each.stem: each.why_not for each in found} == {
        "a_old": "replaced by b_renewed",
        "b_renewed": "",
        "c_with_another_parameter": "",
        "d_of_another_person": "there is another head 'scaled'",
        "e_that_opens_files": "there is another head 'scaled'",
    }
    for who, day in {"ADA": found[0].counted_on, "Eve": "2020-01-01"}.items():
        early = {"kind": "confirmed", "who": who, "date": "2020-01-01T00:00:00+00:00", "verdict": "identical"}
        notes = (*found[0].notes, found[0].notes[0].model_copy(update=early))
        assert dataclasses.replace(found[0], notes=notes).counted_on == day
    assert len(said) == 1
    assert "damaged.zip is no submission" in said[0]
    forget()
    place = tmp_path / "submissions" / "board_small"
    for each in found[:4]:
        each.submission.place.unlink()
    (left,) = read(place.parent, tmp_path / "again", said.append)
    assert left.why_not == "refused: source"
    assert "scaled" not in HEADS.names()
    forget()
