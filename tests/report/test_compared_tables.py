"""Tables of matched suites, and of heads with a compatibility switch: what is compared, marked and explained."""

from typing import Literal

import handmade
import pytest
from handmade import cells, notes, tabulated
from torch import nn

from harness.records import store
from harness.registry import HEADS
from harness.report.printed_numbers import PrintedNumbers
from harness.report.row_facts import rows

V = 5000
SUITE = f"""\
name: suite
version: 1
corpora: [{{markov: {{vocab_size: {V}, num_tokens: 400, branching: 3}}}}]
backbones: [{{lstm: {{d_model: 250, num_layers: 1}}}}]
heads: [softmax, {{mos: {{num_mixtures: [2, 15]}}}}]
train: {{optimizer: sgd, lr: 0.5, epochs: 2, batch_size: 4, seq_len: 7}}
seeds: [1, 2]
table: {{baseline: softmax}}
"""
MATCHED = SUITE + "match: {params: softmax, vary: d_model}\n"


class Switched(nn.Module):
    """A head with a compatibility switch, a width of its own, and a parameter that is a list or a mapping."""

    def __init__(
        self,
        dims,
        embedding,
        *,
        size: int = 1,
        d_latent: int = 4,
        components: dict[Literal["top", "second"], int] | tuple[int, ...] = (15, 5),
        compat: dict[Literal["log_epsilon"], float] | None = None,
    ):
        super().__init__()
        self.latent = nn.Linear(dims.d_embed, d_latent, bias=False)
        self.output = nn.Linear(d_latent, dims.vocab_size, bias=False)


@pytest.fixture(autouse=True)
def switched(monkeypatch):
    HEADS.names()  # discover before the table is changed
    monkeypatch.setitem(HEADS._classes, "switched", Switched)


def heads(text: str, entries: str) -> str:
    return text.replace("[softmax, {mos: {num_mixtures: [2, 15]}}]", f"[{entries}]")


def mos_width(k: int) -> int:
    """The d at which a MoS on one LSTM layer comes nearest to softmax at 250: V d + 8 d d + 8 d + V d + V, and for the
    mixture K (d d + d) + K d more.
    """

    def total(d: int, k: int) -> int:
        return 2 * V * d + V + 8 * d * d + 8 * d + k * (d * d + 2 * d)

    return min(range(1, 400), key=lambda d: abs(total(d, k) - total(250, 0)))


# matched


def test_matched_rows_have_one_group_and_their_widths_in_a_column(suite_of):
    suite = suite_of(MATCHED)
    found = rows(suite, {})
    assert {row.group for row in found} == {("markov", "lstm")}
    assert [(row.head, len(row.trials)) for row in found] == [("softmax", 2), ("MoS 2", 2), ("MoS 15", 2)]
    table = cells(tabulated(suite))
    assert "backbone" not in table[0]
    assert list(table[0])[:4] == ["head", "K", "d_model (matched)", "params"]
    assert [row["d_model (matched)"] for row in table] == ["250", str(mos_width(2)), str(mos_width(15))]


def test_matched_heads_are_compared_with_the_baseline_on_the_same_backbone(suite_of, record_of):
    text = MATCHED.replace("[{lstm: {d_model: 250, num_layers: 1}}]", "[{lstm: {d_model: 250, num_layers: [1, 2]}}]")
    suite = suite_of(text)
    # one layer: 100 -> 90, 80; two layers: 50 -> 45, 55
    values = [100.0, 90.0, 80.0, 50.0, 45.0, 55.0]
    made = [record_of(trial, test_ppl=values[index // 2]) for index, trial in enumerate(suite.trials)]
    table = cells(tabulated(suite, made))
    assert [row["backbone"] for row in table] == ["lstm, num_layers 1"] * 3 + ["lstm, num_layers 2"] * 3
    changes = [row["vs softmax"].partition(" [")[0] for row in table]
    assert changes == ["-", "-10.0 %", "-20.0 %", "-", "-10.0 %", "+10.0 %"]


def test_notes_of_a_suite_matched_to_a_number_say_it(suite_of):
    markdown = tabulated(suite_of(SUITE + "match: {params: 2000000, vary: d_model}\n"))
    (note,) = notes(markdown, "Parameters matched")
    assert note.startswith("Parameters matched: totals agree with 2,000,000 within 0.5 %, by d_model")


def test_a_heads_own_width_is_in_the_column_and_not_in_its_label(suite_of):
    text = heads(SUITE, "softmax, {switched: {size: [1, 2]}}") + "match: {params: softmax, vary: d_latent}\n"
    markdown = tabulated(suite_of(text))
    table = cells(markdown)
    # softmax 250 V + V = 1255000 against d_latent (250 + V): 239.05
    assert [(row["head"], row["d_latent (matched)"]) for row in table] == [
        ("softmax", "-"),
        ("switched, size 1", "239"),
        ("switched, size 2", "239"),
    ]
    assert notes(markdown, "Backbone") == ["Backbone: lstm(d_model=250, num_layers=1)."]


# what labels leave out


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ("softmax, {mos: {num_mixtures: 3, dropout: [0.1, 0.2]}}", ["Every mos: num_mixtures=3."]),
        (
            "{mos: {num_mixtures: 3, dropout: 0.2}}, {mos: {gate: static, dropout: 0.2, num_mixtures: 3}}",
            ["Every mos: num_mixtures=3, dropout=0.2."],
        ),
        # a default is given by neither, and a value that one leaves at its default is not given to every one
        ("{mos: {num_mixtures: 10}}, {mos: {gate: static}}", []),
        ("softmax, {mos: {num_mixtures: 3, dropout: 0.2}}", []),
        ("{mos: {num_mixtures: [2, 3]}}", []),
        (
            "{switched: {components: [[3, 1]], size: [1, 2]}}, {mos: {num_mixtures: [2, 3], bias: false}}",
            ["Every switched: components=[3, 1].", "Every mos: bias=False."],
        ),
    ],
)
def test_what_all_entries_of_a_name_are_given_is_told_once(suite_of, entries, expected):
    markdown = tabulated(suite_of(heads(SUITE.replace("{baseline: softmax}", "{}"), entries)))
    assert notes(markdown, "Every") == expected


def test_the_matched_width_is_not_told_as_shared(suite_of):
    text = heads(SUITE, "softmax, {switched: {size: [1, 2], d_latent: 7, components: [3, 1]}}")
    markdown = tabulated(suite_of(text + "match: {params: softmax, vary: d_latent}\n"))
    assert notes(markdown, "Every") == ["Every switched: components=[3, 1]."]
    assert notes(tabulated(suite_of(text)), "Every") == ["Every switched: d_latent=7, components=[3, 1]."]


# compatibility switches


# lists and mappings


def test_a_table_from_records_on_disk_is_the_table_from_records_in_memory(suite_of, record_of, tmp_path):
    entries = "softmax, {switched: {components: [[3, 1], {top: 2, second: 1}]}}"
    suite = suite_of(heads(SUITE, entries))
    made = {trial.id: record_of(trial, "diverged", "Diverged: loss is nan") for trial in suite.trials}
    for record in made.values():
        store.save(record, tmp_path / "runs")
    found, warnings = store.load_all(tmp_path / "runs", list(made))
    assert warnings == []
    markdown = tabulated(suite, found.values())
    assert markdown == tabulated(suite, made.values())
    assert [row["head"] for row in cells(markdown)] == [
        "softmax",
        "switched, components [3, 1]",
        "switched, components {top: 2, second: 1}",
    ]
    assert notes(markdown, "switched, components [3, 1] lstm markov seed=1")


def test_a_printed_cell_finds_its_row_by_a_list(suite_of):
    suite = suite_of(heads(SUITE, "softmax, {switched: {components: [[15, 5], [3, 1]]}}"))
    cell = handmade.printed_cell(head="switched", params={"components": [15, 5]}, value="52.38")
    table = cells(tabulated(suite, (), PrintedNumbers((cell,), ("paper/1",))))
    assert [row["printed test ppl"] for row in table] == ["-", "52.38", "-"]
