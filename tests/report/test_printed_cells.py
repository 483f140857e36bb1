"""The printed numbers of GPT-2's tables and of the character level, cell by cell, and whose they are."""

import csv
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.report import printed_numbers

PUBLISHED = Path(__file__).parents[2] / "results" / "published"


def rows_of(name: str) -> list[dict[str, str]]:
    with (PUBLISHED / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


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
