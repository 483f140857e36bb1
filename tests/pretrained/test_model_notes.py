"""Notes on pretrained models in a plan and under a table."""

import tokenizer_folders
from causal_models import saved
from safetensors.torch import load_file, save_file
from texts import shuffled
from tokenizers import Tokenizer, processors

from harness.plan import load

SUITE = """
name: notes
version: 1
corpora: [{text: {path: text.txt, tokenizer: {pretrained: model}}}]
backbones: [{hf: {model: model, frozen: true}}]
heads:
  - softmax: {start: pretrained}
  - doc_poster: {num_mixtures: 1}
seeds: [1]
train: {optimizer: adamw, lr: 0.001, epochs: 0, batch_size: 2, seq_len: 8, batching: blocks}
"""


def notes(tmp_path, *changes, size=321, template=None):
    """The notes on a suite with a model of `size` rows and a tokenizer of 321 ids, <end> the last."""
    folder = tmp_path / "model"
    tokenizer_folders.write(folder)
    saved(folder, vocab_size=size)
    if template is not None:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=[("<end>", 320)])
        tokenizer.save(str(folder / "tokenizer.json"))
    (tmp_path / "text.txt").write_text(shuffled(tokenizer_folders.TEXT, seed=1))
    text = SUITE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "notes.yaml").write_text(text)
    return texts(tmp_path)


def texts(tmp_path, *, in_table=None):
    """Those of a suite; of which only those for the table."""
    return tuple(each.text for each in load(tmp_path / "notes.yaml").notes if in_table in (None, each.in_table))


def test_a_folder_that_fits_has_no_note(tmp_path):
    assert notes(tmp_path) == ()


def test_more_or_fewer_rows_than_ids(tmp_path):
    (padded,) = notes(tmp_path / "padded", size=324)
    assert padded == (
        "model: the tokenizer has 321 ids, the model 324 rows: the last 3 stand for no token, and are part of the "
        "softmax as in the model"
    )
    assert texts(tmp_path / "padded", in_table=True) == ()
    (beyond,) = notes(tmp_path / "beyond", size=320)
    assert beyond == (
        "model: the tokenizer has 321 ids, the model 320 rows: a text with the token '<end>' (id 320) or a later one "
        "is refused"
    )


def test_a_first_token_that_the_tokenizer_puts_and_the_backbone_does_not_or_the_reverse(tmp_path):
    first = ("frozen: true", "frozen: true, first_token: 320")
    assert notes(tmp_path / "both", first, template="<end> $A") == ()
    (missing,) = notes(tmp_path / "missing", template="<end> $A")
    assert missing == (
        "the tokenizer of model puts '<end>' (id 320) before each text, so the model was probably trained with it, and "
        "with hf nothing is put there: set first_token: 320"
    )
    (added,) = notes(tmp_path / "added", first)
    assert added == (
        "hf reads '<end>' (id 320) before each segment, and the tokenizer of model puts nothing before a text: the "
        "model may never have seen it there"
    )


def test_heads_that_start_at_random_beside_heads_that_start_from_the_model(tmp_path):
    at_random = ("  - doc_poster: {num_mixtures: 1}\n", "  - ngpt\n  - softmax: {start: embedding}\n")
    (note,) = notes(tmp_path / "beside", at_random)
    assert note == (
        "on hf, nGPT starts from random weights, beside heads that start from the model's: a difference says how far "
        "training has come, not which head is better"
    )
    alone = ("  - softmax: {start: pretrained}\n  - doc_poster: {num_mixtures: 1}\n", "  - ngpt\n  - mtp\n")
    assert notes(tmp_path / "alone", alone) == ()
    assert (
        notes(tmp_path / "random", ("frozen: true", "weights: random"), *[(alone[0], "  - softmax\n  - ngpt\n")]) == ()
    )


def test_what_a_folder_holds_beside_the_model(tmp_path):
    notes(tmp_path)
    place = tmp_path / "model" / "model.safetensors"
    tensors = load_file(place)
    save_file({**tensors, "score.weight": tensors["model.norm.weight"].clone()}, place, {"format": "pt"})
    assert texts(tmp_path) == ("model: the files hold 1 tensor that the model does not use: score.weight",)
