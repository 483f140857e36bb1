"""A new suite that ends in a verdict: of a text, or a text and a pretrained model, in the minutes that are asked for.

Its file is one of starter_files/, filled in. It is measured with the first part of the text (`measuring`), as it would
be written, and then written with the part and the epochs that fit (`budget`).
"""

import json
import math
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import torch

from harness import bundled
from harness.corpora.local_text import Embedded, Text
from harness.corpora.token_files import TextSource
from harness.errors import ExecutionError, SuiteError
from harness.machine import environment
from harness.machine.limits import cpus_available
from harness.plan.loading import PLAIN
from harness.plan.parameters import parameters
from harness.plan.reader import FOLDER
from harness.plan.specs import GROUND_TRUTH, LEADERBOARD, SUITE_NAME
from harness.printable import counted
from harness.registry import HEADS
from harness.starters import budget, measuring
from harness.starters.budget import Budget, Machine, Size
from harness.starters.templates import FILES, saved
from harness.trial.timing import BUSY_CORES

TEXTS = Path("texts")  # of parts, beside the folder of suites
SLOWER = 1.25  # times the minutes, if other programs use more of the machine when it is measured again
WORKER_SECONDS = 5  # of a CPU, to start a worker under Ray (docs/cluster.md)
INLINE_SECONDS = 1  # of a trial in the command's own process, beside training and evaluation
MIXTURES, MANY_MIXTURES = 2, 3  # components of a head that has more than these by default: each costs a softmax


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a suite is asked to be.

    Args:
        name: of the suite.
        text: a file or folder, as of the corpus `text`; None: the novel in the package.
        model: the folder of a pretrained model; None: a small model is trained.
        heads: the names of heads to compare with the controls.
        minutes: for the whole suite.
    """

    name: str
    text: Path | None
    model: Path | None
    heads: tuple[str, ...]
    minutes: float

    @property
    def place(self) -> Path:
        """The file of the suite."""
        return FOLDER / f"{self.name}.yaml"

    @property
    def part(self) -> Path:
        """The folder of the first part of the text, where not all of it is used."""
        return TEXTS / self.name

    @property
    def title(self) -> str:
        """What the text is called."""
        return "the novel in the package" if self.text is None else self.text.name

    @property
    def source(self) -> TextSource:
        """The text, to be read as it is."""
        return Embedded() if self.text is None else Text(path=self.text, tokenizer="gpt2")


def write(wish: Wish, *, data: Path, device: torch.device, warn: Callable[[str], None]) -> tuple[Path, str]:
    """Write suites/<name>.yaml in the current folder, and the part of the text in texts/<name> if not all of it fits.

    Returns: the path, and the command that runs the suite.
    Raises: ExecutionError when the name cannot be used, a head is none to compare, the text is too small or the minutes
        are too few; CorpusError, SuiteError, UnknownComponent; StorageError.
    """
    _refuse_name(wish)
    heads = _heads(wish)
    splits = measuring.splits_of(wish.source, data)
    machine = _machine(device)
    other_work = environment.OtherWork()
    size, found = _chosen(wish, splits, heads, machine, data=data, device=device)
    if (busy := other_work.cores()) >= BUSY_CORES:
        warn(f"other programs used {busy:.1f} cores of this machine: the suite is smaller than on a quiet one")
    whole = measuring.size_of(splits)
    part = measuring.first_part(splits, found.bytes / whole) if found.bytes < whole else {}
    for split, text in part.items():
        saved(wish.part / f"{split}.txt", text)
    reason = _reason(wish, size, whole, measuring.size_of(part) if part else whole)
    filled = _filled(wish, size, found, machine, text=wish.part if part else wish.text, heads=heads, reason=reason)
    return saved(wish.place, filled), _command(wish, machine)


def _machine(device: torch.device) -> Machine:
    """Ray runs a trial on each core or GPU; a single one has no need of it."""
    workers = torch.cuda.device_count() if device.type == "cuda" else cpus_available()
    return Machine(workers=workers, start=WORKER_SECONDS if workers > 1 else INLINE_SECONDS)


def _command(wish: Wish, machine: Machine) -> str:
    return f"harness run {wish.name}{'' if machine.workers > 1 else ' --executor inline'}"


def _chosen(wish: Wish, splits: Mapping[str, str], heads: str, machine: Machine, **run: Any) -> tuple[Size, Budget]:
    """The largest size of which enough of the text fits into the minutes, and what fits. Raises ExecutionError."""
    whole = measuring.size_of(splits)
    different = len(set().union(*splits.values()))
    sizes = budget.sizes(size=whole, characters=different, pretrained=wish.model is not None)
    if not sizes:
        raise ExecutionError(
            f"{wish.title}: its text has {whole:,} bytes; at least {budget.LEAST:,} are needed, or the tenth of it on "
            "which heads are compared says nothing; give a longer text"
        )
    for size in sizes:
        sample = measuring.first_part(splits, size.least / whole)
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            for split, text in sample.items():
                saved(place / "text" / f"{split}.txt", text)
            tried = Budget(bytes=size.least, epochs=size.epochs, minutes=wish.minutes)
            filled = _filled(wish, size, tried, machine, text=place / "text", heads=heads, folder=place)
            suite = saved(place / f"{wish.name}.yaml", filled)
            try:
                found = measuring.measured(suite, size=measuring.size_of(sample), **run)
            except SuiteError as fault:  # its places are those of a file that is gone
                problems = "\n".join(problem.partition(": ")[2] for problem in fault.problems)
                raise ExecutionError(f"the suite cannot be made: {problems}") from fault
        if (fits := budget.fitting(size, found, most=whole, minutes=wish.minutes, machine=machine)) is not None:
            return size, fits
    least = budget.with_part(size, found, size.least, machine)
    fewer = ", or fewer heads" if len(wish.heads) > 1 else ""
    raise ExecutionError(
        f"{wish.minutes:g} minutes are too few: {counted(len(found.rows), 'row')} with {budget.SEEDS} seeds on "
        f"{size.least:,} bytes of the text take {least.minutes:.1f} minutes here; give --minutes "
        f"{math.ceil(SLOWER * least.minutes)} or more{fewer}; a machine without other work needs fewer"
    )


def _heads(wish: Wish) -> str:
    """The heads in the form of a suite: the controls, then those that are asked for. The first mixture is there with
    K = 1, too: it mixes nothing, and shows what the map before the mixing does.
    """
    lines, single = [_head(PLAIN, wish), _head(PLAIN, wish, projection="true")], None
    for name in dict.fromkeys(wish.heads):
        if name == PLAIN:
            raise ExecutionError(f"--heads: {PLAIN} is a control, and part of the suite without being named")
        cls = HEADS.get(name)
        # a model's own states have no such map
        if single is None and wish.model is None and "num_mixtures" in parameters(cls) and "is_control" in vars(cls):
            single = f"  - {name}: {{num_mixtures: 1}}"
            lines.append(single)
        lines.append(_head(name, wish))
    if len(lines) == 2:
        raise ExecutionError("--heads: expected the names of heads to compare with softmax: mos, or mos,moc")
    return "\n".join(lines)


def _head(name: str, wish: Wish, **given: str) -> str:
    """'  - mos: {num_mixtures: 2}'. Raises UnknownComponent."""
    known = parameters(HEADS.get(name))
    if wish.model is not None and "start" in known:
        given |= {"start": "pretrained"} | ({"activation": "none"} if "activation" in known else {})
    if "num_mixtures" in known and known["num_mixtures"].default > MANY_MIXTURES:
        given |= {"num_mixtures": str(MIXTURES)}
    listed = ", ".join(f"{key}: {value}" for key, value in given.items())
    return f"  - {name}: {{{listed}}}" if given else f"  - {name}"


def _corpus(wish: Wish, size: Size, text: Path | None, folder: Path) -> str:
    """The corpus in the form of a suite."""
    if wish.model is not None:
        tokens = f"tokenizer: {{pretrained: {_path(wish.model, folder)}}}"
    else:
        tokens = "level: char" if size.bpe is None else f"tokenizer: {{bpe: {size.bpe}}}"
    return f"embedded: {{{tokens}}}" if text is None else f"text: {{path: {_path(text, folder)}, {tokens}}}"


def _path(place: Path, folder: Path) -> str:
    """A path as a suite in a folder takes it: relative where it lies in the folder around that one, else absolute."""
    absolute, folder = place.resolve(), folder.resolve()
    beside = absolute.is_relative_to(folder.parent)
    return json.dumps(os.path.relpath(absolute, folder) if beside else str(absolute), ensure_ascii=False)


def _reason(wish: Wish, size: Size, whole: int, used: int) -> str:
    """Why these tokens, and how much of the text is used."""
    if wish.model is not None:
        tokens = "The tokens are those of the model."
    elif size.bpe is None:
        tokens = "Characters: the text, or the time, is too short for subwords."
    else:
        tokens = f"Subwords: no word is unknown. {size.bpe:,} suit this much text."
    if used == whole:
        return f"{tokens} All of the text, {whole:,} bytes."
    share = f"{100 * used / whole:.0f} %"
    return f"{tokens}\n# Of {whole:,} bytes the first {share} of each split, which fit into the time."


def _filled(
    wish: Wish,
    size: Size,
    found: Budget,
    machine: Machine,
    *,
    text: Path | None,
    heads: str,
    folder: Path = FOLDER,
    reason: str = "",
) -> str:
    """The suite's file, to lie in a folder."""
    template = FILES / ("suite.yaml" if wish.model is None else "suite_of_model.yaml")
    return Template(template.read_text(encoding="utf-8")).substitute(
        name=wish.name,
        command=_command(wish, machine),
        names=" or ".join(dict.fromkeys(wish.heads)),
        text=wish.title,
        asked=f"{wish.minutes:g}",
        minutes=f"{found.minutes:.0f}",
        core_minutes=max(1, round(found.minutes * machine.workers)),
        machine=counted(machine.workers, "trial"),
        trials=(heads.count("\n") + 1) * (budget.RATES + budget.SEEDS),
        corpus=_corpus(wish, size, text, folder),
        corpus_reason=reason,
        model="" if wish.model is None else _path(wish.model, folder),
        d_model=size.d_model,
        d_ff=2 * size.d_model,
        heads=heads,
        epochs=found.epochs,
    )


def _refuse_name(wish: Wish) -> None:
    if not re.fullmatch(SUITE_NAME, wish.name) or wish.name in (LEADERBOARD, GROUND_TRUTH):
        raise ExecutionError(
            f"'{wish.name}' cannot be the name of a suite: expected lower-case letters, digits, _ and -, at most 64, "
            f"and not {LEADERBOARD} or {GROUND_TRUTH}"
        )
    for place in (wish.place, wish.part):
        if place.exists():
            raise ExecutionError(f"{place} exists already; choose another name, or remove it")
    if (bundled("suites") / wish.place.name).is_file():
        raise ExecutionError(
            f"'{wish.name}' is a suite of the package, which the new one would hide; choose another name"
        )
    if wish.text is not None and not wish.text.exists():
        raise ExecutionError(
            f"--text {wish.text}: no such file or folder; a relative path begins at the current folder"
        )
