"""Small causal language models of the transformers library with random weights, in folders as it writes them."""

from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

V = 12
SHAPE = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
GROUPED = {**SHAPE, "num_key_value_heads": 1}
KINDS = {  # model_type -> its configuration
    "llama": GROUPED,
    "qwen3": {**GROUPED, "head_dim": 8, "tie_word_embeddings": True},
    "gemma2": {**GROUPED, "head_dim": 8, "final_logit_softcapping": 3.0},
    "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64},
    "mamba": {"hidden_size": 16, "num_hidden_layers": 2, "state_size": 4},
    "phi": SHAPE,  # its output layer has a bias
    "cohere": {**GROUPED, "logit_scale": 0.25},
    "granite": {**GROUPED, "logits_scaling": 4.0},
    "gpt_neox": SHAPE,  # saved under other names than those of its modules
    "opt": {
        "hidden_size": 16,
        "ffn_dim": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "word_embed_proj_dim": 8,
    },
}


def made(kind: str, **changes):
    """A causal model of a kind, in evaluation mode."""
    logging.disable_progress_bar()
    torch.manual_seed(3)
    ids = {"vocab_size": V, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**ids, **KINDS[kind], **changes}))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def saved(folder: Path, kind: str = "llama", **changes):
    """A folder with such a model, and the model."""
    model = made(kind, **changes)
    model.save_pretrained(folder)
    return folder, model
