"""The fingerprint of behaviour: what the head, the backbone and the training of a trial compute on small inputs, as a
few numbers.

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

The harness' own code has numbers, too: a small model of its own is trained with the settings of the trial, cut down to
three epochs of three steps, and what counts is the loss of training and of validation after each epoch, and the weights
at the end. A rate, a decay, a norm or a warm-up of the trial is replaced by one that changes these numbers much; which
of them are set is the trial's. This is on the CPU, so code that only a GPU runs is not covered.

In float64 after a start in float32. Two lists of numbers are equal if each pair differs by at most TOLERANCE times the
larger of 1 and their magnitudes: machines differ by less, because functions of float32 are rounded differently.

A component has none, and only its source counts, if it cannot be built for V words and D wide states (the cut-offs of
an adaptive softmax), starts from pretrained weights, counts the text, has more than MOST_PARAMETERS parameters, or
raises; and a head has none in a trial with a z-loss, which a head may compute itself. The records of results/showcase
that were made before there were numbers have theirs in behaviours.json. Any other record without numbers for the
harness' own code counts as made by the present one.
"""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor, nn

from harness.code.fingerprints import KINDS, code_of, harness_code, moved
from harness.containment import guarded
from harness.corpora.corpus import Corpus
from harness.distributions import Mixture
from harness.dropout import Dropout
from harness.machine.environment import torch_threads
from harness.machine.files import kept
from harness.model import LanguageModel, build_backbone, on_meta
from harness.plan.identity import starting_content
from harness.plan.specs import ComponentSpec, TrainSpec, TrialSpec
from harness.protocols import Bidirectional, CountsText, HeadDims, Hidden
from harness.random_streams import own_generators, seeded
from harness.records.record import UNKNOWN, Behaviour, TrialRecord
from harness.registry import BACKBONES, HEADS
from harness.training.clocks import Clocks
from harness.training.loop import Alone, Training
from harness.training.step import Diverged

V, D, NUM_LAYERS, B, T = 64, 16, 4, 2, 6  # words, width of states, layers, rows, tokens of a segment
TOLERANCE = 1e-6
MOST_PARAMETERS = 30_000_000
MULTIPLIERS = 2654435761, 2246822519  # odd numbers of multiplicative hashing: Knuth, xxHash
LISTED = Path(__file__).with_name("behaviours.json")  # numbers of components and settings of records that have none
EPOCHS, STEPS = 3, 3  # of the small model's training
CLIP = 2.25  # some gradients of the small model are larger, others are not
Numbers = tuple[float, ...]


def of_trial(spec: TrialSpec) -> Behaviour:
    """Return the numbers of a trial's head, backbone and training; None for what has none."""
    head = None if spec.train.z_loss else numbers("head", spec.head)
    return Behaviour(head=head, backbone=numbers("backbone", spec.backbone), harness=numbers_of_harness(spec.train))


def changed(record: TrialRecord) -> tuple[str, ...]:
    """Return those of 'head', 'backbone', 'corpus' and 'harness' whose installed code computes something else than the
    code that made a record, as far as can be known: other numbers, or another source of a component without numbers.

    A component whose code is unknown, in the record or in this installation, counts as unchanged.
    """
    code = record.code
    other_harness = ("harness",) if code is not None and code.harness != harness_code().sha256 else ()
    return tuple(kind for kind in (*edited(record), *other_harness) if not _same(kind, record))


def edited(record: TrialRecord) -> tuple[str, ...]:
    """Return those of 'head', 'backbone' and 'corpus' whose source differs from the source that made a record."""
    if record.code is None:
        return ()
    both = {
        kind: (moved(getattr(record.code, kind)), code_of(kind, getattr(record.spec, kind).name).sha256)
        for kind in KINDS
    }
    # guard: unknown-hash last
    return tuple(kind for kind, (then, here) in both.items() if then != here and UNKNOWN not in (then, here))


def is_outdated(record: TrialRecord) -> bool:
    """Return whether a record has the status ok, and the code of one of its components has changed since."""
    return record.status == "ok" and bool(changed(record))


def numbers(kind: str, spec: ComponentSpec) -> Numbers | None:
    """The numbers of a component as it is installed, computed once on this machine for each version of it."""
    code = code_of(kind, spec.name).sha256
    return None if code == UNKNOWN else _kept(kind, spec.model_dump_json(), code)


def numbers_of_harness(train: TrainSpec) -> Numbers | None:
    """The same of the harness' own code."""
    return _kept("harness", cut_down(train).model_dump_json(), harness_code().sha256)


def equal(some: Sequence[float], others: Sequence[float]) -> bool:
    pairs = zip(some, others, strict=False)
    return len(some) == len(others) and all(abs(a - b) <= TOLERANCE * max(1, abs(a), abs(b)) for a, b in pairs)


def _same(kind: str, record: TrialRecord) -> bool:
    """Whether edited code behaves as when a record was made. Without numbers that is so of the harness' own code."""
    of_harness, train = kind == "harness", record.spec.train
    if kind == "corpus" or (kind == "head" and train.z_loss):
        return False
    spec = train if of_harness else getattr(record.spec, kind)
    key = _key_of_harness(train) if of_harness else _key(kind, getattr(record.code, kind), spec)
    before = getattr(record.behaviour, kind) if record.behaviour is not None else None
    if (before := before or _listed().get(key)) is None:
        return of_harness
    here = numbers_of_harness(train) if of_harness else numbers(kind, spec)
    return of_harness if here is None else equal(before, here)


@cache
def _listed() -> dict[str, list[float]]:
    return json.loads(LISTED.read_text(encoding="utf-8"))


def _key(kind: str, code: str, spec: ComponentSpec) -> str:
    return f"{kind} {code[:12]} {spec}"


def _key_of_harness(train: TrainSpec) -> str:
    return f"harness {cut_down(train).model_dump_json(exclude_defaults=True)}"


@cache
def _kept(kind: str, spec_json: str, code: str) -> Numbers | None:
    """The numbers of a component of this source, or of the harness' own code with these settings of training."""
    if kind == "harness":
        key, make = f"harness {spec_json}", partial(tried_harness, TrainSpec.model_validate_json(spec_json))
    else:
        spec = ComponentSpec.model_validate_json(spec_json)
        key, make = _key(kind, code, spec), partial(tried, kind, spec)
    found = kept("behaviour", f"{key} {harness_code().sha256} {torch.__version__}", make)
    return found and tuple(found)


def tried(kind: str, spec: ComponentSpec) -> Numbers | None:
    """The numbers of a component; None if it has none."""
    try:
        with _apart(), guarded(f"{kind} {spec.name}", "a trial call"):
            return _rounded(_of_head(spec) if kind == "head" else _of_backbone(spec))
    except Exception:  # whatever a component raises on inputs that it was not made for
        return None


def tried_harness(train: TrainSpec) -> Numbers | None:
    """Compute the numbers of the harness' own code in training with these settings; None if it diverges."""
    try:
        with _apart():
            return _rounded(_of_harness(train))
    except Diverged:
        return None


@contextmanager
def _apart() -> Iterator[None]:
    """Within it the generators are those of seed 0, torch has one thread, and gradients are computed."""
    with torch_threads(1), own_generators(0, torch.device("cpu")), torch.enable_grad():
        yield


def _rounded(found: list[float]) -> Numbers | None:
    """Twelve digits of each; None where one is not finite."""
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


def cut_down(train: TrainSpec) -> TrainSpec:
    """Return the small model's settings: each part of training that a trial has, at a size that a few steps show."""
    parts, schedule = min(train.accumulation, 2), None
    if train.schedule is not None and train.schedule.warmup is not None:
        schedule = {"warmup": {"steps": EPOCHS, "decay": train.schedule.warmup.decay}}
    elif train.schedule is not None and train.schedule.step is not None:
        schedule = {"step": {"after": 1, "factor": train.schedule.step.factor}}
    elif train.schedule is not None:
        schedule = train.schedule.model_dump()
    sizes = {
        "epochs": EPOCHS if train.epochs else 0,
        "lr": 0.5 if train.optimizer == "sgd" else 0.02,
        "schedule": schedule,
        "clip": None if train.clip is None else CLIP,
        "weight_decay": 0.01 if train.weight_decay else 0.0,
        "z_loss": 0.01 if train.z_loss else 0.0,
        "batch_size": 2 * B,
        "seq_len": T,
        "accumulation": parts,
        "eval_batch_size": B,
        "eval_stride": None if train.eval_stride is None else T // 2,
        "eval_batches": None,
        "averaging": train.averaging and {"after": 1},
        "random_lengths": train.random_lengths and {"deviation": 1.0, "half": 0.25, "shortest": 2, "longest": T + 1},
        "finetune": train.finetune and {"epochs": 3, "lr": 0.3, "non_monotone": 1},
        "data_parallel": 1,
        "precision": "fp32",
        "cuda_graph": "off",
        "loss_form": "chunked",
        "deterministic": "false",
    }
    return type(train).model_validate({**train.model_dump(), **sizes})


def _of_harness(train: TrainSpec) -> list[float]:
    with seeded(0, "behaviour", "text"):
        valid_N = torch.randint(V, (4 * B * T,))
        train_N = torch.randint(V, (train.batch_size * (STEPS * T + 1),))
    with seeded(0, "behaviour", "model"):
        backbone = _SmallBackbone(carries=train.eval_stride is None)
        model = LanguageModel(backbone, _SmallHead(backbone.embedding)).double()
    corpus = Corpus(vocab_size=V, train=train_N, valid=valid_N, test=valid_N)
    host = Alone(clocks=Clocks(torch.device("cpu")))
    Training(model, corpus, train, seed=0, host=host).fit()
    losses = [loss for point in host.fitted.curve for loss in (point.train_loss, math.log(point.valid_ppl))]
    return [*losses, host.fitted.last.mean_nll, *_directions(model.parameters())]


class _SmallBackbone(nn.Module):
    """h_t = tanh(W [x_t; h_{t-1}]) of embedded tokens x, with dropout below and above; it may carry h."""

    layer_dims = (D,)

    def __init__(self, *, carries: bool):
        super().__init__()
        self.carries = carries
        self.embedding, self.cell, self.dropout = nn.Embedding(V, D), nn.Linear(2 * D, D), Dropout(0.25)

    def forward(self, tokens_BT: Tensor, state_BD: Tensor | None = None) -> Hidden:
        x_BTD = self.dropout(self.embedding(tokens_BT))
        h_BD, states = x_BTD.new_zeros(len(x_BTD), D) if state_BD is None else state_BD, []
        for x_BD in x_BTD.unbind(1):
            h_BD = torch.tanh(self.cell(torch.cat([x_BD, h_BD], dim=-1)))
            states.append(h_BD)
        undropped_BTD = torch.stack(states, dim=1)
        return Hidden((self.dropout(undropped_BTD),), h_BD if self.carries else None, undropped_BTD)


class _SmallHead(nn.Module):
    """A mixture of two softmaxes over the rows of the embedding."""

    def __init__(self, embedding: nn.Embedding):
        super().__init__()
        self.embedding, self.facets, self.prior = embedding, nn.Linear(D, 2 * D), nn.Linear(D, 2)
        self.bias = nn.Parameter(torch.zeros(V))

    def forward(self, hidden: Hidden) -> Mixture:
        h_BTD = hidden.layers[-1]
        facets_BTKD = torch.tanh(self.facets(h_BTD)).unflatten(-1, (2, D))
        return Mixture(facets_BTKD, self.prior(h_BTD).log_softmax(-1), self.embedding.weight, self.bias)


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
