"""How much of a split also stands in another split: a test perplexity is lower where training has read the test text.

A word counts as read where it lies in a run of 13 words that also stands in the other split, as in the reports of
pretrained models: Brown et al. (2020), arXiv:2005.14165, appendix C. Runs of 20 subwords, or of 64 characters or bytes,
have about as much text: 13 subwords may be the name of a speaker between two lines of a play. Of characters only those
runs of the other split are looked for that begin at a multiple of 64: every stretch of 127 characters that two splits
share is found, and a shorter one may not be.

Of a split of more than MOST tokens the share is that of 512 blocks, spread evenly. Where a single stretch is shared, it
may be wrong by 0.2 % of the split, and of characters, of which the ends of a block may be missed, by 3 % of itself.

A line or document may be shorter than a run, as in collections of sentences: of local texts whole lines are compared,
too, and of documents that a tokenizer reads one by one whole documents. Short ones are left out, unless almost all are,
as in a list of names: then it counts how many more of them train has than chance gives.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from harness.corpora.corpus import SPLITS, Corpus, CorpusFacts, SplitFacts, TextFacts
from harness.corpora.vocabulary import ByteCodec, CharacterCodec, line_end
from harness.errors import CorpusError

RUN, RUN_OF_SUBWORDS, RUN_OF_CHARACTERS = 13, 20, 64
MUCH_UNKNOWN = 0.1  # a share of <unk> from which runs do not say that two texts are one: they differ where it stands
ALMOST = (
    0.3  # a share by the quick look at train from which a whole one is worth its time: parts at the ends are missed
)
MANY_SHARED = 0.01  # a share above which plan and table have a note
LINE, DOCUMENT = 20, 5  # characters and tokens; a shorter line or document may stand twice in any text
FEW_LONG = 0.1  # a share of a split in long lines below which it is a list
LEAST_LINES, MOST_LINES = 100, 2**16  # of a list: of fewer nothing is said, of more some are asked about
DEVIATIONS = 4  # standard errors
NOT_APART = "epochs and settings are chosen on text that counts as new; split by whole documents, each in one split"
NOT_NEW = "perplexities are lower than those of new text; leave repeated documents out, or split by whole documents"
MOST, BLOCK = 2**21, 2**12  # tokens of a split that are asked about, and of a part of a longer one
CHUNK = 2**16  # tokens that are hashed at once, a multiple of RUN_OF_CHARACTERS
BASE, SPREAD = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)  # odd, with well mixed bits
FREE = 5  # binary digits by which the table of hashes is larger than their number


def split_facts(corpus: Corpus) -> dict[str, SplitFacts]:
    """Return what is in each split of a text, as a plan shows it."""
    counts = {name: torch.bincount(getattr(corpus, name), minlength=corpus.vocab_size) for name in SPLITS}
    shared, with_valid, found = shares_in_train(corpus), _shares_in(corpus, "valid", ("test",)), {}
    for name, count_V in counts.items():
        tokens, unknown = int(count_V.sum()), None
        if corpus.unknown_id is not None and tokens:
            unknown = int(count_V[corpus.unknown_id]) / tokens
        found[name] = SplitFacts(
            tokens=tokens,
            types=int((count_V > 0).sum()),
            unseen_types=int(((count_V > 0) & (counts["train"] == 0)).sum()),
            unknown_share=unknown,
            in_train=shared.get(name),
            in_valid=with_valid.get(name),
        )
    return found


def compared(facts: CorpusFacts, text: TextFacts, corpus: Corpus | None, where: str) -> CorpusFacts:
    """Return the facts of a corpus with what was read of its text, and what its splits have in common.

    Args:
        corpus: None for a text that is not tokenised yet.
    Raises: CorpusError as `refuse_equal`.
    """
    if corpus is None:
        return replace(facts, text=text)
    of_splits, lines = split_facts(corpus), text.lines_in_train or documents_in_train(corpus)
    refuse_equal(corpus, of_splits, lines, where)
    in_train = {name: each.in_train for name, each in of_splits.items() if each.in_train is not None}
    return replace(facts, in_train=in_train, text=replace(text, of_splits=of_splits, lines_in_train=lines))


def lines_in_train(texts: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Return for the validation and the test split the share of its characters in lines of at least LINE characters
    that stand in the training split, too.

    Args:
        texts: each split as a text, or as lines.
    """
    lines = {name: text.splitlines() if isinstance(text, str) else text for name, text in texts.items()}
    return _wholes_in_train({name: map(str.strip, each) for name, each in lines.items()}, LINE)


def documents_in_train(corpus: Corpus) -> dict[str, float]:
    """Return the same of tokens in documents of at least DOCUMENT tokens; {} without a token between documents."""
    if corpus.end_of_text is None:
        return {}
    documents = {name: _documents(getattr(corpus, name).numpy(), corpus.end_of_text) for name in SPLITS}
    return _wholes_in_train(documents, DOCUMENT * corpus.train.element_size())


def _documents(tokens_N: np.ndarray, end: int) -> Iterator[bytes]:
    start = 0
    for stop in (*np.flatnonzero(tokens_N == end), len(tokens_N)):
        yield tokens_N[start:stop].tobytes()
        start = stop + 1


def _wholes_in_train(parts: Mapping[str, Iterable[str | bytes]], least: int) -> dict[str, float]:
    """Return the share of the validation and test split in parts of a length of at least `least` that train has."""
    asked = {name: list(parts[name]) for name in ("valid", "test")}
    long = {part for each in asked.values() for part in each if len(part) >= least}
    sizes = {name: max(1, sum(map(len, each))) for name, each in asked.items()}
    train = list(parts["train"])
    both, found = long.intersection(train), {}
    for name, each in asked.items():
        found[name] = sum(len(part) for part in each if part in both) / sizes[name]
    if all(sum(len(part) for part in each if part in long) < FEW_LONG * sizes[name] for name, each in asked.items()):
        of_list = list(filter(None, train))
        for name, each in asked.items():
            found[name] = max(found[name], _beyond_chance(list(filter(None, each)), of_list))
    return found


def _beyond_chance(asked: list[str | bytes], train: list[str | bytes]) -> float:
    """Return by how much more of a list stands in the training split than of that split itself stands there twice,
    beyond DEVIATIONS standard errors of the difference.

    That share estimates how much of a new list of the same source is there: Good (1953), Biometrika 40, section 2.
    """
    if min(len(asked), len(train)) < LEAST_LINES:
        return 0.0
    asked, own = (each[:: 1 + len(each) // MOST_LINES] for each in (asked, train))
    wanted = {*own, *asked}
    counts = Counter(part for part in train if part in wanted)
    chance = sum(counts[part] > 1 for part in own) / len(own)
    share = sum(counts[part] > 0 for part in asked) / len(asked)
    error = math.sqrt(chance * (1 - chance) * (1 / len(own) + 1 / len(asked)))
    return max(0.0, share - chance - DEVIATIONS * error)


def shares_in_train(corpus: Corpus) -> dict[str, float]:
    """Return the share of the tokens of the validation and of the test split that the training split has, too, in runs.
    {} where tokens are no text; a split without tokens is left out.
    """
    return _shares_in(corpus, "train", ("valid", "test"))


def _shares_in(corpus: Corpus, other: str, names: Sequence[str]) -> dict[str, float]:
    within, asked = getattr(corpus, other), [name for name in names if len(getattr(corpus, name))]
    if corpus.codec is None or not len(within):
        return {}
    found = shares([getattr(corpus, name) for name in asked], within, *runs_of(corpus))
    return dict(zip(asked, found, strict=True))


def refuse_equal(corpus: Corpus, found: Mapping[str, SplitFacts], lines: Mapping[str, float], where: str) -> None:
    """Raise CorpusError where the validation or test split is a part of another split, or of nothing but <unk>.

    <unk> stands for different words, so a split with much of it is refused only if it equals the other one, or if all
    of its lines are there.

    Args:
        lines: what `lines_in_train` or `documents_in_train` has found; {} where it is not known.
    """
    run, _ = runs_of(corpus)
    for name, other in (("valid", "train"), ("test", "train"), ("test", "valid"), ("valid", "test")):
        facts, split, within = found[name], getattr(corpus, name), getattr(corpus, other)
        if facts.tokens >= run and facts.unknown_share and _is_unknown(split, corpus):
            raise CorpusError(
                f"{where}: every word of the {name} split is <unk>, so there is nothing to predict; set a lower "
                "min_count, or give splits of the same language"
            )
        same = torch.equal(split, within) or (other == "train" and lines.get(name) == 1.0)
        is_asked = run <= len(split) <= len(within) and (facts.unknown_share or 0.0) < MUCH_UNKNOWN
        if is_asked and not same and (other != "train" or (facts.in_train or 0.0) > ALMOST):
            (shared,) = shares([split], within, run)  # here every run of the other split is looked for
            asked = facts.tokens if facts.tokens <= MOST else BLOCK  # a block of a long split may be cut anywhere
            same = round(shared * asked) >= asked
        if same:
            raise CorpusError(
                f"{where}: all of the {name} split also stands in the {other} split, so its perplexity would not be "
                "that of a new text; give another text for one of them"
            )


def _is_unknown(split: Tensor, corpus: Corpus) -> bool:
    """Whether all tokens but line ends are <unk>."""
    is_known, end = split != corpus.unknown_id, line_end(corpus)
    if end is not None:
        is_known &= split != end
    return not is_known.any()


def runs_of(corpus: Corpus) -> tuple[int, int]:
    """Return the number of tokens of a run, and that between the runs of the training split that are looked for."""
    is_character = isinstance(corpus.codec, CharacterCodec | ByteCodec)
    if is_character:
        return RUN_OF_CHARACTERS, RUN_OF_CHARACTERS
    return (RUN_OF_SUBWORDS if corpus.symbols is None else RUN), 1  # subwords are known by their tokenizer alone


def shares(splits: Sequence[Tensor], within_M: Tensor, run: int, stride: int = 1) -> list[float]:
    """Return for each split, (N,) token ids, the share of its tokens that lie in a run of `run` tokens that also stands
    in `within_M`, there at a multiple of `stride`, which is 1 or `run`.

    Runs are compared by hashes of 64 bits.
    """
    blocks = [_blocks(split.numpy(), run) for split in splits]
    hashes = [np.zeros(0, dtype=np.uint64)]
    for block in chain.from_iterable(blocks):
        hashes.append(_hashes(block, run))
    asked = np.concatenate(hashes)
    is_found = _is_in(asked, _those_in(asked, within_M.numpy(), run, stride))
    found, done = [], 0
    for each in blocks:
        covered = total = 0
        for block in each:
            number = len(block) - run + 1
            covered += _covered(is_found[done : done + number], run)
            done, total = done + number, total + len(block)
        found.append(covered / total if total else 0.0)
    return found


def _covered(is_found_n: np.ndarray, run: int) -> int:
    """Return the number of tokens that lie in one of the runs that were found, given for each run whether it was."""
    starts = np.flatnonzero(is_found_n)
    changes = np.zeros(len(is_found_n) + run, dtype=np.int64)  # of the number of runs that a token lies in
    changes[starts] += 1
    changes[starts + run] -= 1
    return int(np.count_nonzero(np.cumsum(changes)[:-1]))


def _blocks(tokens_N: np.ndarray, run: int) -> list[np.ndarray]:
    """Return the split, or blocks of a long one; none of a split that is shorter than a run."""
    if len(tokens_N) <= MOST:
        return [tokens_N] if len(tokens_N) >= run else []
    starts = np.linspace(0, len(tokens_N) - BLOCK, MOST // BLOCK).astype(np.int64)
    return [tokens_N[start : start + BLOCK] for start in starts]


def _hashes(tokens_N: np.ndarray, run: int) -> np.ndarray:
    """Return (N - run + 1,) the hash of each run: a polynomial in BASE, modulo 2^64.

    Runs of 1, 2, 4 ... tokens are joined to one of `run` tokens.
    """
    power = (tokens_N.astype(np.uint64) + np.uint64(1)) * SPREAD  # hashes of runs of `size` tokens
    size, whole, length = 1, None, 0
    while True:
        if run & size:
            whole = power if whole is None else _joined(whole, length, power, size)
            length += size
        if length == run:
            return whole * SPREAD
        power = _joined(power, size, power, size)
        size *= 2


@cache
def _weights(run: int) -> np.ndarray:
    """Return (run,) by what each token of a run is multiplied."""
    return np.array([pow(int(BASE), run - 1 - place, 2**64) for place in range(run)], dtype=np.uint64) * SPREAD


def _hashes_apart(tokens_N: np.ndarray, run: int) -> np.ndarray:
    """Return (N // run,) the hashes of runs one after the other, equal to those of `_hashes`."""
    runs = tokens_N[: len(tokens_N) // run * run].astype(np.uint64).reshape(-1, run)
    return ((runs + np.uint64(1)) * _weights(run)).sum(axis=1) * SPREAD


def _joined(first: np.ndarray, length: int, second: np.ndarray, size: int) -> np.ndarray:
    """Return the hashes of runs of length + size tokens, given those of their two parts."""
    number = len(second) - length
    shift = np.uint64(pow(int(BASE), size, 2**64))
    return first[:number] * shift + second[length:]


def _those_in(hash_n: np.ndarray, within_M: np.ndarray, run: int, stride: int) -> np.ndarray:
    """Return hashes of runs of a text, sorted: at least all that are among `hash_n`."""
    found = [np.zeros(0, dtype=np.uint64)]
    if stride > 1:
        for start in range(0, len(within_M), CHUNK):
            found.append(_hashes_apart(within_M[start : start + CHUNK], run))
        return np.sort(np.concatenate(found))
    marked, shift = _table(hash_n)
    for start in range(0, len(within_M) - run + 1, CHUNK):
        text_hash = _hashes(within_M[start : start + CHUNK + run - 1], run)
        found.append(text_hash[marked[text_hash >> shift]])
    return np.sort(np.concatenate(found))


def _is_in(hash_n: np.ndarray, sorted_m: np.ndarray) -> np.ndarray:
    """Return (N,) whether each hash is one of the others."""
    found_n = np.zeros(len(hash_n), dtype=bool)
    marked, shift = _table(sorted_m)
    maybe = np.flatnonzero(marked[hash_n >> shift])
    if len(maybe):
        place = np.searchsorted(sorted_m, hash_n[maybe]).clip(max=len(sorted_m) - 1)
        found_n[maybe] = sorted_m[place] == hash_n[maybe]
    return found_n


def _table(hash_n: np.ndarray) -> tuple[np.ndarray, np.uint64]:
    """Return which first digits the hashes have, and how far a hash is shifted to get them: a quick test that lets a
    few others pass.
    """
    digits = min(28, max(16, len(hash_n).bit_length() + FREE))
    shift = np.uint64(64 - digits)
    marked = np.zeros(2**digits, dtype=bool)
    marked[hash_n >> shift] = True
    return marked, shift
