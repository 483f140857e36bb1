"""Mutants of sound suites and records, thousands of them: each is read, or refused with a sentence that says where.

    make fuzz       5,000 suites and 5,000 records, another sequence every time; a failure is shown in its smallest form

`make test` does the same with 100 of each, the same ones every time (tests/security/test_fuzz.py).
"""

import argparse
import contextlib
import copy
import hashlib
import json
import re
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import handmade
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from harness import plan
from harness.errors import RecordError, SuiteError
from harness.plan.specs import canonical
from harness.records import store
from harness.report import study, suite_table

ROOT = Path(__file__).parents[2]
SECONDS = 5.0  # of processor time for one mutant
MIXED = """\
name: mixed
version: 2
corpora:
  - markov: {vocab_size: [50, 60], num_tokens: 4000, seed: 3, branching: 4}
  - text: {path: own.txt, level: char, min_count: 2}
  - ptb: {boundary: sos_eos}
backbones:
  - lstm: &one {d_model: 32, num_layers: 1}
  - transformer_encoder: {d_model: 32, num_layers: 1, num_heads: 2}
heads:
  - softmax: {tie_weights: true, bias: false}
  - mos: {num_mixtures: 2, compat: {log_epsilon: 1.0e-8}}
  - doc: {components: {top: 2}, dropout: 0.1}
train:
  optimizer: adamw
  betas: [0.9, 0.99]
  lr: 1e-3
  epochs: 3
  batch_size: 4
  seq_len: 7
  schedule: {plateau: {factor: 0.5}}
  clip: 0.25
seeds: [1, 2]
resources: {cpus: 2, gpus: 0.5}
match: {params: softmax, vary: d_embed}
"""
NUMBERS = [0, 1, -1, 3, 2**31, 2**63 - 1, 2**63, 2**64, 10**9, 10**12, 10**400, -0.0, 0.5, 1e308, 1e-320]
WORDS = ["", "no", "..", "../../evil", "/etc/passwd", "os.system", "a" * 5_000]
WORDS += ["\x00", "\x1b[2J", "\u202e", "\ud800", "|`"]
OTHERS = [None, True, [], {}, [[]], {"a": {"b": []}}, float("nan"), float("inf"), [1, "x"], "softmax", "mos", "d_model"]
LOCATED = re.compile(r"(.*/suite\.yaml(:\d+:\d+)?|--set .*): .+")


@cache
def seed_suites() -> tuple[str, ...]:
    """The repository's suites, GPT-2's aside (its sizes take seconds), and one with all the rest."""
    places = [path for path in sorted((ROOT / "suites").glob("*.yaml")) if path.stem != "gpt2_sizes"]
    texts = (path.read_text(encoding="utf-8") for path in places)  # with the name of the file that they are written to
    return (*(re.sub("^name: .*", "name: suite", text, flags=re.MULTILINE) for text in texts), MIXED)


def seed_record() -> dict[str, Any]:
    """A record as its file has it, without the checksum."""
    return handmade.record(message="said").model_dump(mode="json")


def places(data: Any, place: tuple = ()) -> list[tuple]:
    """Every place in nested lists and mappings, the root left out."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [each for key, child in items for each in ((*place, key), *places(child, (*place, key)))]


CHANGES = ("value", "nudge", "nudge", "nudge", "drop", "again", "key", "move")


def mutate_tree(draw: Callable, data: Any, changes: tuple[str, ...] = CHANGES) -> None:
    """One change of the parsed data, in place: a value, a key, an entry dropped, repeated, swapped or moved."""
    place = draw(st.sampled_from(places(data)))
    parent, key = data, place[-1]
    for part in place[:-1]:
        parent = parent[part]
    change = draw(st.sampled_from(changes))
    if change == "nudge" and type(parent[key]) in (int, float):
        value = parent[key]
        near = [value * 2, value + 1, value + 2, 2] if isinstance(value, int) else [value / 2, value / 3, 0.5, 0.25]
        parent[key] = draw(st.sampled_from(near))
    elif change == "value":
        parent[key] = copy.deepcopy(draw(st.sampled_from([*NUMBERS, *WORDS, *OTHERS])))
    elif change == "drop":
        del parent[key]
    elif change == "move":
        source = draw(st.sampled_from(places(data) or [()]))
        value = data
        for part in source:
            value = value[part]
        parent[key] = copy.deepcopy(value)
    elif isinstance(parent, list):
        parent.insert(draw(st.integers(0, len(parent))), copy.deepcopy(parent[key]))
    elif change == "key":
        parent[draw(st.sampled_from([*WORDS, f"{key}s", str(key)[:-1]]))] = parent.pop(key)


def mutate_text(draw: Callable, text: str) -> str:
    """One change of the text: a line dropped, repeated, swapped or indented, a character, a number, another's piece."""
    lines = text.split("\n")
    one, other = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
    change = draw(
        st.sampled_from(["drop", "again", "swap", "indent", "character", "number", "number", "cut", "splice"])
    )
    if change == "drop":
        del lines[one]
    elif change == "again":
        lines.insert(other, lines[one])
    elif change == "swap":
        lines[one], lines[other] = lines[other], lines[one]
    elif change == "indent":
        lines[one] = draw(st.sampled_from([" ", "  ", "\t", "- "])) + lines[one]
    elif change == "splice":
        lines[one:one] = draw(st.sampled_from(seed_suites())).split("\n")[other : other + draw(st.integers(1, 5))]
    text = "\n".join(lines)
    at = draw(st.integers(0, max(len(text) - 1, 0)))
    if change == "character":
        text = text[:at] + draw(st.sampled_from("{}[]:,-#&*!|>'\"%@` \n\t\x00\ufeff\x850aé")) + text[at + 1 :]
    elif change == "cut":
        text = text[:at] + text[at + draw(st.integers(1, 80)) :]
    elif change == "number" and (numbers := list(re.finditer(r"\b\d+(\.\d+)?\b", text))):
        number = draw(st.sampled_from(numbers))
        text = text[: number.start()] + str(draw(st.sampled_from([*NUMBERS, 1, 2, 5]))) + text[number.end() :]
    return text


@st.composite
def mutants_of_suites(draw: Callable) -> tuple[str, tuple[str, ...]]:
    """A suite's text, half of them changed gently, and --set values."""
    text, way = draw(st.sampled_from(seed_suites())), draw(st.sampled_from(["gently", "tree", "text", "gently"]))
    if way != "text":
        data = YAML(typ="safe").load(text)
        for _ in range(draw(st.integers(1, 3))):
            mutate_tree(draw, data, ("nudge",) if way == "gently" else CHANGES)
        text = json.dumps(data, ensure_ascii=draw(st.booleans())).replace("NaN", ".nan").replace("Infinity", ".inf")
    else:
        for _ in range(draw(st.integers(1, 3))):
            text = mutate_text(draw, text)
    keys = ["train.epochs", "seeds.0", "heads.0", "name", "match.vary", "train.schedule.plateau.factor", "..", "x.y"]
    values = ["1", "2", "mos", *map(str, NUMBERS), *WORDS, "[", "{a: *b}", "[1, 2]"]
    overrides = st.tuples(st.sampled_from(keys), st.sampled_from(values)).map("=".join)
    return text, tuple(draw(st.lists(overrides, max_size=2))) if way != "gently" else ()


@st.composite
def mutants_of_records(draw: Callable) -> bytes:
    """A record's file: changed and sealed again by somebody who knows how, most of them by one gentle change, or
    changed later.
    """
    content, gently = seed_record(), draw(st.sampled_from([True, True, True, False]))
    for _ in range(1 if gently else draw(st.integers(1, 3))):
        mutate_tree(draw, content, ("nudge",) if gently else CHANGES)
    try:
        checksum = hashlib.sha256(canonical(content).encode()).hexdigest()
    except ValueError:  # not a number: nothing that is sealed holds it
        checksum = "0" * 64
    text = json.dumps({**content, "sha256": checksum}, indent=1)
    for _ in range(0 if gently else draw(st.integers(0, 2))):
        text = mutate_text(draw, text)
    return text.encode("utf-8", "surrogatepass")


def refuse(sentence: str) -> None:
    raise AssertionError(sentence)


def read_suite(folder: Path, text: str, overrides: tuple[str, ...]) -> str:
    """'read' or 'refused'. Raises AssertionError for a problem without a place, and whatever else should not be."""
    path = folder / "suite.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        suite = plan.load(path, overrides)
        made = study.load(suite, folder / "results", warn=refuse)
        assert all(made.table(form) for form in suite_table.FORMS)
        return "read"
    except SuiteError as error:
        problems = error.problems
    for problem in problems:
        assert LOCATED.fullmatch(problem), problem
        assert problem.isprintable()
    assert problems
    return "refused"


def read_record(folder: Path, content: bytes) -> str:
    """'read' or 'refused'."""
    trial = handmade.record().id
    place = store.folder(folder, trial) / store.FILE_NAME
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(content)
    try:
        assert store.load(folder, trial).id == trial
        return "read"
    except RecordError as error:
        sentence = str(error)
    assert sentence.startswith(str(place))
    assert sentence.isprintable()
    return "refused"


def timed(read: Callable[..., str], *arguments) -> str:
    started = time.process_time()
    ended = read(*arguments)
    assert time.process_time() - started < SECONDS, "too slow"
    return ended


def run(kind: str, examples: int, folder: Path, *, repeatable: bool) -> Counter:
    """How many mutants were read and how many refused. Raises what the first one that is neither raises."""
    ends: Counter = Counter()
    (folder / "own.txt").write_text("some words of a text\n" * 50)
    options = settings(
        max_examples=examples,
        derandomize=repeatable,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=not repeatable,
    )
    if kind == "suites":

        @options
        @given(mutants_of_suites())
        def check(mutant):
            ends[timed(read_suite, folder, *mutant)] += 1
    else:

        @options
        @given(mutants_of_records())
        def check(mutant):
            ends[timed(read_record, folder, mutant)] += 1

    check()
    return ends


def main() -> None:
    """Both kinds, with the share that could be read: mutants that are all refused would test the front door only."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--examples", type=int, default=5_000, help="of each kind")
    parser.add_argument("kinds", nargs="*", default=["suites", "records"])
    arguments = parser.parse_args()
    warnings.simplefilter("error")
    for kind in arguments.kinds:
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            ends = run(kind, arguments.examples, Path(folder), repeatable=False)
        share = ends["read"] / ends.total()
        print(f"{kind}: {ends.total()} mutants, {share:.0%} read, no fault, {time.monotonic() - started:.0f} s")
        assert share >= 0.3, "too few mutants are read"


if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # was tests/meta; the packages of this checkout are meant
    with contextlib.suppress(BrokenPipeError):
        main()
