"""The page as a file: every number is a record's, nothing is asked of a network, what anybody wrote is text."""

import base64
import hashlib
from dataclasses import dataclass
from html.parser import HTMLParser

import handmade
import pytest
from bundles import timing_of

from harness.records.record import CurvePoint
from harness.report import outputs, suite_table
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
def timing(made):
    """Of the first trial."""
    metrics = {"train_ms_per_batch": 10 / 3, "train_ms_per_batch_iqr": 1 / 7}
    return timing_of(made[0], metrics=metrics, batches=90, rounds=5)


@pytest.fixture
def evidence(suite, made, timing, tmp_path):
    failed = tmp_path / "runs" / made[-1].id
    failed.mkdir(parents=True)
    (failed / "trial.log").write_bytes(b"first line\n" * 1_000 + f"last line {HOSTILE}\n".encode() + b"\xff\n")
    return handmade.evidence(suite, made, timings={made[0].id: timing}, runs=tmp_path / "runs")


def rendered(evidence, sections=()) -> str:
    return page_document.render(find(evidence), suite_table.build(find(evidence)), [], sections)


def near(shown: str, value: float) -> bool:
    """Whether a text shows a number to six digits."""
    return abs(float(shown.replace(",", "")) - value) <= 5e-6 * abs(value)


def test_every_number_of_a_trial_is_that_of_its_record_and_none_is_missing(evidence):
    tags = Page(rendered(evidence)).with_("data-metric")
    found = {(tag.attributes["data-trial"], tag.attributes["data-metric"]): tag for tag in tags}
    records = evidence.records.values()
    expected = {(record.id, name): value for record in records for name, value in record.metrics.items()}
    assert found.keys() == expected.keys()
    assert len(tags) == len(expected) > 20
    for key, value in expected.items():
        assert float(found[key].attributes["data-value"]) == value
        assert near(found[key].text, value)


def test_every_point_of_every_curve_is_that_of_its_record(evidence):
    read = Page(rendered(evidence))
    curves = {record.id: record.curve for record in evidence.records.values() if record.curve}
    assert {tag.attributes["data-curve"] for tag in read.with_("data-curve")} == curves.keys()
    for trial, curve in curves.items():
        (shown,) = read.all("pre", data_curve=trial)
        header, *lines = (line.split() for line in shown.text.splitlines())
        assert header == ["epoch", "train_loss", "valid_ppl", "lr", "seconds"]
        assert len(lines) == len(curve)
        for line, point in zip(lines, curve, strict=True):
            values = (point.epoch, point.train_loss, point.valid_ppl, point.lr, point.seconds)
            assert all(near(text, value) for text, value in zip(line, values, strict=True))


def test_the_cells_of_the_table_are_those_of_the_table_made_of_the_same_evidence(evidence):
    table = suite_table.build(find(evidence))
    read = Page(rendered(evidence))
    (shown,) = read.all("table", **{"class": "sortable"})
    headers = [tag.text for tag in read.all("th", scope="col") if tag.within[-3] is shown]
    # what a reader asks first comes first, and no column is left out
    assert headers[:4] == ["head", "test ppl", "vs softmax", "verdict"]
    assert sorted(headers) == sorted(column.name for column in table.columns)
    cells = [tag for tag in read.all("td") if tag.within[-1].name == "tr" and tag.within[-3] is shown]
    cells = [tag for tag in cells if "colspan" not in tag.attributes]
    found = [(tag.attributes.get("data-value"), tag.text) for tag in cells]
    for index, line in enumerate(table.lines):
        row = dict(zip(headers, found[index * len(headers) :], strict=False))
        for column, cell in zip(table.columns, line.cells, strict=True):
            assert row[column.name] == (None if cell.value is None else str(cell.value), cell.text)
    assert len(found) == len(headers) * len(table.lines)
    best = [tag.text for tag in cells if "best" in tag.attributes.get("class", "").split()]
    assert best == [cell.text for line in table.lines for cell in line.cells if cell.rank]


def test_what_a_row_is_besides_its_head_stands_below_the_head():
    names = ("corpus", "backbone", "head", "params", "test ppl", "vs softmax")
    keys = ("label", "label", "label", "params_total", "test_ppl", "change")
    columns = tuple(Column(name=name, numeric=key != "label", key=key) for name, key in zip(names, keys, strict=True))
    line = Line(cells=tuple(map(lambda text: Cell(text=text), ("ptb", "lstm", "mos", "12", "88.6", "-1.3 % [-2, -1]"))))
    table = Table(title="several", columns=columns, lines=(line,))
    found = page_document.arranged(table)
    assert (found.first.name, found.lines[0].name.text, found.lines[0].of) == ("head", "mos", ("lstm", "ptb"))
    assert [column.name for column in found.columns] == ["test ppl", "vs softmax", "params"]
    assert [cell.text for cell in found.lines[0].cells] == ["88.6", "-1.3 % [-2, -1]", "12"]
    assert found.in_sight == 3


def test_a_line_of_a_cell_breaks_between_its_numbers():
    assert page_document.parts("-1.3 % [-2, -1] ***") == ["-1.3 %", "[-2, -1] ***"]
    assert page_document.parts("88.58 ± 0.31") == ["88.58", "± 0.31"]
    assert page_document.parts("156.9, 142.8, 130.0") == ["156.9,", "142.8,", "130.0"]


def test_the_page_begins_with_the_result_its_limits_and_the_next_command(evidence):
    text = rendered(evidence)
    said = (
        "Lowest mean test perplexity of 3 rows",
        "No row is called better or worse: that needs 6 seeds",
        "<code>harness run suites/suite.yaml --retry-failed</code>",
        "<h2>Results</h2>",
    )
    places = [text.index(each) for each in said]
    assert places == sorted(places)


def test_what_is_between_backticks_is_code_on_the_page_and_all_of_it_is_escaped(suite, record_of):
    made = [record_of(trial, test_ppl=9.0) for trial in suite.trials[1:]]
    failed = record_of(suite.trials[0], status="error", message="run `harness <b>` & look at ` alone")
    text = rendered(handmade.evidence(suite, [failed, *made]))
    assert "<p>run <code>harness &lt;b&gt;</code> &amp; look at ` alone</p>" in text


def test_the_numbers_of_an_exclusive_pass_are_those_of_its_file_beside_those_of_its_seed(evidence, timing):
    read = Page(rendered(evidence))
    found = {tag.attributes["data-timing"]: tag for tag in read.with_("data-timing")}
    assert {name: float(tag.attributes["data-value"]) for name, tag in found.items()} == timing.metrics
    assert {tag.attributes["data-trial"] for tag in found.values()} == {timing.trial}
    time = found["train_ms_per_batch"]
    assert "colspan" not in time.attributes
    row = [tag for tag in read.all("td") if tag.within[-1] is time.within[-1]]
    assert [tag.text for tag in row] == ["3.33333", "-"]  # of seed 1, and of seed 2, which was not timed
    assert "Timed alone, 1 seed (1): 5 rounds, 90 training batches, a processor, 1 thread, 2026" in rendered(evidence)


def test_a_row_opens_to_its_whole_spec_with_defaults_and_to_its_command(evidence):
    read = Page(rendered(evidence))
    rows = read.all("details", **{"class": "row"})
    assert len(rows) == 3
    last = rows[-1]
    names = [tag.text for tag in read.all("dt") if last in tag.within]
    values = [tag.text for tag in read.all("dd") if last in tag.within]
    told = dict(zip(names, values, strict=True))
    assert told["num_mixtures"] == "5"
    assert (told["optimizer"], told["eval_batch_size"], told["precision"]) == ("adam", "10", "fp32")
    assert "gate" in told  # a default of the head
    assert "groups" not in told  # a mapping that is empty
    assert [tag.text for tag in read.all("dt", **{"class": "default"}) if tag.text == "num_mixtures"] == []
    commands = [tag.text for tag in read.all("code") if last in tag.within and tag.within[-1].name == "p"]
    assert "harness run suites/suite.yaml --only head=mos,head.num_mixtures=5" in commands
    (row,) = [row for row in evidence.rows if row.spec.head.params.get("num_mixtures") == 5]
    results = "".join(row.records[seed].model_dump_json() for seed in row.ok_seeds).encode()
    drawn = row.ok_seeds[int(hashlib.sha256(results).hexdigest(), 16) % len(row.ok_seeds)]
    assert f"harness verify {row.records[drawn].id} --retrain" in commands


def test_a_failed_trial_has_its_message_and_the_end_of_its_log(evidence, made):
    read = Page(rendered(evidence))
    (failed,) = read.with_("data-failed")
    assert failed.attributes["data-failed"] == made[-1].id
    (log,) = (tag for tag in read.all("pre") if failed in tag.within)
    assert log.text.count("first line") == 28  # of 30 lines
    assert "last line </script><script>alert(1)" in log.text
    assert "RuntimeError: </script><script>alert(1)</script>" in failed.text
    assert f"--only id={made[-1].id} --retry-failed" in failed.text


@pytest.mark.guards("log-no-file")
def test_a_log_that_is_no_file_or_not_there_is_none(evidence, made, tmp_path):
    log = tmp_path / "runs" / made[-1].id / "trial.log"
    log.unlink()
    assert "Its log is not here." in rendered(evidence)
    log.mkdir()
    assert "Its log is not here." in rendered(evidence)


@pytest.mark.guards("page-escapes", "page-shows-all")
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


@pytest.mark.guards("page-network", "page-script")
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


@pytest.mark.guards("plot-ids")
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


def test_what_is_drawn_of_a_row_is_found_by_the_number_that_its_line_of_the_table_has(evidence):
    made = '<svg viewBox="0 0 1 1"><g id="row-2-0"><path d=""/></g><g id="row-2-1"/><g id="row-x"/></svg>'
    plot = Plot(name="one", title="one", caption="", svg=made, png=bytes, pdf=bytes)
    read = Page(page_document.render(find(evidence), suite_table.build(find(evidence)), [plot]))
    assert [tag.attributes["data-row"] for tag in read.with_("data-row")] == ["2", "2"]
    assert [tag.attributes["id"] for tag in read.all("g") if "id" in tag.attributes] == ["one-row-x"]
    names = [tag.text for tag in read.all("td", **{"class": "text name"})]
    numbers = [tag.attributes["data-rows"] for tag in read.with_("data-rows")]
    assert dict(zip(numbers, names, strict=True)) == {"0": "softmax", "1": "MoS 2", "2": "MoS 5"}


def test_a_shortened_suite_says_so_on_top(suite_of, record_of):
    suite = suite_of(SUITE, "train.epochs=1")
    evidence = handmade.evidence(suite, [record_of(suite.trials[0], test_ppl=9.0)])
    read = Page(rendered(evidence))
    assert [tag.text for tag in (*read.all("title"), *read.all("h1"))] == [
        "small, version 1; SHORTENED: train.epochs = 1 instead of 2"
    ] * 2


def test_the_same_evidence_gives_the_same_page_and_writing_it_again_changes_nothing(evidence, tmp_path):
    assert rendered(evidence) == rendered(evidence)
    place = tmp_path / "reports" / "page.html"
    outputs.write({place: rendered(evidence).encode()})
    before = place.stat().st_mtime_ns
    outputs.write({place: rendered(evidence).encode()})
    assert place.stat().st_mtime_ns == before


def test_tables_of_several_suites_are_a_page_of_their_own():
    columns = (Column(name="head"), Column(name="valid", group="ptb"), Column(name="test", group="ptb", numeric=True))
    line = Line(cells=(Cell(text="mos"), Cell(text="-"), Cell(text="86.89", value=86.8874)))
    table = Table(title="ptb, 40 epochs", columns=columns, lines=(line,), notes=("like with like",))
    read = Page(
        page_document.of_tables("Leaderboard", [Section(heading="Penn Treebank", tables=(table,), notes=("of all",))])
    )
    assert [tag.text for tag in read.all("h1")] == ["Leaderboard"]
    assert [(tag.text, tag.attributes["colspan"]) for tag in read.all("th", scope="colgroup")] == [
        ("", "1"),
        ("ptb", "2"),
    ]
    assert [tag.attributes["data-value"] for tag in read.with_("data-value")] == ["86.8874"]
    assert [tag.text for tag in read.all("li")] == ["like with like", "of all"]
    assert read.all("details") == []
