"""The components that a suite names: checked against registries and signatures, with lists expanded to grids, and each
model built once on the meta device, so that errors of constructors are found before a trial runs.
"""

import itertools
import math
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode

from harness.containment import contained, first_line
from harness.errors import ComponentError, HarnessError, nearest
from harness.machine.files import kept
from harness.model import LanguageModel, build_backbone, build_head, count_parameters, on_meta
from harness.plan.identity import Identified
from harness.plan.kept_models import Body, key_of
from harness.plan.names import labelled
from harness.plan.parameters import REQUIRED, axis, changed_paths, checked, parameters, resolved, takes_name
from harness.plan.reader import Place, Source
from harness.plan.specs import ComponentSpec
from harness.registry import Registry

MAX_TRIALS = 10_000
LABEL = "label"  # the key of a component's own name; a parameter of this name comes first
CONTROL = "control"  # the key of a head that is, or is not, a control; a parameter of this name comes first
NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+")  # owner/name of a repository, in place of a path
MAX_TENSORS = 10_000  # of one component; GPT-2's largest has 580
Built = TypeVar("Built")
OfHead = tuple[tuple[int, int], dict[str, int], bool]  # as in `Construction.models`; whether it copies weights
Found = tuple[dict[str, Any], list[OfHead]]


@dataclass(frozen=True, slots=True)
class Component(Identified):
    """One point of the grid of a suite's entry, and its place in the suite file.

    Args:
        label: the name that the suite gives it; '' for none.
        control: whether the suite says that it is a control, or none; None where it says nothing.
        name: what views call it (harness/plan/names.py).
        given: as the suite has it, without what matching and tuning choose.
    """

    place: Place = ()
    label: str = ""
    control: bool | None = None
    name: str = ""
    given: ComponentSpec | None = None

    @property
    def written(self) -> str:
        """The component as the suite has it: 'mos(num_mixtures=2)'."""
        return str(self.given or self.spec)

    def problem(self, source: Source, message: str) -> str:
        """Return a message at the parameter that it begins with, or else at the entry."""
        first = message.split(" ")[0].rstrip(":")
        if first in self.spec.params:
            return source.problem((*self.place, self.spec.name, first), message)
        return source.problem(self.place, message)


def components(entries: Any, registry: Registry, section: str, source: Source) -> tuple[list[Component], list[str]]:
    """Return the components of a section ('heads') in the order of the file, and the problems of the section.

    An entry with problems is returned with its valid parameters, so that later checks can find more problems of it. A
    suite with problems is never run.
    """
    found, problems = [], []
    for index, entry in enumerate(entries if isinstance(entries, list) else []):
        place, first = (section, index), len(found)
        try:
            name, params = _name_and_params(entry)
            cls = registry.listed(name)
            known = parameters(cls)
        except (ValueError, HarnessError) as error:
            at = (*place, *entry) if isinstance(entry, dict) and len(entry) == 1 else place
            problems.append(source.problem(at, str(error), at_key=True))
            continue
        except (TypeError, NameError) as error:
            problems.append(source.problem(place, f"{registry.kind} '{entry}' has no readable signature: {error}"))
            continue
        label = params.pop(LABEL, "") if LABEL not in known else ""
        control = params.pop(CONTROL, None) if section == "heads" and CONTROL not in known else None
        if not isinstance(control, bool | None):
            at = source.nearest_place((*place, name, CONTROL))
            problems.append(source.problem(at, f"expected true or false, got {control!r}"))
        axes, wrong = _axes(known, params, (*place, name), f"{registry.kind} '{name}'", source)
        problems += wrong
        if math.prod(map(len, axes.values())) > MAX_TRIALS:
            problems.append(source.problem(place, f"a grid of more than {MAX_TRIALS} points"))
        elif all(name in axes for name, parameter in known.items() if parameter.default is REQUIRED):
            # also for an entry with problems: its valid parameters may have a mistake that only the constructor finds
            for values in itertools.product(*axes.values()):
                spec = ComponentSpec(name=name, params=dict(zip(axes, values, strict=True)))
                found.append(Component(spec, cls, place=place, control=control))
        if label != "":
            found[first:], wrong = _labelled(label, found[first:], registry, source)
            problems += wrong
    return found, problems


def _labelled(
    label: Any, entry: list[Component], registry: Registry, source: Source
) -> tuple[list[Component], list[str]]:
    """Return the points of an entry with the names that its label gives them, and what is wrong with the label."""
    problem = partial(source.problem, (*entry[0].place, entry[0].spec.name, LABEL)) if entry else str
    try:
        labels = [labelled(label, each.spec, registry) for each in entry]
    except ValueError as error:
        return entry, [problem(str(error))]
    if len(set(labels)) < len(labels):
        return entry, [problem(f"names {len(labels)} rows of one grid; write what differs in it, as {{num_mixtures}}")]
    return [replace(each, label=text) for each, text in zip(entry, labels, strict=True)], []


def _name_and_params(entry: Any) -> tuple[str, dict[str, Any]]:
    if isinstance(entry, str):
        return entry, {}
    if isinstance(entry, dict) and len(entry) == 1:
        ((name, params),) = entry.items()
        if params is None or isinstance(params, dict):
            return name, dict(params or {})
    raise ValueError("expected a name, or one name with its parameters like 'mos: {num_mixtures: 5}'")


def _axes(known, params, place: Place, owner: str, source: Source) -> tuple[dict[str, list[Any]], list[str]]:
    axes, problems = {}, []
    for key in params.keys() - known.keys():
        takes = f" (it takes{': ' + ', '.join(known) if known else ' none'})"
        message = f"unknown parameter '{key}' of {owner}{nearest(key, list(known)) or takes}"
        problems.append(source.problem((*place, key), message, at_key=True))
    for name, parameter in known.items():
        if name not in params:
            if parameter.default is REQUIRED:
                problems.append(
                    source.problem(place, f"{owner} needs the parameter '{name}', which has no default", at_key=True)
                )
            continue
        values = axis(parameter, params[name])
        if not values:
            problems.append(source.problem((*place, name), "must not be empty"))
        is_axis = values is params[name]
        checked_values = []
        for index, value in enumerate(values):
            try:
                found = checked(parameter, value)
                found = changed_paths(parameter, found, partial(_resolved, source, takes_name(parameter)))
                checked_values.append(found)
            except ValueError as error:
                at = (*place, name, index) if is_axis else (*place, name)
                problems.append(source.problem(at, str(error)))
        if checked_values:
            axes[name] = checked_values
    return axes, problems


def _resolved(source: Source, named: bool, value: Path | str) -> str:
    """Return a path, which is relative to the suite file, as an absolute path. With `named` a name like 'owner/name'
    stays as it is, unless there is such a file or folder.

    A relative path must stay in the folder that contains the suite's folder: a project may have its texts beside
    suites/. An absolute path may be anywhere.

    Raises: ValueError for a relative path that leaves this folder, by its text or by symbolic links, and for one that
    exists only below the working folder.
    """
    folder = Path(os.path.realpath(source.path)).parent
    if named and NAME.fullmatch(str(value)) and not os.path.exists(folder / value):
        return str(value)
    # guard: text-beside-suite folder / value -> value
    place = Path(os.path.realpath(folder / value))  # no error for links in a circle, unlike Path.resolve()
    # guard: text-in-project
    if not Path(value).is_absolute() and not all(each.is_relative_to(folder.parent) for each in _reached(place)):
        raise ValueError(
            f"'{value}' is outside of {folder.parent}, the folder that contains the suite's folder; "
            "write an absolute path if that is intended"
        )
    here = os.path.realpath(value)
    if not os.path.exists(place) and os.path.exists(here):
        raise ValueError(
            f"'{value}' does not exist: paths begin at the suite's folder, {folder}; "
            f"did you mean '{os.path.relpath(here, folder)}'?"
        )
    return str(place)


def _reached(place: Path) -> list[Path]:
    """Return a path and, if it is a folder, the paths of its entries, with symbolic links resolved."""
    entries = place.glob("*") if os.path.isdir(place) else ()
    return [place, *(Path(os.path.realpath(entry)) for entry in entries)]


@dataclass
class Construction:
    """Builds every combination of components once; keeps the problems and the numbers of parameters.

    Args:
        source: the suite file, for messages.
        problems: one message for each problem.
        models: (V, backbone, head) -> numbers of parameters (total, head), and the values that the head chose for
            parameters that are None: {'num_input_layers': 3}.
        bodies: backbone -> what is known of the last one that was built.
        from_model: (backbone, head) of heads that start with weights of the backbone's files.
    """

    source: Source
    problems: list[str] = field(default_factory=list)
    models: dict[tuple[int, str, str], tuple[tuple[int, int], dict[str, int]]] = field(default_factory=dict)
    bodies: dict[str, Body] = field(default_factory=dict)
    from_model: set[tuple[str, str]] = field(default_factory=set)

    def check(
        self, vocab_sizes: list[int], backbones: list[Component], heads: list[Component], *, keep: bool = False
    ) -> None:
        """Build every head on every backbone for every vocabulary size. A head is not built on a backbone that cannot
        be built: what it would complain of may be the fault of the backbone.

        Args:
            keep: take what is kept of models without problems, and keep it.
        """
        for vocab_size, backbone in itertools.product(dict.fromkeys(vocab_sizes), backbones):
            build = partial(self._build, vocab_size, backbone, heads)
            key = key_of(vocab_size, backbone, heads) if keep else None
            found = _read(build()) if key is None else kept("models", key, build, _read)
            if found is None:
                continue
            name, (body, of_heads) = str(backbone.spec), found
            self.bodies[name] = body
            for head, (params, settled, copies) in zip(heads, of_heads, strict=True):
                self.models[vocab_size, name, str(head.spec)] = params, settled
                if copies:
                    self.from_model.add((name, str(head.spec)))

    def _build(self, vocab_size: int, backbone: Component, heads: list[Component]) -> Found | None:
        """Return what is asked of a backbone, and of each head on it; None where one of them has a problem."""
        body, of_heads = self._built(backbone, "", partial(build_backbone, backbone.spec, vocab_size)), []
        for head in heads if body is not None else ():
            with _Copies(body) as copies:
                found = self._built(head, str(backbone.spec), partial(_measured, head, body, vocab_size))
            of_heads.append(found and (*found, copies.made))
        return (asdict(_body(body)), of_heads) if of_heads and None not in of_heads else None

    def _built(self, component: Component, on: str, build: Callable[[], Built]) -> Built | None:
        try:
            return _attempt(component.spec, build)
        except ValueError as error:
            problem = component.problem(self.source, str(error) + (f" (on {on})" if on else ""))
        if problem not in self.problems:
            self.problems.append(problem)
        return None


def _read(found: Found | None) -> tuple[Body, list[OfHead]] | None:
    """Return what `Construction._build` returns, or JSON has made of it. Raises: as `kept` expects of other content."""
    if found is None:
        return None
    body, of_heads = found
    read = [((int(total), int(own)), dict(settled), bool(copies)) for (total, own), settled, copies in of_heads]
    return Body(**{**body, "notes": tuple(body["notes"])}), read


def _body(built: nn.Module) -> Body:
    return Body(
        fits=built.layer_dims[-1] == built.embedding.embedding_dim,
        positions=getattr(built, "num_positions", None),
        is_pretrained=getattr(built, "output_layer", None) is not None,
        notes=tuple(getattr(built, "notes", ())),
        first_token=getattr(built, "first_token", None),
    )


def _measured(head: Component, body: nn.Module, vocab_size: int) -> tuple[tuple[int, int], dict[str, int]]:
    """Build a head. Return what `Construction.models` has of it: what it chose are integers that are its attributes."""
    built = build_head(head.spec, body, vocab_size, None)
    left = [name for name, value in resolved(head.cls, head.spec.params).items() if value is None]
    settled = {name: vars(built)[name] for name in left if type(vars(built).get(name)) is int}
    return count_parameters(LanguageModel(body, built)), settled


class _Copies(TorchFunctionMode):
    """Within it, whether a head that is built reads the output matrix or the embedding of a pretrained backbone."""

    def __init__(self, body: nn.Module):
        super().__init__()
        layer = getattr(body, "output_layer", None)
        self._of_model = [] if layer is None else [layer.weight, body.embedding.weight]
        self.made = False

    def __torch_function__(self, func, types, args=(), kwargs=None):
        values = func.__name__ != "__get__"  # a shape or a device is none
        if values and any(each is of for each in args for of in self._of_model):
            self.made = True
        return func(*args, **(kwargs or {}))


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
