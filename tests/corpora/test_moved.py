"""Code of corpora that was moved computes the tokens that it computed before: the table MOVED is true.

Expected: SHA-256 of the ids of all three splits, as int64, computed at commit 81b18c2, before the files were moved.
Corpora that are not found in HARNESS_DATA are left out.
"""

import hashlib

import numpy as np
import pytest

from harness.code.fingerprints import MOVED, code_of, moved
from harness.corpora.corpus import SPLITS
from harness.errors import CorpusError
from harness.registry import CORPORA

pytestmark = pytest.mark.system

TOKENS = [
    ("embedded", {}, "1f3cc2dec30f941f8ad61a585db7416d5774a24978d8617350d443dd76170252"),
    ("embedded", {"level": "char"}, "95e3d517f0bacbd08536496e4916af8b85b682dfee0435b33bba08b24ce208a6"),
    ("embedded", {"tokenizer": {"bpe": 400}}, "46f27ecd841fde01a9514991463e73397d6bb9904ddac8b1c0a4ba8d79ed9952"),
    ("embedded", {"tokenizer": {"wordpiece": 400}}, "67c03b108639a50a8b7b38a145a3ae197eb80ab666f93a2908ef83d99d82e9b8"),
    (
        "markov",
        {"vocab_size": 50, "num_tokens": 2000, "seed": 3},
        "14aa6bbddee5a79769521f37cedfe153697f1e646c0497546e4e581ce45af81b",
    ),
    (
        "spamlang",
        {"vocab_size": 50, "num_sequences": 100, "seed": 3},
        "34a1a7279d4236095206bfd2021286e29e5ae800b0b6a5b4afc05fb139d322a5",
    ),
    ("ptb", {}, "3fed333176ef0f769d26c323bb71fa2531098f8dbdc2616f2791e5d9d3a830e3"),
    ("ptb", {"boundary": "sos_eos"}, "6428580288df12ab238a7dbded47449d3f096d71fbb99fe64b7a45d4a6d2890d"),
    (
        "ptb",
        {"tokenizer": {"bpe": 1000}, "detokenize": True},
        "bef24f584072b1ca4dae5edb78faecdad02a70ef254ed858cf29e755d1fdd96e",
    ),
    ("wikitext2", {}, "40e6009b7ef45e27b29256d7e6c994032b3af47d2ff28efac14a3ff43ba63a91"),
    (
        "wikitext2",
        {"tokenizer": "gpt2", "detokenize": True},
        "48962629c161c5723dde06da2c26e7693bdcc7e37a1cbace3a70db365cec59bc",
    ),
    ("wikitext103", {}, "95654ac9bbb5c40071a056bbb0c29035638bd3b39e2dd743c23d0fb329870682"),
    ("ptb_char", {}, "c97d9b191bb1b41e672eb9ef95101153d62fd9ee88bfaf7813154ffb1d90ceb2"),
]


@pytest.mark.parametrize(("name", "params", "sha256"), TOKENS, ids=[f"{name} {params}" for name, params, _ in TOKENS])
def test_the_tokens_are_those_of_before_the_move(name, params, sha256, request, tmp_path):
    folder = tmp_path if name in ("embedded", "markov", "spamlang") else request.getfixturevalue("real_data")
    try:
        corpus = CORPORA.get(name)(**params).load(folder)
    except CorpusError as missing:
        pytest.skip(str(missing))
    digest = hashlib.sha256()
    for split in SPLITS:
        digest.update(np.ascontiguousarray(getattr(corpus, split).numpy()).astype("<i8").tobytes())
    assert digest.hexdigest() == sha256


def test_every_corpus_whose_tokens_are_compared_is_the_one_that_the_table_names():
    names = {name for name, *_ in TOKENS} | {"hub"}  # of which tests/corpora/test_hub.py compares the texts
    here = {code_of("corpus", name).sha256 for name in names} | {code_of("backbone", "hf").sha256}
    assert here == {moved(old) for old in MOVED}
    assert moved("0" * 64) == "0" * 64
