"""The table of metrics: everything a record may hold, each metric described once.

Record validation, tables, the page, the leaderboard, `harness diff`, MLflow and `Study.frame` read it. A new metric is
an entry here and the line of code that measures it.
"""

import math
from dataclasses import dataclass
from typing import Literal

MOST = 1e15  # the highest plausible value of most numbers: milliseconds, parameters, tokens
LEAST_PERPLEXITY = math.exp(-1e-5)  # 1, with room for rounding: no probability is above 1
MOST_PERPLEXITY = 1e200  # so that means and the limits of a plot's axes are still floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric.

    Args:
        name: its key in records and in JSON.
        label: its column in tables.
        kind: a 'score' of predictions, a 'cost' in time or memory (which differs between runs and machines), a 'count'
            of parameters, tokens or epochs, or a 'setting' under which others were measured.
        unit: 'perplexity', 'ms', 'MiB' and so on; '' for none.
        direction: which values are better: 'lower', 'higher', or 'none'.
        low, high: the range of plausible values for a trial that is ok. Records with other values are refused.
        whole: only whole numbers are plausible.
        required: every record of a trial that is ok has it.
        of_text: it depends on the text only, not on the model.
        timed: a time that an exclusive pass measures again, together with '<name>_iqr'.
        table: whether a suite's table has a column of it: 'always', where it was 'measured', or 'never'.
        diff: whether `harness diff` compares it.
        leaderboard: whether the leaderboard has a column of it.
    """

    name: str
    label: str
    description: str
    kind: Literal["score", "cost", "count", "setting"]
    unit: str = ""
    digits: int = 2
    direction: Literal["lower", "higher", "none"] = "none"
    low: float = 0.0
    high: float = MOST
    whole: bool = False
    required: bool = False
    of_text: bool = False
    timed: bool = False
    table: Literal["always", "measured", "never"] = "measured"
    diff: bool = True
    leaderboard: bool = False


def _perplexity(name: str, label: str, description: str, **more) -> Metric:
    settings = {"kind": "score", "unit": "perplexity", "direction": "lower"}
    limits = {"low": LEAST_PERPLEXITY, "high": MOST_PERPLEXITY}
    return Metric(name=name, label=label, description=description, **{**settings, **limits, **more})


def _score(name: str, label: str, description: str, **more) -> Metric:
    return Metric(name=name, label=label, description=description, kind="score", **more)


def _count(name: str, label: str, description: str, **more) -> Metric:
    settings = {"kind": "count", "digits": 0, "whole": True, "required": True}
    return Metric(name=name, label=label, description=description, **{**settings, **more})


def _cost(name: str, label: str, description: str, **more) -> Metric:
    return Metric(name=name, label=label, description=description, **{"kind": "cost", "direction": "lower", **more})


def _time(step: str, description: str, **more) -> tuple[Metric, Metric]:
    name, label, settings = f"{step}_ms_per_batch", f"{step} ms/batch", {"unit": "ms", "digits": 1}
    spread = f"Interquartile range of {name} over batches."
    return (
        _cost(name, label, description, timed=True, **settings, **more),
        _cost(f"{name}_iqr", f"{label}, IQR", spread, **settings, **ASIDE),
    )


def _of_ngrams(name: str, label: str, description: str, **more) -> Metric:
    settings = {"kind": "setting", "required": False, **more}
    return _count(name, label, description, **settings)


def _of_dynamic(name: str, description: str, **more) -> Metric:
    settings = {"kind": "setting", "required": False, "digits": 4, "whole": False, **more}
    return _count(
        f"dynamic_{name}", f"dynamic evaluation: {name}", f"measure.dynamic.{name}: {description}", **settings, **ASIDE
    )


EVERYWHERE = {"required": True, "table": "always", "leaderboard": True}
ASIDE = {"table": "never", "diff": False}
_COUNT_OF_TEXT = {"of_text": True, "required": False, **ASIDE}
_SHARE_OF_TEXT = {"digits": 4, "high": 1, "of_text": True, **ASIDE}
# In the order of a table's columns. Perplexities are of the best epoch by validation unless the name says 'last'.
_ALL = (
    _perplexity(
        *("start_valid_ppl", "valid ppl before training"),
        "Validation perplexity of the model as it was built, before the first update.",
        **{"direction": "none", "diff": False},
    ),
    _perplexity(
        *("valid_ppl", "valid ppl"),
        "Validation perplexity of the best epoch, which is the one where it is lowest.",
        **EVERYWHERE,
    ),
    _perplexity(
        *("test_ppl", "test ppl", "Test perplexity of the best epoch by validation."),
        **EVERYWHERE,
    ),
    _perplexity(
        *("test_ppl_known", "test ppl, known words"),
        "exp of the mean loss of the scored test tokens that are not <unk>, or not the unknown token "
        "of a tokenizer. No other token that test_ppl scores is left out, and <unk> stays in the "
        "contexts. Only where some scored tokens are <unk>, whether training has seen it or not.",
    ),
    _score(
        *("test_unknown_share", "unknown test tokens"),
        "Share of <unk>, or of the unknown token of a tokenizer, in the scored test tokens. Only "
        "where the vocabulary has such a token.",
        **{"digits": 4, "high": 1, "of_text": True, "diff": False},
    ),
    _score(
        *("test_in_train", "test tokens in train"),
        "Share of the test tokens that lie in a run of 13 words, 20 subwords or 64 characters that also stands in "
        "the training split. Only where tokens are text.",
        **{"digits": 4, "high": 1, "of_text": True, "diff": False},
    ),
    _score(
        *("valid_in_train", "valid tokens in train"),
        "The same share of the validation tokens.",
        **{"digits": 4, "high": 1, "of_text": True, "diff": False},
    ),
    _score(
        *("test_in_valid", "test tokens in valid"),
        "Share of the test tokens that lie in such a run that also stands in the validation split.",
        **_SHARE_OF_TEXT,
    ),
    *(
        _score(
            *(f"{split}_lines_in_train", f"{split} lines in train"),
            f"Share of the {split} split in whole lines or documents that also stand in the training split; of a list, "
            "how much more than by chance. Only of texts of one's own, and of documents.",
            **_SHARE_OF_TEXT,
        )
        for split in ("valid", "test")
    ),
    *(
        _score(
            *(f"{split}_unknown_share", f"unknown {split} tokens"),
            f"Share of <unk>, or of the unknown token of a tokenizer, in the {split} split.",
            **_SHARE_OF_TEXT,
        )
        for split in ("train", "valid")
    ),
    *(
        _count(f"{split}_tokens", f"{split} tokens", f"Tokens of the {split} split.", unit="tokens", **_COUNT_OF_TEXT)
        for split in ("train", "valid", "test")
    ),
    *(
        _count(f"{split}_types", f"{split} types", f"Different tokens of the {split} split.", **_COUNT_OF_TEXT)
        for split in ("train", "valid", "test")
    ),
    *(
        _count(
            *(f"{split}_unseen_types", f"unseen {split} types"),
            f"How many of the different tokens of the {split} split the training split does not have.",
            **_COUNT_OF_TEXT,
        )
        for split in ("valid", "test")
    ),
    _perplexity(
        *("test_ppl_from_the_right", "test ppl, from the right"),
        "Test perplexity of the second direction of a bidirectional model, which reads from right to left.",
    ),
    _perplexity(
        *("test_ppl_word", "test ppl/word"),
        "The summed loss behind test_ppl, divided by the words of the same text.",
        high=1e300,  # a text without spaces is one word
    ),
    _perplexity(
        *("test_ppl_byte", "test ppl/byte"),
        "The summed loss behind test_ppl, divided by the bytes (UTF-8) of the same text.",
        digits=3,
    ),
    _score(
        *("test_bits_per_byte", "bits/byte"),
        "The summed loss behind test_ppl in bits, divided by the bytes (UTF-8) of the text of the scored tokens. "
        "It compares between tokenizers, and is log2 of test_ppl_byte where every token but the first is scored.",
        **{"unit": "bits", "digits": 4, "direction": "lower"},
    ),
    _score(
        *("test_bits_per_character", "bits/char"),
        "The summed loss behind test_ppl in bits, divided by the characters of the same text.",
        **{"unit": "bits", "digits": 3, "direction": "lower"},
    ),
    _perplexity(
        *("test_ppl_standard", "test ppl, standard counting"),
        "The summed loss behind test_ppl, divided by the words and <eos> only: <sos> is scored but not counted.",
    ),
    *(
        _perplexity(
            f"dynamic_{split}_ppl",
            f"{split} ppl, dynamic evaluation",
            f"Perplexity of the {split} split while the weights follow it; it compares with no other one.",
        )
        for split in ("valid", "test")
    ),
    _of_dynamic("lr", "the learning rate."),
    _of_dynamic("decay", "how fast the weights return to those that were trained."),
    _of_dynamic("epsilon", "what is added to the size of the gradients."),
    _of_dynamic("seq_len", "tokens that are scored before each update.", unit="tokens", digits=0, whole=True),
    _of_dynamic("batch_size", "rows of the batches of the training split.", unit="rows", digits=0, whole=True),
    _score(
        "test_calibration_error", "ECE", "Expected calibration error, in 15 bins.", digits=4, direction="lower", high=1
    ),
    _score("test_entropy", "entropy", "Mean entropy of the predicted distributions.", unit="nats", digits=3, low=-1e-4),
    _perplexity(
        *("last_valid_ppl", "valid ppl, last epoch", "Validation perplexity after the last epoch."),
        required=True,
        **ASIDE,
    ),
    _perplexity(
        *("last_test_ppl", "test ppl, last epoch", "Test perplexity after the last epoch."),
        required=True,
        **ASIDE,
    ),
    _perplexity(
        *("unigram_test_ppl", "unigram test ppl"),
        "Test perplexity of a unigram model of the training split (add-one), on the same tokens.",
        of_text=True,
        **ASIDE,
    ),
    _perplexity(
        *("source_test_ppl", "source test ppl"),
        "Test perplexity of the process that made the text, where it is known.",
        of_text=True,
        **ASIDE,
    ),
    _count(
        *("params_total", "params", "Parameters of the model; a shared matrix counts once."),
        **{"unit": "parameters", **EVERYWHERE},
    ),
    _count(
        *("params_head", "head params", "Parameters of the head that the backbone does not share."),
        **{"unit": "parameters", **EVERYWHERE},
    ),
    _count(
        *("changed_buffers", "changed buffers"),
        "Numbers in buffers that training changed, as running averages are: they are part of the weights. Only where "
        "there are more than 16; of more than a hundredth of the parameters, tables count them as parameters.",
        **{"unit": "numbers", "required": False},
    ),
    _count(
        *("changed_buffers_head", "changed buffers of the head", "How many of them are in buffers of the head."),
        **{"unit": "numbers", "required": False, **ASIDE},
    ),
    *(
        _count(
            *(f"mflop_per_token{suffix}", f"MFLOP/token{label}", f"{what} (harness/flops.py), from shapes."),
            **{"kind": "cost", "unit": "MFLOP", "digits": 2, "whole": False, "required": False, "direction": "lower"},
        )
        for suffix, label, what in (
            ("", "", "Millions of floating-point operations of a training token, forward and backward"),
            ("_head", " of the head", "How many of them are of the head and its loss"),
        )
    ),
    _of_ngrams("stored_ngrams", "n-grams", "Different n-grams, of all orders, that were counted.", kind="count"),
    _of_ngrams("cache_window", "cache tokens", "The last tokens of the scored text that the cache counts."),
    _of_ngrams("cache_weight", "cache weight", "Share of the cache in a probability.", digits=3, whole=False, high=1),
    *_time(
        *("train", "Median time of a training batch: forward, backward and update."), table="always", leaderboard=True
    ),
    *_time("eval", "Median time of an evaluation batch.", table="always"),
    *_time("inference", "Median time of forward pass and loss, without gradients, of inference_batch segments."),
    _count(
        *("inference_batch", "inference batch", "How many segments inference_ms_per_batch is of."),
        **{"kind": "setting", "unit": "segments", "low": 1, "required": False, **ASIDE},
    ),
    _cost(
        *("train_minutes", "train minutes", "Time of training, without evaluation."),
        **{"unit": "minutes", "table": "never"},
    ),
    _cost(
        *("peak_memory_mib", "peak MiB"),
        "Highest memory of the trial: of the GPU's allocator, or on the CPU of the process.",
        **{"unit": "MiB", "digits": 0, "leaderboard": True},
    ),
    _count(
        *("best_epoch", "best epoch", "The epoch with the lowest validation perplexity."),
        **{"unit": "epochs", "whole": False, **ASIDE},  # `epochs: 0.4` is possible
    ),
    _count(
        *("averaged_from_epoch", "averaged from epoch", "The first epoch whose perplexity is of averaged weights."),
        **{"unit": "epochs", "low": 1, "required": False},
    ),
    _count(
        *("scored_test_tokens", "scored test tokens", "Tokens of the test split that were scored."),
        **{"unit": "tokens", "low": 1, **ASIDE},
    ),
    _count(
        *("context_tokens", "context", "Tokens of a segment."),
        **{"kind": "setting", "unit": "tokens", "low": 1, **ASIDE},
    ),
    _count(
        *("state_carried", "state carried"),
        "1 where the state of the backbone is carried from segment to segment, else 0.",
        **{"kind": "setting", "high": 1, **ASIDE},
    ),
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _ALL}


def metrics_of(*kinds: str) -> list[Metric]:
    """The metrics of some kinds, in the order of the table."""
    return [metric for metric in METRICS.values() if metric.kind in kinds]
