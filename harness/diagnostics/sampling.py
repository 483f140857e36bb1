"""Samples texts from a trained model, token by token.

Letters: see harness/protocols.py.
"""

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.containment import contained
from harness.diagnostics.decoding import Decoder
from harness.diagnostics.trained import Trained
from harness.errors import ExecutionError
from harness.model import components


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How the next token is sampled. The filters are applied in the order of the arguments.

    Args:
        temperature: the log-probabilities are divided by it. 0 takes the most probable token, the first of equal ones.
        top_k: keep this number of most probable tokens, the first of equal ones; None keeps all.
        top_p: of these, keep the smallest set of most probable tokens whose probabilities sum to at least this share;
            None keeps all.
    Raises: ExecutionError when a number is out of its range.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self):
        if not 0 <= self.temperature < float("inf"):
            raise ExecutionError(f"temperature must be a number from 0, got {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise ExecutionError(f"top-k must be at least 1, got {self.top_k}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ExecutionError(f"top-p must be above 0 and at most 1, got {self.top_p}")

    def probabilities(self, logp_BV: Tensor) -> Tensor:
        """(B, V) log-probabilities -> (B, V) the probabilities to sample from, float64."""
        if self.temperature == 0:
            return torch.nn.functional.one_hot(logp_BV.argmax(-1), logp_BV.shape[-1]).double()
        p_BV = (logp_BV.double() / self.temperature).softmax(-1)
        if self.top_k is None and self.top_p is None:
            return p_BV
        sorted_BV, order_BV = p_BV.sort(dim=-1, descending=True, stable=True)
        if self.top_k is not None:
            sorted_BV[:, self.top_k :] = 0
            sorted_BV /= sorted_BV.sum(-1, keepdim=True)
        if self.top_p is not None:
            before_BV = sorted_BV.cumsum(-1) - sorted_BV
            sorted_BV[before_BV >= self.top_p] = 0
            sorted_BV /= sorted_BV.sum(-1, keepdim=True)
        return torch.zeros_like(p_BV).scatter_(-1, order_BV, sorted_BV)


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Sampled texts.

    Args:
        tokens_BT: (B, T) the sampled tokens, without the prompt.
        seconds: the time for sampling them, without the time for the prompt.
    """

    tokens_BT: Tensor
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        """Tokens of all texts together, per second."""
        return self.tokens_BT.numel() / self.seconds


def sample(decoder: Decoder, prompt_BT: Tensor, number: int, choice: Choice, *, seed: int) -> Samples:
    """Continue B texts by `number` >= 1 tokens each.

    Args:
        decoder: a decoder that was not called before.
        prompt_BT: (B, T) the beginnings of the texts, T >= 1.
        seed: the same seed gives the same texts on the same machine.
    """
    generator = torch.Generator(prompt_BT.device).manual_seed(seed)
    logp_BV = decoder(prompt_BT)
    drawn: list[Tensor] = []
    _synchronize(prompt_BT)
    began = time.perf_counter()
    while True:
        drawn.append(torch.multinomial(choice.probabilities(logp_BV), 1, generator=generator))
        if len(drawn) == number:
            break
        logp_BV = decoder(drawn[-1])
    _synchronize(prompt_BT)
    return Samples(tokens_BT=torch.cat(drawn, dim=1), seconds=time.perf_counter() - began)


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """Texts that a model wrote after a prompt.

    Args:
        tokens_per_second: of all texts together.
    """

    texts: tuple[str, ...]
    ids: tuple[tuple[int, ...], ...]
    tokens_per_second: float


def continue_text(trained: Trained, prompt: str, number: int, choice: Choice, *, seed: int, copies: int = 1) -> Texts:
    """Continue a prompt with a trained model. The model's code is contained as in a trial.

    Args:
        prompt: at least one token.
    """
    prompts_BT = trained.ids(prompt).expand(copies, -1)
    who = components(trained.spec)
    with contained(who):
        drawn = sample(Decoder(trained.model, trained.spec.train.seq_len), prompts_BT, number, choice, seed=seed)
    ids = tuple(map(tuple, drawn.tokens_BT.tolist()))
    given = prompts_BT[0].tolist()
    texts = tuple(trained.codec.decode([*given, *new]) for new in ids)
    return Texts(texts=texts, ids=ids, tokens_per_second=drawn.tokens_per_second)


def _synchronize(tensor: Tensor) -> None:
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)
