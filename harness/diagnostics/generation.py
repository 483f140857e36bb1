"""Texts that a trained model writes, token by token, with the states of earlier steps.

Letters: see harness/protocols.py.
"""

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from harness.containment import contained
from harness.errors import ExecutionError
from harness.model import LanguageModel, components
from harness.protocols import Hidden
from harness.trial.trained import Trained


class Decoder:
    """Computes the distribution of the next token, for a text that grows by a few tokens per call.

    How a call uses earlier calls depends on the backbone:

    - a backbone that carries a state gets this state back; its context is the whole text;
    - a backbone with `extend` computes the new positions only. Its context is at most `context` tokens. When it is
      full, its second half is computed again and becomes the new context;
    - any other backbone computes the last `context` tokens again for every new token.

    The `context` is the segment length that the trial was trained and evaluated with, because later positions were
    never trained. The distribution after each token equals that of one forward pass over its context, within rounding.
    A head that reads earlier positions (`window`) gets their hidden states.

    Args:
        context: the number of tokens, for a backbone without state.
    """

    def __init__(self, model: LanguageModel, context: int):
        self.model, self.context, self.window = model, context, getattr(model.head, "window", 0)
        self._state: Any = None
        self._carries: bool | None = None  # known after the first call
        self._extends = callable(getattr(model.backbone, "extend", None))
        self._tokens_BT: Tensor | None = None  # of the context, for a backbone without state
        self._layers: tuple[Tensor, ...] = ()  # hidden states of the last `window` positions

    @torch.no_grad()
    def __call__(self, tokens_BT: Tensor) -> Tensor:
        """(B, T >= 1) new tokens of B texts -> (B, V) log-probabilities, in nats, of the token after them."""
        if self._carries is None:
            self._carries = self.model.backbone(tokens_BT[:, :1]).state is not None
        hidden = self._carried(tokens_BT) if self._carries else self._within_context(tokens_BT)
        layers = hidden.layers
        if self._layers:
            layers = tuple(torch.cat(pair, dim=1) for pair in zip(self._layers, layers, strict=True))
        self._layers = tuple(h_BTD[:, h_BTD.shape[1] - min(self.window, h_BTD.shape[1]) :] for h_BTD in layers)
        read = tuple(h_BTD[:, -self.window - 1 :] for h_BTD in layers)
        return self.model.head(Hidden(read)).log_probs()[:, -1]

    def _carried(self, tokens_BT: Tensor) -> Hidden:
        hidden = self.model.backbone(tokens_BT, self._state)
        self._state = hidden.state
        return hidden

    def _within_context(self, tokens_BT: Tensor) -> Hidden:
        before = 0 if self._tokens_BT is None else self._tokens_BT.shape[1]
        text_BT = tokens_BT if self._tokens_BT is None else torch.cat([self._tokens_BT, tokens_BT], dim=1)
        if not self._extends:
            self._tokens_BT, self._layers = text_BT[:, -self.context :], ()
            return self.model.backbone(self._tokens_BT)
        if text_BT.shape[1] > self.context:
            kept = self.context if before == 0 else max(1, self.context // 2)
            text_BT, before = text_BT[:, -kept:], 0
        if before == 0:
            tokens_BT, self._state, self._layers = text_BT, None, ()
        hidden = self.model.backbone.extend(tokens_BT, self._state)
        self._state, self._tokens_BT = hidden.state, text_BT
        return hidden


@dataclass(frozen=True, slots=True, kw_only=True)
class NextToken:
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


def sample(decoder: Decoder, prompt_BT: Tensor, number: int, choice: NextToken, *, seed: int) -> tuple[Tensor, float]:
    """Continue B texts by `number` >= 1 tokens each.

    Args:
        decoder: a decoder that was not called before.
        prompt_BT: (B, T) the beginnings of the texts, T >= 1.
        seed: the same seed gives the same texts on the same machine.
    Returns: (B, number) the sampled tokens, and how many of all texts were sampled per second, after the prompt.
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
    seconds = time.perf_counter() - began
    return torch.cat(drawn, dim=1), len(prompt_BT) * number / seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """Texts that a model wrote after a prompt. `tokens_per_second`: of all texts together."""

    texts: tuple[str, ...]
    ids: tuple[tuple[int, ...], ...]
    tokens_per_second: float


def continue_text(
    trained: Trained, prompt: str, number: int, choice: NextToken, *, seed: int, copies: int = 1
) -> Texts:
    """Continue a prompt of at least one token with a trained model. The model's code is contained as in a trial."""
    prompts_BT = trained.ids(prompt).expand(copies, -1)
    with contained(components(trained.spec)):
        decoder = Decoder(trained.model, trained.spec.train.seq_len)
        tokens_BT, speed = sample(decoder, prompts_BT, number, choice, seed=seed)
    given, ids = prompts_BT[0].tolist(), tuple(map(tuple, tokens_BT.tolist()))
    texts = tuple(trained.corpus.codec.decode([*given, *new]) for new in ids)
    return Texts(texts=texts, ids=ids, tokens_per_second=speed)


def _synchronize(tensor: Tensor) -> None:
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)
