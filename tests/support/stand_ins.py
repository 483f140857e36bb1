"""Suites that read a model and a text of the user's, beside small ones that stand in for them."""

import json
import shutil
from pathlib import Path
from typing import Any

import causal_models
import pytest
import tokenizer_folders
from texts import shuffled

from harness import plan
from harness.corpora import token_files
from harness.corpora.local_text import Text
from harness.plan.suite import Suite
from harness.records import store
from harness.records.record import TrialRecord
from harness.registry import BACKBONES

SUITES = Path(__file__).resolve().parents[2] / "suites"
NOVEL = SUITES.parent / "harness" / "corpora" / "pride_and_prejudice.txt"

SMOLLM2 = {  # the sizes of SmolLM2-135M, as its config.json says them
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49_152,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}


def of_the_repository() -> list[Any]:
    """A parameter of a test for each suite file of this repository."""
    found = []
    for path in sorted(SUITES.glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        needed = {"hf:": "pretrained", "awd_lstm": "awd", "dynamic: ": "awd"}
        marks = [pytest.mark.needs(name) for words, name in needed.items() if words in text]
        found.append(pytest.param(path, marks=marks))
    return found


def model_in(folder: Path) -> Path:
    """A folder with a Llama of four layers and a tokenizer, V = 512."""
    tokenizer_folders.write(folder)
    return causal_models.saved(folder, vocab_size=512, num_hidden_layers=4)[0]


def placed(suite: Path, folder: Path) -> Path:
    """The suite's own place; that of a copy in a project with the files that it names where it names some."""
    text = suite.read_text(encoding="utf-8")
    if "../texts/books" in text:
        _write_books(folder / "texts" / "books")
        return _copied(suite, folder)
    if "../models/smollm2" not in text:
        return suite
    texts = folder / "texts" / "openwebtext"
    if not texts.is_dir():
        model_in(folder / "models" / "smollm2")
        texts.mkdir(parents=True)
        for seed, split in enumerate(("train", "valid", "test")):
            (texts / f"{split}.txt").write_text(shuffled(tokenizer_folders.TEXT, seed), encoding="utf-8")
    return _copied(suite, folder)


def _write_books(folder: Path) -> None:
    """The novel of the package in three parts, with enough different words for a vocabulary of 2,000 subwords."""
    text = NOVEL.read_text(encoding="utf-8")
    folder.mkdir(parents=True, exist_ok=True)
    for split, first, last in (("train", 0.0, 0.8), ("valid", 0.8, 0.9), ("test", 0.9, 1.0)):
        (folder / f"{split}.txt").write_text(text[int(first * len(text)) : int(last * len(text))], encoding="utf-8")


def _copied(suite: Path, folder: Path) -> Path:
    copy = folder / "suites" / suite.name
    copy.parent.mkdir(exist_ok=True)
    return Path(shutil.copyfile(suite, copy))


def placed_as_recorded(suite: Path, folder: Path, record: TrialRecord, patch: pytest.MonkeyPatch) -> Path:
    """The same, with the sizes of SmolLM2 and the identities of the files that a record names, so that ids are those of
    its suite.
    """
    copy = placed(suite, folder)
    books = folder / "texts" / "books"
    if copy != suite:
        patch.setattr(BACKBONES.get("hf"), "content", classmethod(lambda cls, **_: record.contents.backbone))
    if books.is_dir():
        _as_recorded(books, record, patch)
    elif copy != suite:
        (folder / "models" / "smollm2" / "config.json").write_text(json.dumps(SMOLLM2))
        own = token_files.content_with

        def recorded(tokenizer, content):
            of_model = isinstance(tokenizer, dict) and "pretrained" in tokenizer
            return record.contents.corpus if of_model else own(tokenizer, content)

        patch.setattr(token_files, "content_with", recorded)
    return copy


def _as_recorded(books: Path, record: TrialRecord, patch: pytest.MonkeyPatch) -> None:
    """Give the stand-in of the books the identity and the numbers of tokens that a record has of them."""
    identity, count = Text.identity_of_tokens, Text.count_tokens
    tokens = {split: int(record.metrics[f"{split}_tokens"]) for split in ("train", "valid", "test")}

    def recorded_identity(self: Text) -> str:
        return record.contents.corpus if self.path == books else identity(self)

    def recorded_count(self: Text) -> dict[str, int] | None:
        return tokens if self.path == books else count(self)

    patch.setattr(Text, "identity_of_tokens", recorded_identity)
    patch.setattr(Text, "count_tokens", recorded_count)


def planned_as_recorded(
    name: str, results: Path, folder: Path, patch: pytest.MonkeyPatch, changes: tuple[str, ...] = ()
) -> Suite:
    """A suite of this repository that has records in `results`. A model that it names is not here: its identity is that
    in the records.
    """
    runs = store.runs_folder(results, name)
    record = store.load(runs, next(runs.glob("*/record.json")).parent.name)
    return plan.load(placed_as_recorded(SUITES / f"{name}.yaml", folder, record, patch), changes)
