"""Mutants of sound suites and records: each is read, or refused with a sentence that says where.

`make test-system` tries 50 of each, the same ones every time; `make fuzz` tries 5,000 others (HARNESS_TEST_MUTANTS).
"""

import copy
import hashlib
import json
import os
import re
import time
from collections import Counter
from functools import cache
from pathlib import Path

import handmade
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from harness import plan
from harness.errors import RecordError, SuiteError
from harness.plan.specs import canonical
from harness.records import store
from harness.report import study, suite_table

MUTANTS = int(os.environ.get("HARNESS_TEST_MUTANTS", "0"))  # of each kind, others each time
pytestmark = [pytest.mark.system, pytest.mark.timeout(1200 + MUTANTS)]
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
KEYS = ["train.epochs", "seeds.0", "heads.0", "name", "match.vary", "train.schedule.plateau.factor", "..", "x.y"]
VALUES = ["1", "2", "mos", *map(str, NUMBERS), *WORDS, "[", "{a: *b}", "[1, 2]"]
CHARACTERS = "{}[]:,-#&*!|>'\"%@` \n\t\x00\ufeff\x850aé"
CHANGES = ("value", "nudge", "nudge", "nudge", "drop", "again", "key", "move")
LOCATED = re.compile(r"(.*/suite\.yaml(:\d+:\d+)?|--set .*): .+")


@cache
def seed_suites() -> tuple[str, ...]:
    """The repository's suites, and one with all the rest. Those are left out whose sizes take seconds: GPT-2's, and
    ladders but the quick one.
    """
    places = [path for path in sorted((ROOT / "suites").glob("*.yaml")) if path.stem != "gpt2_sizes"]
    texts = [path.read_text(encoding="utf-8") for path in places]
    texts = [text for text in texts if "\nladder:" not in text or "name: ladder_quick" in text]
    # with the name of the file that they are written to
    return (*(re.sub("^name: .*", "name: suite", text, flags=re.MULTILINE) for text in texts), MIXED)


def places(data, place: tuple = ()) -> list[tuple]:
    """Every place in nested lists and mappings, the root left out."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [each for key, child in items for each in ((*place, key), *places(child, (*place, key)))]


def at(data, place: tuple):
    for part in place:
        data = data[part]
    return data


def mutate_tree(draw, data, changes: tuple[str, ...] = CHANGES) -> None:
    """One change of the parsed data, in place: a value, a key, an entry dropped, repeated or moved."""
    *above, key = draw(st.sampled_from(places(data)))
    parent, change = at(data, above), draw(st.sampled_from(changes))
    if change == "nudge" and type(value := parent[key]) in (int, float):
        near = [value * 2, value + 1, value + 2, 2] if isinstance(value, int) else [value / 2, value / 3, 0.5, 0.25]
        parent[key] = draw(st.sampled_from(near))
    elif change == "value":
        parent[key] = copy.deepcopy(draw(st.sampled_from([*NUMBERS, *WORDS, *OTHERS])))
    elif change == "drop":
        del parent[key]
    elif change == "move":
        parent[key] = copy.deepcopy(at(data, draw(st.sampled_from(places(data)))))
    elif isinstance(parent, list):
        parent.insert(draw(st.integers(0, len(parent))), copy.deepcopy(parent[key]))
    elif change == "key":
        parent[draw(st.sampled_from([*WORDS, f"{key}s", str(key)[:-1]]))] = parent.pop(key)


def mutate_text(draw, text: str) -> str:
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
    place = draw(st.integers(0, max(len(text) - 1, 0)))
    if change == "character":
        return text[:place] + draw(st.sampled_from(CHARACTERS)) + text[place + 1 :]
    if change == "cut":
        return text[:place] + text[place + draw(st.integers(1, 80)) :]
    if change == "number" and (numbers := list(re.finditer(r"\b\d+(\.\d+)?\b", text))):
        number = draw(st.sampled_from(numbers))
        return text[: number.start()] + str(draw(st.sampled_from([*NUMBERS, 1, 2, 5]))) + text[number.end() :]
    return text


@st.composite
def suites(draw) -> tuple[str, tuple[str, ...]]:
    """A suite's text, most of them changed gently, and --set values."""
    text, way = (
        draw(st.sampled_from(seed_suites())),
        draw(st.sampled_from(["gently", "tree", "text", "gently", "gently"])),
    )
    data = None if way == "text" else YAML(typ="safe").load(text)
    for _ in range(draw(st.integers(1, 3))):
        if way == "text":
            text = mutate_text(draw, text)
        else:
            mutate_tree(draw, data, ("nudge",) if way == "gently" else CHANGES)
    if way != "text":
        text = json.dumps(data, ensure_ascii=draw(st.booleans())).replace("NaN", ".nan").replace("Infinity", ".inf")
    overrides = st.tuples(st.sampled_from(KEYS), st.sampled_from(VALUES)).map("=".join)
    return text, tuple(draw(st.lists(overrides, max_size=2))) if way != "gently" else ()


@st.composite
def records(draw) -> bytes:
    """A record's file: changed and sealed again by somebody who knows how, most of them by one gentle change, or
    changed later.
    """
    content, gently = handmade.record(message="said").model_dump(mode="json"), draw(st.integers(0, 3)) > 0
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


def read_suite(folder: Path, mutant: tuple[str, tuple[str, ...]]) -> str:
    """'read' or 'refused'. Raises AssertionError for a problem without a place, and whatever else should not be."""
    path, (text, overrides) = folder / "suite.yaml", mutant
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        suite = plan.load(path, overrides)
        made = study.load(suite, folder / "results", warn=pytest.fail)
        assert all(made.table(form) for form in suite_table.FORMS)
        return "read"
    except SuiteError as error:
        problems = error.problems
    assert problems
    assert [each for each in problems if not LOCATED.fullmatch(each) or not each.isprintable()] == []
    return "refused"


def read_record(folder: Path, mutant: bytes) -> str:
    """'read' or 'refused'."""
    trial = handmade.record().id
    place = store.folder(folder, trial) / store.FILE_NAME
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(mutant)
    try:
        assert store.load(folder, trial).id == trial
        return "read"
    except RecordError as error:
        sentence = str(error)
    assert sentence.startswith(str(place))
    assert sentence.isprintable()
    return "refused"


@pytest.mark.parametrize(("mutants", "read"), [(suites, read_suite), (records, read_record)], ids=["suites", "records"])
def test_mutants_are_read_or_refused_with_a_place_in_time(mutants, read, tmp_path, monkeypatch):
    ends = Counter()
    # Without models that an earlier process has kept, so that the first suites build theirs.
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "own.txt").write_text("some words of a text\n" * 50)
    # The first suite of a kind imports what it needs, and one with a ladder builds its models, as its mutants may.
    building = 0.0
    for text in seed_suites() if read is read_suite else ():
        started = time.process_time()
        read_suite(tmp_path, (text, ()))
        building = max(building, time.process_time() - started)

    @settings(max_examples=MUTANTS or 50, derandomize=not MUTANTS, database=None, suppress_health_check=HealthCheck)
    @given(mutants())
    def check(mutant):
        started = time.process_time()
        ends[read(tmp_path, mutant)] += 1
        assert time.process_time() - started < SECONDS + building, "too slow"

    check()
    assert set(ends) == {"read", "refused"}
    assert ends["read"] >= 0.3 * ends.total()  # or only the front door would be tested
