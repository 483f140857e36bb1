"""GPT-2 (Radford et al., 2019), by the model of the transformers library, with random or pretrained weights."""

import re
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from harness.model_folder import WEIGHTS, mapping_in, sha256_of, weight_files
from harness.protocols import Hidden
from harness.registry import BACKBONES

Size = Literal["tiny", "small", "medium", "large", "xl"]


class Shape(NamedTuple):
    """The sizes of a GPT-2."""

    d_model: int
    num_layers: int
    num_heads: int
    vocab_size: int = 50_257
    num_positions: int = 1024


SIZES: dict[str, Shape] = {
    "tiny": Shape(128, 4, 4),
    "small": Shape(768, 12, 12),
    "medium": Shape(1024, 24, 16),
    "large": Shape(1280, 36, 20),
    "xl": Shape(1600, 48, 25),
}
_SMALL = "248dfc3911869ec493c76e65bf2fcf7f615828b0254c12b473182f0f81d3a707"
_XL = "0f8b28eb05a8075f48b61b6f35332978c74fc7763fa9fb4051a1c30511736a6a"
HUB = {  # repository, commit, and the SHA-256 of the weights if independent sources agree on it
    "small": ("openai-community/gpt2", "607a30d783dfa663caf39e06633721c8d4cfcd7e", _SMALL),
    "medium": ("openai-community/gpt2-medium", "6dcaa7a952f72f9298047fd5137cd6e4f05f41da", None),
    "large": ("openai-community/gpt2-large", "32b71b12589c2f8d625668d2335a01cac3249519", None),
    "xl": ("openai-community/gpt2-xl", "15ea56dee5df4983c59b2538573817e1667135e2", _XL),
}
ARCHITECTURE = {  # required values in config.json; with other values it is another model
    "model_type": "gpt2",
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False,
    "add_cross_attention": False,
}
DIMENSIONS = ("n_embd", "n_layer", "n_head", "vocab_size", "n_positions")  # the fields of Shape in config.json
NOT_READ = re.compile(r"lm_head\.weight|h\.\d+\.attn\.(masked_)?bias")  # the tied output matrix; old causal masks
FLOATS = {"F64", "F32", "F16", "BF16"}


@BACKBONES.register("gpt2")
class GPT2(nn.Module):
    """GPT-2: a pre-norm decoder with learned positions and tanh-approximated GELU.

    Shapes: tokens (B, T <= 1024) -> num_layers layers of (B, T, d_model). The top layer is after the final layer norm;
        the others are states of the residual stream. There is no carried state, but `extend` keeps keys and values.
    Args:
        size: 'tiny' (d_model 128, 4 layers, 4 attention heads), 'small' (768, 12, 12), 'medium' (1024, 24, 16), 'large'
            (1280, 36, 20) or 'xl' (1600, 48, 25).
        d_model: the width; None for that of `size`, or of the weights in `path`.
        num_layers: the number of blocks; None as for d_model.
        num_heads: the number of attention heads, which must divide d_model; None as for d_model.
        dropout: the rate of the embedding, residual and attention dropouts.
        weights: 'random', or 'pretrained': the weights in `path`, or without a path the public ones, from the Hugging
            Face hub at a pinned commit. Only config.json and safetensors files are read, which cannot contain code.
        path: a folder that transformers' save_pretrained has written, of GPT2Model or GPT2LMHeadModel. Its config.json
            gives the sizes, so `size` is not needed. Its output matrix (`lm_head.weight`) is not read.
        gradient_checkpointing: in training keep only the inputs of the blocks, and compute the rest again in the
            backward pass: the same gradients with less memory and more time.
        precision: 'fp32', or 'bf16': products in bfloat16 in training, by torch.autocast. The returned states, and all
            of evaluation, are in the type of the weights, float32.
    Raises: ValueError when a size is < 1, num_heads does not divide d_model, dropout is not in [0, 1), a segment is too
        long, or pretrained weights are missing, damaged, pickled, or of another architecture, size or vocabulary.
    Source: Radford et al. (2019), "Language Models are Unsupervised Multitask Learners"; transformers, GPT2Model.
    Differs: no differences; it is the model of a library. Number of parameters: V d + 1024 d + L (12 d^2 + 13 d) + 2 d.
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        size: Size = "small",
        d_model: int | None = None,
        num_layers: int | None = None,
        num_heads: int | None = None,
        dropout: float = 0.1,
        weights: Literal["random", "pretrained"] = "random",
        path: Path | None = None,
        gradient_checkpointing: bool = False,
        precision: Literal["fp32", "bf16"] = "fp32",
    ):
        from transformers import GPT2Config, GPT2Model  # here: it takes seconds to import

        super().__init__()
        given = {"d_model": d_model, "num_layers": num_layers, "num_heads": num_heads}
        shape = _shape(vocab_size, size, weights, path, {name: n for name, n in given.items() if n is not None})
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {dropout}")
        sizes = dict(zip(DIMENSIONS, shape, strict=True))
        rates = dict.fromkeys(("embd_pdrop", "resid_pdrop", "attn_pdrop"), dropout)
        no_text = {"use_cache": False, "bos_token_id": None, "eos_token_id": None}
        # pyrefly: ignore[unexpected-keyword] - it is a parameter of the class above
        self.model = GPT2Model(GPT2Config(**sizes, **rates, **no_text, attn_implementation="sdpa"))
        if gradient_checkpointing:
            new = getattr(self.model, "activation_checkpointing_enable", None)  # its name in newer transformers
            (new or self.model.gradient_checkpointing_enable)({"use_reentrant": False})
        self.precision, self.num_positions = precision, shape.num_positions
        self.layer_dims = (shape.d_model,) * shape.num_layers
        if path is not None:
            _read(weight_files(Path(path), "path"), self.model)
        elif weights == "pretrained" and not self.embedding.weight.is_meta:
            _read([_from_hub(size)], self.model)

    @classmethod
    def content(cls, *, size: str = "small", weights="random", path: Path | None = None, **_: object) -> str | None:
        """Return the identity of pretrained weights: the SHA-256 of the file (or of the hashes of several files) and
        the number of attention heads, which no tensor's shape shows. Public weights without a pinned hash have their
        address at the hub. None for random weights. Raises ValueError in the same cases as the constructor.
        """
        if weights == "random":
            return None
        if path is None:
            repository, commit, sha256 = HUB[size]
            return f"{repository}@{commit}" if sha256 is None else f"{sha256} heads={SIZES[size].num_heads}"
        return f"{sha256_of(weight_files(Path(path), 'path'))} heads={_configured(Path(path)).num_heads}"

    @classmethod
    def fetch(cls, *, size: str = "small", weights="random", path: Path | None = None, **_: object) -> None:
        """Download public weights to the hub library's cache if they are missing, and verify them. Raises OSError when
        they cannot be downloaded, ValueError when the file has another hash.
        """
        if weights == "pretrained" and path is None:
            _from_hub(size)

    @property
    def embedding(self) -> nn.Embedding:
        """The input embedding (V, d_model)."""
        return self.model.wte

    def forward(self, tokens_BT: Tensor, state: None = None) -> Hidden:
        """Map (B, T) token ids to the states of all layers. `state` is not used: a segment is the whole context."""
        if (length := tokens_BT.shape[1]) > self.num_positions:
            raise ValueError(f"gpt2 has {self.num_positions} positions, the segment has {length} tokens")
        return Hidden(self._layers(tokens_BT))

    def extend(self, tokens_BT: Tensor, state: object = None) -> Hidden:
        """Map (B, T) token ids that continue the text of `state` to the states of the new positions and a new state of
        keys and values. For sampling, in evaluation mode. The given state is changed and must not be used again.

        Raises: ValueError beyond 1024 positions, and in training.
        """
        from transformers import DynamicCache

        if self.training:
            raise ValueError("extend is for sampling: call eval() first")
        cache = DynamicCache(config=self.model.config) if state is None else state
        if (length := cache.get_seq_length() + tokens_BT.shape[1]) > self.num_positions:
            raise ValueError(f"gpt2 has {self.num_positions} positions, the text has {length} tokens")
        return Hidden(self._layers(tokens_BT, cache, use_cache=True), cache)

    def _layers(self, tokens_BT: Tensor, *state: Any, use_cache: bool = False) -> tuple[Tensor, ...]:
        # The state is given by its position: transformers 5.24 renamed the parameter, past_key_values, to cache.
        with torch.autocast(tokens_BT.device.type, torch.bfloat16, enabled=self.training and self.precision == "bf16"):
            states = self.model(tokens_BT, *state, output_hidden_states=True, use_cache=use_cache).hidden_states
        return tuple(h_BTD.to(self.embedding.weight.dtype) for h_BTD in states[1:])  # states[0]: the embedding


def _shape(vocab_size: int, size: str, weights: str, path: Path | None, given: dict[str, int]) -> Shape:
    """Return the sizes for the constructor's arguments. Raises ValueError if they contradict each other."""
    if weights == "random":
        if path is not None:
            raise ValueError("path is for pretrained weights: add weights: pretrained, or remove path")
        shape = SIZES[size]._replace(**given, vocab_size=vocab_size)
    elif path is None:
        if size not in HUB:
            raise ValueError(f"size: there are no public weights of the size '{size}'; give a folder's path")
        shape = SIZES[size]
    else:
        shape = _configured(Path(path))
        if size != "small" and SIZES[size][:3] != shape[:3]:
            raise ValueError(f"size: '{size}' is (d_model, layers, heads) = {SIZES[size][:3]}, {path} is {shape[:3]}")
    for name, number in given.items():
        if number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
        if number != getattr(shape, name):
            raise ValueError(f"{name}: the weights have {getattr(shape, name)}, got {number}")
    if shape.d_model % shape.num_heads:
        raise ValueError(f"num_heads must divide d_model, got {shape.num_heads} heads for a width of {shape.d_model}")
    if shape.vocab_size != vocab_size:
        raise ValueError(f"weights: their vocabulary has {shape.vocab_size:,} entries, the corpus {vocab_size:,}")
    return shape


def _configured(folder: Path) -> Shape:
    """Return the sizes in a folder's config.json. Raises ValueError if it is not the configuration of a GPT-2."""
    place = folder / "config.json"
    config = mapping_in(place, "path")
    for name, ours in ARCHITECTURE.items():
        found = config.get(name, None if name == "model_type" else ours)
        if found != ours:
            raise ValueError(f"path: {place}: {name} is {str(found)[:80]}, expected {ours}")
    shape = Shape(*map(config.get, DIMENSIONS))
    for name, number in zip(DIMENSIONS, shape, strict=True):
        if type(number) is not int or number < 1:
            raise ValueError(f"path: {place}: {name} is {str(number)[:80]}, expected a whole number from 1")
    if config.get("n_inner") not in (None, 4 * shape.d_model):
        raise ValueError(f"path: {place}: n_inner is {str(config['n_inner'])[:80]}, expected 4 n_embd")
    return shape


def _read(files: list[Path], model: nn.Module) -> None:
    """Copy the tensors of files to a model. For a model on the meta device, only names and shapes are read.

    Raises: ValueError when a file is damaged, or has other tensors than the model.
    """
    from safetensors import SafetensorError, safe_open

    missing = model.state_dict()
    for place in files:
        try:
            with safe_open(place, framework="pt") as file, torch.no_grad():
                for key in file.keys():  # noqa: SIM118 - it is not a mapping
                    name, stored = key.removeprefix("transformer."), file.get_slice(key)
                    if NOT_READ.fullmatch(name):
                        continue
                    tensor, shape = missing.pop(name, None), tuple(stored.get_shape())
                    if tensor is None:
                        raise ValueError(f"path: {place}: {key[:80]} is not a tensor of this GPT-2, or is repeated")
                    if shape != tensor.shape or stored.get_dtype() not in FLOATS:
                        found = f"{stored.get_dtype()} {list(shape)}, expected floats {list(tensor.shape)}"
                        raise ValueError(f"path: {place}: {key} is {found}")
                    if not tensor.is_meta:
                        tensor.copy_(file.get_tensor(key))
        except (SafetensorError, OSError) as cause:
            raise ValueError(f"path: {place} cannot be read as safetensors ({cause})") from cause
    if missing:
        raise ValueError(f"path: {files[0].parent} has no tensor {next(iter(missing))} in its safetensors")


def _from_hub(size: str) -> Path:
    """Return the file in the hub library's cache. Download it if it is missing, and verify it if a hash is pinned."""
    from huggingface_hub import constants, hf_hub_download

    repository, commit, sha256 = HUB[size]
    try:
        place = Path(hf_hub_download(repository, WEIGHTS, revision=commit))
    except Exception as cause:  # errors of the library, of the network or of the file system
        raise OSError(
            f"{WEIGHTS} of {repository} at {commit[:7]} is not in {constants.HF_HUB_CACHE} and could not be downloaded "
            f"({type(cause).__name__}); get it and config.json from https://huggingface.co/{repository}, and give the "
            "folder that holds them as the backbone's path"
        ) from cause
    if sha256 is not None and (found := sha256_of([place])) != sha256:
        raise ValueError(f"{place} has another content: expected sha256 {sha256}, found {found}; remove it")
    return place
