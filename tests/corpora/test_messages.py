"""What is said of the files of a user: tests/golden/messages/corpora. None of it has a text in it."""

import json
import os
from types import SimpleNamespace

import golden
import pytest
from texts import lines

from harness.cli.plan import _corpora
from harness.corpora.local_text import Text
from harness.corpora.overlap import NOT_APART, NOT_NEW
from harness.corpora.split_files import WHOLE, files_in
from harness.errors import CorpusError
from harness.report.text_notes import of_train

NAMED, SAID = (golden.read(f"messages/corpora/{name}") for name in ("splits", "texts"))
CASES = [(case, tokenizer) for case in SAID for tokenizer in ((None, {"bpe": 300}) if "twice" in case else (None,))]


@pytest.mark.parametrize("case", NAMED, ids=lambda case: case["names"])
def test_a_word_of_the_name_says_the_split(case, tmp_path):
    for name in case["names"].split():
        (tmp_path / name).write_text("a b c\n")
    if "says" in case:
        with pytest.raises(CorpusError) as refused:
            files_in(tmp_path)
        assert case["says"] in str(refused.value)
    else:
        found = {split: " ".join(path.name for path in files) for split, files in files_in(tmp_path).items()}
        whole = len(case["splits"]) == 1
        assert found == dict(zip([WHOLE] if whole else ["train", "valid", "test"], case["splits"], strict=True))


def rows(documents) -> str:
    return "".join(json.dumps({"text": document}) + "\n" for document in documents)


def numbered(text: str) -> str:
    return "".join(f"{number} {line}\n" for number, line in enumerate(text.splitlines(), 1))


def paragraphs(text: str) -> str:
    """Four lines of a text in each line."""
    found = text.splitlines()
    return "".join(" ".join(found[start : start + 4]) + "\n" for start in range(0, len(found), 4))


TRAIN, VALID, TEST = lines(400, 1), lines(50, 2), lines(50, 3)
FIRST = TRAIN.splitlines()[:60]
TEXTS = {
    "train": TRAIN, "valid": VALID, "test": TEST, "chapter": lines(20, 4), "licence": lines(6, 9),
    "line": lines(1, 4), "long": lines(300, 3), "chinese": "\u4e00 \u4e01\n" * 40,
    "characters": "\u4e00\u4e01" * 40, "short": "w1 w2 w3 w4\n",
    "valid_new": VALID, "test_new": TEST.replace(" w17 ", " new "), "test_unknown": TEST.replace(" w1", " new"),
    "train_sorted": "".join(sorted(TRAIN.splitlines(keepends=True))), "train_crlf": "\r\n".join([*FIRST, ""]),
    "train_blanks": "  \n".join([*FIRST, ""]), "train_upper": "\n".join([*FIRST, ""]).upper(),
    "test_second": "".join(TEST.splitlines(keepends=True)[::2]), "numbered_lines": numbered(TRAIN + TEST),
    "numbered_lines_test": numbered(TEST), "numbered_both": numbered(paragraphs(TRAIN + TEST)),
    "numbered_test": numbered(paragraphs(TEST)), "twice": rows(lines(5, seed) for seed in (*range(45), *range(15))),
}  # fmt: skip


def of_documents(size: int) -> dict[str, str]:
    """.jsonl files of documents of so many characters, of which test has 6; one of them is in train, too."""
    documents = [lines(5, 100 + seed)[:size].strip() for seed in range(300)]
    splits = {"train": [*documents[:-10], documents[-1]], "valid": documents[-10:-6], "test": documents[-6:]}
    return {f"{split}.jsonl": rows(each) for split, each in splits.items()}


def files_of(case) -> dict[str, str]:
    if "files" in case:
        more = case.get("rows", 0) * '\n{"text": "a b c"}'
        return {name: content + more for name, content in case["files"].items()}
    if "documents" in case["texts"]:
        return of_documents(case["texts"]["documents"])
    given = {name: "".join(TEXTS[each] for each in names.split()) for name, names in case["texts"].items()}
    return given if "mine.jsonl" in given else {"train.txt": TRAIN, "valid.txt": VALID, "test.txt": TEST, **given}


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(("case", "tokenizer"), CASES, ids=range(len(CASES)))
def test_what_is_said_of_a_text(case, tokenizer, tmp_path):
    os.mkfifo(tmp_path / "train")  # no file of a split
    for name, content in files_of(case).items():
        (tmp_path / name).write_bytes(content.encode("latin-1" if "files" in case else "utf-8"))
    source, facts = (
        Text(path=tmp_path / case.get("read", ""), **{"tokenizer": tokenizer, **case.get("params", {})}),
        None,
    )
    try:
        source.fetch(tmp_path)  # tokenises
        facts = source.facts()
        (said,) = _corpora(SimpleNamespace(corpora={"mine": facts}))
    except CorpusError as refused:
        said = str(refused)
    assert case["says"].replace("NOT_APART", NOT_APART) in said
    assert "secret" not in said
    assert "\n" not in said
    notes = [] if facts is None else of_train(SimpleNamespace(corpora={"mine": facts}), [])
    assert len(notes) == (NOT_NEW in said) + (NOT_APART in said)
