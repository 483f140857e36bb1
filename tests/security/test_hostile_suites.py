"""Suites made to do harm: refused in bounded time with sentences that say where, code 2, and nothing is written."""

import os
import socket

import golden
import pytest
from golden import written_out

BOMB = ["x0: &x0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
BOMB += [f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 10)}]" for i in range(1, 9)]  # 10**9 values
MERGES = ["x0: &x0 {a0: 1}"]
MERGES += [f"x{i}: &x{i} {{<<: [{', '.join([f'*x{i - 1}'] * 10)}], a{i}: 1}}" for i in range(1, 9)]
CHAIN = ["x0: &x0 {a0: 1}", *(f"x{i}: &x{i} {{<<: *x{i - 1}, a{i}: 1}}" for i in range(1, 60))]


LARGE = {  # more: tests/golden/messages/security/suites.yaml
    "\n".join(BOMB): "2:5: expands to more than 12000 values",
    "\n".join(MERGES): "1:5: expands to more than 12000 values",
    "\n".join([*BOMB, "? *x8", ": 1"]): "2:5: expands to more than 12000 values",
    "\n".join(CHAIN): "40:6: nested more than 20 deep",
    "\n".join(f"{' ' * i}a:" for i in range(500)): "22:22: nested more than 20 deep",
    "\n".join(f"k{i}: 1" for i in range(5_000)): "1:1: a mapping of more than 200 keys",
}
GOLDEN = golden.read("messages/security/suites")
WRITTEN = [(written_out(case["is"]), case["says"]) for case in GOLDEN["texts"]]
WRITTEN += [(case["is"].encode("latin-1"), case["says"]) for case in GOLDEN["bytes"]]


@pytest.mark.parametrize(("text", "problem"), [*LARGE.items(), *WRITTEN], ids=range(len(LARGE) + len(WRITTEN)))
def test_suite_errors_of_what_expands_nests_or_is_no_text(text, problem, refused):
    assert refused(text) == [problem]


def test_suite_errors_a_file_of_50_megabytes_is_refused_without_being_read(project, refused):
    with (project / "suites" / "suite.yaml").open("wb") as file:
        file.truncate(50 * 10**6)
    assert refused(None) == ["1:1: larger than 256 KiB, the limit for a suite file"]


def test_suite_errors_what_is_no_file_is_refused_without_waiting_for_it(project, refused):
    place = project / "suites" / "suite.yaml"
    os.mkfifo(place)  # with nobody writing: opening it would wait for ever
    assert refused(None) == [" cannot be read as UTF-8 text (not a regular file)"]
    place.unlink()
    for target, reason in {
        "/dev/zero": "not a regular file",
        "/proc/self/environ": "its content has another length than its size",
        project: "not a regular file",
        place: "Too many levels of symbolic links",
    }.items():
        place.symlink_to(target)
        assert refused(None) == [f" cannot be read as UTF-8 text ({reason})"]
        place.unlink()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("suites/suite.yaml")
        assert refused(None) == [" cannot be read as UTF-8 text (No such device or address)"]


def test_a_byte_order_mark_is_no_part_of_the_first_key(project, command, changed):
    (project / "suites" / "suite.yaml").write_bytes(b"\xef\xbb\xbf" + changed().encode())
    assert command("plan", "suites/suite.yaml").code == 0


@pytest.mark.parametrize("case", GOLDEN["values"], ids=lambda case: case["change"][1][:40])
def test_suite_errors_of_hostile_values(case, refused, changed, tmp_path):
    problems = refused(changed([written_out(text) for text in case["change"]]))
    assert problems[0].startswith(case.get("says", ""))
    assert sum(map(len, problems)) < 10_000
    assert not list(tmp_path.rglob("made"))


OVERRIDES = [*map(written_out, GOLDEN["overrides"]), "name=\udcff"]


@pytest.mark.parametrize("override", OVERRIDES, ids=range(len(OVERRIDES)))
def test_suite_errors_of_hostile_overrides(override, refused, changed, tmp_path):
    (problem, *_) = refused(changed(), override)
    assert problem.startswith("--set ")
    assert not list(tmp_path.rglob("made"))


def test_a_planned_giant_costs_nothing(project, command, changed):
    text = changed(("vocab_size: 12", "vocab_size: 16777216"), ("num_tokens: 400", "num_tokens: 1000000000000"))
    (project / "suites" / "suite.yaml").write_text(text.replace("num_mixtures: 2", "num_mixtures: 1000000000"))
    planned = command("plan", "suites/suite.yaml")
    assert planned.code == 0
    assert planned.seconds < 30  # of processor time; the corpus itself would take days
