"""The names of rows: what distinguishes them, in the words of the head, or the label that the suite gives."""

import pytest
from handmade import changed

from harness.errors import ExecutionError
from harness.plan.loading import labels
from harness.plan.names import names_of
from harness.plan.specs import ComponentSpec
from harness.registry import HEADS


def test_two_that_would_have_one_name_are_written_in_full():
    plain, affine = (ComponentSpec(name="softmax", params=params) for params in ({"bias": False}, {"projection": True}))
    assert names_of([plain, affine], HEADS, labels={str(plain): "affine softmax"}) == {
        "softmax(bias=False)": "softmax(bias=False)",
        "softmax(projection=True)": "softmax(projection=True)",
    }


def test_a_label_that_fails_and_one_in_a_docstring_are_a_sentence(monkeypatch):
    softmax, head = HEADS.get("softmax"), ComponentSpec(name="softmax")
    monkeypatch.setattr(softmax, "label", classmethod(lambda cls, p: p.k))
    with pytest.raises(ExecutionError, match="the label of 'softmax' raised AttributeError: there is no parameter 'k'"):
        names_of([head], HEADS)
    monkeypatch.delattr(softmax, "label")
    monkeypatch.setattr(softmax, "__doc__", "A head.\n\nLabel: mine")
    with pytest.raises(ExecutionError, match=r"'softmax' has 'Label:' in its docstring, .* removed: .*label\("):
        names_of([head], HEADS)


def test_views_that_read_a_suite_again_take_no_refused_label(write):
    suite = changed(("- softmax", "- softmax: {softcap: 0.05, label: softmax}"), ("2}\n", "2, label: ours}\n"))
    assert labels(write(suite))["head"] == {"mos(num_mixtures=2)": "ours"}
