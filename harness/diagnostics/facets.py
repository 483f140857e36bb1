"""The next words that each component of a mixture predicts, beside those of the whole mixture.

Source: the example of the multi-facet softmax poster (Chang and McCallum): the top words of each softmax.
Letters: see harness/protocols.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from harness import kernels
from harness.containment import contained
from harness.corpora.batching import Segment
from harness.distributions import Mixture
from harness.kernels import Tensors
from harness.model import components
from harness.trial.trained import Trained


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The most probable next words of a mixture, a component, a facet, or a head that is no mixture.

    Args:
        name: 'mixture', 'component 1', 'component 1, facet 2', or 'head'.
        weight: 1 for the mixture or the head; the gate pi_k for a component; for a facet, the share of the component's
            probability that is on the words of this facet.
        words: the most probable words and their probabilities, most probable first. The probabilities of a facet's
            words are those of its component.
        owns: the words that a facet scores, such as 'words 1 mod 4'; '' when it scores all.
    """

    name: str
    weight: float
    words: tuple[tuple[str, float], ...]
    owns: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """What a model predicts after a token.

    Args:
        voices: the predictions of the mixture, then of its components, each followed by those of its facets if it has
            several. For a head that is no mixture, the prediction of the head only. The name is a key of `--json`.
    """

    token: str
    voices: tuple[Prediction, ...]


@torch.no_grad()
def inspect(trained: Trained, text: str, *, top: int = 10, every: bool = False) -> tuple[tuple[Position, ...], bool]:
    """What a model predicts after a text of some tokens, and whether its head is a mixture. Raises as `Trained.ids`.

    Args:
        trained: the model. A backbone without state reads only the last seq_len tokens of the text.
        every: predict after each token that the backbone reads, instead of after the last one only.
    """
    ids_BT = trained.ids(text)
    if trained.model.backbone(ids_BT[:, :1]).state is None:
        ids_BT = ids_BT[:, -trained.spec.train.seq_len :]
    with contained(components(trained.spec)):
        distribution, _ = trained.model(Segment(ids_BT, ids_BT))
        T, is_mixture = ids_BT.shape[1], isinstance(distribution, Mixture)
        positions = []
        for t in range(0 if every else T - 1, T):
            if is_mixture:
                voices = _predictions(trained, distribution.part(slice(t, t + 1)), top)
            else:
                voices = (_prediction(trained, "head", 1.0, distribution.log_probs()[0, t].exp(), top),)
            positions.append(Position(token=trained.word(int(ids_BT[0, t])), voices=voices))
        return tuple(positions), is_mixture


def components_of(mixture: Tensors) -> Iterator[Tensors]:
    """Each component of a mixture as one of its own, without prior and epsilon."""
    alone, first = mixture.changed(log_prior_NK=None, log_epsilon=None), 0
    for parts in mixture.partitions:
        yield alone.changed(facets_NFE=mixture.facets_NFE[:, first : first + parts], partitions=(parts,))
        first += parts


def _predictions(trained: Trained, mixture: Mixture, top: int) -> tuple[Prediction, ...]:
    found = [_prediction(trained, "mixture", 1.0, mixture.log_probs()[0, 0].exp(), top)]
    gates = [1.0] if mixture.log_prior_NK is None else mixture.log_prior_NK[0].exp().tolist()
    for k, (gate, alone) in enumerate(zip(gates, components_of(mixture), strict=True)):
        (parts,), name = alone.partitions, f"component {k + 1}"
        p_V = kernels.log_probs(alone)[0].exp()
        found.append(_prediction(trained, name, gate, p_V, top))
        for part in range(parts if parts > 1 else 0):
            words = slice(part, None, parts)
            found.append(_prediction(trained, f"{name}, facet {part + 1}", float(p_V[words].sum()), p_V, top, words))
    return tuple(found)


def _prediction(
    trained: Trained, name: str, weight: float, p_V: Tensor, top: int, words: slice | None = None
) -> Prediction:
    """The most probable words of a distribution, or of the slice `words` of it."""
    start, step = (0, 1) if words is None else (words.start, words.step)
    p, at = p_V[start::step].topk(min(top, len(p_V[start::step])))
    listed = tuple((trained.word(start + step * i), value) for i, value in zip(at.tolist(), p.tolist(), strict=True))
    return Prediction(name=name, weight=weight, words=listed, owns="" if words is None else f"words {start} mod {step}")
