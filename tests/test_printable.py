"""Text as it may be shown: nothing in it commands a terminal or hides, and harmless text is left as it is."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import CorpusError, SuiteError
from harness.printable import MAX_SENTENCE, counted, printable, sentence


@pytest.mark.parametrize("text", ["", "mos(num_mixtures=2) ±", "日本語 é", "100 % of `a|b` <i>\\"])
def test_harmless_text_is_left_as_it_is(text):
    assert printable(text) == sentence(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\r\nb\tc", "a\\r\\nb\\tc"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("a\u200bb\u2028c\x85\x9b2J", "a\\u200bb\\u2028c\\x85\\x9b2J"),
        ("\udcff", "\\udcff"),
        ("\x00\x7f", "\\x00\\x7f"),
    ],
)
def test_what_commands_or_hides_is_spelled_out(text, shown):
    assert printable(text) == shown


@given(st.text(st.characters()))
def test_no_control_or_format_character_is_left(text):
    assert not {unicodedata.category(c) for c in printable(text)} & {"Cc", "Cf", "Cs", "Zl", "Zp"}


def test_a_long_sentence_keeps_its_beginning_and_end():
    shown = sentence("file:1:1: " + "x" * 100_000 + " is expected")
    assert shown.startswith("file:1:1: x")
    assert shown.endswith("x is expected")
    assert len(shown) == MAX_SENTENCE + len(" ... ")


def test_one_thing_is_singular_and_thousands_have_commas():
    assert [counted(number, "trial") for number in (0, 1, 2, 1000)] == [
        "0 trials",
        "1 trial",
        "2 trials",
        "1,000 trials",
    ]
    assert [counted(number, "epoch") for number in (0.5, 1.0, 40.0)] == ["0.5 epochs", "1 epoch", "40 epochs"]
    assert [counted(number, "corpus", "corpora") for number in (1, 2)] == ["1 corpus", "2 corpora"]


def test_every_mistake_of_a_user_is_made_printable():
    assert str(CorpusError("\x1b[2J")) == "\\x1b[2J"
    error = SuiteError(["a\nb", "\u202ec"])
    assert error.problems == ["a\\nb", "\\u202ec"]
    assert str(error) == "a\\nb\n\\u202ec"
