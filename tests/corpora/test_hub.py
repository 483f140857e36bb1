"""Data sets of the hub, from a local copy through the same library: order, splits, documents' bounds, sentences."""

import json
import sys
from types import SimpleNamespace

import pytest

from harness.cli.plan import _corpora
from harness.corpora.corpus import SPLITS
from harness.corpora.hub import Hub
from harness.errors import CorpusError

pytestmark = pytest.mark.usefixtures("cache")
REVISION = "0123456789abcdef0123456789abcdef01234567"
DOCUMENTS = [f"document number {i} of letter {'abc'[i % 3]}\nand its end\n" for i in range(120)]
SPEC = {"bpe": 300}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "huggingface"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def data(tmp_path):
    """A data folder with a copy of a data set, in two files."""
    folder = tmp_path / "data" / "hub" / "some-owner" / "some.name" / REVISION
    folder.mkdir(parents=True)
    for number, part in enumerate((DOCUMENTS[:70], DOCUMENTS[70:])):
        rows = (json.dumps({"body": text, "id": number}) for text in part)
        (folder / f"train-{number}.jsonl").write_text("".join(f"{row}\n" for row in rows))
    return tmp_path / "data"


def hub(**params) -> Hub:
    known = {"dataset": "some-owner/some.name", "revision": REVISION, "documents": 100, "text_column": "body"}
    return Hub(**{**known, "tokenizer": SPEC, **params})


def test_documents_are_split_in_order_with_a_mark_between_them(data):
    corpus = hub().load(data)
    texts = {name: corpus.codec.decode(getattr(corpus, name).tolist()) for name in SPLITS}
    expected = {"train": DOCUMENTS[:96], "valid": DOCUMENTS[96:98], "test": DOCUMENTS[98:100]}  # 96 / 2 / 2 per cent
    assert texts == {name: "<|endoftext|>".join(documents) for name, documents in expected.items()}
    assert corpus.vocab_size == 300


def numbered(word: str) -> str:
    """A document of words that no other one has."""
    return " ".join(f"{word}{number}" for number in range(40))


def plant(data, *of_test: str) -> None:
    """Let train have the document 'copied', and test two given ones."""
    documents = [*DOCUMENTS[70:95], numbered("copied"), numbered("v"), numbered("w"), *of_test]
    (place,) = data.glob("**/train-1.jsonl")
    place.write_text("".join(json.dumps({"body": text}) + "\n" for text in documents))


def test_a_document_of_test_that_train_has_is_its_share_once_the_text_is_tokenised(data, monkeypatch):
    plant(data, numbered("copied"), numbered("own"))
    assert hub().facts().in_train == {}
    hub().fetch(data)
    monkeypatch.setitem(sys.modules, "datasets", None)  # from now on no data set is needed
    facts, corpus = hub().facts(), hub().load(data / "nothing")
    with pytest.raises(CorpusError, match=r'needs a library: pip install "output-head-harness\[hub\]"$'):
        hub(documents=101).load(data)
    copied, number = len(corpus.codec.encode(numbered("copied"))), len(corpus.test)
    assert facts.in_train == {"valid": 0.0, "test": pytest.approx(copied / number, abs=13 / number)}
    assert facts.text.lines_in_train == {"valid": 0.0, "test": copied / (number - 1)}  # without the mark between them
    (said,) = _corpora(SimpleNamespace(corpora={"mine": facts}))
    assert said.startswith("mine: 100 documents; split 96 / 2 / 2 by documents; tokens: train ")
    assert f"{100 * copied / (number - 1):.1f} % of test in whole lines or documents: perplexities are lower" in said


def test_facts_need_nothing_and_differ_with_every_parameter_of_the_text():
    facts = hub().facts()
    assert (facts.vocab_size, facts.num_tokens) == (300, None)
    others = [
        {"revision": "f" * 40},
        {"documents": 101},
        {"config": "small"},
        {"split": "test"},
        {"text_column": "text"},
        {"dataset": "some-owner/other"},
    ]
    assert len({hub(**other).facts().content for other in [{}, *others]}) == 7


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"documents": 121}, "the split 'train' has 120 documents, not 121"),
        ({"text_column": "text"}, r"no text in column 'text' of document 0 \(has: body, id\)"),
        ({"text_column": "id"}, "no text in column 'id' of document 0"),
        ({"split": "other"}, "cannot be read .*other"),
        ({"config": "other"}, "cannot be read .*other"),
    ],
)
def test_what_the_data_set_does_not_have_is_one_sentence(params, message, data):
    with pytest.raises(CorpusError, match=f"^hub: some-owner/some.name at 0123456789ab: {message}") as raised:
        hub(**params).load(data)
    assert "\n" not in str(raised.value)


def test_a_hub_that_cannot_be_reached_is_one_sentence(tmp_path, monkeypatch):
    import datasets

    def fail(*args, **kwargs):
        raise ConnectionError("Couldn't reach it\nat all")

    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(CorpusError, match=r"^hub: .*: the hub cannot be reached \(Couldn't reach it\)$"):
        hub().load(tmp_path)


def test_the_commit_is_what_is_asked_for_and_no_code_is(tmp_path, monkeypatch):
    import datasets

    asked = []
    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **more: asked.append((args, more)) or iter([]))
    (_, train), *_ = hub(config="small").pieces(tmp_path)
    with pytest.raises(CorpusError, match="has 0 documents, not 100"):
        next(iter(train))
    assert asked == [(("some-owner/some.name", "small"), {"split": "train", "revision": REVISION, "streaming": True})]


def test_a_folder_that_has_the_data_sets_name_is_not_taken_for_it(tmp_path):
    (tmp_path / "some-owner" / "some.name").mkdir(parents=True)
    with pytest.raises(CorpusError, match=r"some-owner/some\.name would be read instead of the data set on the hub"):
        hub().load(tmp_path)
