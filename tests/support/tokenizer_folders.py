"""Model folders with small tokenizers of the kinds that language models have, trained on a text of many alphabets."""

import json
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ALPHABETS = (
    "the cat sat on my mat \u00e9t\u00e9 na\u00efve \u6f22\u5b57 \u4f60\u597d \U0001f600 don't 1234 foo.\n\nbar\n"
)
TEXT = ALPHABETS * 30 + " ".join(f"{a}{b}{c}" for a in "bdfgk" for b in "aeiou" for c in "lmnrst") + "\n"
# of GPT-4, Llama 3 and Qwen: a mark takes the line ends after it
CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
BYTES = [f"<0x{value:02X}>" for value in range(256)]


def _byte_level(pre_tokenizer, normalizer=None) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizer, decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=320, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([TEXT], trainer)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    return tokenizer


def _sentence_piece(normalizer=None, pre_tokenizer=None) -> Tokenizer:
    """BPE with byte fallback, as converted from SentencePiece."""
    trained = Tokenizer(models.BPE())
    trained.normalizer, trained.pre_tokenizer = (
        normalizers.Replace(" ", "\u2581"),
        pre_tokenizers.Split("\u2581", "merged_with_next"),
    )
    trained.train_from_iterator([TEXT.replace("\u6f22", "")], trainers.BpeTrainer(vocab_size=200, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    names = ["<unk>", "<s>", "</s>", *BYTES, *model["vocab"]]
    merges = [tuple(pair) for pair in model["merges"]]
    vocabulary = {name: index for index, name in enumerate(dict.fromkeys(names))}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def _llama2() -> Tokenizer:
    blank = normalizers.Replace(" ", "\u2581")
    return _sentence_piece(normalizers.Sequence([normalizers.Prepend("\u2581"), blank]))


def _unigram() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=120, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False)
    tokenizer.train_from_iterator([TEXT], trainer)
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def _word_piece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=150, special_tokens=["[UNK]"], show_progress=False)
    tokenizer.train_from_iterator([TEXT], trainer)
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


KINDS = {
    "gpt2": lambda: _byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "gpt2 with a blank before": lambda: _byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "qwen": lambda: _byte_level(
        pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(CL100K), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
        ),
        normalizers.NFC(),
    ),
    "llama2": _llama2,
    "mistral": lambda: _sentence_piece(pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="first", split=False)),
    "gemma": lambda: _sentence_piece(normalizers.Replace(" ", "\u2581")),
    "t5": _unigram,
    "bert": _word_piece,
}


def write(folder: Path, kind: str = "qwen", *, end: str | None = "<end>", config: dict | None = None) -> Path:
    """Write a model folder with a tokenizer and, if there is one, its end-of-text token."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = KINDS[kind]()
    if end is not None:
        tokenizer.add_special_tokens([end])
        (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": end}))
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"vocab_size": 512} if config is None else config))
    return folder
