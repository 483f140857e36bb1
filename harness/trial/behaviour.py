"""The fingerprint of behaviour: what the head and the backbone of a trial compute on small inputs, as a few numbers.

A hash of source changes with every edit: with a new option, a rename, a move. These numbers change only if the code
computes something else: another start under the same seed, other states or probabilities, another loss or gradient,
with dropout and without. A record keeps both. Where the hash of a component differs from that of the record, the
component of this installation is tried once on the same inputs, and the record is outdated only if its numbers differ.

    start         n and sum_i s_i p_i / sqrt(n) over all n parameters p as they are built, in two directions s of +1
                  and -1
    gradient      the same of the gradients of the loss, in training mode, with dropout from a fixed seed; for a head,
                  also of the embedding that it may share
    training      loss and auxiliary loss of a head; every layer's states of a backbone, as above
    evaluation    a head's negative log-likelihoods and log-probabilities of some words; a backbone's states of a second
                  segment, with the carried state

In float64 after a start in float32. Two lists of numbers are equal if each pair differs by at most TOLERANCE times the
larger of 1 and their magnitudes: machines differ by less, because functions of float32 are rounded differently.

A component has none, and only its source counts, if it cannot be built for V words and D wide states (the cut-offs of
an adaptive softmax), starts from pretrained weights, counts the text, has more than MOST_PARAMETERS parameters, or
raises; and a head has none in a trial with a z-loss, which a head may compute itself.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

from harness.code.fingerprints import KINDS, Result, code_of, harness_code
from harness.code.recorded import UNKNOWN, Behaviour
from harness.containment.calls import calling
from harness.corpora.download import DEFAULT_DATA
from harness.errors import StorageError
from harness.machine.files import read_bounded, write_atomically
from harness.model import build_backbone, on_meta
from harness.plan.identity import starting_content
from harness.plan.specs import ComponentSpec, TrialSpec
from harness.protocols import Bidirectional, CountsText, HeadDims, Hidden
from harness.random_streams import own_generators, seeded
from harness.registry import BACKBONES, HEADS

V, D, NUM_LAYERS, B, T = 64, 16, 4, 2, 6  # words, width of states, layers, rows, tokens of a segment
TOLERANCE = 1e-6
MOST_PARAMETERS = 30_000_000
MULTIPLIERS = (
    2654435761,
    2246822519,
)  # odd numbers of multiplicative hashing: Knuth, xxHash
LISTED = Path(__file__).with_name("behaviours.json")  # of components whose records were made before they had numbers
MAX_BYTES = 2**20
Numbers = tuple[float, ...]


def of_trial(spec: TrialSpec) -> Behaviour:
    """Return the numbers of a trial's head and backbone; None for a component that has none."""
    head = None if spec.train.z_loss else numbers("head", spec.head)
    return Behaviour(head=head, backbone=numbers("backbone", spec.backbone))


def changed(record: Result) -> tuple[str, ...]:
    """Return those of 'head', 'backbone' and 'corpus' whose installed code computes something else than the code that
    made a record, as far as can be known: other numbers, or another source if there are no numbers.

    A component whose code is unknown, in the record or in this installation, counts as unchanged.
    """
    return tuple(kind for kind in edited(record) if not _same(kind, record))


def edited(record: Result) -> tuple[str, ...]:
    """Return those of 'head', 'backbone' and 'corpus' whose source differs from the source that made a record."""
    if record.code is None:
        return ()
    both = {kind: (getattr(record.code, kind), code_of(kind, getattr(record.spec, kind).name).sha256) for kind in KINDS}
    return tuple(kind for kind, (then, here) in both.items() if then != here and UNKNOWN not in (then, here))


def is_outdated(record: Result) -> bool:
    """Return whether a record has the status ok, and the code of one of its components has changed since."""
    return record.status == "ok" and bool(changed(record))


def numbers(kind: str, spec: ComponentSpec) -> Numbers | None:
    """Return the numbers of a component as it is installed, computed once on this machine for each version of it."""
    code = code_of(kind, spec.name).sha256
    return None if code == UNKNOWN else _kept(kind, spec.model_dump_json(), code)


def equal(some: Sequence[float], others: Sequence[float]) -> bool:
    """Return whether two lists of numbers are those of the same behaviour."""
    pairs = zip(some, others, strict=False)
    return len(some) == len(others) and all(abs(a - b) <= TOLERANCE * max(1, abs(a), abs(b)) for a, b in pairs)


def _same(kind: str, record: Result) -> bool:
    if kind == "corpus" or (kind == "head" and record.spec.train.z_loss):
        return False
    spec = getattr(record.spec, kind)
    before = getattr(record.behaviour, kind) if record.behaviour is not None else None
    before = before or _listed().get(_key(kind, getattr(record.code, kind), spec))
    return before is not None and (here := numbers(kind, spec)) is not None and equal(before, here)


@cache
def _listed() -> dict[str, list[float]]:
    return json.loads(LISTED.read_text(encoding="utf-8"))


def _key(kind: str, code: str, spec: ComponentSpec) -> str:
    return f"{kind} {code[:12]} {spec}"


@cache
def _kept(kind: str, spec_json: str, code: str) -> Numbers | None:
    """The numbers of a component of this source, from the cache of this machine if they are there. A cache that cannot
    be read or written is left alone.
    """
    spec = ComponentSpec.model_validate_json(spec_json)
    about = f"{_key(kind, code, spec)} {harness_code().sha256} {torch.__version__}"
    name = hashlib.sha256(about.encode()).hexdigest()[:16]
    place = Path(os.environ.get("HARNESS_CACHE") or DEFAULT_DATA).absolute() / "behaviour" / f"{name}.json"
    try:
        return tuple(json.loads(read_bounded(place, MAX_BYTES)))
    except (OSError, ValueError, TypeError):
        found = tried(kind, spec)
    try:
        if found is not None:
            write_atomically(place, json.dumps(found).encode())
    except StorageError:
        pass
    return found


def tried(kind: str, spec: ComponentSpec) -> Numbers | None:
    """Compute the numbers of a component; None if it has none."""
    try:
        with (
            own_generators(0, torch.device("cpu")),
            torch.enable_grad(),
            calling(f"{kind} {spec.name}", "a trial call"),
        ):
            found = _of_head(spec) if kind == "head" else _of_backbone(spec)
    except Exception:  # whatever a component raises on inputs that it was not made for
        return None
    finite = all(abs(number) < float("inf") for number in found)
    return tuple(float(f"{number:.12g}") for number in found) if finite else None


def _of_head(spec: ComponentSpec) -> list[float]:
    dims = HeadDims(vocab_size=V, layer_dims=(D,) * NUM_LAYERS, d_embed=D, token_counts=torch.arange(1, V + 1))
    with seeded(0, "behaviour", "inputs"):
        embedding = nn.Embedding(V, D)
        hidden = Hidden(tuple(torch.randn(B, T, D).double() for _ in range(NUM_LAYERS)))
        targets_BT = torch.randint(V, (B, T))
    with seeded(0, "behaviour", "head"):
        head = HEADS.get(spec.name)(dims, embedding, **spec.params).double()
    embedding.double()  # a head may share its weight: then it is among the head's parameters
    if isinstance(head, CountsText):
        raise ValueError("it learns from a whole text")
    found = _directions(head.parameters())
    with seeded(0, "behaviour", "dropout"):
        distribution = head.train()(hidden)
        loss = distribution.training_loss(targets_BT)
    loss.backward()
    found += [loss.item(), float(torch.as_tensor(distribution.aux_loss).detach())]
    found += _directions(each.grad for each in head.parameters() if each.grad is not None)
    found += _directions([embedding.weight if embedding.weight.grad is None else embedding.weight.grad])
    with torch.no_grad():
        distribution = head.eval()(hidden)
        found += distribution.nll(targets_BT)[0].tolist()
        found += distribution.log_probs()[-1, -1, :: V // 4].tolist()
    return found


def _of_backbone(spec: ComponentSpec) -> list[float]:
    with on_meta():
        size = sum(each.numel() for each in build_backbone(spec, V).parameters())
    if size > MOST_PARAMETERS or starting_content(spec, BACKBONES.get(spec.name)) is not None:
        raise ValueError("too large, or not from a random start")
    with seeded(0, "behaviour", "backbone"):
        backbone = build_backbone(spec, V).double()
    with seeded(0, "behaviour", "inputs"):
        first_BT, second_BT = torch.randint(V, (2, B, T))
    found = _directions(backbone.parameters())
    with seeded(0, "behaviour", "dropout"):
        states = _summed(backbone.train()(first_BT).layers)
    sum(states).backward()
    found += [each.item() for each in states]
    found += _directions(each.grad for each in backbone.parameters() if each.grad is not None)
    with torch.no_grad():
        state = backbone.eval()(first_BT).state
        found += [each.item() for each in _summed(backbone(second_BT, state).layers)]
        if isinstance(backbone, Bidirectional):
            found += [each.item() for each in _summed(backbone.reversed_states(second_BT).layers)]
    return found


def _summed(layers: Sequence[Tensor]) -> list[Tensor]:
    return [_along(layer.flatten(), MULTIPLIERS[0]) for layer in layers]


def _directions(tensors: Iterable[Tensor]) -> list[float]:
    """The number of all elements, and their sums along two directions."""
    flat = [each.detach().double().flatten() for each in tensors]
    together = torch.cat(flat) if flat else torch.zeros(1, dtype=torch.float64)
    return [together.numel(), *(_along(together, multiplier).item() for multiplier in MULTIPLIERS)]


def _along(x_N: Tensor, multiplier: int) -> Tensor:
    """sum_i s_i x_i / sqrt(N), where s_i is +1 or -1 by a bit of i times a number."""
    plus_or_minus_N = ((torch.arange(x_N.numel()) * multiplier >> 15) & 1) * 2 - 1
    return (x_N * plus_or_minus_N).sum() / x_N.numel() ** 0.5
