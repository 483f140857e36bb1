"""Apply changes of the command line, `--set train.epochs=2`, to what was read of a suite file."""

from typing import Any

from harness.errors import SuiteError
from harness.plan.reader import MAX_DEPTH, Place, Source, assignment, value_of
from harness.plan.specs import DECIDES_NO_RESULT

APPENDS = "+"  # ends a key: 'heads+=mos' adds an entry to the list `heads`
MAX_DIGITS = 9  # of a list index in --set; a longer number is read as a key
Change = tuple[str, str, str | None]  # of a setting by --set: key, new value, value of the file


def overridden(data: dict[str, Any], source: Source, texts: tuple[str, ...]) -> list[Change]:
    """Apply every --set, and set `train.data_parallel` for trials on several GPUs: one worker for
    each GPU. Return the changes of settings that are part of a trial.
    """
    before = _workers(data)
    changes = _overrides(data, source, texts)
    workers = _workers(data)
    if workers > 1:
        data["train"].setdefault("data_parallel", workers)
    changed = [key for key, *_ in changes]
    # `--set resources.gpus=2` is no change of a trial, but the number of workers that follows is.
    if workers != before and "train.data_parallel" not in changed:
        changes.append(("train.data_parallel", str(workers), str(before)))
    return changes


def _workers(data: dict[str, Any]) -> int:
    """Return `train.data_parallel`, or else the number of GPUs; 1 if invalid."""
    resources, train = data.get("resources"), data.get("train")
    gpus = resources.get("gpus") if isinstance(resources, dict) else None
    workers = train.get("data_parallel", gpus) if isinstance(train, dict) else None
    if isinstance(workers, int | float) and workers > 1 and workers % 1 == 0:
        return int(workers)
    return 1  # what is invalid is reported when the file is checked


def _overrides(data: dict[str, Any], source: Source, texts: tuple[str, ...]) -> list[Change]:
    """Apply every --set and return the changes of settings that are part of a trial.

    For a key that is set twice the last value counts. A value that equals the old one and a setting
    that changes no result are not returned.
    """
    of_the_run = {f"train.{name}" for name in DECIDES_NO_RESULT}
    changes: dict[str, tuple[str, str | None]] = {}
    appended: list[Change] = []
    for text in texts:
        key, value, before = _override(data, source, text)
        if key.endswith(APPENDS):
            appended.append((key, value, before))
            continue
        of_file = changes[key][1] if key in changes else before
        changes[key] = (value, of_file)
    of_trials = []
    for key, value, before in [*((key, *change) for key, change in changes.items()), *appended]:
        how_it_runs = ("resources.", "checkpoint.", "timeout.", "measure.")
        if key.startswith(how_it_runs) or key in of_the_run:
            continue
        if before not in (value, str(value_of(value))):  # 1e-3 and 0.001 are one number
            of_trials.append((key, value, before))
    return of_trials


def _override(data: dict[str, Any], source: Source, text: str) -> Change:
    """Apply 'path.to.key=value' to the data, or 'path.to.list+=value', which appends to a list."""
    key, value = assignment(text)
    parts = key.removesuffix(APPENDS).split(".")
    if len(parts) > MAX_DEPTH:
        raise SuiteError([f"--set {text}: a key nested more than {MAX_DEPTH} levels deep"])
    target, place = data, ()
    while parts:
        length = _length_of_key(target, parts, place)
        name, parts = ".".join(parts[:length]), parts[length:]
        part = int(name) if name.isdecimal() and len(name) <= MAX_DIGITS else name
        if isinstance(part, int):
            is_there = isinstance(target, list) and part < len(target)
        else:
            is_there = isinstance(target, dict)  # which may get a new key
        if not is_there:
            where = ".".join(map(str, place)) or "the suite"
            has_entries = isinstance(target, list) and target
            known = f", but entries 0 to {len(target) - 1}" if has_entries else ""
            raise SuiteError([f"--set {text}: {where} has no key '{part}'{known}"])
        place = (*place, part)
        if parts:
            target = target[part] if isinstance(target, list) else target.setdefault(part, {})
    before = target[place[-1]] if isinstance(target, list) else target.get(place[-1])
    if key.endswith(APPENDS):
        if not isinstance(before, list):
            raise SuiteError(
                [f"--set {text}: {'.'.join(map(str, place))} is no list in the suite, so nothing is added"]
            )
        before.append(value)
        source.overridden[*place, len(before) - 1] = text
        return key, text.partition("=")[2], None
    target[place[-1]] = value
    source.overridden[place] = text
    if key == "seeds":
        return key, _seeds_text(value), _seeds_text(before)
    return key, text.partition("=")[2], None if before is None else str(before)


def _seeds_text(seeds: Any) -> str:
    """The shortest text that means these seeds: '6' for [1, 2, 3, 4, 5, 6], '[1,5]'."""
    if not isinstance(seeds, list):
        return str(seeds)
    if seeds == list(range(1, len(seeds) + 1)):
        return str(len(seeds))
    return f"[{','.join(map(str, seeds))}]"


def _length_of_key(target: Any, parts: list[str], place: Place) -> int:
    """Return how many parts are the next key: keys of tune.space have dots, and of several that are
    there the longest counts.
    """
    keys = target if isinstance(target, dict) else {}
    for length in range(len(parts), 1, -1):
        if ".".join(parts[:length]) in keys:
            return length
    is_new_axis = place == ("tune", "space") and parts[0] not in keys
    return len(parts) if is_new_axis else 1
