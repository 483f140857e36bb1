"""The interface of our heads and backbones: names, types and defaults of their parameters, as a suite may give them."""

import pytest

from harness.plan.parameters import parameters
from harness.registry import BACKBONES, HEADS

COMPAT = "compat: dict[Literal['log_epsilon'], float] | None = None"
SOFTCAP = "softcap: float | dict[Literal['a', 'b', 'c'], float] | None = None"
START = "init_range: float | None = None; init_bias: Literal['zero', 'uniform'] = 'zero'"
PROJECTION = "projection: bool = False; bias: bool = True; tie_weights: bool = False"
OUTPUT = "bias: bool = True; tie_weights: bool = False; d_embed: int | None = None"
BARE = "bias: bool = False; tie_weights: bool = False"
AS_MODEL = "start: Literal['xavier', 'embedding', 'pretrained'] = 'xavier'"
MASK = "dropout_mask: Literal['position', 'sequence'] = 'position'"
HEAD_SIGNATURES = {
    "adaptive": "cutoffs: tuple[int, ...] | None = None; div_value: float = 4.0; bias: bool = True",
    "doc": (
        "components: dict[Literal['top', 'second', 'third'], int] | tuple[int, ...] = (15, 5); "
        "dropout: float = 0.0; balance: Literal['paper', 'code'] = 'paper'; balance_weight: float = 0.001; "
        f"{OUTPUT}; {COMPAT}; {START}; {SOFTCAP}"
    ),
    "doc_poster": f"num_mixtures: int = 3; norm_inputs: bool = False; {BARE}; {COMPAT}; {START}; {SOFTCAP}",
    "gss": f"c: float = -1.5; k: float = 2.5; {PROJECTION}; {START}",
    "harmonic": (
        "exponent: float | None = None; projection: bool = False; tie_weights: bool = False; "
        "init_range: float | None = None"
    ),
    "mfs": (
        "num_mixtures: int = 3; num_input_layers: int | None = None; window: int = 2; num_partitions: int = 4; "
        f"norm_inputs: bool = False; {BARE}; {COMPAT}; {START}; {SOFTCAP}"
    ),
    "mixtape": (
        "d_gate: int = 32; own_gates: float = 0.1; dropout: float = 0.0; bias: bool = True; "
        f"tie_weights: bool = False; {START}"
    ),
    "moc": (
        f"num_mixtures: int = 10; dropout: float = 0.0; {MASK}; prior_bias: bool = False; {OUTPUT}; {START}; "
        f"{SOFTCAP}; activation: Literal['tanh', 'none'] = 'tanh'; {AS_MODEL}"
    ),
    "mos": (
        f"num_mixtures: int = 10; dropout: float = 0.0; {MASK}; activation: Literal['tanh', 'none'] = 'tanh'; "
        f"prior_bias: bool = False; {OUTPUT}; logit_map: Literal['identity', 'sigsoftmax', 'stablemax'] = 'identity'; "
        "gate: Literal['learned', 'constant', 'static'] = 'learned'; loss: Literal['nll', 'binary'] = 'nll'; "
        f"{COMPAT}; {START}; {SOFTCAP}; {AS_MODEL}"
    ),
    "mtp": (
        "further: tuple[float, ...] = (0.5, 0.25); fade: tuple[tuple[float, float], ...] | None = None; "
        f"maps: Literal['shared', 'linear'] = 'shared'; {PROJECTION}; {SOFTCAP}; {START}"
    ),
    "early": (
        f"layer: int | None = None; weight: float = 0.1; fade: tuple[float, float] | None = None; {PROJECTION}; {START}"
    ),
    "token_order": (
        f"window: int = 16; weight: float = 1.0; fade: tuple[float, float] | None = None; {PROJECTION}; {START}"
    ),
    "bag_of_words": (
        f"window: int = 12; weight: float = 0.1; fade: tuple[float, float] | None = None; {PROJECTION}; {START}"
    ),
    "byte_loss": (
        f"num_bytes: int = 4; weight: float = 0.1; fade: tuple[float, float] | None = None; {PROJECTION}; {START}"
    ),
    "untying": f"share: float = {2 / 3}; projection: bool = False; bias: bool = True; {START}",
    "mtp_module": (
        "weight: float = 0.3; fade: tuple[float, float] | None = None; num_heads: int = 1; d_ff: int | None = None; "
        f"{PROJECTION}; {START}"
    ),
    "multimax": f"init_std: float = 0.02; {PROJECTION}; {START}",
    "ngpt": (
        f"scale: Literal['words', 'one'] = 'words'; scale_start: float = 1.0; projection: bool = False; {BARE}; {START}"
    ),
    "nce": (
        f"num_noise: int = 100; log_normaliser: float | None = None; {PROJECTION}; "
        "init_range: float | None = None; init_bias: Literal['zero', 'uniform', 'unigram'] = 'zero'"
    ),
    "plif": (
        "num_pieces: int = 100000; bound: float = 20.0; noise: float = 1.0; slope_rate: float = 1.0; "
        f"{PROJECTION}; {START}"
    ),
    "sigsoftmax": f"{PROJECTION}; {AS_MODEL}; {COMPAT}; {START}",
    "softmax": (
        f"{PROJECTION}; loss: Literal['nll', 'binary'] = 'nll'; "
        f"{AS_MODEL}; {COMPAT}; {START}; d_embed: int | None = None; "
        f"{SOFTCAP}; mu_centering: bool = False; mu_loss: float = 0.0; z_loss: float = 0.0; "
        "input_gradient_scale: float = 1.0; logit_map: Literal['identity', 'stablemax'] = 'identity'"
    ),
}
RECURRENT = (
    "d_model: int = 200; num_layers: int = 2; dropout: float = 0.2; d_input: int | None = None; "
    "embedding_dropout: float | None = None; init_range: float | None = None"
)
BACKBONE_SIGNATURES = {
    "awd_lstm": (
        "d_embed: int = 400; d_hidden: int = 1150; d_last: int | None = None; num_layers: int = 3; "
        "dropout: float = 0.4; hidden_dropout: float = 0.25; input_dropout: float = 0.4; "
        "embedding_dropout: float = 0.1; weight_drop: float = 0.5"
    ),
    "gpt2": (
        "size: Literal['tiny', 'small', 'medium', 'large', 'xl'] = 'small'; d_model: int | None = None; "
        "num_layers: int | None = None; num_heads: int | None = None; dropout: float = 0.1; "
        "weights: Literal['random', 'pretrained'] = 'random'; path: pathlib.Path | None = None; "
        "gradient_checkpointing: bool = False; precision: Literal['fp32', 'bf16'] = 'fp32'"
    ),
    "hf": (
        "model: pathlib.Path | str | None = None; config: dict[str, Any] | None = None; revision: str | None = None; "
        "weights: Literal['pretrained', 'random'] = 'pretrained'; frozen: bool = False; "
        "layers: tuple[int, ...] = (-1,); first_token: int | None = None; "
        "dtype: Literal['float32', 'bfloat16'] = 'float32'"
    ),
    "bilstm": RECURRENT,
    "gru": RECURRENT,
    "lstm": RECURRENT,
    "transformer_encoder": (
        "d_model: int = 200; num_layers: int = 4; num_heads: int = 4; d_ff: int = 200; dropout: float = 0.2; "
        "layer_dropout: float = 0.1"
    ),
}


@pytest.mark.parametrize(("registry", "signatures"), [(HEADS, HEAD_SIGNATURES), (BACKBONES, BACKBONE_SIGNATURES)])
def test_every_component_of_ours_is_pinned(registry, signatures):
    ours = {name for name in registry.names() if registry.origin(name).startswith(("heads/", "backbones/"))}
    assert ours == set(signatures)


@pytest.mark.parametrize(("name", "expected"), [*HEAD_SIGNATURES.items(), *BACKBONE_SIGNATURES.items()])
def test_a_components_parameters_are_as_ever(name, expected):
    registry = HEADS if name in HEAD_SIGNATURES else BACKBONES
    assert [str(parameter) for parameter in parameters(registry.get(name)).values()] == expected.split("; ")
