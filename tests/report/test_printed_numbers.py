"""Printed numbers: what results/published says, against the papers, and how a suite finds them."""

import csv
import hashlib
from pathlib import Path

import pytest

from harness.errors import HarnessError, SuiteError
from harness.records.metrics import METRICS
from harness.report import printed_numbers
from harness.report.table_rows import rows

PUBLISHED = Path(__file__).parents[2] / "results" / "published"
HEADER = "table,corpus,backbone,head,params,metric,value,weights,counting,note"
WITH_TARGETS = f"{HEADER},epoch,tolerance_percent,tolerance_reason,differs"
PAPERS = sorted(path.stem for path in PUBLISHED.glob("*.csv") if path.stem != "sources")

# The cells of these papers were typed a second time, from shared/docs/PROTOCOLS.md, and agreed with the files. Compare
# a changed cell with the paper again before the number of its file is changed here.
CHECKED = {
    "al_rfou2018": "66b39edfbcda71fc",
    "benka2021": "a57b4309c94c23f4",
    "chang2022": "363e60cddcc5dfbf",
    "kim2016": "8cde428b883f60a7",
    "pytorch_examples2017": "2c5d75c466ce2ae7",
    "radford2019": "fedee14f17188375",
    "transformer_mos_code2021": "f8280361ed5c73c0",
    "zaremba2014": "d72d47b032a6a2ee",
}

SUITE = """\
name: suite
version: 1
corpora: [{ptb: {boundary: sos_eos}}]
backbones: [transformer_encoder]
heads: [softmax, {mos: {num_mixtures: 5}}, mos]
train: {optimizer: sgd, lr: 7, epochs: 2, batch_size: 20, seq_len: 35}
seeds: [1]
table:
  compare: COMPARE
"""


def rows_of(name: str) -> list[dict[str, str]]:
    with (PUBLISHED / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("paper", PAPERS)
def test_a_paper_has_known_columns_metrics_and_rules(paper):
    rows = rows_of(paper)
    assert rows
    for row in rows:
        assert ",".join(row) in (HEADER, WITH_TARGETS)
        known = row["metric"] in METRICS or row["metric"] == "params_total_millions"
        assert known or row["metric"].endswith("_reduction_percent")
        assert row["weights"] in ("best", "last", "")
        assert row["counting"] in ("eos", "sos_eos", "")
        assert float(row["value"]) > 0
        assert row.get("epoch", "") == "" or int(row["epoch"]) >= 1
        # a tolerance has a reason, and is smaller than what it is to find
        assert (row.get("tolerance_percent", "") == "") == (row.get("tolerance_reason", "") == "")
        assert float(row.get("tolerance_percent") or 1) <= 5


@pytest.mark.parametrize("paper", CHECKED)
def test_every_cell_of_a_paper_is_as_it_was_checked(paper):
    cells = repr([list(row.items()) for row in rows_of(paper)])
    assert hashlib.sha256(cells.encode()).hexdigest()[:16] == CHECKED[paper]


def test_the_sources_list_every_paper_and_no_other():
    sources = rows_of("sources")
    assert sorted(row["paper"] for row in sources) == PAPERS
    for row in sources:
        assert row["title"]
        assert 1990 < int(row["year"]) < 2100
        assert row["identifier"]
        assert row["read_in"]


@pytest.fixture
def compared(suite_of, tmp_path):
    """A function: what the suite compares with, CSV rows of paper 'one' -> (Suite, its printed numbers)."""

    def make(compare: str, *lines: str, sources: str = "one,First Title,2020,id,paper"):
        folder = tmp_path / "results" / "published"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "one.csv").write_text("\n".join([HEADER, *lines, ""]))
        (folder / "sources.csv").write_text(f"paper,title,year,identifier,read_in\n{sources}\n")
        suite = suite_of(SUITE.replace("COMPARE", compare))
        return suite, printed_numbers.load(suite)

    return make


LINES = (
    "a,ptb,transformer_encoder,mos,num_mixtures=5,test_ppl,88.580,last,sos_eos,",
    "b,ptb,transformer_encoder,mos,num_mixtures=5,test_ppl,1.5,last,sos_eos,",
    "b,ptb,transformer_encoder,mos,num_mixtures=10,test_ppl,2.5,last,sos_eos,",
    "b,wikitext2,transformer_encoder,softmax,,test_ppl,3.5,last,sos_eos,",
    "b,ptb,lstm,softmax,,test_ppl,4.5,last,sos_eos,",
)


def value(printed, trial, metric: str = "test_ppl", **head_params):
    cell = printed.find(trial, head_params, metric)
    return cell and cell.value


def test_a_cell_is_found_by_corpus_backbone_head_and_its_parameters(compared):
    suite, printed = compared("one/b", *LINES)
    softmax, mos_5, mos_10 = suite.trials
    assert value(printed, softmax) is None  # the printed ones are of another corpus and of another backbone
    assert value(printed, mos_5, num_mixtures=5) == "1.5"
    assert value(printed, mos_10, num_mixtures=10) == "2.5"
    assert value(printed, mos_10, num_mixtures=11) is None
    # what a cell does not name has to be at its default, 0 here; a corpus may have any other value
    assert value(printed, mos_10, num_mixtures=10, dropout=0.0) == "2.5"
    assert value(printed, mos_10, num_mixtures=10, dropout=0.5) is None
    assert printed.find(mos_10, {"num_mixtures": 10, "corpus.level": "char"}, "test_ppl").value == "2.5"
    assert value(printed, mos_5, "valid_ppl", num_mixtures=5) is None


def test_a_cell_may_name_parameters_of_the_backbone_and_the_corpus(compared):
    line = "a,ptb,transformer_encoder,mos,{},test_ppl,{},last,sos_eos,"
    suite, printed = compared(
        "one/a",
        line.format("num_mixtures=5;backbone.num_layers=9", "1.5"),
        line.format("num_mixtures=5;corpus.boundary=eos", "2.5"),
        line.format("num_mixtures=5;backbone.num_layers=4;corpus.boundary=sos_eos", "3.5"),
        line.format("num_mixtures=5", "4.5"),
    )
    (row,) = [row for row in rows(suite, {}) if row.head == "MoS 5"]
    assert row.params["backbone.num_layers"] == 4  # the default
    assert row.params["corpus.boundary"] == "sos_eos"
    assert printed.find(row.trials[0], row.params, "test_ppl").value == "3.5"


def test_the_value_is_the_text_as_printed(compared):
    suite, printed = compared("one/a", *LINES)
    assert value(printed, suite.trials[1], num_mixtures=5) == "88.580"


@pytest.mark.parametrize(("compare", "expected"), [("[one/a, one/b]", "88.580"), ("[one/b, one/a]", "1.5")])
def test_the_first_table_of_a_list_that_has_a_number_gives_it(compared, compare, expected):
    suite, printed = compared(compare, *LINES)
    assert value(printed, suite.trials[1], num_mixtures=5) == expected
    assert value(printed, suite.trials[2], num_mixtures=10) == "2.5"


def test_the_source_is_named_with_title_and_year(compared):
    assert compared("one/a", *LINES)[1].sources == ("one/a: First Title, 2020",)
    assert compared("one/a", *LINES, sources="two,Other,2021,id,paper")[1].sources == ("one/a: one",)


def test_a_suite_that_compares_with_nothing_has_no_printed_numbers(compared):
    assert compared("[]", *LINES)[1] == printed_numbers.PrintedNumbers((), ())


@pytest.mark.parametrize(
    ("compare", "place", "nearest"),
    [
        ("one/c", "12: table.compare", "one/"),
        ("oen/a", "12: table.compare", "one/a"),
        ("[one/a, one/bb]", "20: table.compare.1", "one/b"),
    ],
)
def test_an_unknown_table_is_a_suite_error_at_its_place_with_the_nearest(compared, tmp_path, compare, place, nearest):
    # 'compare' is on line 9; its value begins after "  compare: ", in column 12, the list's second item in column 20
    with pytest.raises(SuiteError, match=f"did you mean '{nearest}") as caught:
        compared(compare, *LINES)
    (problem,) = caught.value.problems
    assert problem.startswith(f"{tmp_path / 'suites' / 'suite.yaml'}:9:{place}: ")
    assert "known: one/a, one/b" in problem


TARGETS = (
    "a,ptb,transformer_encoder,softmax,,valid_ppl,30.5,last,sos_eos,,,2.5,why,clip",
    "a,ptb,transformer_encoder,softmax,,valid_ppl,40.5,,sos_eos,,3,5,other,",
)


def test_the_columns_of_a_target_are_read(suite_of, compared, tmp_path):
    compared("one/a", *LINES)
    (tmp_path / "results" / "published" / "one.csv").write_text("\n".join([WITH_TARGETS, *TARGETS, ""]))
    suite = suite_of(SUITE.replace("COMPARE", "one/a"))
    printed = printed_numbers.load(suite)
    whole = printed.find(suite.trials[0], {}, "valid_ppl")
    assert (whole.epoch, whole.tolerance, whole.reason, whole.differs) == (None, 2.5, "why", "clip")
    assert (whole.value, whole.of_ours) == ("30.5", "last_valid_ppl")
    ((epoch, point),) = printed.curve(suite.trials[0], {}, "valid_ppl").items()
    assert (epoch, point.value, point.tolerance, point.of_ours) == (3, "40.5", 5.0, "valid_ppl")


@pytest.mark.parametrize(("old", "column", "text"), [("2.5", "tolerance_percent", "-1"), ("3", "epoch", "third")])
def test_a_target_that_is_no_number_is_one_sentence(suite_of, compared, tmp_path, old, column, text):
    compared("one/a", *LINES)
    place = tmp_path / "results" / "published" / "one.csv"
    place.write_text("\n".join([WITH_TARGETS, *(line.replace(f",{old},", f",{text},") for line in TARGETS), ""]))
    with pytest.raises(HarnessError, match=f"one.csv: the {column} '{text}' is not a number above 0"):
        printed_numbers.load(suite_of(SUITE.replace("COMPARE", "one/a")))


def test_every_unknown_table_is_reported_at_once(compared):
    with pytest.raises(SuiteError) as caught:
        compared("[one/x, one/y]", *LINES)
    assert [("one/x" in text, "one/y" in text) for text in caught.value.problems] == [(True, False), (False, True)]


def test_a_suite_outside_any_checkout_is_compared_with_the_numbers_of_ours(suite_of):
    suite = suite_of(SUITE.replace("COMPARE", "benka2021/2"))  # no results/published lies beside its folder
    assert {cell.head for cell in printed_numbers.load(suite).cells} == {"mos"}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the column 'table' is missing"),
        (b"table,corpus\n1,ptb\n", "the column 'params' is missing"),
        (b"\xff\xfe", "cannot be read as CSV"),
        (",".join(printed_numbers.CELL).encode() + b'\n"' + b"x" * 200_000, "cannot be read as CSV"),
        (b" " * 5_000_000, "cannot be read as CSV"),
        (",".join(printed_numbers.CELL).encode() + b"\n1,a=[", "the parameters 'a=[': '[' cannot be read"),
    ],
)
def test_printed_numbers_that_are_no_table_are_a_sentence(content, reason, suite_of, tmp_path):
    folder = tmp_path / "results" / "published"
    folder.mkdir(parents=True)
    (folder / "paper.csv").write_bytes(content)
    suite = suite_of(SUITE.replace("COMPARE", "paper/1"))
    with pytest.raises(HarnessError) as caught:
        printed_numbers.load(suite)
    assert str(caught.value).startswith(f"{folder / 'paper.csv'}: {reason}")
