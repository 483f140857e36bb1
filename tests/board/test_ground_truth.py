"""The table of ground truths: one line for a number, one for the epochs of a curve, from records by hand."""

import csv
from dataclasses import replace

import handmade
import pytest

from harness.board import ground_truths
from harness.report import suite_table
from harness.report.printed_numbers import PrintedNumbers
from harness.report.study import Study

SUITE = handmade.changed(("name: small", "name: ground_truth_small"), ("seeds: [1, 2]", "seeds: [1, 2, 3]"))
CELL = handmade.printed_cell(tolerance=2.0, reason="one run", source="paper/one")


@pytest.fixture
def studied(suite_of, record_of, tmp_path):
    """A function: cells, test perplexities and curves of the first seeds -> a study."""

    def make(*cells, values=(), curves=((), (), ())):
        suite = suite_of(SUITE)
        made = [
            handmade.learned(record_of(trial, test_ppl=ppl, train_minutes=10.0 + index), *curves[index])
            for index, (trial, ppl) in enumerate(zip(suite.trials, values, strict=False))
        ]
        evidence = handmade.evidence(suite, made, PrintedNumbers(cells, ("paper/one: A Paper, 2020",)))
        return Study(evidence=evidence, results=tmp_path)

    return make


def lines(*studies) -> list[list[str]]:
    text = suite_table.text(ground_truths.table(studies))
    rows = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_a_line_has_the_printed_number_ours_and_what_follows(studied):
    (line,) = lines(studied(CELL, values=(100.0, 101.0, 102.0)))
    # mean 101, sd 1; minutes 10, 11, 12
    assert line == [
        *("small: softmax, markov, 2 epochs, test ppl", "100", "101.00 ± 1.00", "3/3"),
        *("+1.00 %", "2 %", "yes", "11.0", "a processor", "paper/one"),
    ]


def test_minutes_are_those_of_each_device(studied):
    found = studied(CELL, values=(100.0, 101.0, 102.0))
    second = found.suite.trials[1].id
    there = found.records[second].environment.model_copy(update={"device": "a GPU"})
    found.records[second] = found.records[second].model_copy(update={"environment": there})
    (line,) = lines(found)
    # 11 minutes on the GPU, 10 and 12 on the processor
    assert line[-3:-1] == ["11.0; 11.0", "a GPU; a processor"]


def test_before_a_run_a_line_says_so(studied):
    (line,) = lines(studied(CELL))
    assert line[2:8] == ["-", "0/3: 3 not run", "-", "2 %", "not run", "-"]


def test_the_epochs_of_a_curve_are_one_line_with_the_largest_difference(studied):
    curve = [
        replace(CELL, metric="valid_ppl", value=value, epoch=epoch, tolerance=5.0)
        for epoch, value in ((2, "100"), (3, "50"))
    ]
    found = studied(CELL, *curve, values=(100.0, 100.0), curves=((300.0, 101.0, 48.0), (300.0, 103.0, 49.0), ()))
    one, two = lines(found)
    assert one[0] == "small: softmax, markov, 2 epochs, test ppl"
    # 102 of 100: +2 %; 48.5 of 50: -3 %
    assert two[:7] == [
        *("small: softmax, markov, 2 epochs, valid ppl after epoch 2 to 3", "100, 50", "102.00, 48.50"),
        *("2/3: 1 not run", "-3.00 %", "5 %", "yes so far"),
    ]


def test_notes_have_reasons_devices_and_sources(studied):
    text = suite_table.text(ground_truths.table([studied(replace(CELL, differs="the clip"), values=(110.0,))]))
    number = "small: softmax, markov, 2 epochs: test ppl within 2 % of 100 (one run)"
    assert f"- {number}: no so far, +10.00 %, 1 of 3 seeds; the clip.\n" in text
    assert "- minutes: of training, for one trial, with 1 thread; of each device, where there are several.\n" in text
    assert "- paper/one: A Paper, 2020.\n" in text


def test_it_is_written_in_every_form_and_the_csv_is_not_rounded(studied, tmp_path):
    paths = ground_truths.write([studied(CELL, values=(100.0, 101.25))], tmp_path)
    assert [path.name for path in paths] == ["ground_truth.md", "ground_truth.csv", "ground_truth.tex"]
    header, line = (tmp_path / "tables" / "ground_truth.csv").read_text().splitlines()
    cells = dict(zip(*csv.reader([header, line]), strict=True))
    assert (float(cells["ours"]), float(cells["difference"])) == (100.625, 0.625)
