"""Detokenisers, sentence by sentence; sentences and their text were written by hand."""

import pytest

from harness.corpora.published import detokenize_ptb, detokenize_wikitext

WIKITEXT = [
    (" = Robert Boulter = ", "= Robert Boulter ="),
    (" = = Life cycle = = ", "== Life cycle =="),
    (" = = = 1888 \u2013 89 season = = = ", "=== 1888\u201389 season ==="),
    (" ", ""),
    (" The red @-@ tipped claw cost 1 @,@ 000 or 0 @.@ 7 . ", "The red-tipped claw cost 1,000 or 0.7."),
    (" It weighs 5 \u2013 6 kg ( 11 \u2013 13 lb ) , he said . ", "It weighs 5\u20136 kg (11\u201313 lb), he said."),
    (' He said " no , never " , and left " at once " . ', 'He said "no, never", and left "at once".'),
    (" It 's theirs ; they didn 't and wouldn 't . ", "It's theirs; they didn't and wouldn't."),
    (" O 'Brien and the players ' union met . ", "O'Brien and the players' union met."),
    (" They call it ' the dog 's life ' here . ", "They call it 'the dog's life' here."),
    (" 14 % of $ 92 or \u00a3 500 [ sic ] ! ", "14% of $92 or \u00a3500 [sic]!"),
    (" Yes ? No ... perhaps : 2 / 4th ( see : b ) . ", "Yes? No... perhaps: 2/4th (see: b)."),
    (" units \u2014 they remained \u2014 at 5 \u00b0 C . ", "units\u2014they remained\u2014at 5 \u00b0C."),
    (" a <unk> , and <unk> . ", "a <unk>, and <unk>."),
    (" Baker & Co. came \u2013 well , late . ", "Baker & Co. came \u2013 well, late."),
    ("a = b", "a = b"),
]
PTB = [
    (" no it was n't black monday ", "no it wasn't black monday"),
    (" he 's sure they 've gone we 'd say i 'm late ", "he's sure they've gone we'd say i'm late"),
    (" viewers ' opinions about john 's $ N million ", "viewers' opinions about john's $N million"),
    (" c$ N and us$ N at N N % of <unk> & co. ", "c$N and us$N at N N % of <unk> & co."),
    (" N 's not a 'study", "N's not a 'study"),
]


@pytest.mark.parametrize(("tokens", "text"), WIKITEXT)
def test_wikitext_becomes_prose(tokens, text):
    assert detokenize_wikitext(tokens) == text


@pytest.mark.parametrize(("tokens", "text"), PTB)
def test_penn_treebank_keeps_unk_and_n(tokens, text):
    assert detokenize_ptb(tokens) == text


def test_lines_stay_lines():
    assert detokenize_wikitext(" \n = A = \n \n It 's B . \n") == "\n= A =\n\nIt's B.\n"
    assert detokenize_ptb(" a b \n c \n") == "a b\nc\n"
