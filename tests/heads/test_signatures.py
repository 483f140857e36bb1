"""The interface of our heads and backbones: names, types and defaults of their parameters, as a suite may give them."""

import pytest

from harness.plan.parameters import parameters
from harness.registry import BACKBONES, HEADS

COMPAT = "compat: dict[Literal['log_epsilon'], float] | None = None"
SOFTCAP = "softcap: float | None = None"
START = ["init_range: float | None = None", "init_bias: Literal['zero', 'uniform'] = 'zero'"]
HEAD_SIGNATURES = {
    "adaptive": ["cutoffs: tuple[int, ...] | None = None", "div_value: float = 4.0", "bias: bool = True"],
    "doc": [
        "components: dict[Literal['top', 'second', 'third'], int] | tuple[int, ...] = (15, 5)",
        "dropout: float = 0.0",
        "balance: Literal['paper', 'code'] = 'paper'",
        "balance_weight: float = 0.001",
        "bias: bool = True",
        "tie_weights: bool = False",
        "d_embed: int | None = None",
        COMPAT,
        *START,
        SOFTCAP,
    ],
    "doc_poster": ["num_mixtures: int = 3", "bias: bool = False", "tie_weights: bool = False", COMPAT, *START, SOFTCAP],
    "gss": [
        "c: float = -1.5",
        "k: float = 2.5",
        "projection: bool = False",
        "bias: bool = True",
        "tie_weights: bool = False",
        *START,
    ],
    "mfs": [
        "num_mixtures: int = 3",
        "num_input_layers: int | None = None",
        "window: int = 2",
        "num_partitions: int = 4",
        "norm_inputs: bool = False",
        "bias: bool = False",
        "tie_weights: bool = False",
        COMPAT,
        *START,
        SOFTCAP,
    ],
    "mixtape": [
        "d_gate: int = 32",
        "own_gates: float = 0.1",
        "dropout: float = 0.0",
        "bias: bool = True",
        "tie_weights: bool = False",
        *START,
    ],
    "moc": [
        "num_mixtures: int = 10",
        "dropout: float = 0.0",
        "prior_bias: bool = False",
        "bias: bool = True",
        "tie_weights: bool = False",
        "d_embed: int | None = None",
        *START,
        SOFTCAP,
    ],
    "mos": [
        "num_mixtures: int = 10",
        "dropout: float = 0.0",
        "activation: Literal['tanh', 'none'] = 'tanh'",
        "prior_bias: bool = False",
        "bias: bool = True",
        "tie_weights: bool = False",
        "d_embed: int | None = None",
        "logit_map: Literal['identity', 'sigsoftmax'] = 'identity'",
        "gate: Literal['learned', 'constant', 'static'] = 'learned'",
        "loss: Literal['nll', 'binary'] = 'nll'",
        COMPAT,
        *START,
        SOFTCAP,
    ],
    "nce": [
        "num_noise: int = 100",
        "log_normaliser: float | None = None",
        "projection: bool = False",
        "bias: bool = True",
        "tie_weights: bool = False",
        "init_range: float | None = None",
        "init_bias: Literal['zero', 'uniform', 'unigram'] = 'zero'",
    ],
    "plif": [
        "num_pieces: int = 100000",
        "bound: float = 20.0",
        "noise: float = 1.0",
        "projection: bool = False",
        "bias: bool = True",
        "tie_weights: bool = False",
        *START,
    ],
    "sigsoftmax": [
        "projection: bool = False",
        "bias: bool = True",
        "tie_weights: bool = False",
        "start: Literal['xavier', 'embedding'] = 'xavier'",
        COMPAT,
        *START,
    ],
    "softmax": [
        "projection: bool = False",
        "bias: bool = True",
        "tie_weights: bool = False",
        "loss: Literal['nll', 'binary'] = 'nll'",
        "start: Literal['xavier', 'embedding'] = 'xavier'",
        COMPAT,
        *START,
        "d_embed: int | None = None",
        SOFTCAP,
    ],
}
RECURRENT = [
    "d_model: int = 200",
    "num_layers: int = 2",
    "dropout: float = 0.2",
    "d_input: int | None = None",
    "embedding_dropout: float | None = None",
    "init_range: float | None = None",
]
BACKBONE_SIGNATURES = {
    "gpt2": [
        "size: Literal['tiny', 'small', 'medium', 'large', 'xl'] = 'small'",
        "d_model: int | None = None",
        "num_layers: int | None = None",
        "num_heads: int | None = None",
        "dropout: float = 0.1",
        "weights: Literal['random', 'pretrained'] = 'random'",
        "path: pathlib.Path | None = None",
        "gradient_checkpointing: bool = False",
        "precision: Literal['fp32', 'bf16'] = 'fp32'",
    ],
    "bilstm": RECURRENT,
    "gru": RECURRENT,
    "lstm": RECURRENT,
    "transformer_encoder": [
        "d_model: int = 200",
        "num_layers: int = 4",
        "num_heads: int = 4",
        "d_ff: int = 200",
        "dropout: float = 0.2",
        "layer_dropout: float = 0.1",
    ],
}


@pytest.mark.parametrize(("registry", "signatures"), [(HEADS, HEAD_SIGNATURES), (BACKBONES, BACKBONE_SIGNATURES)])
def test_every_component_of_ours_is_pinned(registry, signatures):
    ours = {name for name in registry.names() if registry.origin(name).startswith(("heads/", "backbones/"))}
    assert ours == set(signatures)


@pytest.mark.parametrize(("name", "expected"), HEAD_SIGNATURES.items(), ids=HEAD_SIGNATURES)
def test_a_heads_parameters_are_as_ever(name, expected):
    assert [str(parameter) for parameter in parameters(HEADS.get(name)).values()] == expected


@pytest.mark.parametrize(("name", "expected"), BACKBONE_SIGNATURES.items(), ids=BACKBONE_SIGNATURES)
def test_a_backbones_parameters_are_as_ever(name, expected):
    assert [str(parameter) for parameter in parameters(BACKBONES.get(name)).values()] == expected
