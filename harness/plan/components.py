"""The components that a suite names: checked against registries and signatures, with lists expanded
to grids, and each model built once on the meta device, so that errors of constructors are found
before a trial runs.
"""

import itertools
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
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
from harness.flops import Flops, training_flops
from harness.machine.files import kept
from harness.model import LanguageModel, build_backbone, build_head, count_non_embedding, count_parameters, on_meta
from harness.plan.identity import Identified
from harness.plan.kept_models import Body, key_of
from harness.plan.names import labelled
from harness.plan.parameters import (
    REQUIRED,
    Parameter,
    axis,
    changed_paths,
    checked,
    parameters,
    resolved,
    takes_name,
)
from harness.plan.reader import Place, Problems, Source
from harness.plan.specs import ComponentSpec
from harness.registry import Registry

MAX_TRIALS = 10_000
LABEL = "label"  # the key of a component's own name; a parameter of this name comes first
CONTROL = "control"  # the key of a head that is a control, or is none; as with LABEL
NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+")  # owner/name of a repository, in place of a path
MAX_TENSORS = 10_000  # of one component; GPT-2's largest has 580
Built = TypeVar("Built")
# Of a model: its numbers of parameters (total, head), and the values that the head chose itself.
Measured = tuple[tuple[int, int], dict[str, int]]
# As Measured, whether it copies weights, and the FLOPs of a training token: (body, head), or why they
# are not known; None where nobody asked.
OfHead = tuple[tuple[int, int], dict[str, int], bool, tuple[float, float] | str | None]
Found = tuple[dict[str, Any], list[OfHead]]


@dataclass(frozen=True, slots=True)
class Component(Identified):
    """One point of the grid of a suite's entry, and its place in the suite file.

    Args:
        label: the name that the suite gives it; '' for none.
        control: whether the suite says that it is a control, or none; None where it says nothing.
        name: what views call it (harness/plan/names.py).
        given: as the suite has it, without what matching and tuning choose.
        size: the number of a backbone's size on the ladder, from 1; None without a ladder.
        family: the backbone without its size.
    """

    place: Place = ()
    label: str = ""
    control: bool | None = None
    name: str = ""
    given: ComponentSpec | None = None
    size: int | None = None
    family: ComponentSpec | None = None

    @property
    def written(self) -> str:
        """The component as the suite has it: 'mos(num_mixtures=2)'."""
        return str(self.given or self.spec)

    def report(self, problems: Problems, message: str) -> None:
        """Add a problem at the parameter that its message begins with, or else at the entry."""
        first = message.split(" ")[0].rstrip(":")
        within = (self.spec.name, first) if first in self.spec.params else ()
        problems.add((*self.place, *within), message)


def components(
    entries: Any,
    registry: Registry,
    section: str,
    problems: Problems,
) -> list[Component]:
    """Return the components of a section ('heads') in the order of the file.

    An entry with problems is returned with its valid parameters, so that later checks can find more
    problems of it. A suite with problems is never run.
    """
    found = []
    for index, entry in enumerate(entries if isinstance(entries, list) else []):
        place = (section, index)
        try:
            name, params = _name_and_params(entry)
            cls = registry.listed(name)
            known = parameters(cls)
        except (ValueError, HarnessError) as error:
            at = (*place, *entry) if isinstance(entry, dict) and len(entry) == 1 else place
            problems.add(at, str(error), at_key=True)
            continue
        except (TypeError, NameError) as error:
            message = f"{registry.kind} '{entry}' has no readable signature: {error}"
            problems.add(place, message)
            continue
        label = params.pop(LABEL, "") if LABEL not in known else ""
        takes_control = section == "heads" and CONTROL not in known
        control = params.pop(CONTROL, None) if takes_control else None
        if not isinstance(control, bool | None):
            at = problems.source.nearest_place((*place, name, CONTROL))
            problems.add(at, f"expected true or false, got {control!r}")
        axes = _axes(known, params, (*place, name), f"{registry.kind} '{name}'", problems)
        grid = []
        for values in _grid(known, axes, place, problems):
            spec = ComponentSpec(name=name, params=dict(zip(axes, values, strict=True)))
            grid.append(Component(spec, cls, place=place, control=control))
        found += _labelled(label, grid, registry, problems) if label != "" else grid
    return found


def _grid(
    known: dict[str, Parameter], axes: dict[str, list[Any]], place: Place, problems: Problems
) -> Iterable[tuple[Any, ...]]:
    """Return the points of the grid of an entry; none of one that is too large or lacks a value."""
    if math.prod(map(len, axes.values())) > MAX_TRIALS:
        problems.add(place, f"a grid of more than {MAX_TRIALS} points")
        return ()
    for name, parameter in known.items():
        if parameter.default is REQUIRED and name not in axes:
            return ()
    # An entry with problems has points, too: its valid parameters may have a mistake that only the
    # constructor finds.
    return itertools.product(*axes.values())


def _labelled(
    label: Any,
    entry: list[Component],
    registry: Registry,
    problems: Problems,
) -> list[Component]:
    """Return the points of an entry with the names that its label gives them."""
    if not entry:
        return []
    place = (*entry[0].place, entry[0].spec.name, LABEL)
    try:
        labels = [labelled(label, each.spec, registry) for each in entry]
    except ValueError as error:
        problems.add(place, str(error))
        return entry
    if len(set(labels)) < len(labels):
        what = "write what differs in it, as {num_mixtures}"
        problems.add(place, f"names {len(labels)} rows of one grid; {what}")
        return entry
    return [replace(each, label=text) for each, text in zip(entry, labels, strict=True)]


def _name_and_params(entry: Any) -> tuple[str, dict[str, Any]]:
    if isinstance(entry, str):
        return entry, {}
    if isinstance(entry, dict) and len(entry) == 1:
        ((name, params),) = entry.items()
        if params is None or isinstance(params, dict):
            return name, dict(params or {})
    example = "'mos: {num_mixtures: 5}'"
    raise ValueError(f"expected a name, or one name with its parameters like {example}")


def _axes(
    known: dict[str, Parameter],
    params: dict[str, Any],
    place: Place,
    owner: str,
    problems: Problems,
) -> dict[str, list[Any]]:
    """Return parameter -> its valid values, for those that an entry gives."""
    axes = {}
    for key in params.keys() - known.keys():
        takes = f" (it takes{': ' + ', '.join(known) if known else ' none'})"
        message = f"unknown parameter '{key}' of {owner}{nearest(key, list(known)) or takes}"
        problems.add((*place, key), message, at_key=True)
    for name, parameter in known.items():
        if name not in params:
            if parameter.default is REQUIRED:
                message = f"{owner} needs the parameter '{name}', which has no default"
                problems.add(place, message, at_key=True)
            continue
        values = axis(parameter, params[name])
        if not values:
            problems.add((*place, name), "must not be empty")
        # The list of a grid is in the file, and each of its values has a place; a single value, and
        # a list that is one value, do not.
        is_grid = values is params[name]
        valid = []
        for index, value in enumerate(values):
            try:
                valid.append(value_in(problems.source, parameter, value))
            except ValueError as error:
                problems.add((*place, name, index) if is_grid else (*place, name), str(error))
        if valid:
            axes[name] = valid
    return axes


def value_in(source: Source, parameter: Parameter, value: Any) -> Any:
    """Return a value that a suite file gives for a parameter, with absolute paths. Raises: ValueError."""
    absolute = partial(_resolved, source, takes_name(parameter))
    return changed_paths(parameter, checked(parameter, value), absolute)


def _resolved(source: Source, named: bool, value: Path | str) -> str:
    """Return a path, which is relative to the suite file, as an absolute path. With `named` a name
    like 'owner/name' stays as it is, unless there is such a file or folder.

    A relative path must stay in the folder that contains the suite's folder: a project may have its
    texts beside suites/. An absolute path may be anywhere.

    Raises: ValueError for a relative path that leaves this folder, by its text or by symbolic
    links, and for one that exists only below the working folder.
    """
    folder = Path(os.path.realpath(source.path)).parent
    if named and NAME.fullmatch(str(value)) and not os.path.exists(folder / value):
        return str(value)
    # Not Path.resolve(), which raises an error for links in a circle.
    place = Path(os.path.realpath(folder / value))
    if not Path(value).is_absolute() and not _lies_in(folder.parent, place):
        outside = f"'{value}' is outside of {folder.parent}"
        what = "the folder that contains the suite's folder"
        raise ValueError(f"{outside}, {what}; write an absolute path if that is intended")
    here = os.path.realpath(value)
    if not os.path.exists(place) and os.path.exists(here):
        raise ValueError(
            f"'{value}' does not exist: paths begin at the suite's folder, {folder}; "
            f"did you mean '{os.path.relpath(here, folder)}'?"
        )
    return str(place)


def _lies_in(folder: Path, place: Path) -> bool:
    """Whether a path, and the entries of a folder, lie in `folder`, also by symbolic links."""
    entries = place.glob("*") if os.path.isdir(place) else ()
    reached = [Path(os.path.realpath(each)) for each in (place, *entries)]
    return all(each.is_relative_to(folder) for each in reached)


@dataclass
class Construction:
    """Builds every combination of components once, and keeps the numbers of parameters.

    Args:
        problems: receives those of the constructors.
        batch: (rows, tokens) for which FLOPs are counted; None: they are not.
        models: (V, backbone, head) -> numbers of parameters (total, head), and the values that the
            head chose for parameters that are None: {'num_input_layers': 3}.
        bodies: backbone -> what is known of the last one that was built.
        from_model: (backbone, head) of heads that start with weights of the backbone's files.
        flops: (V, backbone, head) -> FLOPs of a training token, or why they are not known.
    """

    problems: Problems
    models: dict[tuple[int, str, str], Measured] = field(default_factory=dict)
    bodies: dict[str, Body] = field(default_factory=dict)
    from_model: set[tuple[str, str]] = field(default_factory=set)
    batch: tuple[int, int] | None = None
    flops: dict[tuple[int, str, str], Flops | str] = field(default_factory=dict)

    def check(
        self,
        vocab_sizes: list[int],
        backbones: list[Component],
        heads: list[Component],
        *,
        keep: bool = False,
    ) -> None:
        """Build every head on every backbone for every vocabulary size.

        Args:
            keep: take what is kept of models without problems, and keep it.
        """
        for vocab_size, backbone in itertools.product(dict.fromkeys(vocab_sizes), backbones):
            build = partial(self._build, vocab_size, backbone, heads)
            key = key_of(vocab_size, backbone, heads, self.batch) if keep else None
            read = partial(_read, of=len(heads))
            found = read(build()) if key is None else kept("models", key, build, read)
            if found is None:
                continue
            name, (body, of_heads) = str(backbone.spec), found
            self.bodies[name] = body
            for head, (params, settled, copies, flops) in zip(heads, of_heads, strict=True):
                model = vocab_size, name, str(head.spec)
                self.models[model] = params, settled
                if flops is not None:
                    self.flops[model] = flops if isinstance(flops, str) else Flops(*flops)
                if copies:
                    self.from_model.add((name, str(head.spec)))

    def _build(self, vocab_size: int, backbone: Component, heads: list[Component]) -> Found | None:
        """Return what is asked of a backbone and of each head on it; None where one has a problem."""
        body = self._built(backbone, "", partial(build_backbone, backbone.spec, vocab_size))
        if body is None:  # what a head would complain of may be the fault of the backbone
            return None
        of_heads, of_body = [], None  # FLOPs of the body, once they are counted
        for head in heads:
            with _Copies(body) as copies:
                build = partial(_measured, head, body, vocab_size)
                found = self._built(head, str(backbone.spec), build)
            flops = self._flops(vocab_size, backbone, head, of_body) if found else None
            if isinstance(flops, tuple) and getattr(body.embedding, "changed_by", None) is None:
                of_body = flops[0]
            of_heads.append(found and (*found, copies.made, flops))
        return (asdict(_body(body)), of_heads) if of_heads and None not in of_heads else None

    def _flops(
        self, vocab_size: int, backbone: Component, head: Component, of_body: float | None
    ) -> tuple[float, float] | str | None:
        if self.batch is None:
            return None
        try:
            found = training_flops(backbone.spec, head.spec, vocab_size, *self.batch, of_body)
        except ValueError as error:
            return str(error)
        return found.body, found.head

    def _built(self, component: Component, on: str, build: Callable[[], Built]) -> Built | None:
        try:
            return _attempt(component.spec, build)
        except ValueError as error:
            component.report(self.problems, str(error) + (f" (on {on})" if on else ""))
            return None


def _read(found: Found | None, of: int) -> tuple[Body, list[OfHead]] | None:
    """Return what `Construction._build` returns of so many heads, or what JSON has made of it.
    Raises: as `kept` expects where it is something else.
    """
    if found is None:
        return None
    (body, of_heads), read = found, []
    for (total, own), settled, copies, flops in of_heads:
        counted = tuple(map(float, flops)) if isinstance(flops, list | tuple) else flops
        read.append(((int(total), int(own)), dict(settled), bool(copies), counted))
    if len(read) != of:
        raise ValueError(f"expected {of} heads, got {len(read)}")
    return Body(**{**body, "notes": tuple(body["notes"])}), read


def _body(built: nn.Module) -> Body:
    return Body(
        fits=built.layer_dims[-1] == built.embedding.embedding_dim,
        positions=getattr(built, "num_positions", None),
        is_pretrained=getattr(built, "output_layer", None) is not None,
        notes=tuple(getattr(built, "notes", ())),
        first_token=getattr(built, "first_token", None),
        non_embedding=count_non_embedding(built),
    )


def _measured(head: Component, body: nn.Module, vocab_size: int) -> Measured:
    """Build a head. What it chose are integers that are its attributes."""
    built = build_head(head.spec, body, vocab_size)
    chosen = {}
    for name, value in resolved(head.cls, head.spec.params).items():
        # type() and not isinstance(): True is an int, and a switch is no number of anything.
        if value is None and type(vars(built).get(name)) is int:
            chosen[name] = vars(built)[name]
    return count_parameters(LanguageModel(body, built)), chosen


class _Copies(TorchFunctionMode):
    """Within it, whether a head that is built reads the output matrix or the embedding of a
    pretrained backbone.
    """

    def __init__(self, body: nn.Module):
        super().__init__()
        layer = getattr(body, "output_layer", None)
        self._of_model = [] if layer is None else [layer.weight, body.embedding.weight]
        self.made = False

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func.__name__ != "__get__":  # which asks for a shape or a device, and for no value
            for weight in self._of_model:
                # By identity: == of tensors compares their values
                self.made = self.made or any(each is weight for each in args)
        return func(*args, **(kwargs or {}))


def count(vocab_size: int, backbone: ComponentSpec, head: ComponentSpec) -> tuple[int, int]:
    """Return the numbers of parameters (total, head) of a model. Raises ValueError if it cannot be
    built.
    """
    body = _attempt(backbone, lambda: build_backbone(backbone, vocab_size))

    def counted() -> tuple[int, int]:
        return count_parameters(LanguageModel(body, build_head(head, body, vocab_size)))

    return _attempt(head, counted)


def embedding_width(vocab_size: int, backbone: ComponentSpec) -> int:
    """Return E, the embedding width of a backbone. Raises ValueError with the reason if it cannot
    be built.
    """
    return _attempt(backbone, lambda: build_backbone(backbone, vocab_size)).embedding.embedding_dim


def _attempt(spec: ComponentSpec, build: Callable[[], Built]) -> Built:
    """Build something on the meta device. Any exception of a constructor becomes a ValueError with
    one line.
    """
    try:
        with contained(str(spec)), on_meta(), _bounded():
            return build()
    except (ValueError, ComponentError) as error:
        raise ValueError(str(error).partition("\n")[0]) from error
    # the component may be third-party code: show a sentence, not a traceback
    except Exception as error:
        raise ValueError(f"{spec} cannot be built: {first_line(error)}") from error


@contextmanager
def _bounded() -> Iterator[None]:
    """Count the parameter tensors that are made within the block; raise ValueError if there are too
    many.

    A suite that asks for a billion layers ends with a message, and not after days.
    """
    made = itertools.count(1)

    def count_one(*_) -> None:
        if next(made) > MAX_TENSORS:
            many = f"more than {MAX_TENSORS:,} parameter tensors"
            raise ValueError(f"the model has {many}; use fewer layers or components")

    counting = register_module_parameter_registration_hook(count_one)
    try:
        yield
    finally:
        counting.remove()
