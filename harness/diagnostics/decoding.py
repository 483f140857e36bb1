"""Next-token distributions of a growing text, computed with the states of earlier steps.

Letters: see harness/protocols.py.
"""

from typing import Any

import torch
from torch import Tensor

from harness.model import LanguageModel
from harness.protocols import Hidden


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
