"""Printed numbers: what results/published says, against the papers, and how a suite finds them."""

import csv
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness import plan
from harness.errors import HarnessError, SuiteError
from harness.records.metrics import METRICS
from harness.report import printed_numbers
from harness.report.row_facts import rows

PUBLISHED = Path(__file__).parents[2] / "results" / "published"
HEADER = "table,corpus,backbone,head,params,metric,value,weights,counting,note"
WITH_TARGETS = f"{HEADER},epoch,tolerance_percent,tolerance_reason,differs"
SUITES = PUBLISHED.parents[1] / "suites"
PAPERS = sorted(path.stem for path in PUBLISHED.glob("*.csv") if path.stem != "sources")

# Benka, Hammer and Su (2021), Tables 1 and 2, from shared/docs/PROTOCOLS.md section 1.
# (corpus, metric) -> softmax, mos with K = 10
TABLE_1 = {
    ("ptb", "valid_ppl"): ("100.04", "91.88"),
    ("ptb", "test_ppl"): ("92.95", "86.89"),
    ("ptb", "train_minutes"): ("21", "32"),
    ("wikitext2", "valid_ppl"): ("162.83", "140.57"),
    ("wikitext2", "test_ppl"): ("153.38", "131.75"),
    ("ptb", "valid_reduction_percent"): (None, "8.9"),
    ("ptb", "test_reduction_percent"): (None, "6.7"),
    ("wikitext2", "valid_reduction_percent"): (None, "15.8"),
    ("wikitext2", "test_reduction_percent"): (None, "14.1"),
}
# K -> PTB test ppl, ms/batch
TABLE_2 = {2: ("89.2", "19.20"), 5: ("88.58", "21.59"), 10: ("86.89", "28.34"), 15: ("90.69", "41.47")}

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


def test_every_cell_of_benka2021_is_as_printed():
    expected = set()
    for (corpus, metric), (softmax, mos) in TABLE_1.items():
        if softmax is not None:
            expected.add(("1", corpus, "softmax", "", metric, softmax))
        expected.add(("1", corpus, "mos", "num_mixtures=10;dropout=0.2", metric, mos))
    for mixtures, (ppl, ms) in TABLE_2.items():
        expected.add(("2", "ptb", "mos", f"num_mixtures={mixtures};dropout=0.2", "test_ppl", ppl))
        expected.add(("2", "ptb", "mos", f"num_mixtures={mixtures};dropout=0.2", "train_ms_per_batch", ms))
    found = [
        tuple(row[key] for key in ["table", "corpus", "head", "params", "metric", "value"])
        for row in rows_of("benka2021")
    ]
    assert set(found) == expected
    assert len(found) == len(expected)


def test_benka2021_counts_sos_and_tested_the_last_weights():
    for row in rows_of("benka2021"):
        is_time = row["metric"] in ("train_minutes", "train_ms_per_batch")
        expected = ("", "", "RTX 2080 Ti") if is_time else ("last", "sos_eos", row["note"])
        assert (row["weights"], row["counting"], row["note"]) == expected
        assert row["backbone"] == "transformer_encoder"


def test_every_paper_has_known_columns_metrics_and_rules():
    for paper in PAPERS:
        rows = rows_of(paper)
        assert rows, paper
        for row in rows:
            assert ",".join(row) in (HEADER, WITH_TARGETS), paper
            known = row["metric"] in METRICS or row["metric"] in ("params_total_millions", "step_share_percent")
            assert known or row["metric"].endswith("_reduction_percent"), paper
            assert row["weights"] in ("best", "last", ""), paper
            assert row["counting"] in ("eos", "sos_eos", ""), paper
            assert float(row["value"]) > 0, paper
            assert row.get("epoch", "") == "" or int(row["epoch"]) >= 1, paper
            # a tolerance has a reason, and is smaller than what it is to find
            assert (row.get("tolerance_percent", "") == "") == (row.get("tolerance_reason", "") == ""), paper
            assert float(row.get("tolerance_percent") or 1) <= 5, paper


# PROTOCOLS.md section 9: (paper, table) -> (what distinguishes the row, epoch, value, tolerance in percent)
GROUND_TRUTHS = {
    ("pytorch_examples2017", "6_epochs"): [
        ("tie_weights=false;init_range=0.1", "", "117.61", "2"),
        ("tie_weights=true;init_range=0.1", "", "110.44", "2"),
    ],
    ("pytorch_examples2017", "40_epochs"): [("tie_weights=true;init_range=0.1", "", "87.17", "2")],
    ("zaremba2014", "small"): [("init_range=0.1;init_bias=uniform", "", "114.5", "2")],
    ("kim2016", "small"): [("init_range=0.05;init_bias=uniform", "", "97.6", "3")],
    ("transformer_mos_code2021", "curve"): [
        ("corpus.boundary=sos_eos;backbone.d_model=200", str(epoch), value, "5" if epoch >= 3 else "")
        for epoch, value in enumerate(("418.0", "191.0", "156.9", "142.8", "135.5", "130.0"), start=1)
    ],
}


@pytest.mark.parametrize(("paper", "table"), GROUND_TRUTHS)
def test_the_ground_truths_are_as_printed(paper, table):
    found = [
        (row["params"], row["epoch"], row["value"], row["tolerance_percent"])
        for row in rows_of(paper)
        if row["table"] == table and row["head"] == "softmax"
        if row["metric"] == "test_ppl" or row["epoch"]
    ]
    assert found == GROUND_TRUTHS[paper, table]


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
    assert printed.find(row.spec, row.params, "test_ppl").value == "3.5"


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


COMPARING = sorted(path for path in SUITES.glob("*.yaml") if "compare: " in path.read_text(encoding="utf-8"))


@pytest.mark.needs("awd", "pretrained")
def test_every_suite_that_compares_has_printed_numbers_and_every_target_is_of_a_row():
    """A parameter that a cell does not name, and the suite sets, would keep the number out of the table for ever."""
    targets, found = set(), set()
    for path in COMPARING:
        suite = plan.load(path)
        printed = printed_numbers.load(suite)
        targets |= {str(cell) for cell in printed.cells if cell.tolerance is not None}
        of_rows = [printed.of(row.spec, row.params) for row in rows(suite, {})]
        assert any(of_rows), path.name
        found |= {str(cell) for cells in of_rows for cell in cells}
    assert targets <= found


def test_the_numbers_of_ngrams_fit_their_rows(suite_of):
    text = "name: suite\nversion: 1\ncorpora: [ptb]\nngrams: [3, 5, {order: 5, cache: true}]\n"
    suite = suite_of(text + "table: {compare: inan2017/table2}\n")
    printed = printed_numbers.load(suite)
    assert [value(printed, row.spec, **row.params) for row in rows(suite, {})] == [None, "141.2", "125.7"]


def mfs(num_mixtures: int, num_input_layers: int | None, window: int, num_partitions: int) -> tuple[str, dict]:
    return "mfs", dict(locals())


# Chang and McCallum's poster, table 1, from PROTOCOLS.md section 6: OpenWebText, Wikipedia, ms a batch of 4, of Small
# and of Medium; then the sizes in millions: of Small from HEADS.md section 5, of Medium as the poster prints them.
PLAIN = {"projection": True, "bias": False, "start": "embedding"}
POSTER = [
    (("softmax", PLAIN), "18.72 24.06 84", "15.89 20.34 212", "163.6 407.3"),
    (("sigsoftmax", PLAIN), "18.63 24.06 91", "16.07 20.65 221", "163.6 407.3"),
    (mfs(1, 3, 2, 1), "18.50 23.89 87", "15.76 20.29 219", "169.5 417.8"),
    (mfs(1, 1, 0, 4), "18.77 24.08 88", "15.89 20.30 218", "165.4 410.5"),
    (mfs(4, 1, 0, 1), "18.61 23.77 152", "15.75 20.08 299", "165.4 410.5"),
    (mfs(3, 1, 0, 1), "18.63 23.81 130", "15.79 20.11 270", "164.8 409.4"),
    (("doc_poster", {"num_mixtures": 3}), "18.69 24.02 130", "15.88 20.34 270", "164.8 409.4"),
    (mfs(3, 3, 2, 1), "18.37 23.56 133", "15.65 20.06 276", "171.9 422.0"),
    (mfs(3, 1, 0, 4), "18.60 23.72 134", "15.71 20.08 275", "166.6 412.6"),
    (mfs(3, None, 2, 4), "18.29 23.45 138", "15.64 20.02 283", "175.4 428.3"),  # as `mfs` has it by default
]
DATASETS = ("Skylion007/openwebtext", "wikimedia/wikipedia")


@cache
def cells() -> list[printed_numbers.PrintedCell]:
    return [printed_numbers._cell(row, PUBLISHED / "chang2022.csv") for row in rows_of("chang2022")]


def poster(head: str, params: dict, metric: str, size: str, dataset: str, weights: str = "pretrained") -> list[str]:
    """What chang2022 has printed of a trial with these parameters: one value, or none."""
    names = {"corpus": "hub", "backbone": "gpt2", "head": head}
    trial = SimpleNamespace(**{kind: SimpleNamespace(name=name) for kind, name in names.items()})
    every = {**params, "backbone.size": size, "backbone.weights": weights, "corpus.dataset": dataset, "compat": None}
    return [cell.value for cell in cells() if cell.metric == metric and cell.fits(trial, every)]


@pytest.mark.parametrize("row", POSTER, ids=str)
def test_every_cell_of_the_poster_is_as_printed_and_of_one_row_only(row):
    (head, params), *sizes, millions = row
    for size, line, in_millions in zip(("small", "medium"), sizes, millions.split(), strict=True):
        *perplexities, ms = line.split()
        for dataset, value in zip(DATASETS, perplexities, strict=True):
            assert poster(head, params, "test_ppl", size, dataset) == [value]
            assert poster(head, params, "inference_ms_per_batch", size, dataset) == [ms]
        assert poster(head, params, "params_total_millions", size, DATASETS[0]) == [in_millions]
    assert poster(head, params, "test_ppl", "small", "another/text") == []
    assert poster(head, params, "test_ppl", "small", DATASETS[0], weights="random") == []


def test_the_poster_has_no_other_cells():
    assert len(rows_of("chang2022")) == len(POSTER) * (2 * 3 + 2)
    for row in rows_of("chang2022"):
        assert (row["weights"] == "last") == (row["metric"] == "test_ppl")
        assert row["metric"] != "inference_ms_per_batch" or "no synchronisation" in row["note"]


# Radford et al. (2019), table 3, from PROTOCOLS.md section 7; the columns as there.
ZERO_SHOT = {
    "small": "29.41 65.85 1.16 1.17 37.50 75.20",
    "medium": "22.76 47.33 1.01 1.06 26.37 55.72",
    "large": "19.93 40.31 0.97 1.02 22.05 44.575",
    "xl": "18.34 35.76 0.93 0.98 17.48 42.16",
}


def test_every_cell_of_the_zero_shot_table_is_as_printed():
    corpora = ["wikitext2", "ptb", "enwik8", "text8", "wikitext103", "1bw"]
    expected = {
        (
            corpus,
            f"tie_weights=true;bias=false;start=embedding;backbone.size={size};backbone.weights=pretrained",
            "test_bits_per_character" if corpus in ("enwik8", "text8") else "test_ppl_word",
            value,
        )
        for size, line in ZERO_SHOT.items()
        for corpus, value in zip(corpora, line.split(), strict=True)
    }
    rows = rows_of("radford2019")
    assert {(row["corpus"], row["params"], row["metric"], row["value"]) for row in rows} == expected
    assert len(rows) == len(expected) == 24
    assert {(row["table"], row["backbone"], row["head"]) for row in rows} == {("3", "gpt2", "softmax")}


def test_every_cell_of_the_character_table_is_as_printed():
    # PROTOCOLS.md section 7: bits per character of text8, then millions of parameters; in training, in inference
    expected = {
        "LSTM": ["1.43"],
        "BN-LSTM": ["1.36"],
        "HM-LSTM": ["1.29", "35"],
        "recurrent highway": ["1.27", "45"],
        "mLSTM": ["1.27", "45"],
        "T12": ["1.18", "44", "41"],
        "T64": ["1.13", "235", "219"],
        "mLSTM + dynamic": ["1.19", "45"],
    }
    found = {}
    for row in rows_of("al_rfou2018"):
        assert row["corpus"] == "text8"
        found.setdefault(row["note"].partition(";")[0], []).append(row["value"])
        first = len(found[row["note"].partition(";")[0]]) == 1
        assert row["metric"] == ("test_bits_per_character" if first else "params_total_millions")
    assert found == expected
