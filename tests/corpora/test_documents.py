"""Documents of .txt, .jsonl and .parquet files: the same tokens from each form, splits, order, and what is refused."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
import tokenizer_folders
from pyarrow import parquet

from harness.corpora import documents, progress
from harness.corpora.corpus import SPLITS
from harness.corpora.local_text import Text
from harness.corpora.pieces import END_OF_TEXT
from harness.errors import CorpusError

pytestmark = pytest.mark.usefixtures("cache")
DOCUMENTS = [f"document {n} of caf\u00e9 {'abc'[n % 3]}\nand its end{chr(10) * (n % 2)}" for n in range(40)]
SPEC = {"bpe": 300}


def write_rows(path: Path, texts, column: str = "text", **more) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        table = pa.table({"number": range(len(texts)), column: pa.array(texts, **more)})
        parquet.write_table(table, path, row_group_size=7)
    else:
        rows = (json.dumps({"number": n, column: text}) for n, text in enumerate(texts))
        path.write_text("\n".join(rows))  # the last line has no line end
    return path


def of(path: Path, **params):
    corpus = Text(path=path, **{"tokenizer": SPEC, **params}).load(path)
    return {name: getattr(corpus, name).tolist() for name in SPLITS}, corpus


def by_documents(texts) -> dict[str, str]:
    """80 / 10 / 10 per cent of 40 documents."""
    parts = {"train": texts[:32], "valid": texts[32:36], "test": texts[36:]}
    return {name: END_OF_TEXT.join(part) for name, part in parts.items()}


@pytest.mark.parametrize(
    "files",
    [
        {"all.JSONL": [text.upper() for text in DOCUMENTS]},
        {"train-0.parquet": DOCUMENTS[:20], "train-1.parquet": DOCUMENTS[20:32], "valid.jsonl": DOCUMENTS[32:36],
         "test.jsonl": DOCUMENTS[36:]},
    ],
    ids=len,
)  # fmt: skip
def test_rows_are_documents_with_an_end_between_them(files, tmp_path):
    for name, texts in files.items():
        write_rows(tmp_path / "texts" / name, texts, column="body")
    found, corpus = of(tmp_path / "texts", column="body", lowercase="all.JSONL" in files)
    texts = {split: corpus.codec.decode(ids) for split, ids in found.items()}
    assert texts == by_documents(DOCUMENTS)


@pytest.mark.needs("pretrained")
def test_every_form_of_the_same_documents_has_the_same_tokens(tmp_path):
    write_rows(tmp_path / "a" / "x.jsonl", DOCUMENTS)
    write_rows(tmp_path / "b" / "x.parquet", DOCUMENTS)
    write_rows(tmp_path / "c" / "0.parquet", DOCUMENTS[:15], type=pa.large_string())
    write_rows(tmp_path / "c" / "1.jsonl", DOCUMENTS[15:30])
    for number, text in enumerate(DOCUMENTS[30:]):
        (tmp_path / "c" / f"2-{number}.txt").write_text(text)
    (tmp_path / "c" / "README.md").write_text("not a text of the corpus")
    for split, text in by_documents(DOCUMENTS).items():
        (tmp_path / "d").mkdir(exist_ok=True)
        (tmp_path / "d" / f"{split}.txt").write_text(text)
    model = {"pretrained": tokenizer_folders.write(tmp_path / "model")}
    found = [of(tmp_path / name, tokenizer=model)[0] for name in "abcd"]
    assert found[0] == found[1] == found[2] == found[3]
    corpus = of(tmp_path / "a", tokenizer=model)[1]  # the end of a document is the model's own token
    assert corpus.codec.decode(found[0]["valid"]) == "<end>".join(DOCUMENTS[32:36])
    assert int(corpus.test_bytes.sum()) == sum(len(text.encode()) for text in DOCUMENTS[36:])
    facts = [Text(path=tmp_path / name, tokenizer=model).facts() for name in "abc"]
    assert facts[0].counting == (
        "tokens of the tokenizer of model, line ends included, and one end-of-text token between documents; "
        "words are whitespace-separated"
    )
    (tmp_path / "c" / "0.parquet").rename(tmp_path / "c" / "3.parquet")  # in another order
    facts.append(Text(path=tmp_path / "c", tokenizer=model).facts())
    write_rows(tmp_path / "a" / "y.jsonl", DOCUMENTS[:1])
    facts.append(Text(path=tmp_path / "a", tokenizer=model).facts())
    assert len({each.content for each in facts}) == 5


def test_words_and_characters_of_documents_end_with_a_line_end(tmp_path):
    path = write_rows(tmp_path / "all.parquet", DOCUMENTS)
    expected = "".join(text.rstrip("\n") + "\n" for text in DOCUMENTS[36:])
    corpus = of(path, tokenizer=None, level="char")[1]
    assert corpus.codec.decode(corpus.test.tolist()) == expected
    words = of(path, tokenizer=None)[1]
    unknown = " ".join(DOCUMENTS[32:36]).split()
    unknown[1::8] = ["<unk>"] * 4  # the numbers, which the training split does not have
    assert words.codec.decode(words.valid.tolist()).split() == unknown
    assert len(words.valid) == len(unknown) + 8  # two lines each
    assert Text(path=path).facts().num_tokens["test"] == len(words.test)


def test_progress_is_reported_by_documents_and_by_characters(tmp_path):
    (tmp_path / "text.txt").write_text("a b c\n" * 50)
    reports = {}
    for path in (write_rows(tmp_path / "all.jsonl", DOCUMENTS), tmp_path / "text.txt"):
        calls = reports[path.name] = []
        with progress.reported_to(lambda *report, calls=calls: calls.append(report)):
            of(path, tokenizer={"bpe": 270} if path.suffix == ".jsonl" else {"bpe": 259})
        assert {what for what, *_ in calls} == {str(path)}
    # to train the tokenizer the 32 documents of the training split are read, and then all
    assert [done for _, done, _ in reports["all.jsonl"]] == [*range(1, 33), *range(1, 41)]
    assert {total for *_, total in reports["all.jsonl"]} == {40}
    assert [report[1:] for report in reports["text.txt"]][-3:] == [(240, 300), (270, 300), (300, 300)]


def _numbers(path: Path) -> None:
    parquet.write_table(pa.table({"text": list(range(40))}), path)


def _nulls(path: Path) -> None:
    parquet.write_table(pa.table({"text": pa.array([*DOCUMENTS, None], type=pa.string())}), path)


def _latin1(path: Path) -> None:
    buffers = pa.array([b"caf\xe9", *[b"ok"] * 39], type=pa.binary()).buffers()
    parquet.write_table(pa.table({"text": pa.Array.from_buffers(pa.string(), 40, buffers)}), path)


def _damaged(path: Path) -> None:
    write_rows(path, DOCUMENTS)
    content = bytearray(path.read_bytes())
    content[4:200] = b"\xff" * 196
    path.write_bytes(content)


HOSTILE = [  # more: tests/golden/messages/corpora/texts.yaml
    ("x.jsonl", lambda path: path.write_bytes(b"[" * 100_000 + b'\n{"text": "a"}' * 20), "line 1 is not JSON"),
    ("x.jsonl", os.mkfifo, r"x\.jsonl: cannot be read \(not a regular file\)$"),
    ("x.parquet", _latin1, r"x\.parquet: row 1 is no UTF-8 text in 'text'; write the column again as UTF-8$"),
    (
        "x.parquet",
        lambda path: write_rows(path, DOCUMENTS, "body"),
        r"no column 'text' \(has: number, body\); name one by `column:`$",
    ),
    ("x.parquet", _numbers, r"x\.parquet: row 1 has no text in 'text'"),
    ("x.parquet", _nulls, r"x\.parquet: row 41 has no text in 'text'"),
    ("x.parquet", _damaged, r"x\.parquet: is damaged after row 0; copy or write it again$"),
]


@pytest.mark.parametrize(("name", "make", "message"), HOSTILE, ids=range(len(HOSTILE)))
def test_what_has_no_documents_is_one_sentence(name, make, message, tmp_path):
    make(tmp_path / name)
    for tokenizer in (None, SPEC):
        with pytest.raises(CorpusError, match=message):
            Text(path=tmp_path / name, tokenizer=tokenizer).load(tmp_path)


def _same(rows: int, text: str) -> Callable[[Path], None]:
    """A .parquet file with one text in each of some rows, which it stores once."""

    def make(place: Path) -> None:
        once = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([text]))
        parquet.write_table(pa.table({"text": once}), place, compression="zstd", write_statistics=False)

    return make


@pytest.mark.system
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_same(64, "a cat sat\n" * 5_000_000), r"x\.parquet: to read it takes more memory than a file of its size"),
        (_same(400_000, "a cat sat\n" * 10), r"first .* rows have .* characters, more than 1,000 times its size: one"),
    ],
    ids=["memory", "text"],
)
def test_a_small_file_of_a_large_text_is_refused(make, message, tmp_path):
    make(tmp_path / "x.parquet")
    assert (tmp_path / "x.parquet").stat().st_size < 10_000
    for tokenizer in (None, SPEC):
        with pytest.raises(CorpusError, match=message):
            Text(path=tmp_path / "x.parquet", tokenizer=tokenizer).load(tmp_path)


def test_a_line_that_is_too_long_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "MAX_LINE", 100)
    path = write_rows(tmp_path / "all.jsonl", [*DOCUMENTS, "a" * 100])
    with pytest.raises(CorpusError, match=r"all\.jsonl: line 41 has more than 100 bytes; cut it into several$"):
        of(path)


def test_a_mark_of_byte_order_and_crlf_are_no_text_of_rows(tmp_path):
    rows = write_rows(tmp_path / "rows.jsonl", DOCUMENTS)
    expected = of(rows)[0]
    rows.write_bytes(b"\xef\xbb\xbf" + rows.read_bytes().replace(b"\n", b"\r\n"))
    assert of(rows)[0] == expected
