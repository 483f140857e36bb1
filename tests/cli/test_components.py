"""`harness list` and `harness check`."""

import json

import pytest


@pytest.mark.parametrize(
    ("what", "name", "origin", "parameter"),
    [
        ("heads", "mos", "heads/mos.py", "num_mixtures: int = 10"),
        ("backbones", "lstm", "backbones/lstm.py", "d_model: int = 200"),
        ("corpora", "markov", "harness/corpora/synthetic.py", "vocab_size: int"),
    ],
)
def test_list_names_what_is_known_its_file_and_parameters(harness, what, name, origin, parameter):
    done = harness("list", what, "--json")
    assert (done.code, done.err) == (0, "")
    (entry,) = [entry for entry in json.loads(done.out) if entry["name"] == name]
    assert entry["from"] == origin
    assert parameter in entry["parameters"]
    text = harness("list", what).out
    for entry in json.loads(done.out):
        for shown in (entry["name"], entry["from"], *entry["parameters"]):
            assert shown in text


def test_list_suites_names_the_files_of_the_folder(fresh, harness):
    done = harness("list", "suites", "--json")
    own, *ours = json.loads(done.out)
    assert own == {"name": "tiny", "from": "suites/tiny.yaml", "kind": "yours", "parameters": []}
    assert {each["kind"] for each in ours} == {"bundled"}
    assert "quickstart" in {each["name"] for each in ours}
    assert "suites/tiny.yaml" in harness("list", "suites").out


def test_list_suites_has_the_names_that_suites_give_themselves(fresh, harness):
    tiny = (fresh / "suites" / "tiny.yaml").read_text()
    (fresh / "suites" / "copy.yaml").write_text(tiny.replace("name: tiny", "name: renamed"))
    (fresh / "suites" / "broken.yaml").write_text("name: [unclosed\n")
    listed = json.loads(harness("list", "suites", "--json").out)
    assert [(entry["name"], entry["from"]) for entry in listed if entry["kind"] == "yours"] == [
        ("broken", "suites/broken.yaml"),
        ("renamed", "suites/copy.yaml"),
        ("tiny", "suites/tiny.yaml"),
    ]
    assert harness("plan", "renamed").code == 0  # a name that is listed can be given


def test_list_of_something_else_leaves_with_2(harness):
    done = harness("list", "haeds")
    assert (done.code, done.out) == (2, "")
    assert "expected heads, backbones, corpora or suites" in done.err


def test_check_of_a_head_passes_with_a_line_for_each_check(harness):
    done = harness("check", "mos")
    assert done.code == 0
    *lines, last = done.out.splitlines()
    assert len(lines) > 1
    assert all(line.startswith("ok  ") for line in lines)
    assert last == f"head mos: {len(lines)} of {len(lines)} checks passed"


def test_check_of_an_unknown_name_leaves_with_2_and_the_nearest(harness):
    done = harness("check", "sofmax")
    assert (done.code, done.out) == (2, "")
    assert "'sofmax'; did you mean 'softmax'?" in done.err
