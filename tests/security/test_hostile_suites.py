"""Suites made to do harm: refused in bounded time with sentences that say where, code 2, and nothing is written."""

import os
import socket

import pytest

BOMB = ["x0: &x0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
BOMB += [f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 10)}]" for i in range(1, 9)]  # 10**9 values
MERGES = ["x0: &x0 {a0: 1}"]
MERGES += [f"x{i}: &x{i} {{<<: [{', '.join([f'*x{i - 1}'] * 10)}], a{i}: 1}}" for i in range(1, 9)]
CHAIN = ["x0: &x0 {a0: 1}", *(f"x{i}: &x{i} {{<<: *x{i - 1}, a{i}: 1}}" for i in range(1, 60))]


LARGE = {
    "billion laughs": ("\n".join(BOMB), "2:5: expands to more than 12000 values"),
    "billion laughs by merge keys": ("\n".join(MERGES), "1:5: expands to more than 12000 values"),
    "billion laughs in a key": ("\n".join([*BOMB, "? *x8", ": 1"]), "2:5: expands to more than 12000 values"),
    "a chain of merges": ("\n".join(CHAIN), "40:6: nested more than 20 deep"),
    "one alias many times": (
        f"a: &a [1]\nb: [{','.join(['*a'] * 30_000)}]",
        "2:35987: the file has more than 12000 values",
    ),
    "merge with itself": ("a: &a {<<: *a}", "1:4: an alias that contains itself"),
    "flow lists": ("a: " + "[" * 100_000, "1:25: nested more than 20 deep"),
    "flow mappings": ("a: " + "{b: " * 50_000, "1:85: nested more than 20 deep"),
    "block mappings": ("\n".join(f"{' ' * i}a:" for i in range(500)), "22:22: nested more than 20 deep"),
    "block lists": ("a:\n  " + "- " * 100_000, "2:45: nested more than 20 deep"),
    "complex keys": ("? " * 100_000, "1:45: nested more than 20 deep"),
    "many keys": ("\n".join(f"k{i}: 1" for i in range(5_000)), "1:1: a mapping of more than 200 keys"),
    "many repeated keys": ("k: 1\n" * 40_000, "6000:4: the file has more than 12000 values"),
    "many values": (f"a: [{','.join(['1'] * 100_000)}]", "1:23999: the file has more than 12000 values"),
    "many documents": ("---\n" * 60_000, "2:1: but found another document"),
    "a long key": ("k" * 200_000 + ": 1", "1:200001: mapping values are not allowed here"),
    "a long anchor": (
        f"a: &{'x' * 200_000} 1\nb: *{'x' * 200_000}\n",
        "1:1: larger than 256 KiB, the limit for a suite file",
    ),
}


@pytest.mark.parametrize("case", LARGE)
def test_suite_errors_of_what_expands_nests_or_repeats_without_end(case, refused):
    text, problem = LARGE[case]
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


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"name: a\x00b\n", "1:1: not valid YAML: unacceptable character #x0000: special characters are not allowed"),
        (b"name: caf\xe9\n", " cannot be read as UTF-8 text (byte 10); save it as UTF-8"),
        (b"\xff\xfen\x00a\x00", " cannot be read as UTF-8 text (byte 1); save it as UTF-8"),
        (b"name: \x1b[2J\n", "1:1: not valid YAML: unacceptable character #x001b: special characters are not allowed"),
    ],
)
def test_suite_errors_of_bytes_that_are_no_text(content, problem, refused):
    assert refused(content) == [problem]


def test_a_byte_order_mark_is_no_part_of_the_first_key(project, command, changed):
    (project / "suites" / "suite.yaml").write_bytes(b"\xef\xbb\xbf" + changed().encode())
    assert command("plan", "suites/suite.yaml").code == 0


TAGS = "expected a valid string, got"
VALUES = {
    "object tag": (
        ("name: small", "name: !!python/object/apply:os.system ['touch made']"),
        f'1:7: name: {TAGS} ["touch made"]',
    ),
    "name tag": (("- softmax", "- !!python/name:os.system x"), None),
    "module tag": (("name: small", "name: !!python/module:antigravity ''"), None),
    "binary": (("name: small", "name: !!binary aGVsbG8="), None),
    "set": (("seeds: [1, 2]", "seeds: !!set {1, 2}"), None),
    "ordered map": (
        ("seeds: [1, 2]", "seeds: !!omap [a: 1]"),
        "11:8: seeds: expected a number of seeds, as 6 for the",
    ),
    "4,000 digits": (("epochs: 2", "epochs: " + "9" * 4_000), "10:44: train.epochs: a number of more than 64 bits"),
    "200,000 digits": (("epochs: 2", "epochs: " + "9" * 200_000), None),
    "exponent": (("epochs: 2", "epochs: 1e999999999"), "10:44: train.epochs: expected a finite number, got Infinity"),
    "underflow": (("lr: 0.01", "lr: 1e-999999999"), "10:30: train.lr: expected greater than 0, got 0.0"),
    "number as key": (("num_mixtures: 2", "1: 2"), "9:10: heads.1.mos: keys must be strings, got 1"),
    "nothing as key": (("num_mixtures: 2", "~: 2"), "9:10: heads.1.mos: keys must be strings, got None"),
    "list as key": (("num_mixtures: 2", "[a, b]: 2"), "9:10: heads.1.mos: keys must be strings, got ('a', 'b')"),
    "mapping as key": (("num_mixtures: 2", "{a: b}: 2"), None),
    "truth as key": (("num_mixtures: 2", "true: 2"), "9:10: heads.1.mos: keys must be strings, got True"),
    "no": (("num_mixtures: 2", "tie_weights: no"), '9:24: heads.1.mos.tie_weights: expected a valid boolean, got "no"'),
    "sixties": (
        ("num_mixtures: 2", "num_mixtures: 1:30"),
        '9:25: heads.1.mos.num_mixtures: expected a valid integer, got "1:30"',
    ),
    "old YAML": (
        ("name: small", "%YAML 1.1\n---\nname: small"),
        "2:1: YAML 1.2 is expected, in which 'no' is a string and 010 is ten",
    ),
    "component by path": (("- softmax", "- ../../evil"), "8:5: heads.0: unknown head '../../evil' (known: "),
    "component by absolute path": (("- softmax", "- /etc/passwd"), "8:5: heads.0: unknown head '/etc/passwd' (known: "),
    "component by module": (
        ("- softmax", "- os.system: {command: touch made}"),
        "8:5: heads.0.os.system: unknown head 'os.system' (known: ",
    ),
    "backbone by module": (("- lstm:", "- harness.cli:main:"), None),
    "name with a path": (("name: small", "name: ../../evil"), "1:7: name: expected up to 64 small letters, "),
    "name with a line": (("name: small", 'name: "small\\n"'), "1:7: name: expected up to 64 small letters, "),
    "printed table by path": (("baseline: softmax", "compare: ../../etc/passwd"), None),
    "printed table above": (("baseline: softmax", "compare: a/.."), None),
    "escape sequence": (("- softmax", '- "\\e[2J\\u202e"'), "8:5: heads.0: unknown head '\\x1b[2J\\u202e' (known: "),
    "half a character": (("- softmax", '- "\\ud800"'), None),
    "a long name": (("- softmax", f"- {'a' * 100_000}"), None),
    "many layers": (
        ("num_layers: 1", "num_layers: 1000000000"),
        "6:5: backbones.0: the model has more than 10,000 parameter tensors; use fewer layers or components",
    ),
    "very many layers": (("num_layers: 1", "num_layers: 9223372036854775807"), None),
    "many facets": (("mos: {num_mixtures: 2}", "mfs: {num_mixtures: 1000000000}"), None),
    "wide": (("d_model: 8", "d_model: 1000000000"), None),
    "many words": (("num_mixtures: 2", f"num_mixtures: {2**63 - 1}"), None),
}


@pytest.mark.parametrize("case", VALUES)
def test_suite_errors_of_hostile_values(case, refused, changed, tmp_path):
    replacement, problem = VALUES[case]
    problems = refused(changed(replacement))
    assert problem is None or problems[0].startswith(problem)
    assert sum(map(len, problems)) < 10_000
    assert not list(tmp_path.rglob("made"))


@pytest.mark.parametrize(
    "override",
    [
        *("name=../../evil", "name=/etc/evil", "heads.0=../../evil", "heads.0.__class__=x", "__class__.__init__=x"),
        *("train.epochs=" + "9" * 10_000, f"{'9' * 5_000}=1", f"heads.{'9' * 5_000}=softmax"),
        *(".".join(["x"] * 50_000) + "=1", "corpora=" + "[" * 50_000),
        "seeds=!!python/object/apply:os.system ['touch made']",
        *("name=\x1b[2J", "\u202ename=x", "name=\udcff", "\n=x"),
    ],
    ids=range(15),
)
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
