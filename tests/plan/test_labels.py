"""Labels that a suite may not give: names of the harness for something else, and what a reader takes for one."""

import pytest
from handmade import changed
from stand_ins import of_the_repository
from texts import lines

from harness.errors import SuiteError
from harness.plan import load
from harness.plan.components import components
from harness.plan.labels import check_labels
from harness.plan.loading import labels
from harness.plan.reader import Problems, read
from harness.registry import BACKBONES, CORPORA, HEADS

SUITES = of_the_repository()
HEAD = "  - softmax\n  - mos: {num_mixtures: 2}\n"
# Letters of other scripts, by what they look like: o, C, M and S.
SMALL_O, CAPITAL_ES, CAPITAL_EM, CAPITAL_DZE = "\u043e", "\u0421", "\u041c", "\u0405"


@pytest.fixture
def said(write):
    """A function: the heads of a suite in YAML, further changes -> the problem with it, after its place; '' if none."""

    def of(heads: str, *changes: tuple[str, str]) -> str:
        text = changed((HEAD, heads), ("{baseline: softmax}", "{baseline: null}"), *changes)
        try:
            load(write(text))
        except SuiteError as error:
            (problem,) = error.problems
            assert ".label: " in problem
            return problem.partition(".label: ")[2]
        return ""

    return of


@pytest.mark.parametrize(
    ("head", "whose"),
    [
        ("softmax: {softcap: 0.05, label: softmax}", "a plain softmax, and this head is none (softcap=0.05)"),
        ("softmax: {softcap: 0.05, label: plain softmax}", "a plain softmax, and this head is none (softcap=0.05)"),
        ("softmax: {softcap: 0.05, label: softmax (ours)}", "a plain softmax, and this head is none (softcap=0.05)"),
        ("softmax: {softcap: 0.05, label: Softmax}", "a plain softmax, and this head is none (softcap=0.05)"),
        ("softmax: {softcap: 0.05, label: soft-max}", "a plain softmax, and this head is none (softcap=0.05)"),
        ("softmax: {z_loss: 0.1, label: softmax 1}", "a plain softmax, and this head is none (z_loss=0.1)"),
        ("softmax: {softcap: 0.05, label: s0ftmax}", "a plain softmax, and this head is none (softcap=0.05)"),
        ("mos: {num_mixtures: 2, label: softmax}", "another head, 'softmax'"),
        ("mos: {num_mixtures: 2, label: affine softmax}", "another head, 'softmax'"),
        ("adaptive: {cutoffs: [6], label: softmax}", "another head, 'softmax'"),
        ("mos: {num_mixtures: 2, label: adaptive softmax}", "another head, 'adaptive'"),
        ('mos: {num_mixtures: 2, label: "softmax, ours"}', "another head, 'softmax'"),
        ("mos: {num_mixtures: 2, label: MoC 2}", "another head, 'moc'"),
        ("mos: {num_mixtures: 2, label: Kneser-Ney 5}", "another head, 'kneser_ney'"),
        (f"mos: {{num_mixtures: 2, label: {CAPITAL_EM}{SMALL_O}{CAPITAL_ES}}}", "another head, 'moc'"),
    ],
)
def test_a_label_is_not_what_the_harness_calls_another_head(said, head, whose):
    found = said(f"  - {head}\n")
    assert f"is what the harness calls {whose}; write another label, which says what differs" in found


@pytest.mark.parametrize(
    ("head", "own", "label"),
    [
        ("mos: {num_mixtures: 2, label: MoS 15}", "MoS 2", "MoS 15"),
        ('mos: {num_mixtures: 2, label: "MoS 15, ours"}', "MoS 2", "MoS 15, ours"),
        ("softmax: {projection: true, d_embed: 1, label: softmax}", "affine softmax, rank 1", "softmax"),
    ],
)
def test_a_label_does_not_say_another_number_than_the_harness(said, head, own, label):
    found = said(f"  - {head}\n")
    assert found.startswith(f"the harness calls this head '{own}', and its label says another one, '{label}'; ")


def test_texts_and_backbones_have_no_name_of_another(said):
    of_corpus = ("branching: 3", "branching: 3, label: PTB")
    assert said("  - softmax\n", of_corpus).startswith("'PTB' is what the harness calls another corpus, 'ptb'; ")
    of_lstm = ("d_model: 8", "d_model: 8, label: GPT-2")
    assert said("  - softmax\n", of_lstm).startswith("'GPT-2' is what the harness calls another backbone, 'gpt2'; ")


def test_a_text_has_not_the_name_of_a_published_corpus(said, tmp_path):
    (tmp_path / "own.txt").write_text(lines(20, seed=1))
    markov = "markov: {vocab_size: 12, num_tokens: 400, branching: 3}"
    for label, whose in {"ptb": "ptb", "PTB": "ptb", "WikiText-2": "wikitext2"}.items():
        found = said("  - softmax\n", (markov, f"text: {{path: {tmp_path / 'own.txt'}, label: {label}}}"))
        assert f"is what the harness calls another corpus, '{whose}'" in found
    assert said("  - softmax\n", (markov, f"text: {{path: {tmp_path / 'own.txt'}, label: enwik9}}")) == ""
    assert said("  - softmax\n", ("lstm: {d_model: 8,", "lstm: {label: GPT-3, d_model: 8,")) == ""


@pytest.mark.needs("pretrained")
def test_a_folder_with_a_model_may_have_the_name_of_its_model(said):
    config = "hf: {config: {model_type: gpt2, n_embd: 8, n_layer: 1, n_head: 2}, label: GPT-2}"
    assert said("  - softmax\n", ("lstm: {d_model: 8, num_layers: 1, dropout: 0.1}", config)) == ""


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("ours", "Ours"),
        ("ours", "\uff4f\uff55\uff52\uff53"),  # in full width
        ("ours", "ou\u0301rs"),  # with an accent
        ("ours", "ours\u3164"),  # and a letter that is drawn as nothing
        ("MoS a", f"Mo{CAPITAL_DZE} a"),  # with one Cyrillic letter
        ("MOC a", f"{CAPITAL_EM}{SMALL_O.upper()}{CAPITAL_ES} a"),  # all Cyrillic
    ],
)
def test_labels_that_look_alike_are_refused(said, first, second):
    heads = f"  - mos: {{num_mixtures: 2, label: {first}}}\n  - mos: {{num_mixtures: 3, label: {second}}}\n"
    assert f"'{second}' looks like the label '{first}' of another component" in said(heads)


def test_a_label_is_not_the_name_of_another_row(said):
    heads = "  - softmax: {bias: false, label: affine softmax}\n  - softmax: {projection: true}\n"
    assert said(heads).startswith(
        "'affine softmax' is what the harness calls softmax(projection=True), another row of this suite; "
    )


@pytest.mark.parametrize(
    "head",
    [
        "softmax: {bias: false, label: softmax}",
        "softmax: {projection: true, bias: false, label: Softmax}",  # as papers call it
        "softmax: {tie_weights: true, label: tied softmax}",
        "softmax: {softcap: 30.0, label: soft cap 30}",
        'softmax: {projection: true, d_embed: 4, label: "affine softmax, E = 4"}',
        'softmax: {softcap: 30.0, label: "softmax, softcap 30"}',
        "mos: {num_mixtures: 2, label: MoS}",
        "mos: {num_mixtures: 2, dropout: 0.3, label: MoS 2}",
        "mfs: {window: 0, num_input_layers: 1, num_mixtures: 4, num_partitions: 1, label: MoS (4)}",
        "mos: {num_mixtures: 2, label: \u00b5P mixture}",
        "mos: {num_mixtures: 2, label: \u043c\u043e\u0434\u0435\u043b\u044c}",  # a word in Cyrillic
        "mos: {num_mixtures: 2, label: MoS\u306e\u6df7\u5408}",  # Latin letters in Japanese
    ],
)
def test_an_honest_label_is_taken(said, head):
    assert said(f"  - {head}\n") == ""


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
def test_no_label_of_a_suite_of_the_repository_is_refused(path):
    data, source = read(path)
    for section, registry in (("corpora", CORPORA), ("backbones", BACKBONES), ("heads", HEADS)):
        problems = Problems(source)
        found = components(data.get(section), registry, section, problems)
        check_labels(found, [each.spec for each in found], registry, problems)
        problems.raise_if_any()


def test_views_that_read_a_suite_again_take_no_refused_label(write):
    suite = changed(("- softmax", "- softmax: {softcap: 0.05, label: softmax}"), ("2}\n", "2, label: ours}\n"))
    assert labels(write(suite))["head"] == {"mos(num_mixtures=2)": "ours"}
