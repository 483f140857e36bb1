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
from harness.plan.suite import Suite
from harness.records import store
from harness.records.record import TrialRecord
from harness.registry import BACKBONES

SUITES = Path(__file__).resolve().parents[2] / "suites"

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
    if "../models/smollm2" not in text:
        return suite
    texts = folder / "texts" / "openwebtext"
    if not texts.is_dir():
        model_in(folder / "models" / "smollm2")
        texts.mkdir(parents=True)
        for seed, split in enumerate(("train", "valid", "test")):
            (texts / f"{split}.txt").write_text(shuffled(tokenizer_folders.TEXT, seed), encoding="utf-8")
    return _copied(suite, folder)


def _copied(suite: Path, folder: Path) -> Path:
    copy = folder / "suites" / suite.name
    copy.parent.mkdir(exist_ok=True)
    return Path(shutil.copyfile(suite, copy))


def _placed_as_recorded(suite: Path, folder: Path, record: TrialRecord, patch: pytest.MonkeyPatch) -> Path:
    """The same, with the sizes of SmolLM2 and the identities of the files that a record names, so that ids are those of
    its suite.
    """
    copy = placed(suite, folder)
    if copy != suite:
        patch.setattr(BACKBONES.get("hf"), "content", classmethod(lambda cls, **_: record.contents.backbone))
        (folder / "models" / "smollm2" / "config.json").write_text(json.dumps(SMOLLM2))
        own = token_files.content_with

        def recorded(tokenizer, content):
            of_model = isinstance(tokenizer, dict) and "pretrained" in tokenizer
            return record.contents.corpus if of_model else own(tokenizer, content)

        patch.setattr(token_files, "content_with", recorded)
    return copy


def planned_as_recorded(name: str, results: Path, folder: Path, changes: tuple[str, ...] = ()) -> Suite:
    """A suite of this repository that has records in `results`. A model that it names is not here: its identity is that
    in the records, while this suite is planned and no longer.
    """
    runs = store.runs_folder(results, name)
    record = store.load(runs, next(runs.glob("*/record.json")).parent.name)
    with pytest.MonkeyPatch.context() as patch:
        return plan.load(_placed_as_recorded(SUITES / f"{name}.yaml", folder, record, patch), changes)
