"""What the components of a mixture say of the next word, beside what they say together.

Source: the example of the multi-facet softmax poster (Chang and McCallum): the top words of each softmax.
Letters: see harness/protocols.py.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from harness.containment.calls import calling, contained
from harness.diagnostics.trained import Trained
from harness.distributions import Mixture
from harness.model import components


@dataclass(frozen=True, slots=True, kw_only=True)
class Voice:
    """What one of those who speak says.

    Args:
        name: 'mixture', 'component 1', 'component 1, facet 2'; 'head' where that is no mixture.
        weight: of the mixture or the head, 1; of a component, its gate pi_k; of a facet, the share of its component's
            probability that is on its words.
        words: the most probable ones and their probabilities, most probable first. A facet's are its component's.
        owns: which words a facet scores, 'words 1 mod 4'; '' where it scores all.
    """

    name: str
    weight: float
    words: tuple[tuple[str, float], ...]
    owns: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """What may follow a token.

    Args:
        token: the token itself.
        voices: the mixture, then its components, each followed by its facets where it has several; the head alone where
            it is no mixture.
    """

    token: str
    voices: tuple[Voice, ...]


@torch.no_grad()
def inspect(trained: Trained, text: str, *, top: int = 10, every: bool = False) -> tuple[tuple[Position, ...], bool]:
    """What the model expects after a text, or with `every` after each of its tokens; and whether its head is a mixture.

    A backbone without state sees the last seq_len tokens, and `every` is each of those.
    """
    ids_BT = trained.ids(text)
    if trained.model.backbone(ids_BT[:, :1]).state is None:
        ids_BT = ids_BT[:, -trained.spec.train.seq_len :]
    who = components(trained.spec)
    with contained(who), calling(who, "evaluation"):
        return _positions(trained, ids_BT, top, every=every)


def _positions(trained: Trained, ids_BT: Tensor, top: int, *, every: bool) -> tuple[tuple[Position, ...], bool]:
    distribution, _ = trained.model(ids_BT)
    T = ids_BT.shape[1]
    positions = []
    for t in range(0 if every else T - 1, T):
        if isinstance(distribution, Mixture):
            voices = _voices(trained, distribution.part(slice(t, t + 1)), top)
        else:
            voices = (_voice(trained, "head", 1.0, distribution.log_probs()[0, t].exp(), top),)
        positions.append(Position(token=trained.word(int(ids_BT[0, t])), voices=voices))
    return tuple(positions), isinstance(distribution, Mixture)


def _voices(trained: Trained, mixture: Mixture, top: int) -> tuple[Voice, ...]:
    """Of one token."""
    found = [_voice(trained, "mixture", 1.0, mixture.log_probs()[0, 0].exp(), top)]
    gates = [1.0] if mixture.log_prior_NK is None else mixture.log_prior_NK[0].exp().tolist()
    first = 0
    for k, (gate, parts) in enumerate(zip(gates, mixture.partitions, strict=True)):
        alone = Mixture(
            mixture.facets_NFE[None, :, first : first + parts],
            None,
            mixture.weight_VE,
            mixture.bias_V,
            partitions=(parts,),
            logit_map=mixture.logit_map,
        )
        first += parts
        p_V = alone.log_probs()[0, 0].exp()
        name = f"component {k + 1}"
        found.append(_voice(trained, name, gate, p_V, top))
        for part in range(parts if parts > 1 else 0):
            words = slice(part, None, parts)
            voice = _voice(trained, f"{name}, facet {part + 1}", float(p_V[words].sum()), p_V, top, words)
            found.append(voice)
    return tuple(found)


def _voice(trained: Trained, name: str, weight: float, p_V: Tensor, top: int, words: slice | None = None) -> Voice:
    """The top words of a distribution, of those in `words` where that is given."""
    start, step = (0, 1) if words is None else (words.start, words.step)
    p, at = p_V[start::step].topk(min(top, len(p_V[start::step])))
    listed = tuple((trained.word(start + step * i), value) for i, value in zip(at.tolist(), p.tolist(), strict=True))
    return Voice(name=name, weight=weight, words=listed, owns="" if words is None else f"words {start} mod {step}")
