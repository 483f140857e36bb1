"""Write harness/code/known.json: for each component of the package the hashes that give the same numbers.

    python tests/meta/known.py

Each head and backbone computes numbers on fixed inputs, each corpus its tokens; tests/golden/numbers.json has those
of the last time. Where they are equal, the present hash is added to the list of the component. Where they are not, the
list begins anew with it: records that were made before are outdated.
"""

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from harness.code import hashes
from harness.code.hashes import KNOWN, LISTED
from harness.corpora.batching import Segment
from harness.corpora.corpus import SPLITS
from harness.corpora.download import DEFAULT_DATA
from harness.errors import CorpusError
from harness.machine.environment import torch_threads
from harness.model import build, build_backbone
from harness.plan.specs import ComponentSpec
from harness.protocols import Bidirectional, HeadDims, Hidden
from harness.random_streams import own_generators, seeded
from harness.registry import CORPORA, HEADS

NUMBERS = Path(__file__).parents[1] / "golden" / "numbers.json"
V, D, NUM_LAYERS, B, T = 64, 16, 4, 2, 6  # words, width of states, layers, rows, tokens of a segment
TOLERANCE = 1e-6  # relative to the larger of 1 and the number: machines round functions of float32 differently
MULTIPLIERS = 2654435761, 2246822519  # odd numbers of multiplicative hashing: Knuth, xxHash
LLAMA = {"model_type": "llama", "hidden_size": D, "intermediate_size": D, "num_attention_heads": 2}
CASES = {
    "head adaptive": [{"cutoffs": [16, 32]}],
    "head doc": [{}, {"components": {"top": 2, "second": 1}, "init_range": 0.1}],
    "head doc_poster": [{}],
    "head gss": [{}, {"c": 0.7, "k": 0.6, "bias": False}],
    "head harmonic": [{}, {"exponent": 7.0, "tie_weights": True}],
    "head early": [{}, {"layer": 0, "weight": 0.5, "bias": False}],
    "head byte_loss": [{}, {"num_bytes": 2, "weight": 0.5, "bias": False}],
    "head untying": [{}, {"share": 0.0, "bias": False}],
    "head token_order": [{}, {"window": 2, "weight": 0.5, "bias": False}],
    "head bag_of_words": [{}, {"window": 3, "weight": 0.5, "bias": False}],
    "head mtp_module": [{}, {"num_heads": 2, "d_ff": 5, "weight": 0.5, "bias": False}],
    "head mfs": [{}, {"num_input_layers": 1, "window": 0}, {"num_mixtures": 1, "num_partitions": 1}],
    "head mixtape": [{}],
    "head moc": [{"num_mixtures": 2}, {"num_mixtures": 5, "dropout": 0.2, "init_range": 0.1}],
    "head mos": [
        {"num_mixtures": 1},
        {"num_mixtures": 3, "dropout": 0.2, "init_range": 0.1},
        {"num_mixtures": 2, "tie_weights": True},
        {"num_mixtures": 3, "gate": "constant"},
        {"num_mixtures": 5, "activation": "none"},
        {"num_mixtures": 2, "logit_map": "stablemax"},
    ],
    "head mtp": [{}, {"further": [0.7], "bias": False}],
    "head multimax": [{}, {"init_std": 0.5, "projection": True}],
    "head nce": [{}, {"num_noise": 3, "log_normaliser": 8.0}],
    "head ngpt": [{}, {"scale": "one", "bias": True}],
    "head plif": [{}, {"num_pieces": 5, "bound": 1.5}],
    "head sigsoftmax": [{}, {"projection": True}],
    "head softmax": [
        {},
        {"projection": True, "d_embed": 8},
        {"tie_weights": True, "init_range": 0.1},
        {"init_range": 0.1, "init_bias": "uniform"},
        {"softcap": 30.0, "mu_centering": True},
        {"mu_loss": 0.1, "z_loss": 0.1, "loss": "binary"},
        {"logit_map": "stablemax"},
    ],
    "head kneser_ney": [{"order": 3}, {"order": 3, "cache": True}],
    "backbone awd_lstm": [{"d_embed": 8, "d_hidden": 12}],
    "backbone bilstm": [{"d_model": 8}],
    "backbone gpt2": [{"d_model": 8, "num_layers": 2, "num_heads": 2}],
    "backbone gru": [{"d_model": 8}],
    "backbone hf": [{"config": {**LLAMA, "num_hidden_layers": 2}, "layers": [0, 1]}],
    "backbone lstm": [{"d_model": 8}, {"d_model": 8, "d_input": 4, "embedding_dropout": 0.0, "init_range": 0.05}],
    "backbone transformer_encoder": [{"d_model": 8, "num_layers": 2, "num_heads": 2}],
    "corpus embedded": [{}, {"level": "char"}, {"tokenizer": {"bpe": 400}}],
    "corpus markov": [{"vocab_size": 50, "num_tokens": 2000, "seed": 3}],
    "corpus spamlang": [{"vocab_size": 50, "num_sequences": 100, "seed": 3}],
    "corpus ptb": [{}, {"boundary": "sos_eos"}, {"tokenizer": {"bpe": 1000}, "detokenize": True}],
    "corpus ptb_char": [{}],
    "corpus wikitext2": [{}],
}
# Components that are compared by the numbers of others: corpora of the same modules whose files are large or not here
LIKE = {
    "backbone last_tokens": "head kneser_ney",  # which is always on it
    "corpus text": "corpus embedded",
    "corpus english_novels": "corpus embedded",
    "corpus enwik8": "corpus ptb_char",
    "corpus text8": "corpus ptb_char",
    "corpus tiny_shakespeare": "corpus ptb_char",
    "corpus wikitext103": "corpus wikitext2",
    "corpus hub": "corpus embedded",
}
Numbers = list[float] | str


def numbers_of(component: str, params: dict) -> Numbers | None:
    """What a component computes; None for a corpus whose files are not found."""
    kind, name = component.split()
    if kind == "corpus":
        return _tokens(name, params)
    with torch_threads(1), own_generators(0, torch.device("cpu")), torch.enable_grad():
        of_kind = {"kneser_ney": _of_counts}.get(name, _of_head if kind == "head" else _of_backbone)
        found = of_kind(name, params)
    return [float(f"{number:.12g}") for number in found]


def equal(one: Numbers, other: Numbers) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    pairs = zip(one, other, strict=False)
    return len(one) == len(other) and all(abs(a - b) <= TOLERANCE * max(1, abs(a), abs(b)) for a, b in pairs)


def main() -> None:
    known = json.loads(KNOWN.read_text()) if KNOWN.exists() else {}
    before = json.loads(NUMBERS.read_text()) if NUMBERS.exists() else {}
    now = dict(before)
    for component in [*CASES, *LIKE]:
        compared, same = LIKE.get(component, component), True
        for params in CASES[compared]:
            key = f"{compared} {json.dumps(params, sort_keys=True)}"
            found = numbers_of(compared, params)
            if found is None:
                print(f"{component} stays as it is, since its files are not found: name their folder by HARNESS_DATA")
                break
            if not equal(found, before.get(key, found)):
                same = False
            if key not in before or not same:
                now[key] = found
        else:
            if not same:
                print(f"{component} computes other numbers: its records are outdated")
            listed = known.get(component, []) if same else []
            known[component] = list(dict.fromkeys([*listed, hashes.of(*component.split())[:LISTED]]))
    KNOWN.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n", encoding="utf-8")
    NUMBERS.write_text(json.dumps(dict(sorted(now.items()))).replace("], ", "],\n") + "\n")


def _tokens(name: str, params: dict) -> str | None:
    """The SHA-256 of the tokens of all splits."""
    try:
        corpus = CORPORA.get(name)(**params).load(Path(os.environ.get("HARNESS_DATA", DEFAULT_DATA)))
    except CorpusError:
        return None
    digest = hashlib.sha256()
    for split in SPLITS:
        digest.update(np.ascontiguousarray(getattr(corpus, split).numpy()).astype("<i8").tobytes())
    return digest.hexdigest()


def _of_head(name: str, params: dict) -> list[float]:
    known = {"token_counts": torch.arange(1, V + 1), "token_bytes": tuple(b"words"[: v % 6] for v in range(V))}
    dims = HeadDims(vocab_size=V, layer_dims=(D,) * NUM_LAYERS, d_embed=D, **known)
    with seeded(0, "behaviour", "inputs"):
        embedding = nn.Embedding(V, D)
        hidden = Hidden(tuple(torch.randn(B, T, D).double() for _ in range(NUM_LAYERS)))
        targets_BT = torch.randint(V, (B, T))
    with seeded(0, "behaviour", "head"):
        head = HEADS.get(name)(dims, embedding, **params).double()
    embedding.double()  # a head may share its weight: then it is among the head's parameters
    found = _directions(head.parameters())
    with seeded(0, "behaviour", "dropout"):
        distribution = head.train()(hidden)
        loss = distribution.training_loss(targets_BT)
    loss.backward()
    found += [loss.item(), float(torch.as_tensor(distribution.aux_loss).detach())]
    found += _directions(each.grad for each in head.parameters() if each.grad is not None)
    with torch.no_grad():
        distribution = head.eval()(hidden)
        found += distribution.nll(targets_BT)[0].tolist()
        found += distribution.log_probs()[-1, -1, :: V // 4].tolist()
    return found


def _of_counts(name: str, params: dict) -> list[float]:
    specs = ComponentSpec(name="last_tokens"), ComponentSpec(name=name, params=params)
    model = build(*specs, vocab_size=V, seed=0).eval()
    with seeded(0, "behaviour", "text"):
        text_N = (V * torch.rand(1000) ** 4).long()  # some words are frequent, and some occur once
    model.head.count(text_N, None)
    segment = Segment(text_N[None, :T], text_N[None, 1 : T + 1])
    return model(segment)[0].nll(segment.targets)[0].tolist()


def _of_backbone(name: str, params: dict) -> list[float]:
    with seeded(0, "behaviour", "backbone"):
        backbone = build_backbone(ComponentSpec(name=name, params=params), V).double()
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


def _summed(layers: Iterable[Tensor]) -> list[Tensor]:
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


if __name__ == "__main__":
    main()
