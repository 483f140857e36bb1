"""`harness new suite`: what it writes for texts of several kinds, with times that are given, and what it refuses."""

import json
from pathlib import Path

import causal_models
import jsonschema
import pytest
import tokenizer_folders
import torch
from tokenizers import Tokenizer

from harness import plan
from harness.errors import ExecutionError
from harness.plan.reader import read
from harness.plan.suite_file import suite_schema
from harness.starters import budget, measuring, new_suite
from harness.starters.budget import Measured
from harness.trial.timing import ModelTime

pytestmark = pytest.mark.system

SENTENCE = "It was line {} of a text that nobody had read before.\n"


def text_of(size: int) -> str:
    """So many characters, all of one byte, in lines that differ."""
    lines = "".join(map(SENTENCE.format, range(size // 50)))
    return lines[:size]


@pytest.fixture
def given(tmp_path, monkeypatch):
    """An empty folder as the current one, on a machine with two cores; a function sets the milliseconds of a step."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(new_suite, "cpus_available", lambda: 2)
    monkeypatch.setattr(new_suite.environment.OtherWork, "cores", lambda self: 0.0)

    def milliseconds(train: float) -> None:
        def measured(place, *, size, data, device):
            loaded = plan.load(place)  # it can be planned, as when it is measured
            rows = len({str(spec.head) for spec in loaded.possible_trials})
            steps = max(1, size // 2000)
            time = ModelTime(train_ms=train, eval_ms=1, steps=steps, valid_batches=1, test_batches=1)
            return Measured(bytes=size, once=0.0, rows=[time] * rows)

        monkeypatch.setattr(measuring, "measured", measured)

    milliseconds(1.0)
    return milliseconds


def test_a_suite_has_the_controls_and_is_planned(given, harness):
    Path("book.txt").write_text(text_of(60_000))
    done = harness("new", "suite", "mine", "--text", "book.txt", "--heads", "mos,moc")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "suite mine: suites/mine.yaml",
        "next: harness run mine",
        "editors complete its keys with the schema: harness schema > suites/schema.json",
    ]
    data, _ = read(Path("suites/mine.yaml"))
    jsonschema.Draft202012Validator(suite_schema()).validate(data)
    made = plan.load("mine")
    heads = ["softmax", "affine softmax", "MoS 1", "MoS 2", "MoC 2"]
    assert (list(dict.fromkeys(row.head.name for row in made.rows)), made.table.baseline) == (heads, "softmax")
    assert [len(row.candidates) for row in made.tuned_rows] == [budget.RATES] * 5
    assert {len(each.trials) for row in made.tuned_rows for each in row.candidates} == {budget.SEEDS}
    assert data["corpora"] == [{"text": {"path": "../book.txt", "tokenizer": {"bpe": 500}}}]
    assert "All of the text, 60,000 bytes." in Path("suites/mine.yaml").read_text()


def test_a_part_of_a_long_text_is_written_beside_the_suite(given, harness):
    given(40.0)
    whole = text_of(1_000_000)
    Path("book.txt").write_text(whole)
    assert harness("new", "suite", "mine", "--text", "book.txt", "--minutes", "20").code == 0
    part = {split: Path(f"texts/mine/{split}.txt").read_text() for split in ("train", "valid", "test")}
    lines = whole.splitlines(keepends=True)
    for split, begin in (("train", 0.0), ("valid", 0.8), ("test", 0.9)):
        assert "".join(lines[int(begin * len(lines)) :]).startswith(part[split])
        assert part[split].endswith("\n")
    share = sum(map(len, part.values())) / len(whole)
    said = Path("suites/mine.yaml").read_text()
    assert f"the first {100 * share:.0f} % of each split" in said
    corpus = read(Path("suites/mine.yaml"))[0]["corpora"][0]["text"]
    assert corpus["path"] == "../texts/mine"
    assert 1 <= plan.load("mine").core_minutes <= 40  # 20 minutes, two trials at a time


def test_more_minutes_take_more_of_the_text(given, harness):
    given(40.0)
    Path("book.txt").write_text(text_of(400_000))
    sizes = []
    for minutes in ("20", "60"):
        harness("new", "suite", f"in{minutes}", "--text", "book.txt", "--minutes", minutes)
        sizes.append(Path(f"texts/in{minutes}/train.txt").stat().st_size)
    assert sizes[1] > 2 * sizes[0]


def test_short_texts_are_characters_and_those_in_other_scripts_subwords(given, harness):
    Path("short.txt").write_text(text_of(21_000))
    Path("han.txt").write_text("".join(f"{chr(0x4E00 + number % 3000)}\n" for number in range(6000)))  # 24,000 bytes
    for name in ("short", "han"):
        assert harness("new", "suite", name, "--text", f"{name}.txt").code == 0
    corpora = [read(Path(f"suites/{name}.yaml"))[0]["corpora"][0]["text"] for name in ("short", "han")]
    assert [corpus.get("level") for corpus in corpora] == ["char", None]
    assert corpora[1]["tokenizer"] == {"bpe": 500}


def test_a_folder_with_splits_and_one_with_documents_are_taken(given, harness):
    Path("three").mkdir()
    for split, size in (("train", 40_000), ("valid", 6_000), ("test", 6_000)):
        Path(f"three/{split}.txt").write_text(text_of(size))
    Path("rows.jsonl").write_text("".join(json.dumps({"text": text_of(500)}) + "\n" for _ in range(200)))
    for name, path in (("three", "three"), ("rows", "rows.jsonl")):
        done = harness("new", "suite", name, "--text", path)
        assert (done.code, done.err) == (0, "")
        assert plan.load(name).rows[0].facts.text.number > 0


def test_without_a_text_it_is_the_novel(given, harness):
    assert harness("new", "suite", "mine", "--minutes", "600").code == 0
    assert "embedded" in read(Path("suites/mine.yaml"))[0]["corpora"][0]


def test_heads_on_a_model_start_as_it_does(given, harness):
    folder = tokenizer_folders.write(Path("models/mine"), "gpt2")
    size = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
    causal_models.saved(folder, "llama", vocab_size=size)
    Path("book.txt").write_text(text_of(30_000))
    arguments = ("--text", "book.txt", "--model", "models/mine", "--heads", "mos,sigsoftmax,ngpt")
    done = harness("new", "suite", "mine", *arguments)
    assert (done.code, done.err) == (0, "")
    data, _ = read(Path("suites/mine.yaml"))
    assert data["backbones"] == [{"hf": {"model": "../models/mine", "frozen": True}}]
    assert data["heads"] == [
        {"softmax": {"start": "pretrained"}},
        {"softmax": {"projection": True, "start": "pretrained"}},
        {"mos": {"start": "pretrained", "activation": "none", "num_mixtures": 2}},
        {"sigsoftmax": {"start": "pretrained"}},
        "ngpt",
    ]
    assert [len(row.candidates) for row in plan.load("mine").tuned_rows] == [budget.RATES] * 5


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--text", "short.txt"), "short.txt: its text has 9,000 bytes; at least 20,000 are needed"),
        (("--text", "nothing.txt"), "nothing.txt: no such file or folder"),
        (("--text", "book.txt", "--heads", "moz"), "unknown head 'moz'; did you mean 'mos'?"),
        (("--text", "book.txt", "--heads", "mos,softmax"), "--heads: softmax is a control"),
        (("--text", "book.txt", "--heads", ","), "--heads: expected the names of heads"),
        (("--text", "book.txt", "--heads", "kneser_ney"), "the suite cannot be made: heads.2: the head 'kneser_ney'"),
        (("--text", "book.txt", "--model", "models/none"), "the suite cannot be made: corpora.0: "),
    ],
)
def test_what_makes_no_suite_is_a_sentence(given, harness, arguments, sentence):
    Path("short.txt").write_text(text_of(9_000))
    Path("book.txt").write_text(text_of(60_000))
    done = harness("new", "suite", "mine", *arguments)
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err
    assert sorted(place.name for place in Path().iterdir()) == ["book.txt", "short.txt"]


def test_too_few_minutes_are_said_with_how_many_are_needed(given, harness):
    given(50.0)
    Path("book.txt").write_text(text_of(60_000))
    done = harness("new", "suite", "mine", "--text", "book.txt", "--minutes", "2")
    assert (done.code, done.out) == (2, "")
    needed = done.err.rpartition("give --minutes ")[2].split()[0]
    assert not Path("suites").exists()
    assert harness("new", "suite", "mine", "--text", "book.txt", "--minutes", needed).code == 0


@pytest.mark.parametrize("place", ["suites/mine.yaml", "texts/mine/train.txt"])
def test_nothing_is_replaced(given, harness, place):
    Path(place).parent.mkdir(parents=True)
    Path(place).write_text("mine")
    done = harness("new", "suite", "mine")
    assert (done.code, done.out) == (2, "")
    assert "exists already; choose another name, or remove it" in done.err
    assert Path(place).read_text() == "mine"


@pytest.mark.parametrize("name", ["../mine", "My Suite", "", "-x", "a/b", "leaderboard", "x" * 65, "mine.yaml"])
def test_a_bad_name_of_a_suite_is_a_sentence(given, name, harness):
    done = harness("new", "suite", "--", name)
    assert (done.code, done.out) == (2, "")
    assert "cannot be the name of a suite: expected lower-case letters" in done.err
    assert list(Path().iterdir()) == []


def test_a_folder_that_cannot_be_written_is_a_sentence(given, harness):
    Path("suites").write_text("a file")
    Path("book.txt").write_text(text_of(60_000))
    done = harness("new", "suite", "mine", "--text", "book.txt")
    assert (done.code, done.err) == (
        2,
        "suites/mine.yaml cannot be written (File exists); move away the file that stands where its folder should be\n",
    )


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("quickstart", None, "'quickstart' is a suite of the package, which the new one would hide"),
        ("mine", "missing.txt", "--text missing.txt: no such file or folder; a relative path"),
    ],
)
def test_a_name_of_the_package_and_a_text_that_is_not_there_are_refused(name, text, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wish = new_suite.Wish(
        name=name, text=None if text is None else Path(text), model=None, heads=("mos",), minutes=20.0
    )
    with pytest.raises(ExecutionError, match=sentence):
        new_suite.write(wish, data=tmp_path, device=torch.device("cpu"), warn=pytest.fail)
    assert list(tmp_path.iterdir()) == []
