"""Suites that read a model and a text of the user's, beside small ones that stand in for them."""

import shutil
from pathlib import Path

import causal_models
import tokenizer_folders


def model_in(folder: Path) -> Path:
    """A folder with a Llama of four layers and a tokenizer, V = 512."""
    tokenizer_folders.write(folder)
    return causal_models.saved(folder, vocab_size=512, num_hidden_layers=4)[0]


def placed(suite: Path, folder: Path) -> Path:
    """The suite's own place; that of a copy in a project with the files that it names where it names a model."""
    if "../models/smollm2" not in suite.read_text(encoding="utf-8"):
        return suite
    texts = folder / "texts" / "openwebtext"
    if not texts.is_dir():
        model_in(folder / "models" / "smollm2")
        texts.mkdir(parents=True)
        for split in ("train", "valid", "test"):
            (texts / f"{split}.txt").write_text(tokenizer_folders.TEXT, encoding="utf-8")
    copy = folder / "suites" / suite.name
    copy.parent.mkdir(exist_ok=True)
    return Path(shutil.copyfile(suite, copy))
