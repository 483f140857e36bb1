"""Any causal language model of the transformers library, with pretrained or random weights."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from harness.model_folder import mapping_in, sha256_of, stored_tensors, tensor_in, weight_files
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
ADAPTER, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.*"
SHOWN = 3  # names of tensors in a sentence
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
        given for random weights, a weight is missing or not finite, or the model's logits are not those of its output
        matrix.
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
            self.__dict__["shapes"] = causal.base_model
            read = (causal, self.config, self.folder)
            self.output_layer, embedding = _ends(causal, self.config) if on_meta else _read_ends(*read)
            self.__dict__["embedding"] = embedding  # no parameter of this module: it is neither trained nor saved
        else:
            causal = _pretrained(self.folder, torch.float32) if pretrained and not on_meta else _random(self.config)
            self.body = causal.base_model
            self.output_layer = _output_layer(causal, self.config) if pretrained else None
            if pretrained and not on_meta:
                _compare_logits(causal, self.output_layer)
        self.notes = _notes(causal, self.folder) if pretrained and on_meta else ()
        self.layer_dims = (causal.get_output_embeddings().weight.shape[1],) * len(layers)
        self._frozen_body: list[nn.Module] = []

    @classmethod
    def content(cls, *, model=None, config=None, revision=None, weights="pretrained", **_: object) -> str | None:
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
    def fetch(cls, *, model=None, revision=None, **_: object) -> None:
        """Download a repository to the hub library's cache if it is not there. Raises OSError when that fails."""
        if model is not None and _is_hub_id(model):
            _folder(model, revision, download=True)

    @classmethod
    def is_frozen(cls, *, frozen: bool = False, **_: object) -> bool:
        """Return `frozen`."""
        return frozen

    @classmethod
    def state_of_token(
        cls, *, model, revision=None, layers=(-1,), dtype="float32", **_: object
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
            _compare_logits(causal, self.output_layer)
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
    # with peft, transformers opens the model that the adapter names, and not the folder's
    if _has_adapter(folder) and (any(folder.glob(ADAPTER_WEIGHTS)) or find_spec("peft") is not None):
        raise ValueError(
            f"{key}: {folder} holds {ADAPTER}, weights that are not its own; merge them into a model first, or if "
            f"they are merged already, remove {ADAPTER} and {ADAPTER_WEIGHTS}"
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


def _has_adapter(folder: Path | None) -> bool:
    return folder is not None and (folder / ADAPTER).exists()


def _random(config: Any) -> nn.Module:
    """The causal model with random weights."""
    from transformers import AutoModelForCausalLM

    try:
        return AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except (ImportError, KeyError, ValueError, TypeError, RuntimeError, AssertionError) as cause:
        reason = str(cause).partition("\n")[0][:200]
        raise ValueError(f"config: transformers cannot build this {config.model_type} ({reason})") from cause


def _pretrained(folder: Path, dtype: torch.dtype) -> nn.Module:
    """The causal model with the folder's weights; no code of the folder is executed. Tensors that the model does not
    need are left out, with transformers' own warning.

    Raises: ValueError when a tensor is missing, of another shape, damaged, or has a number that is not finite.
    """
    from transformers import AutoModelForCausalLM

    weight_files(folder, "model")
    how = {"local_files_only": True, "use_safetensors": True, "trust_remote_code": False, "output_loading_info": True}
    try:
        with _no_bars():
            # other shapes are in `info`, and are refused below
            causal, info = AutoModelForCausalLM.from_pretrained(
                folder, dtype=dtype, ignore_mismatched_sizes=True, **how
            )
    except Exception as cause:  # the library's own, of safetensors or of torch
        raise ValueError(
            f"model: {folder} cannot be read ({type(cause).__name__}: {str(cause).strip().partition(chr(10))[0][:200]})"
        ) from cause
    for name, stored, expected in sorted(info.get("mismatched_keys", ())):
        raise ValueError(
            f"model: {name} is {tuple(stored)} in the safetensors of {folder}, and {tuple(expected)} by its "
            "config.json; correct config.json, or save the model again with save_pretrained"
        )
    if names := sorted(map(str, info.get("missing_keys", ()))):
        raise ValueError(
            f"model: the safetensors of {folder} do not hold {_listed(names)}, which transformers would fill at "
            "random; save the whole model with save_pretrained"
        )
    _refuse_not_finite(causal, folder)
    return causal.eval()


def _refuse_not_finite(causal: nn.Module, folder: Path) -> None:
    """Raises ValueError with file and tensor when a weight has a number that is not finite."""
    if all(_is_finite(each) for each in causal.parameters()):
        return
    for name, place in stored_tensors(folder, "model").items():
        if count := tensor_in(place, name, "model").isfinite().logical_not().sum().item():
            has = "1 number that is" if count == 1 else f"{count:,} numbers that are"
            raise ValueError(
                f"model: {place}: {name} has {has} not finite, so the model computes nothing; get the file again, or "
                "merge or convert the model in float32"
            )
    raise ValueError(f"model: the weights of {folder} have numbers that are not finite in {causal.dtype}")


def _is_finite(weight: Tensor) -> bool:
    """Whether all numbers are finite: one pass over them where their sum is."""
    return bool(weight.detach().sum(dtype=torch.float32).isfinite()) or bool(weight.isfinite().all())


@contextmanager
def _no_bars() -> Iterator[None]:
    """Without transformers' progress bars. Its warnings stay."""
    from transformers.utils import logging

    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if bars:
            logging.enable_progress_bar()


def _listed(names: Iterable[str]) -> str:
    """'a, b, c and 4 more': names of tensors, which a stranger may have made long."""
    names = list(names)
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(name[:80] for name in names[:SHOWN]) + more


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
def _compare_logits(causal: nn.Module, layer: OutputLayer) -> None:
    """Raises ValueError unless the model's logits are phi(W h + b) of its top state, with the W, b and phi that heads
    get.
    """
    tokens_1T = torch.arange(TRIED)[None] % causal.get_input_embeddings().weight.shape[0]
    found = causal(input_ids=tokens_1T, use_cache=False).logits.double()
    if not found.isfinite().all():
        raise ValueError(f"model: the logits of the tokens 0 to {TRIED - 1} are not finite; get the model again")
    state = causal.base_model(input_ids=tokens_1T, use_cache=False).last_hidden_state.double()
    logits = state @ layer.weight.double().T + (0.0 if layer.bias is None else layer.bias.double())
    if layer.softcap is not None:
        logits = layer.softcap * (logits / layer.softcap).tanh()
    bound = 1e-4 if causal.dtype == torch.float32 else 5e-2
    if not (logits - found).norm() <= bound * found.norm():
        raise ValueError(
            f"model: the logits of this {causal.config.model_type} are not its output matrix times its top state, so "
            "heads cannot stand in the place of its output layer"
        )


def _ends(causal: nn.Module, config: Any) -> tuple[OutputLayer, nn.Embedding]:
    """The output layer and the input embedding of a model in memory."""
    return _output_layer(causal, config), _frozen(causal.get_input_embeddings().weight.detach())


def _read_ends(causal: nn.Module, config: Any, folder: Path) -> tuple[OutputLayer, nn.Embedding]:
    """The output layer and the input embedding from the files, without the rest of the model if they are found there by
    their names. When the states are computed, they are compared with the logits of the whole model.

    Of tied weights the files may hold one or both. An output matrix that they hold is the model's, whatever config.json
    says: transformers ties no weights that differ.

    Args:
        causal: the model on the meta device, for names and shapes.
    """
    stored = stored_tensors(folder, "model")
    input_layer, output = causal.get_input_embeddings(), causal.get_output_embeddings()
    weight = _stored(causal, output, "weight", stored)
    embedding = _stored(causal, input_layer, "weight", stored)
    if _tied(causal):
        weight, embedding = (embedding if weight is None else weight), (weight if embedding is None else embedding)
    has_bias = getattr(output, "bias", None) is not None
    bias = _stored(causal, output, "bias", stored) if has_bias else None
    if weight is None or embedding is None or (has_bias and bias is None):  # other names, or missing
        return _ends(_pretrained(folder, torch.float32), config)
    return _scaled(weight, bias, config), _frozen(embedding)


def _tied(causal: nn.Module) -> bool:
    return causal.get_output_embeddings().weight is causal.get_input_embeddings().weight


def _frozen(weight: Tensor) -> nn.Embedding:
    return nn.Embedding.from_pretrained(weight, freeze=True)


def _stored(causal: nn.Module, module: nn.Module, what: str, stored: dict[str, Path]) -> Tensor | None:
    """A parameter of a module from the files, in float32; None if they do not hold it by its name and shape."""
    for name in _names_in_files(causal, module, what):
        if name in stored:
            found = tensor_in(stored[name], name, "model")
            return found.float() if found.shape == getattr(module, what).shape else None
    return None


def _names_in_files(causal: nn.Module, module: nn.Module, what: str) -> tuple[str, str]:
    """The names of a parameter: in the causal model, and in its decoder."""
    name = next(name for name, each in causal.named_modules() if each is module) + f".{what}"
    return name, name.removeprefix(f"{causal.base_model_prefix}.")


def _notes(causal: nn.Module, folder: Path) -> tuple[str, ...]:
    """What a folder holds beside the model, or against its config.json, in sentences for plans and tables.

    Args:
        causal: the model on the meta device.
    """
    stored, found = stored_tensors(folder, "model"), []
    input_layer, output = causal.get_input_embeddings(), causal.get_output_embeddings()
    weights = [_stored(causal, each, "weight", stored) for each in (output, input_layer)] if _tied(causal) else []
    if weights and not (any(each is None for each in weights) or torch.equal(*weights)):
        found.append(
            f"{folder.name}: config.json ties the output matrix to the embedding, but the files hold another output "
            "matrix. It is used, as transformers does; earlier releases took the embedding for frozen models: "
            "`harness run SUITE --force` makes such records again"
        )
    own = causal.state_dict()
    short = {name.removeprefix(f"{causal.base_model_prefix}."): name for name in own}
    beside = sorted(name for name in stored if name not in own and name not in short)
    held = {short.get(name, name) for name in stored}
    ends = {_names_in_files(causal, layer, "weight")[0] for layer in (output, input_layer)} if _tied(causal) else set()
    if beside and own.keys() <= held | ends:  # else the files have other names, which transformers translates
        tensors = "1 tensor" if len(beside) == 1 else f"{len(beside):,} tensors"
        found.append(f"{folder.name}: the files hold {tensors} that the model does not use: {_listed(beside)}")
    if _has_adapter(folder):
        found.append(f"{folder.name}: {ADAPTER} is not used; the weights are those of the model's own files")
    return tuple(found)
