"""The hidden states of a frozen backbone: computed once for each block of a text, and kept in files of the cache.

Trials read the files (harness/pretrained/kept_states.py), so they never load the backbone. A second suite on the same
model, text and length of blocks computes nothing.
"""

import hashlib
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version

import torch
from torch import Tensor, nn

from harness.corpora.corpus import SPLITS, Corpus
from harness.errors import ExecutionError, StorageError, WeightsError
from harness.kernels.products import Products
from harness.machine.environment import resolve_device
from harness.machine.files import cache_folder, lacks_room, remove_stale
from harness.machine.locks import held
from harness.model import build_backbone
from harness.plan.identity import described, starting_content
from harness.plan.specs import TrialSpec, canonical
from harness.pretrained.kept_states import KeptStates, Shards
from harness.registry import BACKBONES
from harness.trial.routes import chosen_route

FORMAT = 1
TOKENS_AT_ONCE = 2**12  # in one call of the backbone
Listener = Callable[[str, int, int], None]  # the split, tokens that are done, tokens in all


def with_states(spec: TrialSpec, corpus: Corpus, listener: Listener = lambda split, done, total: None) -> Corpus:
    """Return a corpus with the states that a trial's backbone, which is frozen, gives its tokens. States that are not
    there yet are computed. Another process that needs the same waits.

    Raises: ExecutionError when a token's state depends on a later token; StorageError when there is no room;
        WeightsError when the backbone's files are unfit, or a block is too long for it.
    """
    found = [each for each in shards_of(spec, corpus) if each.rows]
    kept = [KeptStates.of(each) for each in found]
    if None in kept:
        _make(spec, corpus, found, listener)
        kept = [KeptStates.of(each) for each in found]
        if None in kept:
            raise StorageError(
                f"the files in {found[0].folder} differ from what was just written to them; name another folder by the "
                "environment variable HARNESS_CACHE"
            )
    return replace(corpus, states={each.split: states for each, states in zip(found, kept, strict=True)})


def _make(spec: TrialSpec, corpus: Corpus, found: list[Shards], listener: Listener) -> None:
    """Compute the shards that are missing, unless another process has."""
    folder = found[0].folder
    folder.mkdir(parents=True, exist_ok=True)
    with held(folder / ".lock"):
        remove_stale(folder)
        if not (missing := [(each, rows) for each in found for rows in each.missing()]):
            return
        _refuse_without_room(missing)
        try:
            _Making(spec, corpus, build_backbone(spec.backbone, corpus.vocab_size), listener).make(missing)
        except ValueError as cause:  # of the folder's weights, or a block longer than the model's positions
            raise WeightsError(str(cause)) from cause


def shards_of(spec: TrialSpec, corpus: Corpus) -> list[Shards]:
    """The files of the states of each split."""
    cls = BACKBONES.get(spec.backbone.name)
    width, dtype = cls.state_of_token(**spec.backbone.params)
    of = {
        "format": FORMAT,
        "backbone": described(spec.backbone, cls),
        "content": starting_content(spec.backbone, cls),
        "block": spec.train.seq_len,
        "libraries": {name: version(name) for name in ("transformers", "torch")},
    }
    tokens = [_digest(getattr(corpus, split).long().contiguous().numpy()) for split in SPLITS]
    name = _digest(canonical({**of, "tokens": tokens}).encode())[:16]
    return [
        Shards(
            folder=cache_folder() / "states" / name,
            split=split,
            of=canonical({**of, "tokens": digest}),
            rows=len(getattr(corpus, split)),
            block=spec.train.seq_len,
            width=width,
            dtype=dtype,
        )
        for split, digest in zip(SPLITS, tokens, strict=True)
    ]


def _digest(content: bytes | object) -> str:
    return hashlib.sha256(content).hexdigest()


def _refuse_without_room(missing: list[tuple[Shards, range]]) -> None:
    needed = sum(len(rows) * each.width * each.dtype.itemsize for each, rows in missing)
    if lack := lacks_room(cache_folder(), needed):
        raise StorageError(
            f"the hidden states of the text {lack}; name another folder by the environment variable HARNESS_CACHE, or "
            "take a shorter text"
        )


class Shown:
    """A listener that writes to standard error how many states are computed, at most a line in SECONDS."""

    SECONDS = 10.0

    def __init__(self, spec: TrialSpec):
        self._of = f"hidden states of {spec.corpus.name} under {spec.backbone.name}"
        self._due = time.monotonic() + self.SECONDS

    def __call__(self, split: str, done: int, total: int) -> None:
        if time.monotonic() >= self._due:
            print(f"{self._of}: {done:,} of the {total:,} tokens of {split}", file=sys.stderr, flush=True)
            self._due = time.monotonic() + self.SECONDS


@dataclass(frozen=True, slots=True)
class _Making:
    """Computes states, shard by shard, on a GPU if there is one."""

    spec: TrialSpec
    corpus: Corpus
    backbone: nn.Module
    listener: Listener

    def make(self, missing: list[tuple[Shards, range]]) -> None:
        """Write the shards. Before each one the backbone is tried with another text after a token of it."""
        totals = {each.split: each.rows for each, _ in missing}
        for shards, rows in missing:
            states = torch.cat(list(self._states(shards, rows)))
            self._refuse_later_tokens(shards, rows, states)
            shards.write(rows, states)
            self.listener(shards.split, rows.stop, totals[shards.split])

    def _states(self, shards: Shards, rows: range) -> Iterator[Tensor]:
        """(n, width) the states of the next n tokens of a shard: of several whole blocks, or of a shorter last one."""
        block = shards.block
        whole = len(rows) // block * block
        step = max(1, TOKENS_AT_ONCE // block) * block
        parts = [range(begin, min(begin + step, whole)) for begin in range(0, whole, step)]
        parts += [range(whole, len(rows))] if whole < len(rows) else []
        tokens_N = getattr(self.corpus, shards.split)[rows.start : rows.stop]
        for part in parts:
            tokens_BT = tokens_N[part.start : part.stop].long().unflatten(0, (-1, min(block, len(part))))
            yield self._computed(tokens_BT).flatten(0, 1).to(shards.dtype)

    @torch.no_grad()
    def _computed(self, tokens_BT: Tensor) -> Tensor:
        """(B, T, width) on the CPU."""
        device = resolve_device("auto")
        multiplied = Products(route=chosen_route() if device.type == "cpu" else "default")
        with multiplied.switched(device), multiplied.attention(device, tokens_BT.shape[1]):
            return torch.cat(self.backbone(tokens_BT.to(device)).layers, dim=-1).cpu()

    def _refuse_later_tokens(self, shards: Shards, rows: range, states: Tensor) -> None:
        """Raises ExecutionError unless a block of a shard, drawn at random, has the same states up to a position when
        other tokens are read after it, at each position but for rounding.
        """
        chance, V = random.SystemRandom(), self.corpus.vocab_size
        begin = chance.randrange(0, len(rows), shards.block)
        tokens_T = getattr(self.corpus, shards.split)[rows.start : rows.stop][begin : begin + shards.block].long()
        until = chance.randint(1, max(1, len(tokens_T) - 1))
        other_T = torch.tensor([int(i >= until) * chance.randrange(1, max(2, V)) for i in range(len(tokens_T))])
        again = self._computed(((tokens_T + other_T) % V)[None])[0, :until].to(shards.dtype).float()
        kept = states[begin : begin + until].float()
        bound = 1e-3 if shards.dtype == torch.float32 else 1e-2
        if ((kept - again).norm(dim=-1) > bound * kept.norm(dim=-1)).any():
            raise ExecutionError(
                f"backbone {self.spec.backbone.name}: the state of a token changes with the tokens after it, so its "
                "perplexities mean nothing; only models that read from left to right can be used"
            )
