"""Tokenizers of model folders: tokens as of the whole text, exact bytes, and folders that are not trusted."""

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import tokenizer_folders
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_folders import KINDS, TEXT
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from harness.corpora import pieces as cutting
from harness.corpora.corpus import SPLITS
from harness.corpora.local_text import Embedded, Text
from harness.corpora.pieces import END_OF_TEXT, encode, pieces
from harness.corpora.token_bytes import ends_in_bytes, known_lengths
from harness.errors import CorpusError, SuiteError
from harness.plan import load
from harness.plan.specs import EvalSpec
from harness.pretrained.tokenizer import read_tokenizer
from harness.registry import CORPORA
from harness.training.evaluation import Score, TokenNll, scored_segments, text_scores

KEEPING = [kind for kind in KINDS if kind != "bert"]  # every byte of TEXT
ODD = [" ", "\n", "\t", "\u00a0", "a", "bc", "cat", " the", "7", "'s", ",", "!", "\u6f22", "\u4f60\u597d", "\u00e9"]
ODD += ["e\u0301", "\U0001f600", "\ufb01", "A", "\r\n", "\u2581", " mat"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tokens"


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {kind: tokenizer_folders.write(root / f"model {n}", kind) for n, kind in enumerate(KINDS)}


@pytest.fixture
def texts(tmp_path) -> Path:
    folder = tmp_path / "texts"
    folder.mkdir()
    for split in SPLITS:
        (folder / f"{split}.txt").write_text(TEXT)
    return folder


def load_text(texts: Path, folder: Path):
    return Text(path=texts, tokenizer={"pretrained": folder}).load(Path("unused"))


def encoded(folder: Path, text: str, *, ends: bool = True):
    return list(encode(read_tokenizer(folder), pieces(text), ends=ends, where="here"))


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=40)
@given(parts=st.lists(st.sampled_from(ODD), max_size=100))
def test_the_tokens_of_pieces_are_those_of_the_whole_text_and_have_all_its_bytes(kind, parts, folders):
    text, library = "".join(parts), Tokenizer.from_file(str(folders[kind] / "tokenizer.json"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "PIECE_CHARACTERS", 30)
        found = encoded(folders[kind], text)
    ids = [index for piece in found for index in piece.ids.tolist()]
    assert ids == library.encode(text, add_special_tokens=False).ids
    assert "".join(piece.text for piece in found) == text
    for piece in found:
        lengths = np.diff(piece.ends, prepend=0)
        assert (lengths >= 0).all()
        assert lengths.sum() == (len(piece.text.encode()) if len(piece.ids) else 0)


def test_bytes_of_tokens_by_hand():
    # in byte-level BPE the names of the bytes of U+6F22 are these three characters, and that of a blank is \u0120
    names = [
        "\u00e6",
        "\u00bc",
        "\u00a2",
        "\u0120",
        "x",
        "\u00a2x",
        "\u0120\u00e6",
        "\u00f0",
        "\u0141",
        "\u013a",
        "\u0122",
    ]
    vocabulary = {name: index for index, name in enumerate(names)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [("\u00a2", "x"), ("\u0120", "\u00e6")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    text = " \u6f22x\U0001f600\u6f22"
    encoding = tokenizer.encode(text)
    ids, expected = np.array(encoding.ids), [2, 3, 5, 6, 7, 8, 9, 10, 11, 12]
    #                       _E6 BC A2x F0 9F 98 80 E6 BC A2
    assert ends_in_bytes(text, ids, encoding.offsets, known_lengths(tokenizer)).tolist() == expected


@pytest.mark.parametrize("kind", KINDS)
def test_the_texts_of_tokens_are_that_of_the_text(kind, folders, texts):
    corpus, text = load_text(texts, folders[kind]), "the cat \u6f22 on 12"
    expected = text if kind in ("gpt2", "qwen", "gemma") else " " + text  # the others put a blank before
    if kind == "bert":  # and it drops blanks
        expected = text.replace(" ", "")
    found = corpus.token_bytes
    assert b"".join(found[index] for index in corpus.codec.encode(text)).decode() == expected
    assert len(found) == corpus.vocab_size
    assert found[corpus.end_of_text] == found[-1] == b""  # an id beyond those of the tokenizer


@pytest.mark.parametrize("kind", ["llama2", "mistral", "gemma"])
def test_a_character_of_byte_fallback_is_divided_into_its_bytes(kind, folders):
    (piece,) = encoded(folders[kind], "cat\U0001f680\u00e9")  # the emoji is no token; e with an accent is one
    assert piece.ends.tolist()[-6:] == [3, 4, 5, 6, 7, 9]


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_of_transformers_are_ours_and_no_special_token_is_put_anywhere(kind, folders):
    from transformers import PreTrainedTokenizerFast

    theirs = PreTrainedTokenizerFast(tokenizer_file=str(folders[kind] / "tokenizer.json"))
    ids = [index for piece in encoded(folders[kind], TEXT, ends=False) for index in piece.ids.tolist()]
    assert ids == theirs(TEXT, add_special_tokens=False).input_ids


def test_truncation_and_padding_that_a_folder_asks_for_change_nothing(tmp_path):
    folder = tokenizer_folders.write(tmp_path / "model")
    expected = encoded(folder, TEXT)[0].ids.tolist()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=8)
    tokenizer.save(str(folder / "tokenizer.json"))
    assert encoded(folder, TEXT)[0].ids.tolist() == expected


@pytest.mark.parametrize(
    ("config", "size"),
    [
        ({"vocab_size": 512}, 512),
        ({}, 321),  # 320 and <end>
        ({"text_config": {"vocab_size": 400}}, 400),
        ({"vocab_size": 500, "text_config": {"vocab_size": 400}}, 500),
    ],
)
def test_the_vocabulary_is_the_models_which_may_be_padded(config, size, tmp_path, texts):
    folder = tokenizer_folders.write(tmp_path / "model", config=config)
    source = Text(path=texts, tokenizer={"pretrained": folder})
    assert source.facts().vocab_size == source.load(texts).vocab_size == size
    assert len(source.load(texts).token_counts) == size


def test_an_id_beyond_the_models_rows_is_refused_where_a_text_has_it(tmp_path, texts):
    """Gemma 3, or a PAD token that was added without a resize: config.json has a row less than the tokenizer ids."""
    folder = tokenizer_folders.write(tmp_path / "model", config={"vocab_size": 320})  # <end> is id 320
    source = Text(path=texts, tokenizer={"pretrained": folder})
    assert source.facts().vocab_size == source.load(texts).vocab_size == 320
    (texts / "train.txt").write_text(TEXT + "<end>")
    with pytest.raises(CorpusError) as found:
        Text(path=texts, tokenizer={"pretrained": folder}).load(texts)
    assert str(found.value) == (
        f"{texts}: its text has the token '<end>', id 320, and the model in model has only the ids 0 to 319 "
        "(vocab_size in config.json); take it out of the text, or resize the model with resize_token_embeddings and "
        "train it"
    )


TEMPLATE = processors.TemplateProcessing(single="<end> $A", special_tokens=[("<end>", 320)])
FIRST = [  # the template of tokenizer.json, tokenizer_config.json, the token before a text
    (None, {"bos_token": "<end>"}, None),
    (TEMPLATE, {}, 320),
    (TEMPLATE, {"bos_token": "<end>", "add_bos_token": False}, 320),  # as transformers 5 puts it
    (processors.TemplateProcessing(single="$A <end>", special_tokens=[("<end>", 320)]), {}, None),
    (None, {"bos_token": {"content": "<end>"}, "add_bos_token": True}, 320),  # as transformers 4 puts it
    (None, {"bos_token": "absent", "add_bos_token": True}, None),
    (None, {"bos_token": None, "add_bos_token": True}, None),
]


@pytest.mark.parametrize(("template", "about", "first"), FIRST)
def test_the_token_that_a_tokenizer_puts_before_a_text(template, about, first, tmp_path):
    folder = tokenizer_folders.write(tmp_path)
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>", **about}))
    if template is not None:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        tokenizer.post_processor = template
        tokenizer.save(str(folder / "tokenizer.json"))
    found = read_tokenizer(folder)
    assert found.puts_first == first
    assert len(found.tokenizer.encode("a").ids) == 1  # nothing is put into a text here
    if about.get("add_bos_token") is not True:
        whole = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))("a")["input_ids"]
        assert (whole[0] == 320) == (first is not None)


def test_the_counting_rule_names_the_folder(tmp_path, texts):
    facts = Text(path=texts, tokenizer={"pretrained": tokenizer_folders.write(tmp_path / "my model")}).facts()
    assert facts.counting == ("tokens of the tokenizer of my model, line ends included; words are whitespace-separated")
    assert facts.num_tokens is None


ENDS = [  # what the tokenizer has, what the files beside it say, the token between documents
    ([END_OF_TEXT, "<end>"], {"tokenizer_config": {"eos_token": "<end>"}}, END_OF_TEXT),
    (["<end>", "<eot>"], {"tokenizer_config": {"eos_token": {"content": "<eot>"}}}, "<eot>"),
    (["<end>", "<eot>"], {"generation_config": {"eos_token_id": [321, 320]}, "config": {"eos_token_id": 320}}, "<eot>"),
    (["<end>", "<eot>"], {"config": {"eos_token_id": 320}}, "<end>"),
    (["<end>"], {"config": {"text_config": {"eos_token_id": 320}}}, "<end>"),
    (["<end>"], {"tokenizer_config": {"eos_token": "absent"}, "config": {"eos_token_id": 10**6}}, None),
]


@pytest.mark.parametrize(("specials", "files", "expected"), ENDS, ids=range(len(ENDS)))
def test_the_token_between_documents(specials, files, expected, tmp_path):
    folder = tokenizer_folders.write(tmp_path / "model", end=None)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_special_tokens(specials)
    tokenizer.save(str(folder / "tokenizer.json"))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    found = read_tokenizer(folder)
    assert (None if found.end_of_text is None else tokenizer.id_to_token(found.end_of_text)) == expected
    if expected is None:
        with pytest.raises(
            CorpusError,
            match=r"^here: it has several documents, and model has no end-of-text token; give it an eos_token",
        ):
            encoded(folder, f"a{END_OF_TEXT}b")
    else:
        ids = [piece.ids.tolist() for piece in encoded(folder, f"a{END_OF_TEXT}b")]
        assert ids == [[tokenizer.token_to_id("a")], [found.end_of_text], [tokenizer.token_to_id("b")]]


def uniform_bits(corpus, **changes) -> float:
    """Bits per byte of the model that gives every byte the probability 1/256, whatever the tokens are."""
    spec = EvalSpec(**{"seq_len": 8, "batching": "stream", "eval_batch_size": 4, "eval_stride": None, **changes})
    tokens, nll_sum = TokenNll(len(corpus.test), torch.device("cpu")), 0.0
    for segment in scored_segments(corpus, "test", spec):
        nll = corpus.test_bytes[segment.place.clamp(max=len(corpus.test) - 1)].double() * math.log(256)
        tokens.add(nll, segment)
        nll_sum += (nll * segment.weight).sum().item()
    score = Score(nll_sum, num_scored=1, num_counted=1)
    return text_scores(score, tokens, corpus, spec)["test_bits_per_byte"]


@pytest.mark.parametrize("kind", KEEPING)
@pytest.mark.parametrize(
    "changes", [{"eval_batches": None}, {"eval_batches": 2}, {"batching": "blocks", "eval_batches": None}]
)
def test_a_uniform_model_of_bytes_has_eight_bits_per_byte_with_every_tokenizer(kind, changes, folders, texts):
    assert uniform_bits(load_text(texts, folders[kind]), **changes) == pytest.approx(8, rel=1e-9)


def test_bytes_of_our_own_tokenizers_and_of_characters_are_known(texts):
    for params in ({"tokenizer": {"bpe": 300}}, {"level": "char"}):
        corpus = Text(path=texts, **params).load(texts)
        for batching in ("stream", "blocks"):
            assert uniform_bits(corpus, eval_batches=None, batching=batching) == pytest.approx(8, rel=1e-9)
        assert corpus.test_size.bytes == int(corpus.test_bytes[1:].sum())


@pytest.mark.parametrize("kind", KEEPING)
def test_the_sizes_of_a_text_are_those_of_its_tokens_without_the_first(kind, folders, texts):
    corpus = load_text(texts, folders[kind])
    assert corpus.test_bytes.dtype == torch.int32
    assert len(corpus.test_bytes) == len(corpus.test)
    assert int(corpus.test_bytes.sum()) == len(TEXT.encode())
    assert corpus.test_size.bytes == int(corpus.test_bytes[1:].sum())
    first = TEXT.encode()[: int(corpus.test_bytes[0])].decode()
    assert corpus.test_size.characters == len(TEXT) - len(first)


def test_documents_ends_have_no_text(tmp_path, texts):
    folder = tokenizer_folders.write(tmp_path / "model")
    (texts / "test.txt").write_text(f"cat{END_OF_TEXT}\u6f22 mat{END_OF_TEXT}{END_OF_TEXT}cat\n")
    corpus = load_text(texts, folder)
    end = read_tokenizer(folder).end_of_text
    assert corpus.test_bytes[corpus.test == end].tolist() == [0, 0, 0]
    assert int(corpus.test_bytes.sum()) == len("cat\u6f22 matcat\n".encode())
    assert corpus.codec.decode(corpus.test.tolist()) == "cat<end>\u6f22 mat<end><end>cat\n"


@pytest.mark.parametrize(
    ("kind", "normalizer", "text", "is_kept"),
    [
        ("gpt2", None, "The  caf\u00e9\n", True),
        ("gpt2", normalizers.Lowercase(), "The cat\n", False),
        ("gpt2", normalizers.Lowercase(), "the cat\n", True),  # what it would change is not in this text
        ("gpt2", normalizers.NFKC(), "a \ufb01ne mat\n", False),
        ("gpt2", normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]), "caf\u00e9\n", False),
        ("gpt2", normalizers.Replace(Regex(" +"), " "), "the  cat\n", False),
        ("gpt2 with a blank before", None, "The cat\n", True),
        ("llama2", None, "the cat\n", True),  # it puts a blank before a text
        ("t5", None, "the cat\n", True),
        ("bert", None, "the cat\n", False),  # a blank for the line end
    ],
)
def test_a_text_has_a_size_where_its_tokens_give_back_every_byte(kind, normalizer, text, is_kept, tmp_path, texts):
    folder = tokenizer_folders.write(tmp_path / "model", kind)
    if normalizer is not None:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        tokenizer.normalizer = normalizer
        tokenizer.save(str(folder / "tokenizer.json"))
    (texts / "test.txt").write_text(text)
    corpus = load_text(texts, folder)
    assert (corpus.test_size is not None) == (corpus.test_bytes is not None) == is_kept
    if is_kept:
        assert int(corpus.test_bytes.sum()) == len(text.encode())


def test_our_wordpiece_keeps_no_white_space(texts):
    corpus = Text(path=texts, tokenizer={"wordpiece": 150}).load(texts)
    assert corpus.test_size is None


@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_damaged_lengths_are_made_anew(damage, folders, texts, cache):
    before = load_text(texts, folders["qwen"]).test_bytes.tolist()
    (place,) = cache.glob("*/test_bytes.int32")
    content = place.read_bytes()
    changed = bytes([content[0] ^ 1]) + content[1:]
    place.unlink() if damage == "gone" else place.write_bytes({"cut": content[:-4], "changed": changed}[damage])
    assert load_text(texts, folders["qwen"]).test_bytes.tolist() == before
    assert place.read_bytes() == content


SUITE = """\
corpora: [embedded: {{tokenizer: {tokenizer}}}]
backbones: [lstm: {{d_model: 8, num_layers: 1}}]
heads: [softmax]
seeds: [1]
train: {{lr: 0.01, epochs: 1}}
"""


@pytest.fixture
def suite_with(tmp_path):
    """A function: the tokenizer of a novel in YAML -> a suite file in the folder suites."""

    def write(tokenizer: str) -> Path:
        place = tmp_path / "project" / "suites" / "suite.yaml"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(SUITE.format(tokenizer=tokenizer))
        return place

    return write


def test_a_folder_is_relative_to_the_suite_and_its_content_and_not_its_place_is_in_the_id(suite_with, tmp_path):
    folder = tokenizer_folders.write(tmp_path / "project" / "models" / "one")
    relative = load(suite_with("{pretrained: ../models/one}")).trials[0]
    assert relative.corpus.params == {"tokenizer": {"pretrained": str(folder)}}
    other = tmp_path / "elsewhere" / "two"
    other.parent.mkdir()
    folder.rename(other)
    absolute = load(suite_with(f"{{pretrained: {other}}}")).trials[0]
    assert absolute.id == relative.id
    (other / "config.json").write_text(json.dumps({"vocab_size": 513}))
    padded = load(suite_with(f"{{pretrained: {other}}}")).trials[0]
    tokenizer = Tokenizer.from_file(str(other / "tokenizer.json"))
    tokenizer.add_tokens(["cat"])
    tokenizer.save(str(other / "tokenizer.json"))
    larger = load(suite_with(f"{{pretrained: {other}}}")).trials[0]
    assert len({relative.id, padded.id, larger.id, load(suite_with("gpt2")).trials[0].id}) == 4


def test_a_folder_outside_of_the_project_needs_an_absolute_path(suite_with, tmp_path):
    tokenizer_folders.write(tmp_path / "model")
    with pytest.raises(SuiteError, match=r"suite\.yaml:1:33: .*tokenizer: '\.\./\.\./model' is outside of "):
        load(suite_with("{pretrained: ../../model}"))
    assert load(suite_with(f"{{pretrained: {tmp_path / 'model'}}}")).trials


def test_a_list_of_tokenizers_with_folders_is_a_grid_axis(suite_with, folders):
    given = ", ".join(f"{{pretrained: '{folders[kind]}'}}" for kind in ("qwen", "llama2"))
    trials = load(suite_with(f"[gpt2, {given}, {{bpe: 4096}}, {{wordpiece: 3000}}]")).trials
    assert len({trial.id for trial in trials}) == 5
    assert str(trials[3].corpus) == "embedded(tokenizer={bpe: 4096})"


def test_views_show_the_name_of_the_folder_and_not_its_place(suite_with, folders):
    from harness.plan.names import shown

    trial = load(suite_with(f"{{pretrained: '{folders['qwen']}'}}")).trials[0]
    assert str(shown(trial.corpus, CORPORA)) == f"embedded(tokenizer={{pretrained: {folders['qwen'].name}}})"


def _of(content: bytes):
    def make(folder: Path) -> None:
        (folder / "tokenizer.json").write_bytes(content)

    return make


def _pickled(folder: Path) -> None:
    attack = f"cposix\nmkdir\n(V{folder / 'executed'}\ntR.".encode()  # a pickle of protocol 0: mkdir when it is read
    for name in ("tokenizer.json", "tokenizer.pkl", "tokenizer_config.json", "config.json"):
        (folder / name).write_bytes(attack)


def _claimed(folder: Path) -> None:
    with open(folder / "tokenizer.json", "wb") as file:
        file.truncate(4 * 1024**3)


def _fifo(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    os.mkfifo(folder / "tokenizer.json")


def _beside(name: str, content: str):
    return lambda folder: (folder / name).write_text(content)


def _dropout(folder: Path) -> None:
    described = json.loads((folder / "tokenizer.json").read_text())
    described["model"]["dropout"] = 0.1
    (folder / "tokenizer.json").write_text(json.dumps(described))


def _huge_id(folder: Path) -> None:
    described = json.loads((folder / "tokenizer.json").read_text())
    described["model"]["vocab"]["new"] = 2**32 - 1
    (folder / "tokenizer.json").write_text(json.dumps(described))


def _panics(folder: Path) -> None:
    """The library's Rust code panics on merges that are shorter than the prefix of words."""
    described = json.loads((folder / "tokenizer.json").read_text())
    described["model"]["continuing_subword_prefix"] = "a" * 20
    (folder / "tokenizer.json").write_text(json.dumps(described))


def _with(**parts: object) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        described = json.loads((folder / "tokenizer.json").read_text())
        (folder / "tokenizer.json").write_text(json.dumps({**described, **parts}))

    return make


def _longer(letter: str) -> dict:
    """A normalizer that writes a letter 200 ** 4 times for each."""
    rule = {"type": "Replace", "pattern": {"String": letter}, "content": letter * 200}
    return {"type": "Sequence", "normalizers": [rule] * 4}


NOT_ONE = "tokenizer.json is not a tokenizer of the tokenizers library"
HOSTILE = [
    (lambda folder: (folder / "tokenizer.json").unlink(), "model: has no tokenizer.json; the tokenizer of a model is "),
    (_claimed, "tokenizer.json: cannot be read (larger than 67,108,864 bytes)"),
    (_fifo, "tokenizer.json: cannot be read (not a regular file)"),
    (_of(b"secret"), NOT_ONE),
    (_of(b"\xff\xfe\x00"), NOT_ONE),
    (_of(b"{}"), NOT_ONE),
    (_of(b"[" * 100_000), NOT_ONE),
    (_pickled, NOT_ONE),
    (_panics, NOT_ONE),
    (_huge_id, "tokenizer.json: has 4,294,967,296 ids; a vocabulary has 1 to 16,777,216"),
    (_with(normalizer=_longer("a")), "tokenizer.json: to read it takes more memory than a file of its size needs"),
    (_dropout, "tokenizer.json has dropout, with which a text has other tokens each time"),
    (_beside("config.json", "secret"), "config.json: is not JSON"),
    (_beside("config.json", "[" * 100_000), "config.json: is not JSON"),
    (_beside("config.json", "[]"), "config.json: is not a JSON object"),
    (_beside("config.json", '{"vocab_size": "x"}'), "vocab_size must be an integer from 1 to 16,777,216"),
    (_beside("config.json", '{"vocab_size": 1e30}'), "vocab_size must be an integer from 1 to 16,777,216"),
    (_beside("config.json", f'{{"vocab_size": {10**12}}}'), "vocab_size must be an integer from 1 to 16,777,216"),
    (_beside("tokenizer_config.json", "\x80"), "tokenizer_config.json: is not JSON"),
]


@pytest.mark.parametrize(("make", "reason"), HOSTILE, ids=range(len(HOSTILE)))
def test_a_folder_that_has_no_readable_tokenizer_is_one_sentence(make, reason, tmp_path, suite_with):
    folder = tokenizer_folders.write(tmp_path / "model")
    make(folder)
    with pytest.raises(SuiteError) as caught:
        load(suite_with(f"{{pretrained: {folder}}}"))
    (problem,) = caught.value.problems
    assert reason in problem
    assert "secret" not in problem
    assert not (folder / "executed").exists()


@pytest.mark.system
def test_a_tokenizer_that_makes_a_text_long_is_one_sentence(tmp_path):
    folder = tokenizer_folders.write(tmp_path / "model")
    _with(normalizer=_longer("t"))(folder)  # reading it shows nothing
    (tmp_path / "text.txt").write_text("the cat\n" * 100)
    with pytest.raises(CorpusError, match=r"text\.txt, with its tokenizer: to read it takes more memory"):
        Text(path=tmp_path / "text.txt", tokenizer={"pretrained": folder}).load(tmp_path)


def test_padding_of_a_tokenizer_is_not_done(tmp_path):
    folder = tokenizer_folders.write(tmp_path / "model")
    expected = read_tokenizer(folder).tokenizer.encode("the cat").ids
    padding = {"strategy": {"Fixed": 2 * 10**9}, "direction": "Right", "pad_to_multiple_of": None}
    _with(padding={**padding, "pad_id": 0, "pad_type_id": 0, "pad_token": "a"})(folder)
    assert read_tokenizer(folder).tokenizer.encode("the cat").ids == expected


def test_a_folder_that_is_not_there_and_code_beside_the_tokenizer(tmp_path, suite_with):
    with pytest.raises(SuiteError, match=r"model: no such folder; a path in a suite begins at the suite's folder$"):
        load(suite_with(f"{{pretrained: {tmp_path / 'model'}}}"))
    folder = tokenizer_folders.write(tmp_path / "model")
    (folder / "tokenization_own.py").write_text(f"import os\nos.mkdir({str(folder / 'executed')!r})\n")
    (folder / "config.json").write_text('{"vocab_size": 512, "auto_map": {"AutoTokenizer": "tokenization_own.Own"}}')
    Embedded(tokenizer={"pretrained": folder}).load(tmp_path)
    assert not (folder / "executed").exists()


def test_a_mistake_exits_with_code_2(tmp_path, suite_with, harness):
    done = harness("plan", str(suite_with(f"{{pretrained: {tmp_path / 'model'}}}")))
    assert done.code == 2
    assert done.err.endswith(
        ": no such folder; a path in a suite begins at the suite's folder\n1 problem; nothing was run\n"
    )


@pytest.mark.parametrize(
    "given",
    [
        *("{pretrained: 5}", "{pretrained: a, bpe: 300}", "{pretrain: a}", "{pretrained: null}", "gpt3", "{bpe: x}"),
        *("{unigram: 300}", "4096"),
    ],
)
def test_a_value_of_another_form_is_a_located_sentence(given, suite_with):
    with pytest.raises(SuiteError, match=r"suite\.yaml:1:[0-9]+: .*tokenizer.*expected"):
        load(suite_with(given))


def test_a_tokenizer_that_fails_on_a_text_is_one_sentence(tmp_path):
    folder = tokenizer_folders.write(tmp_path / "model", "bert")
    described = json.loads((folder / "tokenizer.json").read_text())
    del described["model"]["vocab"]["[UNK]"]
    described["added_tokens"] = []
    (folder / "tokenizer.json").write_text(json.dumps(described))
    with pytest.raises(CorpusError, match=r"^here: the tokenizer of model fails on its text: Exception: WordPiece err"):
        encoded(folder, "cat \U0001f680")


def test_a_request_to_stop_is_not_taken_for_a_fault_of_the_tokenizer(folders, monkeypatch):
    monkeypatch.setattr(cutting, "PIECE_CHARACTERS", 10)
    monkeypatch.setattr(cutting, "_left_out", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        encoded(folders["gemma"], TEXT)


def test_a_text_that_cannot_be_read_in_pieces_is_refused_before_memory_is_full(folders, monkeypatch):
    monkeypatch.setattr(cutting, "PIECE_CHARACTERS", 10)
    monkeypatch.setattr(cutting, "MAX_PIECE", 100)
    text = "cat\n" * 50  # llama2 puts a blank before each piece, which a line end is not
    with pytest.raises(CorpusError, match=r"^here: a document has more than 100 characters, and the tokenizer gives"):
        encoded(folders["llama2"], text)
    assert len(encoded(folders["gemma"], text)) > 1
