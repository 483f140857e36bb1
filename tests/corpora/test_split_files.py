"""The files of the splits of a folder, by the words in their names."""

import pytest

from harness.corpora.split_files import WHOLE, files_in
from harness.errors import CorpusError


def made(folder, names: str):
    for name in names.split():
        (folder / name).write_text("a b c\n")
    return folder


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("train.txt valid.txt test.txt", "train.txt | valid.txt | test.txt"),
        ("a.training.tokens a.val.tokens a.test.tokens", "a.training.tokens | a.val.tokens | a.test.tokens"),
        ("My_Train.txt my-dev.txt TEST1.txt", "My_Train.txt | my-dev.txt | TEST1.txt"),
        ("train validation test README.md latest.txt", "train | validation | test"),
        ("train-0.jsonl train-1.jsonl dev.jsonl test.jsonl", "train-0.jsonl train-1.jsonl | dev.jsonl | test.jsonl"),
        ("train.txt ._train.txt valid.txt test.txt", "train.txt | valid.txt | test.txt"),  # of macOS
        ("trainset.txt validset.txt testset.txt", "trainset.txt | validset.txt | testset.txt"),
        ("train.txt validset.txt testset.txt", "train.txt | validset.txt | testset.txt"),
    ],
)
def test_a_word_of_the_name_says_the_split(names, expected, tmp_path):
    found = files_in(made(tmp_path, names))
    assert list(found) == ["train", "valid", "test"]
    assert " | ".join(" ".join(path.name for path in files) for files in found.values()) == expected


@pytest.mark.parametrize("names", ["a.txt b.jsonl", "archive.jsonl latest.jsonl", "train-0.jsonl train-1.jsonl"])
def test_without_a_validation_or_test_file_all_are_one_text(names, tmp_path):
    found = files_in(made(tmp_path, f"{names} README.md"))
    assert {split: [path.name for path in files] for split, files in found.items()} == {WHOLE: names.split()}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            "train.jsonl val.jsonl",
            r"'test' in its name, found none \(train: train\.jsonl; valid: val\.jsonl\); a missing split is not cut "
            "from another one: add the file, or give all as one file$",
        ),
        ("train.txt test.txt", r"'valid' or 'validation' or 'val' or 'dev' in its name, found none \("),
        ("traindata.jsonl evaldata.jsonl testdata.jsonl", "seem to be splits, and their names are not: name them"),
        ("train.jsonl valid.jsonl latest.jsonl", "'test' in its name, found none"),
        ("valid.txt test.txt", "'train' or 'training' in its name, found none"),
        ("a.train.txt b.train.txt valid.txt test.txt", r"in its name, found a\.train\.txt, b\.train\.txt; join them"),
        ("train.txt train.jsonl valid.jsonl test.jsonl", r"found train\.jsonl, train\.txt; join them, or give \.jsonl"),
        ("train.txt val_test.txt test.txt", r"val_test\.txt: its name is of two splits, valid and test; rename it$"),
        ("README.md", "found none, nor another text; folders in it are not read$"),
    ],
)
def test_what_names_no_splits_is_one_sentence(names, message, tmp_path):
    with pytest.raises(CorpusError, match=message):
        files_in(made(tmp_path, names))
