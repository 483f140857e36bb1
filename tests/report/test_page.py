"""The page as a file: every number is a record's, nothing is asked of a network, what anybody wrote is text."""

import base64
import hashlib
from dataclasses import dataclass
from html.parser import HTMLParser

import handmade
import pytest

from harness.records.record import CurvePoint
from harness.report import suite_table
from harness.report.content import Cell, Column, Line, Table
from harness.report.figures import plots
from harness.report.figures.drawn import Plot
from harness.report.findings import find
from harness.report.page import document as page_document
from harness.report.page.document import Section

SUITE = handmade.changed(("  - mos: {num_mixtures: 2}", "  - mos: {num_mixtures: [2, 5]}"))
HOSTILE = "</script><script>alert(1)</script></pre><img src=x onerror=alert(1)> \"' & {{ 7 * 7 }} \x1b[31m\u202e\x00"
VOID = {"wbr", "meta", "link", "img", "br", "path", "use", "rect"}


@dataclass
class Tag:
    """A tag of a page: its name, attributes, all text within it, and the tags it stands in."""

    name: str
    attributes: dict[str, str | None]
    within: list["Tag"]
    text: str = ""


class Page(HTMLParser):
    """The tags of a page, in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[Tag] = []
        self.open: list[Tag] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        ends = {"td": ("td", "th"), "th": ("td", "th"), "tr": ("td", "th", "tr")}.get(tag, ())
        while self.open and self.open[-1].name in ends:  # an end tag that may be left out
            self.open.pop()
        self.tags.append(Tag(tag, dict(attrs), list(self.open)))
        if tag not in VOID:
            self.open.append(self.tags[-1])

    def handle_startendtag(self, tag, attrs):
        self.tags.append(Tag(tag, dict(attrs), list(self.open)))

    def handle_endtag(self, tag):
        while self.open and self.open.pop().name != tag:
            pass

    def handle_data(self, data):
        for tag in self.open:
            tag.text += data

    def all(self, name: str, **attributes: str) -> list[Tag]:
        """The tags of a name with these attributes; 'data_metric' stands for data-metric."""
        given = {key.replace("_", "-"): value for key, value in attributes.items()}
        return [tag for tag in self.tags if tag.name == name and given.items() <= tag.attributes.items()]

    def with_(self, attribute: str) -> list[Tag]:
        return [tag for tag in self.tags if attribute in tag.attributes]


@pytest.fixture
def suite(suite_of):
    return suite_of(SUITE)


@pytest.fixture
def made(suite, record_of):
    """Records with odd numbers; the last trial failed."""

    def record(index, trial):
        if trial is suite.trials[-1]:
            return record_of(trial, "error", f"RuntimeError: {HOSTILE}", environment={"device": HOSTILE})
        odd = 100 / (index + 3)
        found = record_of(trial, test_ppl=odd, valid_ppl=odd * 1.1, train_ms_per_batch=odd / 7, peak_memory_mib=1e7 / 3)
        curve = tuple(
            CurvePoint(epoch=float(epoch), train_loss=odd / epoch, valid_ppl=odd * epoch, lr=1e-5 / 3, seconds=odd / 9)
            for epoch in (1, 2)
        )
        return found.model_copy(update={"curve": curve, "weights_sha256": "ab" * 32})

    return [record(index, trial) for index, trial in enumerate(suite.trials)]


@pytest.fixture
def evidence(suite, made, tmp_path):
    failed = tmp_path / "runs" / made[-1].id
    failed.mkdir(parents=True)
    (failed / "trial.log").write_bytes(b"first line\n" * 1_000 + f"last line {HOSTILE}\n".encode() + b"\xff\n")
    return handmade.evidence(suite, made, runs=tmp_path / "runs")


def rendered(evidence, sections=()) -> str:
    return page_document.render(find(evidence), suite_table.build(find(evidence)), [], sections)


def test_what_is_between_backticks_is_code_on_the_page_and_all_of_it_is_escaped(suite, record_of):
    made = [record_of(trial, test_ppl=9.0) for trial in suite.trials[1:]]
    failed = record_of(suite.trials[0], status="error", message="run `harness <b>` & look at ` alone")
    text = rendered(handmade.evidence(suite, [failed, *made]))
    assert "<p>run <code>harness &lt;b&gt;</code> &amp; look at ` alone</p>" in text


def test_a_failed_trial_has_its_message_and_the_end_of_its_log(evidence, made):
    read = Page(rendered(evidence))
    (failed,) = read.with_("data-failed")
    assert failed.attributes["data-failed"] == made[-1].id
    (log,) = (tag for tag in read.all("pre") if failed in tag.within)
    assert log.text.count("first line") == 28  # of 30 lines
    assert "last line </script><script>alert(1)" in log.text
    assert "RuntimeError: </script><script>alert(1)</script>" in failed.text
    assert f"--only id={made[-1].id} --retry-failed" in failed.text


def test_a_log_that_is_no_file_or_not_there_is_none(evidence, made, tmp_path):
    log = tmp_path / "runs" / made[-1].id / "trial.log"
    log.unlink()
    assert "Its log is not here." in rendered(evidence)
    log.mkdir()
    assert "Its log is not here." in rendered(evidence)


def test_what_anybody_wrote_is_text(evidence, record_of):
    table = Table(
        title=HOSTILE,
        columns=(Column(name=HOSTILE, group=HOSTILE), Column(name="n", numeric=True)),
        lines=(Line(cells=(Cell(text=HOSTILE), Cell(text=HOSTILE, value=1.0))),),
        notes=(HOSTILE,),
    )
    text = page_document.render(
        find(evidence),
        table,
        [plots.LeftOut(title=HOSTILE, reason=HOSTILE)],
        [Section(heading=HOSTILE, tables=(table,))],
    )
    read = Page(text)
    assert [tag.name for tag in read.tags if tag.name in ("img", "iframe", "object", "base", "form")] == []
    assert len(read.all("script")) == 1
    assert not [name for tag in read.tags for name in tag.attributes if name.startswith("on")]
    assert "{{ 7 * 7 }}" in read.all("h1")[0].text  # not 49
    assert {c for c in text if not c.isprintable()} == {"\n"}
    assert read.all("h1")[0].text.startswith("</script><script>alert(1)</script>")
    assert "\\x1b[31m\\u202e\\x00" in read.all("h1")[0].text


def test_nothing_is_asked_of_a_network_and_the_page_says_so(evidence):
    text = rendered(evidence)
    read = Page(text)
    places = [tag.attributes[name] for name in ("src", "href", "xlink:href", "action") for tag in read.with_(name)]
    assert all(place == "data:," or place.startswith("#") for place in places)
    assert "@import" not in text
    (policy,) = read.all("meta", http_equiv="Content-Security-Policy")
    rules = dict(rule.strip().split(" ", 1) for rule in policy.attributes["content"].split(";"))
    assert rules["default-src"] == "'none'"
    (script,) = read.all("script")
    digest = base64.b64encode(hashlib.sha256(script.text.encode()).digest()).decode()
    assert rules["script-src"] == f"'sha256-{digest}'"
    assert not {"connect-src", "frame-src", "font-src"} & rules.keys()
    assert rules["img-src"] == "data:"


PLOT = """<?xml version="1.0"?>
<svg width="300pt" height="200pt" viewBox="0 0 300 200"><metadata>x</metadata>
<defs><style type="text/css">*{}</style></defs>
<g id="axes"><path d="" style="fill: #ffffff; stroke: #0072b2; clip-path: url(#clip)"/></g><use xlink:href="#mark"/>
<text id="t">id="t" #0072b2</text></svg>"""


def test_plots_stand_in_the_page_with_ids_of_their_own_and_its_colours(evidence):
    texts = [{"name": name, "title": name, "caption": f"of {name}"} for name in ("one.a", "two")]
    drawn = [Plot(**each, svg=PLOT, png=bytes, pdf=bytes) for each in texts]
    read = Page(page_document.render(find(evidence), suite_table.build(find(evidence)), drawn))
    ids = [tag.attributes["id"] for tag in read.with_("id")]
    assert len(set(ids)) == len(ids)
    assert {"one-a-axes", "two-axes"} <= set(ids)
    path = next(tag for tag in read.all("path") if tag.within[-1].attributes.get("id") == "one-a-axes")
    assert path.attributes["style"] == "fill: none; stroke: light-dark(#0072b2, #4aa8e0); clip-path: url(#one-a-clip)"
    (svg, _) = (tag for tag in read.all("svg") if tag.within[-1].name == "figure")
    assert svg.attributes == {"viewbox": "0 0 300 200"}
    assert next(tag.text for tag in read.all("text")) == 'id="t" #0072b2'
    assert [tag.text for tag in read.all("figcaption")] == ["of one.a", "of two"]
