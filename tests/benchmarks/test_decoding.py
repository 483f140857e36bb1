"""`bench sample`: sizes that are equal, and a table that says what is in the record."""

import pytest

from harness.benchmarks import decoding
from harness.plan.components import count


def test_the_backbones_have_the_same_number_of_parameters_within_one_percent():
    counts = [count(decoding.VOCAB, spec, decoding.SOFTMAX)[0] for spec in decoding.equal_sizes()]
    assert counts == [pytest.approx(counts[0], rel=0.01)] * 3


def test_the_table_has_medians_of_the_rounds(monkeypatch):
    monkeypatch.setattr(decoding, "LENGTHS", (3, 5))
    monkeypatch.setattr(decoding, "REFERENCE", ("gpt2", {"num_layers": 1, "num_heads": 1}, 16))
    (measured,) = decoding.measure("sample", rounds=2)
    assert [each.goes_on_by for each in measured.writings][1:] == ["its state", "computing all again"]
    assert all(len(each.rates[length]) == 2 for each in measured.writings for length in (3, 5))
    one = measured.writings[0].model_copy(update={"rates": {3: (10.0, 20.0, 60.0), 5: (8.0, 8.0, 8.0)}})
    two = measured.writings[1].model_copy(update={"rates": {3: (50.0, 10.0, 90.0), 5: (4.0, 4.0, 4.0)}})
    known = measured.model_copy(update={"writings": (one, two)})
    ((_, *rows),) = known.tables()
    assert [row[3:] for row in rows] == [["20 (1.00x)", "8 (1.00x)"], ["50 (2.50x)", "4 (0.50x)"]]
