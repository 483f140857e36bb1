"""Folders of models as transformers writes them, and what somebody may have done to one."""

import json
import shutil
import struct
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file


def change_config(folder: Path, **values) -> None:
    """Other values in config.json."""
    place = folder / "config.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), **values}))


def change_tensors(folder: Path, change) -> None:
    """Other weights: a function that changes the mapping of them."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def _config(text: str):
    return lambda folder: (folder / "config.json").write_text(text)


def _weights(change):
    """Other bytes of the weights."""

    def damage(folder: Path) -> None:
        place = folder / "model.safetensors"
        place.write_bytes(change(place.read_bytes()))

    return damage


def _flip_in_the_header(content: bytes) -> bytes:
    place = content.index(b'"data_offsets"') + 1
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def _pickle(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")


def _code(folder: Path) -> None:
    """Code that writes the file `ran`, and a configuration that names it."""
    code = f"open({str(folder / 'ran')!r}, 'w')\n"
    (folder / "configuration_evil.py").write_text(code)
    (folder / "modeling_evil.py").write_text(code)
    auto = {"AutoConfig": "configuration_evil.Evil", "AutoModelForCausalLM": "modeling_evil.Evil"}
    change_config(folder, model_type="evil", auto_map=auto)


def _index_that_leaves_the_folder(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder.parent / "other.safetensors")
    index = {"weight_map": {"wte.weight": "../other.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


_HUGE = b'{"evil":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}}'
DAMAGES = {  # to any folder
    "no folder": shutil.rmtree,
    "no config": lambda folder: (folder / "config.json").unlink(),
    "no JSON": _config("{"),
    "deep JSON": _config("[" * 100_000),
    "config is a list": _config("[]"),
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "pickle": _pickle,
    "code": _code,
    "index": _index_that_leaves_the_folder,
    "left over tensor": lambda folder: change_tensors(folder, lambda tensors: tensors.update(evil=torch.zeros(2))),
    "renamed pickle": _weights(lambda _: b"\x80\x04\x95" + bytes(200)),
    "cut off": _weights(lambda content: content[:-8]),
    "flipped bit": _weights(_flip_in_the_header),
    "header of 4 GB": _weights(lambda _: struct.pack("<Q", 2**32) + b"{}"),
    "endless header": _weights(lambda _: struct.pack("<Q", 2**60) + bytes(100)),
    "huge tensor": _weights(lambda _: struct.pack("<Q", len(_HUGE)) + _HUGE),
}
