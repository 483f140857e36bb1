"""A trial's id: pinned, the same for the same trial however it is written, another for any other."""

import hashlib
import json
import math

import golden
import pytest
from handmade import changed
from hypothesis import given, settings
from hypothesis import strategies as st
from texts import lines

from harness.plan import load
from harness.plan.identity import SCHEMA_VERSION
from harness.plan.specs import canonical

BASE = [  # changes of handmade.SMALL
    *[("optimizer: adam, lr: 0.01", "optimizer: sgd, lr: 7"), ("seq_len: 7", "seq_len: 7, clip: 0.001")],
    *[("table: {baseline: softmax}\n", ""), ("measure: {exclusive: false}\n", "")],
]


@pytest.fixture
def ids(write):
    """A function: what is replaced in a suite -> the ids of its trials."""
    return lambda *replacements: [trial.id for trial in load(write(changed(*BASE, *replacements))).trials]


# Golden ids: SHA-256, first 12 digits, of the JSON below, written out by hand and hashed outside the harness.
# They may change only together with SCHEMA_VERSION: results on disk are found by them. Those of earlier versions stay
# here: with an earlier number put back they must come out, or a default has changed an id.
CONTENT = hashlib.sha256(b"markov-1/12/400/0/3").hexdigest()
GOLDEN_JSON = (
    '{"backbone":{"name":"lstm","params":{"d_model":8,"dropout":0.1,"num_layers":1}},'
    '"corpus":{"content":"%s","name":"markov","params":{"branching":3,"num_tokens":400,"vocab_size":12}},'
    '"head":%s,"schema":%d,"seed":%d,'
    '"train":{"batch_size":4,"clip":0.001,"epochs":2,"lr":7,"optimizer":"sgd","seq_len":7}}'
)
SOFTMAX, MOS = '{"name":"softmax","params":{}}', '{"name":"mos","params":{"num_mixtures":2}}'
GOLDEN = {  # by the version of the schema
    1: ["db1debc647b1", "d578641e7add", "3f0a4b0bf851"],
    2: ["47d58587e953", "96f8c9f3b218", "3914f462cd1b"],
}


def hashed(*replacements: tuple[str, str], head=SOFTMAX, schema=SCHEMA_VERSION, seed=1, content=CONTENT) -> str:
    """The id of GOLDEN_JSON with texts replaced and its gaps filled."""
    text = GOLDEN_JSON
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    return hashlib.sha256((text % (content, head, schema, seed)).encode()).hexdigest()[:12]


@pytest.mark.parametrize("schema", GOLDEN)
def test_ids_are_pinned_in_every_version(ids, monkeypatch, schema):
    assert max(GOLDEN) == SCHEMA_VERSION
    assert [
        hashed(head=head, schema=schema, seed=seed) for head, seed in ((SOFTMAX, 1), (SOFTMAX, 2), (MOS, 1))
    ] == GOLDEN[schema]
    monkeypatch.setattr("harness.plan.identity.SCHEMA_VERSION", schema)
    assert ids()[:3] == GOLDEN[schema]


NGRAM_JSON = (
    '{"backbone":{"name":"last_tokens","params":{}},'
    '"corpus":{"content":"%s","name":"markov","params":{"branching":3,"num_tokens":400,"vocab_size":12}},'
    '"head":{"name":"kneser_ney","params":%s},"schema":2,"seed":0,'
    '"train":{"batch_size":1,"epochs":0,"eval_batch_size":1,"lr":1,"optimizer":"sgd","seq_len":1000}}'
)


@pytest.mark.parametrize("change", [("seeds: [1, 2]", "seeds: [1, 2]"), ("epochs: 2", "epochs: 3")])
def test_ids_of_ngrams_are_pinned_whatever_is_trained_beside_them(ids, change):
    found = ids(change, ("seeds: [1, 2]", "seeds: [1, 2]\nngrams: [3, {order: 5, cache: true}]"))
    assert found[:4] == ids(change)
    for trial, params in zip(found[4:], ('{"order":3}', '{"cache":true}'), strict=True):  # order 5 is the default
        assert trial == hashlib.sha256((NGRAM_JSON % (CONTENT, params)).encode()).hexdigest()[:12]


# Settings that every suite had to give until they got a default: they are in the hash whatever their value.
DEFAULTS = {"optimizer": "sgd", "batch_size": 20, "seq_len": 35}


@pytest.mark.parametrize("left_out", [[], list(DEFAULTS)])
def test_a_setting_that_was_once_mandatory_stays_in_the_id_at_its_default(ids, left_out):
    old = "{optimizer: sgd, lr: 7, epochs: 2, batch_size: 4, seq_len: 7, clip: 0.001}"
    given = {name: value for name, value in DEFAULTS.items() if name not in left_out}
    written = ", ".join(f"{name}: {value}" for name, value in {**given, "lr": 7, "epochs": 2}.items())
    (found, *_) = ids((old, f"{{{written}}}"), ("num_tokens: 400", "num_tokens: 4000"))
    sizes = ('"batch_size":4,"clip":0.001', '"batch_size":20'), ('"seq_len":7', '"seq_len":35')
    content = hashlib.sha256(b"markov-1/12/4000/0/3").hexdigest()
    assert found == hashed(('"num_tokens":400', '"num_tokens":4000'), *sizes, content=content)


@pytest.mark.parametrize("plateau", ["{factor: 0.5}", "{factor: 0.5, threshold: 0, reference: best}, step: null"])
def test_the_id_of_a_plateau_is_pinned(ids, plateau):
    # as when a schedule had no other setting than plateau.factor
    expected = hashed(('"seq_len":7', '"schedule":{"plateau":{"factor":0.5}},"seq_len":7'))
    assert ids(("clip: 0.001", f"clip: 0.001, schedule: {{plateau: {plateau}}}"))[0] == expected


CHANGES = golden.read("ids")


@pytest.mark.parametrize("replacement", CHANGES["same"])
def test_id_does_not_depend_on_how_the_trial_is_written(ids, replacement):
    assert ids(replacement) == ids()


@pytest.mark.parametrize("replacement", CHANGES["another"])
def test_every_id_changes_with_what_decides_the_result(ids, replacement):
    assert not set(ids(replacement)) & set(ids())


@pytest.mark.parametrize("params", ["num_mixtures: 3", "num_mixtures: 2, bias: false"])
def test_a_heads_parameter_changes_the_ids_of_that_head_alone(ids, params):
    before, after = ids(), ids(("num_mixtures: 2", params))
    assert before[:2] == after[:2]
    assert not set(before[2:]) & set(after[2:])


@pytest.mark.parametrize("written", ["components: [15, 5]", "widths: [1, 2.0]", "components: [15, 5], widths: [1, 2]"])
def test_a_list_that_equals_the_default_is_left_out_tuple_or_not(ids, layered, written):
    assert ids(("- softmax", f"- layered: {{{written}}}")) == ids(("- softmax", "- layered"))


def test_the_order_of_a_mapping_does_not_count_and_its_values_do(ids, layered):
    def of(components: str) -> str:
        return ids(("- softmax", f"- layered: {{components: {components}}}"))[0]

    assert of("{top: 3, second: 1}") == of("{second: 1, top: 3}")
    others = ["[3, 1]", "[1, 3]", "{top: 3, second: 1}", "{top: 3, second: 2}", "{top: 3}"]
    assert len({of(components) for components in others}) == len(others)


def test_text_counts_by_its_content_and_not_by_its_place(ids, tmp_path):
    markov = "markov: {vocab_size: 12, num_tokens: 400, branching: 3}"
    (tmp_path / "sub").mkdir()
    for name, seed in {"one.txt": 1, "sub/two.txt": 1, "three.txt": 2}.items():
        (tmp_path / name).write_text(lines(20, seed))
    one, two, three = (ids((markov, f"text: {{path: {name}}}")) for name in ("one.txt", "sub/two.txt", "three.txt"))
    assert one == two
    assert not set(one) & set(three)
    content = hashlib.sha256(lines(20, seed=1).encode()).hexdigest()
    chain = '"name":"markov","params":{"branching":3,"num_tokens":400,"vocab_size":12}'
    assert one[0] == hashed((chain, '"name":"text","params":{}'), content=content)


def test_canonical_text_is_sorted_compact_json_with_whole_floats_as_integers():
    assert canonical({"b": 1, "a": [1.0, 2.5, (True, None)]}) == '{"a":[1,2.5,[true,null]],"b":1}'
    assert [canonical(value) for value in (-0.0, 1e16, "\u00e9")] == ["0", "10000000000000000", '"\\u00e9"']
    for value in (math.nan, math.inf, [-math.inf]):
        with pytest.raises(ValueError, match="not JSON compliant"):
            canonical(value)


SCALARS = (
    st.none()
    | st.booleans()
    | st.text(max_size=5)
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    SCALARS,
    lambda child: st.lists(child, max_size=4) | st.dictionaries(st.text(max_size=4), child, max_size=4),
    max_leaves=20,
)


def respelt(value, reverse: bool):
    """The same value: keys in another order, whole floats as integers and small integers as floats, lists as tuples."""
    if isinstance(value, dict):
        items = [(key, respelt(child, reverse)) for key, child in value.items()]
        return dict(reversed(items) if reverse else sorted(items, key=lambda item: item[0]))
    if isinstance(value, list):
        return tuple(respelt(child, reverse) for child in value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return float(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


@pytest.mark.system
@settings(deadline=None, max_examples=400)
@given(value=VALUES, reverse=st.booleans())
def test_canonical_text_is_the_same_for_equal_values_and_reads_back_as_the_value(value, reverse):
    assert canonical(respelt(value, reverse)) == canonical(value)
    assert json.loads(canonical(value)) == value
