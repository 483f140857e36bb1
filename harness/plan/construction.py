"""Find errors of constructors before a trial runs: every model of a plan is built on the meta device."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from harness.containment.calls import contained, first_line
from harness.errors import ComponentError
from harness.model import LanguageModel, build_backbone, build_head, count_parameters, on_meta
from harness.plan.components import Component
from harness.plan.parameters import resolved
from harness.plan.reader import Source
from harness.plan.specs import ComponentSpec
from harness.protocols import StartsFromFiles

# sizes for checking heads if the corpora or backbones of the suite have problems
STAND_IN_VOCAB = 64
STAND_IN_WIDTH = 64
MAX_TENSORS = 10_000  # of one component; GPT-2's largest has 580
Built = TypeVar("Built")


@dataclass
class Construction:
    """Builds every combination of components once; keeps the problems and the numbers of parameters.

    Args:
        source: the suite file, for messages.
        problems: one message for each problem.
        params: (V, backbone, head) -> numbers of parameters (total, head).
        settled: (V, backbone, head) -> the values that the head chose for parameters that are None:
            {'num_input_layers': 3}.
    """

    source: Source
    problems: list[str] = field(default_factory=list)
    params: dict[tuple[int, str, str], tuple[int, int]] = field(default_factory=dict)
    settled: dict[tuple[int, str, str], dict[str, int]] = field(default_factory=dict)

    def check(self, vocab_sizes: list[int], backbones: list[Component], heads: list[Component]) -> None:
        """Build every head on every backbone for every vocabulary size.

        If a corpus or backbone could not be read, default sizes are used instead, so that heads are checked in any
        case. A backbone with weights from files is then left out, because its weights need their own vocabulary size.
        """
        if not vocab_sizes:
            backbones = [each for each in backbones if not isinstance(each.cls, StartsFromFiles)]
        for vocab_size in dict.fromkeys(vocab_sizes) or [STAND_IN_VOCAB]:
            built = [
                (backbone, model)
                for backbone in backbones
                if (model := self._backbone(backbone, vocab_size)) is not None
            ]
            for name, body in [(str(backbone.spec), model) for backbone, model in built] or [("", _StandIn())]:
                for head in heads:
                    found = self._head(head, name, body, vocab_size)
                    if found is not None:
                        key = vocab_size, name, str(head.spec)
                        self.params[key], self.settled[key] = found

    def _backbone(self, backbone: Component, vocab_size: int) -> nn.Module | None:
        return self._built(backbone, "", lambda: build_backbone(backbone.spec, vocab_size))

    def _head(self, head: Component, on: str, body: nn.Module, vocab_size: int) -> tuple[tuple, dict] | None:
        """Return its entries of `params` and `settled`; None if it cannot be built."""

        def found() -> tuple[tuple, dict]:
            model = build_head(head.spec, body, vocab_size, None)
            return count_parameters(LanguageModel(body, model)), _settled(head, model)

        return self._built(head, on, found)

    def _built(self, component: Component, on: str, build: Callable[[], Built]) -> Built | None:
        try:
            return _attempt(component.spec, build)
        except ValueError as error:
            problem = component.problem(self.source, str(error) + (f" (on {on})" if on else ""))
        if problem not in self.problems:
            self.problems.append(problem)
        return None


def _settled(head: Component, built: nn.Module) -> dict[str, int]:
    """Return the integers that a built head has as attributes with the names of parameters that are None."""
    left = [name for name, value in resolved(head.cls, head.spec.params).items() if value is None]
    return {name: vars(built)[name] for name in left if type(vars(built).get(name)) is int}


def count(vocab_size: int, backbone: ComponentSpec, head: ComponentSpec) -> tuple[int, int]:
    """Return the numbers of parameters (total, head) of a model. Raises ValueError if it cannot be built."""
    body = _attempt(backbone, lambda: build_backbone(backbone, vocab_size))
    return _attempt(head, lambda: count_parameters(LanguageModel(body, build_head(head, body, vocab_size, None))))


def embedding_width(vocab_size: int, backbone: ComponentSpec) -> int:
    """Return E, the embedding width of a backbone. Raises ValueError with the reason if it cannot be built."""
    return _attempt(backbone, lambda: build_backbone(backbone, vocab_size)).embedding.embedding_dim


def _attempt(spec: ComponentSpec, build: Callable[[], Built]) -> Built:
    """Build something on the meta device. Any exception of a constructor becomes a ValueError with one line."""
    try:
        with contained(str(spec)), on_meta(), _bounded():
            return build()
    except (ValueError, ComponentError) as error:
        raise ValueError(str(error).partition("\n")[0]) from error
    except Exception as error:  # the component may be third-party code: show a sentence, not a traceback
        raise ValueError(f"{spec} cannot be built: {first_line(error)}") from error


@contextmanager
def _bounded() -> Iterator[None]:
    """Count the parameter tensors that are made within the block; raise ValueError if there are too many.

    A suite that asks for a billion layers ends with a message, and not after days.
    """
    made = itertools.count(1)

    def count_one(*_) -> None:
        if next(made) > MAX_TENSORS:
            raise ValueError(
                f"the model has more than {MAX_TENSORS:,} parameter tensors; use fewer layers or components"
            )

    counting = register_module_parameter_registration_hook(count_one)
    try:
        yield
    finally:
        counting.remove()


class _StandIn(nn.Module):
    """A replacement for a backbone: it has only the attributes that a head's constructor needs."""

    def __init__(self):
        super().__init__()
        self.layer_dims = (STAND_IN_WIDTH,)
        with on_meta():
            self.embedding = nn.Embedding(STAND_IN_VOCAB, STAND_IN_WIDTH)
