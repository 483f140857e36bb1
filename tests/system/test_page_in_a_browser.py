"""The page in a real browser (headless Chromium): sorting, opening rows, colours, no requests, narrow screens."""

import json
import shutil
from pathlib import Path

import handmade
import pytest

from harness import plan
from harness.records.record import CurvePoint
from harness.records.sidecars import Timing
from harness.report import suite_table
from harness.report.content import Cell, Column, Line, Table
from harness.report.figures import plots
from harness.report.findings import find
from harness.report.page import document

ROOT = Path(__file__).parents[2]
SUITE = handmade.changed(("  - mos: {num_mixtures: 2}", "  - mos: {num_mixtures: [2, 5, 10]}"))
PPL = {"softmax": 100.0, 2: 9.5, 5: 88.0, 10: None}  # as text 9.5 sorts after 88, and what is missing comes last
MARKS = " ≈↓"  # of ties, and of rows that are not converged or collapsed
HOSTILE = (
    "</script><script>document.title = 'obeyed'; fetch('http://127.0.0.1:9/')</script><img src='http://127.0.0.1:9/x'>"
)
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """One Chromium for all tests here."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    places = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in places:
        pytest.skip("needs Debian's chromium and chromium-driver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = places[0]
    for option in (*OPTIONS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(places[1]))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The page of a suite of four heads, one of which failed with a hostile message."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "suites").mkdir()
    (folder / "suites" / "small.yaml").write_text(SUITE)
    suite = plan.load(folder / "suites" / "small.yaml")
    made = [record for trial in suite.trials if (record := _record(trial))]
    evidence = handmade.evidence(suite, made, timings={record.id: _timing(record) for record in made[:2]})
    findings = find(evidence)
    table = suite_table.build(findings)
    text = document.render(findings, table, plots.draw(find(evidence), table.title))
    (folder / "page.html").write_text(text, encoding="utf-8")
    return folder / "page.html"


def _record(trial):
    ppl = PPL[trial.head.params.get("num_mixtures", trial.head.name)]
    about = {"suite": "small", "spec": trial, "curve": ()}
    if ppl is None:
        return handmade.record(
            **about, status="error", message=HOSTILE, environment=handmade.environment(device=HOSTILE)
        )
    metrics = {"test_ppl": ppl + trial.seed, "valid_ppl": ppl, "train_ms_per_batch": ppl, "state_carried": 1}
    metrics |= {"unigram_test_ppl": 11.0, "context_tokens": 7}
    curve = tuple(
        CurvePoint(epoch=e, train_loss=4.0, valid_ppl=ppl + 1 / e, lr=1.0, seconds=1.0) for e in (1.0, 2.0, 3.0)
    )
    return handmade.record(**{**about, "curve": curve}, metrics=metrics)


def _timing(record):
    metrics = {"train_ms_per_batch": 3.5, "train_ms_per_batch_iqr": 0.25}
    about = {"batches": 90, "rounds": 5, "pass_id": "p", "device": "a processor", "threads": 1, "torch": "2.13.0"}
    about |= {"commit": "abc", "taken": "2026-01-02T03:04:05+00:00", "busy": 0.0, "shared": False}
    return Timing(trial=record.id, weights_sha256=record.weights_sha256, metrics=metrics, **about)


@pytest.fixture
def opened(browser, place):
    """The browser with the page, as wide as a desktop's, in light colours."""
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [_scheme("light")]})
    _wide(browser, 1400)
    browser.get(place.as_uri())
    return browser


def _scheme(name):
    return {"name": "prefers-color-scheme", "value": name}


def _wide(browser, width):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def _column(browser, name):
    """A header's index and its button."""
    headers = browser.find_elements("css selector", "table.sortable > thead th")
    index = [header.text.split("\n")[0].split("\xa0")[0] for header in headers].index(name)
    return index, headers[index]


def _cells(browser, index):
    rows = browser.find_elements("css selector", "table.sortable > tbody > tr:first-child")
    return [row.find_elements("tag name", "td")[index].text for row in rows]


def test_a_column_sorts_by_number_upwards_and_downwards_with_what_is_missing_last(opened):
    index, header = _column(opened, "test ppl")
    shown = ["11.00 ± 0.71", "89.50 ± 0.71", "101.50 ± 0.71"]
    header.find_element("tag name", "button").click()
    cells = [cell.rstrip(MARKS) for cell in _cells(opened, index)]
    assert cells == [*shown, "-"]
    assert header.get_attribute("aria-sort") == "ascending"
    header.find_element("tag name", "button").click()
    assert [cell.rstrip(MARKS) for cell in _cells(opened, index)] == [*reversed(shown), "-"]
    assert header.get_attribute("aria-sort") == "descending"


def test_a_column_sorts_by_the_keyboard_and_names_sort_with_their_numbers(opened):
    from selenium.webdriver.common.keys import Keys

    index, header = _column(opened, "head")
    header.find_element("tag name", "button").send_keys(Keys.ENTER)
    assert _cells(opened, index) == [f"MoS {k}" for k in (2, 5, 10)] + ["softmax"]
    others = opened.find_elements("css selector", "th[aria-sort=none]")
    assert len(others) == len(opened.find_elements("css selector", "th[aria-sort]")) - 1


def test_a_row_opens_by_a_click_and_by_the_keyboard_and_goes_along_when_sorted(opened):
    from selenium.webdriver.common.keys import Keys

    details = opened.find_elements("css selector", "details.row")[1]
    command = details.find_element("css selector", ".command code")
    assert not command.is_displayed()
    opened.find_elements("css selector", "table.sortable > tbody > tr:first-child")[1].click()
    assert command.is_displayed()
    assert command.text == "harness run suites/small.yaml --only head=mos,head.num_mixtures=2"
    _column(opened, "test ppl")[1].find_element("tag name", "button").click()
    first = opened.find_element("css selector", "table.sortable > tbody")  # of the lowest perplexity
    assert first.find_element("css selector", ".command code").is_displayed()
    summary = details.find_element("tag name", "summary")
    summary.send_keys(Keys.ENTER)
    assert not command.is_displayed()
    summary.click()
    assert command.is_displayed()


def test_colours_follow_the_system_until_the_button_is_used(opened):
    def dark():
        colour = opened.execute_script("return getComputedStyle(document.body).backgroundColor")
        return sum(map(int, colour.removeprefix("rgb(").removesuffix(")").split(","))) < 3 * 128

    assert not dark()
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [_scheme("dark")]})
    assert dark()
    button = opened.find_element("id", "theme")
    button.click()
    assert not dark()
    button.click()
    assert dark()


@pytest.mark.parametrize("width", [1400, 400])
def test_only_boxes_scroll_never_the_page(opened, width):
    _wide(opened, width)
    opened.execute_script("for (const each of document.querySelectorAll('details')) each.open = true")
    page_width, shown = "return document.documentElement.scrollWidth", "return document.documentElement.clientWidth"
    assert opened.execute_script(page_width) == opened.execute_script(shown) <= width
    box = opened.find_element("css selector", "main > section > .scroll")
    assert box.size["width"] <= width
    bar = "return arguments[0].offsetWidth - arguments[0].clientLeft * 2 - arguments[0].clientWidth"
    assert opened.execute_script(bar, box) == 0  # no second bar downwards beside the page's
    details = opened.find_element("css selector", ".behind")
    assert details.size["width"] <= box.size["width"]  # the details of a row are read without scrolling the table
    if width == 400:
        assert opened.execute_script("return arguments[0].scrollWidth > arguments[0].clientWidth", box)


def _box(browser, element) -> dict[str, float]:
    return browser.execute_script("const r = arguments[0].getBoundingClientRect(); return r.toJSON()", element)


@pytest.mark.parametrize(("width", "height", "last"), [(1400, 900, "figure + .hint"), (390, 800, "figure .narrow svg")])
def test_the_first_screen_of_ten_rows_has_the_sentence_and_the_plot(browser, width, height, last):
    _wide(browser, width)
    browser.get((ROOT / "results/showcase/reports/embedded_mixtures.html").as_uri())
    ends = [_box(browser, browser.find_element("css selector", each))["bottom"] for each in (".outcome", last)]
    assert 0 < ends[0] < ends[1] < height


@pytest.mark.parametrize(
    ("width", "in_sight"),
    [
        (1400, ["head", "test ppl", "vs softmax", "verdict", "n", "train ms/batch", "params"]),
        (400, ["head", "test ppl", "vs softmax"]),
    ],
)
def test_what_matters_is_in_sight_without_scrolling_a_table(opened, width, in_sight):
    _wide(opened, width)
    box = _box(opened, opened.find_element("css selector", "main > section > .scroll"))
    assert box["width"] > 0.9 * width  # the window's width is used
    headers = opened.find_elements("css selector", "table.sortable > thead > tr:last-child > th")
    names = [header.get_attribute("textContent").strip() for header in headers]
    assert names[:3] == ["head", "test ppl", "vs softmax"]
    for name in in_sight:
        place = names.index(name)
        for row in opened.find_elements("css selector", "table.sortable > tbody > tr:first-child"):
            cell = row.find_elements("tag name", "td")[place]
            for part in cell.find_elements("tag name", "span") or [cell]:
                found = _box(opened, part)
                assert box["left"] <= found["left"] < found["right"] <= box["right"], (width, name)


def test_further_columns_are_shown_when_they_are_asked_for(opened):
    further = opened.find_elements("css selector", "table.sortable .further")
    assert {each.get_attribute("textContent").strip() for each in further} > {"valid ppl", "head params"}
    box = opened.find_element("css selector", ".all input")
    for asked in (False, True, False):
        assert {each.is_displayed() for each in further} == {asked}
        box.click()


# The box around the text of an element, without its padding.
TEXT_OF = (
    "const r = document.createRange(); r.selectNodeContents(arguments[0]); return r.getBoundingClientRect().toJSON()"
)
LONG = "softmax(projection=True, d_embed=None)"
TABLES = {
    "compared": (
        ("head", "test ppl", f"vs {LONG}", "verdict"),
        [
            (LONG, "75.32 ± 0.66", "-", "-"),
            ("MoS 10", "77.12 ± 0.41", "+2.4 % [+12.0, +12.8] ***", "worse"),
        ],
    ),
    "suites": (
        ("suite", "trials", "lowest test perplexity", "last trial"),
        [("ground_truth_transformer_mos", "80 ok of 80", f"{LONG[:-1]}, init_range=0.05), 94.97 ± 0.12", "2026-11-22")],
    ),
    "printed": (
        ("target", "printed", "ours", "seeds"),
        [("kim: softmax, ptb, 4 epochs", "156.9, 142.8, 135.5, 130.0", "158.98, 142.07, 133.82, 129.90", "3/3")],
    ),
}
NUMBERS = ("test ppl", f"vs {LONG}", "printed", "ours")


@pytest.mark.parametrize("name", TABLES)
def test_long_names_and_texts_break_their_lines_so_that_three_columns_fit_a_narrow_screen(browser, tmp_path, name):
    headers, lines = TABLES[name]
    columns = tuple(Column(name=header, numeric=header in NUMBERS) for header in headers)
    lines = tuple(Line(cells=tuple(Cell(text=text) for text in texts)) for texts in lines)
    section = document.Section(heading=name, tables=(Table(title=name, columns=columns, lines=lines),))
    (tmp_path / "page.html").write_text(document.of_tables(name, [section]), encoding="utf-8")
    browser.get((tmp_path / "page.html").as_uri())
    _wide(browser, 385)  # of 400 pixels, a bar downwards takes 15
    box = _box(browser, browser.find_element("css selector", "main > section > .scroll"))
    rows = browser.find_elements("css selector", "table.sortable tr")
    assert rows[1].find_element("tag name", "td").text == lines[0].cells[0].text
    for row in rows:
        for cell in row.find_elements("css selector", "th, td")[:3]:
            text = browser.execute_script(TEXT_OF, cell)
            assert box["left"] <= text["left"] < text["right"] <= box["right"], cell.text


def test_the_first_column_stays_while_the_others_scroll(opened):
    _wide(opened, 400)
    scroll = opened.find_element("css selector", "main > section > .scroll")
    name, other = opened.find_elements("css selector", "table.sortable > tbody > tr:first-child > td")[:2]
    before = _box(opened, name)["left"], _box(opened, other)["left"]
    opened.execute_script("arguments[0].scrollLeft = 150", scroll)
    after = _box(opened, name)["left"], _box(opened, other)["left"]
    assert after[0] == pytest.approx(before[0], abs=1)
    assert after[1] == pytest.approx(before[1] - 150, abs=1)


@pytest.mark.parametrize("width", [1400, 400])
def test_an_opened_row_shows_all_seeds_and_times_beside_their_names(opened, width):
    _wide(opened, width)
    opened.execute_script("document.querySelector('details.row').open = true")
    behind = opened.find_element("css selector", ".behind")
    frame = _box(opened, behind)
    headers = [each.text for each in behind.find_elements("css selector", ".measured:first-of-type > thead th")]
    assert headers[:3] == ["measured", "seed 1", "seed 2"]
    timed = behind.find_elements("css selector", "[data-timing]")
    assert [each.text for each in timed] == ["3.5", "3.5", "0.25", "0.25"]  # two seeds, two times
    for value in (*timed, *behind.find_elements("css selector", "[data-metric]")):
        label = _box(opened, value.find_element("xpath", "../th"))
        place = _box(opened, value)
        assert frame["left"] <= place["left"]
        assert place["right"] <= frame["right"] + 1
        assert place["left"] - label["right"] < 300
        assert abs(place["top"] - label["top"]) < 2


def _strong(browser) -> list[set[str]]:
    """The rows that stand out in each plot in which one does."""
    svgs = browser.find_elements("css selector", ".plots svg.chosen")
    return [{each.get_attribute("data-row") for each in svg.find_elements("css selector", ".on")} for svg in svgs]


def test_a_row_that_is_pointed_at_has_the_focus_or_is_open_stands_out_in_the_plots(opened):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    rows = opened.find_elements("css selector", "table.sortable > tbody > tr:first-child")
    assert _strong(opened) == []
    ActionChains(opened).move_to_element(rows[1]).perform()
    assert len(_strong(opened)) >= 3
    assert all(each == {"1"} for each in _strong(opened))
    faint = opened.find_element("css selector", ".plots svg.chosen [data-row]:not(.on)")
    assert float(faint.value_of_css_property("opacity")) < 0.5
    ActionChains(opened).move_to_element(opened.find_element("tag name", "h1")).perform()
    assert _strong(opened) == []
    summaries = opened.find_elements("css selector", "details.row > summary")
    summaries[2].send_keys(Keys.ENTER)  # opens it: it stays when the focus and the pointer are elsewhere
    opened.find_element("id", "theme").send_keys("")
    opened.execute_script("document.activeElement.blur()")
    assert {frozenset(each) for each in _strong(opened)} == {frozenset({"2"})}
    summaries[1].send_keys("")
    opened.execute_script("arguments[0].focus()", summaries[1])
    assert {frozenset(each) for each in _strong(opened)} == {frozenset({"1"})}


def test_a_line_that_is_pointed_at_names_its_row_and_marks_it_in_the_table(opened):
    points = opened.find_element("css selector", ".plots [data-row='2']")
    opened.execute_script("arguments[0].dispatchEvent(new PointerEvent('pointerover', {bubbles: true}))", points)
    marked = opened.find_elements("css selector", "tbody.on > tr:first-child > td.name")
    assert [each.text for each in marked] == ["MoS 5"]
    titles = opened.find_elements("css selector", ".plots [data-row='2'] > title")
    assert {each.get_attribute("textContent") for each in titles} == {"MoS 5"}


def test_the_search_of_a_site_shows_the_rows_of_a_head_and_works_from_a_file(browser, tmp_path):
    columns = (Column(name="head"), Column(name="backbone"), Column(name="test ppl", numeric=True))
    texts = [("softmax", "lstm"), ("mos(num_mixtures=2)", "lstm"), ("mos(num_mixtures=5)", "gpt2")]
    full = {True: "Mixture of Softmaxes (MoS)", False: ""}
    lines = [
        Line(cells=(Cell(text=a, full=full["mos" in a]), Cell(text=b), Cell(text="9.00", value=9.0))) for a, b in texts
    ]
    other = Table(title="other", columns=columns, lines=tuple(lines))
    searched = document.Section(heading="All rows", tables=(other,), searched=True)
    sections = [document.Section(heading="Suites", tables=(other,)), searched]
    (tmp_path / "index.html").write_text(document.of_tables("Site", sections), encoding="utf-8")
    browser.get((tmp_path / "index.html").as_uri())
    field = browser.find_element("id", "search")

    def shown():
        names = browser.find_elements("css selector", ".searched table.sortable > tbody > tr > td.name")
        return [name.text.split("\n")[0] for name in names if name.is_displayed()]

    for text, expected in {
        "MOS": ["mos(num_mixtures=2)", "mos(num_mixtures=5)"],
        "mos gpt2": ["mos(num_mixtures=5)"],
        "Mixture of Softmaxes": ["mos(num_mixtures=2)", "mos(num_mixtures=5)"],
        "nothing": [],
        "": [text for text, _ in texts],
    }.items():
        field.clear()
        field.send_keys(text)
        browser.execute_script("arguments[0].dispatchEvent(new Event('input'))", field)
        assert shown() == expected
    field.send_keys("lstm")
    assert browser.find_element("id", "found").text == "2 of 3 rows"
    assert len(browser.find_elements("css selector", "table.sortable > tbody")) == 6  # the other table is not searched


def test_a_long_sentence_of_a_table_can_be_read_on_a_phone_without_scrolling(browser, tmp_path):
    columns = (Column(name="suite", key="label"), Column(name="corpus", key="label"), Column(name="finding"))
    texts = ("a_suite_of_mixtures", "embedded (characters) with transformer_encoder", "five heads beat a softmax; " * 9)
    line = Line(cells=tuple(Cell(text=text) for text in texts))
    section = document.Section(heading="Suites", tables=(Table(title="all", columns=columns, lines=(line,)),))
    (tmp_path / "index.html").write_text(document.of_tables("Site", [section]), encoding="utf-8")
    browser.get((tmp_path / "index.html").as_uri())
    _wide(browser, 390)
    box = _box(browser, browser.find_element("css selector", "main > section > .scroll"))
    name, finding = (_box(browser, browser.find_element("css selector", f"td.{each}")) for each in ("name", "sentence"))
    assert box["left"] <= name["left"] < name["right"] <= finding["left"] < finding["right"] <= box["right"]
    assert browser.find_element("css selector", "td.name").text.split("\n")[0] == "a_suite_of_mixtures"


def test_nothing_leaves_the_page_and_the_console_stays_empty(opened, place):
    opened.get_log("performance")
    opened.get_log("browser")
    opened.get(place.as_uri())
    opened.execute_script("for (const each of document.querySelectorAll('details')) each.open = true")
    opened.find_element("id", "theme").click()
    events = [json.loads(entry["message"])["message"] for entry in opened.get_log("performance")]
    asked = [each["params"]["request"]["url"] for each in events if each["method"] == "Network.requestWillBeSent"]
    assert {url for url in asked if not url.startswith("data:")} == {place.as_uri()}
    assert opened.get_log("browser") == []
    assert opened.title.startswith("small, version 1")
    assert "fetch('http" in opened.find_element("css selector", "details.failed").text


def test_the_page_forbids_what_it_does_not_do(opened):
    fetched = "return fetch('http://127.0.0.1:9/').then(() => 'went', (fault) => String(fault))"
    assert opened.execute_script(fetched) != "went"
    opened.execute_script(
        "const s = document.createElement('script'); s.textContent = 'window.obeyed = 1'; document.body.append(s);"
        "const i = new Image(); i.src = 'http://127.0.0.1:9/x.png'; document.body.append(i)"
    )
    assert opened.execute_script("return window.obeyed") is None
    told = " ".join(entry["message"] for entry in opened.get_log("browser"))
    assert "Content Security Policy" in told
    assert told.count("connect-src") >= 1
    assert told.count("img-src") >= 1
