"""The interface of our heads and backbones: names, types and defaults of their parameters, as a suite may give them."""

import pytest
from head_table import ENTRIES, signature

from harness.plan.parameters import parameters
from harness.registry import BACKBONES, HEADS

HEAD_SIGNATURES = {name: signature(name) for name, entry in ENTRIES.items() if "signature" in entry}
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


SIGNATURES = {**HEAD_SIGNATURES, **{name: text.split("; ") for name, text in BACKBONE_SIGNATURES.items()}}


@pytest.mark.parametrize(("registry", "signatures"), [(HEADS, HEAD_SIGNATURES), (BACKBONES, BACKBONE_SIGNATURES)])
def test_every_component_of_ours_is_pinned(registry, signatures):
    ours = {name for name in registry.names() if registry.origin(name).startswith(("heads/", "backbones/"))}
    assert ours == set(signatures)


@pytest.mark.parametrize(("name", "expected"), SIGNATURES.items())
def test_a_components_parameters_are_as_ever(name, expected):
    registry = HEADS if name in HEAD_SIGNATURES else BACKBONES
    assert [str(parameter) for parameter in parameters(registry.get(name)).values()] == expected
