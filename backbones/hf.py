"""Any causal language model of the transformers library, with pretrained or random weights."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from harness.model_folder import mapping_in, sha256_of, weight_files
from harness.protocols import Hidden, OutputLayer
from harness.registry import BACKBONES

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
COMMIT = re.compile("[0-9a-f]{40}")
READ = ["config.json", "*.safetensors", "*.safetensors.index.json", "tokenizer*.json"]  # of a repository of the hub
SOFTCAP, FACTOR, DIVISOR = "final_logit_softcapping", ("logit_scale", "lm_head_multiplier"), "logits_scaling"
TRIED = 8  # tokens on which the output layer is compared with the model's logits
SMALL = {  # the configuration without `model` and `config`
    **{"model_type": "llama", "hidden_size": 128, "intermediate_size": 344},
    **{"num_hidden_layers": 4, "num_attention_heads": 4},
}
ADAPTER = "adapter_config.json"
NEEDS_CODE = ("quantization_config", "attn_implementation", "_attn_implementation")  # in config.json: of other packages
NO_TEXT = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None, "use_cache": False}


@BACKBONES.register("hf")
class HuggingFaceModel(nn.Module):
    """The decoder of any model that transformers' AutoModelForCausalLM opens: Llama, Qwen, Gemma, SmolLM, Mamba, ...

    Shapes: tokens (B, T) -> for each of `layers` (B, T, D). The top layer is what the model's own output layer reads,
        after its final norm. There is no carried state: a segment is the whole context.
    Args:
        model: a folder that save_pretrained has written, or a repository of the Hugging Face hub ('owner/name') with
            `revision`. Only config.json and safetensors files are read, and no code of the folder is executed.
        config: the model's configuration in place of `model`, for random weights: {model_type: llama, hidden_size: 128,
            num_hidden_layers: 4, ...}. V is that of the corpus; other keys have the defaults of transformers. Without
            `model` and `config` it is a Llama of 4 layers, 128 wide.
        revision: the commit of the repository, 40 hexadecimal digits.
        weights: of `model`: 'pretrained', or 'random', its architecture only. With `config` they are random.
        frozen: the weights stay as they are. The hidden states of the text are then computed once and kept in files,
            for `batching: blocks`; trials read them and train the head only.
        layers: which layers heads read, bottom to top: -1 is the top one, 0 the output of the first block.
        first_token: the id of a token that the model reads before each segment and that is never scored. Gemma needs
            its `bos_token_id` of config.json: without it its perplexities mean nothing. None: no token. The first token
            of a segment is not scored in either case.
        dtype: 'bfloat16': products of the decoder in bfloat16, in training by torch.autocast with float32 weights. A
            frozen decoder has bfloat16 weights and states.
    Raises: ValueError when both model and config are given, the folder is unfit or of another vocabulary
        than the corpus, a key of `config`, a layer or the first token is unknown, a segment is too long, `frozen` is
        given for random weights, or the model's logits are not those of its output matrix.
    Source: the transformers library; the model's own paper.
    Differs: no differences; it is the model of a library.
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        model: Path | str | None = None,
        config: dict[str, Any] | None = None,
        revision: str | None = None,
        weights: Literal["pretrained", "random"] = "pretrained",
        frozen: bool = False,
        layers: tuple[int, ...] = (-1,),
        first_token: int | None = None,
        dtype: Literal["float32", "bfloat16"] = "float32",
    ):
        super().__init__()
        config = SMALL if model is None and config is None else config
        pretrained = _is_pretrained(model, config, weights, frozen)
        self.folder = None if model is None else _folder(model, revision)
        self.config = _configured(self.folder, config, vocab_size, pretrained=pretrained)
        self.frozen, self.layers = frozen, layers
        if first_token is not None and first_token not in range(vocab_size):
            raise ValueError(f"first_token: expected an id from 0 to {vocab_size - 1:,}, got {first_token}")
        self.first_token = first_token
        self.type = getattr(torch, dtype)
        self.num_positions = getattr(self.config, "max_position_embeddings", None)
        if self.num_positions is not None and first_token is not None:
            self.num_positions -= 1
        depth = self.config.num_hidden_layers
        if not layers or not all(-depth <= layer < depth for layer in layers):
            raise ValueError(f"layers: the model has {depth}, from {-depth} to {depth - 1}; got {list(layers)}")
        self.register_buffer("like", torch.zeros(()), persistent=False)  # the type and device that states are given in
        on_meta = self.like.is_meta
        if frozen:
            with torch.device("meta"):
                causal = _random(self.config)
            self.num_parameters = _size(causal.base_model)
            read = (causal, self.config, self.folder)
            self.output_layer, embedding = _ends(causal, self.config) if on_meta else _read_ends(*read)
            self.__dict__["embedding"] = embedding  # no parameter of this module: it is neither trained nor saved
        else:
            causal = _pretrained(self.folder, torch.float32) if pretrained and not on_meta else _random(self.config)
            self.body = causal.base_model
            self.output_layer = _output_layer(causal, self.config) if pretrained else None
        self.layer_dims = (causal.get_output_embeddings().weight.shape[1],) * len(layers)
        self._frozen_body: list[nn.Module] = []

    @classmethod
    def content(cls, *, model=None, config=None, revision=None, weights="pretrained", **_: Any) -> str | None:
        """Return the identity of the model's files: the SHA-256 of config.json and, for pretrained weights, of the
        safetensors files; of a repository its name and commit. None with `config`, which is in the trial's id.
        """
        if model is None:
            return None
        if _is_hub_id(model):
            return f"{model}@{_commit(model, revision)}"
        folder = _folder(model, revision)
        files = [folder / "config.json"]
        mapping_in(files[0], "model")
        return sha256_of(files if weights == "random" else [*files, *weight_files(folder, "model")])

    @classmethod
    def fetch(cls, *, model=None, revision=None, **_: Any) -> None:
        """Download a repository to the hub library's cache if it is not there. Raises OSError when that fails."""
        if model is not None and _is_hub_id(model):
            _folder(model, revision, download=True)

    @classmethod
    def is_frozen(cls, *, frozen: bool = False, **_: Any) -> bool:
        """Return `frozen`."""
        return frozen

    @classmethod
    def state_of_token(
        cls, *, model, revision=None, layers=(-1,), dtype="float32", **_: Any
    ) -> tuple[int, torch.dtype]:
        """Return the numbers of a token's state, by config.json, and their type."""
        from transformers import AutoConfig

        config = AutoConfig.from_pretrained(_folder(model, revision), local_files_only=True, trust_remote_code=False)
        text = config.get_text_config()
        width = getattr(text, "word_embed_proj_dim", None) or text.hidden_size  # OPT projects its top state
        return len(layers) * width, getattr(torch, dtype)

    def __getattr__(self, name: str) -> Any:
        if name == "embedding":  # (V, E) the input embedding
            return self.body.get_input_embeddings()
        return super().__getattr__(name)

    def forward(self, tokens_BT: Tensor, state: None = None) -> Hidden:
        """Map (B, T) token ids to the states of `layers`. A frozen decoder loads its weights in the first call."""
        if self.num_positions is not None and (length := tokens_BT.shape[1]) > self.num_positions:
            raise ValueError(f"hf: the model has {self.num_positions} positions, the segment has {length} tokens")
        if self.first_token is not None:
            first_B1 = tokens_BT.new_full((len(tokens_BT), 1), self.first_token)
            tokens_BT = torch.hstack([first_B1, tokens_BT])
        with self._precision(tokens_BT.device):
            found = self._decoder(tokens_BT.device)(input_ids=tokens_BT, use_cache=False, output_hidden_states=True)
        depth = len(found.hidden_states) - 1  # hidden_states[0]: the embedding
        top = {-1, depth - 1}
        chosen = (found.last_hidden_state if layer in top else found.hidden_states[1:][layer] for layer in self.layers)
        begin = int(self.first_token is not None)
        return Hidden(tuple(layer_BTD[:, begin:].to(self.like.dtype) for layer_BTD in chosen))

    @contextmanager
    def _precision(self, device: torch.device) -> Iterator[None]:
        """Products in bfloat16 in training, or no gradients for a frozen decoder."""
        narrow = self.training and self.type == torch.bfloat16 and not self.frozen
        with (
            torch.autocast(device.type, torch.bfloat16, enabled=narrow),
            torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen),
        ):
            yield

    def _decoder(self, device: torch.device) -> nn.Module:
        if not self.frozen:
            return self.body
        if not self._frozen_body:
            causal = _pretrained(self.folder, self.type)
            self._frozen_body.append(causal.base_model.requires_grad_(False).eval())
        return self._frozen_body[0].to(device)


def _is_pretrained(model: Any, config: Any, weights: str, frozen: bool) -> bool:
    """Whether weights are read. Raises ValueError when the parameters contradict each other."""
    if model is not None and config is not None:
        raise ValueError("config: is for a model with random weights that has no folder; give it or model")
    pretrained = model is not None and weights != "random"
    if frozen and not pretrained:
        raise ValueError("frozen: random weights have to be trained; give a model with pretrained weights")
    return pretrained


def _is_hub_id(model: Path | str) -> bool:
    return HUB_ID.fullmatch(str(model)) is not None and not Path(model).is_dir()


def _commit(model: Path | str, revision: str | None) -> str:
    """The commit of a repository. Raises ValueError when there is none."""
    if revision is None or not COMMIT.fullmatch(revision):
        raise ValueError(
            f"revision: the hub's {model} needs the commit, 40 hexadecimal digits, got {revision}; if {model} is a "
            "folder, write its path from the suite's folder, or an absolute one"
        )
    return revision


def _folder(model: Path | str, revision: str | None, *, download: bool = False) -> Path:
    """The folder of a model. Raises ValueError when there is none; OSError when it cannot be downloaded."""
    if not _is_hub_id(model):
        if revision is not None:
            raise ValueError("revision: is for a repository of the hub; model is a folder")
        if not Path(model).is_dir():
            raise ValueError(f"model: {model} is no folder, nor a repository of the hub like 'owner/name'")
        return Path(model)
    from huggingface_hub import constants, snapshot_download

    revision = _commit(model, revision)
    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=READ, local_files_only=not download))
    except Exception as cause:  # errors of the library, of the network or of the file system
        raise (OSError if download else ValueError)(
            f"model: {model} at {revision[:7]} is not in {constants.HF_HUB_CACHE}"
            + (f" and could not be downloaded ({type(cause).__name__})" if download else "")
            + f"; download it with `hf download {model} --revision {revision}`, or give a folder"
        ) from cause


def _configured(folder: Path | None, config: dict[str, Any] | None, vocab_size: int, *, pretrained: bool) -> Any:
    """The configuration of the model. Raises ValueError when it is unfit."""
    from transformers import AutoConfig

    key = "config" if folder is None else "model"
    given = dict(config) if folder is None else mapping_in(folder / "config.json", key)
    if unfit := [name for name in NEEDS_CODE if given.get(name) is not None]:
        raise ValueError(f"{key}: {unfit[0]} needs code of another package; give a model without it")
    if folder is not None and (folder / ADAPTER).exists():
        raise ValueError(
            f"{key}: {folder} holds {ADAPTER}, weights that are not its own; merge them into a model first"
        )
    kind = given.pop("model_type", None)
    try:
        found = (
            AutoConfig.for_model(kind)
            if folder is None
            else AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        )
    except Exception as cause:  # the library's own, of many kinds
        raise ValueError(
            f"{key}: transformers knows no model_type {str(kind)[:80]!r}, and no code of a folder is executed"
        ) from cause
    if folder is None:
        known = {*found.to_dict(), *type(found).attribute_map, "rope_parameters", "rope_theta"} - {"vocab_size"}
        if unknown := sorted(given.keys() - known):
            raise ValueError(f"config: {unknown[0]} is no setting of a {kind} that can be chosen here")
        found = AutoConfig.for_model(kind, **given, **NO_TEXT, vocab_size=vocab_size)
    found = found.get_text_config()
    if not pretrained:
        found.vocab_size = vocab_size
        found.update(NO_TEXT)
    if found.vocab_size != vocab_size:
        raise ValueError(f"{key}: the model's vocabulary has {found.vocab_size:,} entries, the corpus {vocab_size:,}")
    return found


def _random(config: Any) -> nn.Module:
    """The causal model with random weights."""
    from transformers import AutoModelForCausalLM

    try:
        return AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except (ImportError, KeyError, ValueError, TypeError, RuntimeError, AssertionError) as cause:
        reason = str(cause).partition("\n")[0][:200]
        raise ValueError(f"config: transformers cannot build this {config.model_type} ({reason})") from cause


def _pretrained(folder: Path, dtype: torch.dtype) -> nn.Module:
    """The causal model with the folder's weights; no code of the folder is executed.

    Raises: ValueError when a tensor is missing, left over, of another shape, or damaged; or when the logits are not
    those of the output layer.
    """
    from transformers import AutoModelForCausalLM

    weight_files(folder, "model")
    how = {"local_files_only": True, "use_safetensors": True, "trust_remote_code": False, "output_loading_info": True}
    try:
        with _no_bars():
            causal, info = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, **how)
    except Exception as cause:  # the library's own, of safetensors or of torch
        raise ValueError(
            f"model: {folder} cannot be read ({str(cause).strip().partition(chr(10))[0][:200]})"
        ) from cause
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if names := sorted(map(str, info.get(what, ()))):
            raise ValueError(f"model: the safetensors of {folder} do not fit its config.json: {what} {names[0][:80]}")
    config = causal.config.get_text_config()
    _compare_logits(causal.eval(), config)
    return causal


@contextmanager
def _no_bars() -> Iterator[None]:
    """Without transformers' progress bars and reports of loading."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _output_layer(causal: nn.Module, config: Any) -> OutputLayer:
    """The output layer of a causal model."""
    output = causal.get_output_embeddings()
    return _scaled(output.weight.detach(), getattr(output, "bias", None), config)


def _scaled(weight: Tensor, bias: Tensor | None, config: Any) -> OutputLayer:
    """The output layer with the factor and the cap of the configuration."""
    factor = 1 / (getattr(config, DIVISOR, None) or 1.0)
    for name in FACTOR:
        factor *= getattr(config, name, None) or 1.0
    bias = None if bias is None else bias.detach()
    if factor != 1.0:
        weight, bias = weight * factor, None if bias is None else bias * factor
    return OutputLayer(weight=weight, bias=bias, softcap=getattr(config, SOFTCAP, None))


@torch.no_grad()
def _compare_logits(causal: nn.Module, config: Any) -> None:
    """Raises ValueError unless the logits are phi(W h + b) of the state that heads read."""
    tokens_1T = torch.arange(TRIED)[None] % config.vocab_size
    found = causal(input_ids=tokens_1T, use_cache=False).logits.double()
    state = causal.base_model(input_ids=tokens_1T, use_cache=False).last_hidden_state.double()
    layer = _output_layer(causal, config)
    logits = state @ layer.weight.double().T + (0.0 if layer.bias is None else layer.bias.double())
    if layer.softcap is not None:
        logits = layer.softcap * (logits / layer.softcap).tanh()
    bound = 1e-4 if causal.dtype == torch.float32 else 5e-2
    if (logits - found).norm() > bound * found.norm():  # guard: logits-of-output-layer
        raise ValueError(
            f"model: the logits of this {config.model_type} are not its output matrix times its top state, so heads "
            "cannot stand in the place of its output layer"
        )


def _ends(causal: nn.Module, config: Any) -> tuple[OutputLayer, nn.Embedding]:
    """The output layer and the input embedding of a model in memory."""
    return _output_layer(causal, config), _frozen(causal.get_input_embeddings().weight.detach())


def _read_ends(causal: nn.Module, config: Any, folder: Path) -> tuple[OutputLayer, nn.Embedding]:
    """The output layer and the input embedding from the files, without the rest of the model if they are found there by
    their names.

    Args:
        causal: the model on the meta device, for names and shapes.
    """
    embedding, output = causal.get_input_embeddings(), causal.get_output_embeddings()
    names = {id(each): [] for each in (embedding.weight, output.weight, getattr(output, "bias", None))}
    for name, each in causal.named_parameters(remove_duplicate=False):
        if id(each) in names:
            names[id(each)] += [name, name.removeprefix(f"{causal.base_model_prefix}.")]
    tied = getattr(config, "tie_word_embeddings", False)
    wanted = {"embedding": embedding.weight, "weight": embedding.weight if tied else output.weight}
    if getattr(output, "bias", None) is not None:
        wanted["bias"] = output.bias
    found = {what: _stored(names[id(each)], each.shape, folder) for what, each in wanted.items()}
    if any(each is None for each in found.values()):  # files of an older transformers have other names
        return _ends(_pretrained(folder, torch.float32), config)
    return _scaled(found["weight"], found.get("bias"), config), _frozen(found["embedding"])


def _frozen(weight: Tensor) -> nn.Embedding:
    return nn.Embedding.from_pretrained(weight, freeze=True)


def _stored(names: list[str], shape: torch.Size, folder: Path) -> Tensor | None:
    """The first of some tensors that the folder's files hold, in float32; None if they hold none of this shape."""
    from safetensors import SafetensorError, safe_open

    for place in weight_files(folder, "model"):
        try:
            with safe_open(place, framework="pt") as file:
                for name in names:
                    if name in file.keys() and tuple(file.get_slice(name).get_shape()) == tuple(shape):  # noqa: SIM118
                        return file.get_tensor(name).float()
        except (SafetensorError, OSError) as cause:
            raise ValueError(f"model: {place} cannot be read as safetensors ({cause})") from cause
    return None


def _size(body: nn.Module) -> int:
    return sum(each.numel() for each in body.parameters())
