"""A user's mistake in the arguments is a sentence and exit code 2, and nothing is written."""

import pytest
from commands import files

TINY = "suites/tiny.yaml"
INLINE = ("run", TINY, "--executor", "inline", "--no-tracking")
NOT_RUN = "1 problem; nothing was run"  # the last line where the mistake is one of the suite
IN_A_FRESH_FOLDER = [
    (("run", "suites/none.yaml"), "suites/none.yaml: no such file"),
    (("run", TINY, "--only", "haed=mos"), "did you mean 'head'"),
    (("run", TINY, "--only", "head=none"), "no trial of the suite meets this condition"),
    (("run", TINY, "--set", "train.epochs"), "expected key=value"),
    (("run", TINY, "--set", "train.epoch=3"), "did you mean 'epochs'"),
    (("run", TINY, "--set", "table.compare=benka2021/9"), "--set table.compare=benka2021/9: "),
    (("table", TINY, "--set", "table.shape=rows"), "expected 'mixtures', 'heads', 'corpora' or 'ladder', got \"rows\""),
    (("diagnose", TINY), "no trial of these is finished; `harness run suites/tiny.yaml` trains them"),
    (("report", TINY), "has no record of these trials; `harness run suites/tiny.yaml` makes them"),
    (("report", TINY, "--set", "train.epochs=1"), "has no record of these trials; `harness run suites/tiny.yaml`"),
    (("sync",), "holds no records"),
    (("ui",), "results/mlflow.db does not exist: run a suite first, or `harness sync`"),
    (("reproduce", "--all", "--no-run"), "--all runs every suite and --no-run runs none: use only one of the two"),
    (("plan", TINY, "--device", "cuda"), "a GPU was requested, but torch finds none"),
    (("list", "haeds"), "expected heads, backbones, corpora or suites"),
    (("list", "heads", "sofmax"), "there is no 'sofmax' in heads; did you mean 'softmax'?"),
    (("check", "sofmax"), "'sofmax'; did you mean 'softmax'?"),
    (("check", "mos", "--all"), "expected the name of a head or backbone, or --all alone"),
    (("docs", "table"), "did you mean 'tables'?"),
    (("diff", "a", "b", "--only", "seed=1"), "--set and --only select trials of a suite"),
    pytest.param(("site", "--records", "."), "has no file *.zip", marks=pytest.mark.needs("integrity")),
]
IN_A_FINISHED_FOLDER = [
    ((*INLINE, "--device", "cuda", "--force"), "a GPU was requested, but torch finds none"),
    (
        (*INLINE, "--cpus-per-trial", "10000", "--force"),
        "a trial needs 10000 CPUs and 0 GPUs, and no node has that much; ",
    ),
    ((*INLINE, "--force", "--keep"), "use only one of the two"),
    (("export", "none/records.zip"), "there is no folder none for records.zip; make it, or name another one"),
    (("diagnose", TINY, "--diagnostic", "spectra"), "there is no diagnostic 'spectra'"),
    (("runs", "tinny"), "holds no suite 'tinny'; did you mean 'tiny'? (there are: tiny)"),
]
BY_TYPER = [  # drawn in a box
    (("table", TINY, "--shape", "rows"), "'rows'"),
    (("table", TINY, "--form", "html"), "'html'"),
    (("report", TINY, "--width", "3.3in"), "name one with --figure"),
    (("report", TINY, "--figure", "forest", "--width", "3.3"), "'3.3' is no width"),
    (("report", TINY, "--figure", "forest", "--width", "3cm"), "is not between 2.5 and 12 inches"),
    (("experiment", "degenerate"), "'degenerate' is not"),
    (("rum",), "Did you mean 'run'"),
]


def sentence_of(done) -> str:
    """What a command says of a mistake: a sentence, and of a mistake in a suite how many there are."""
    first, *others = done.err.splitlines()
    assert (done.code, done.out) == (2, "")
    assert others in ([], [NOT_RUN])
    return first


@pytest.mark.parametrize(("arguments", "sentence"), IN_A_FRESH_FOLDER)
def test_a_mistake_is_one_sentence_and_nothing_is_written(fresh, harness, arguments, sentence):
    before = files(fresh)
    assert sentence in sentence_of(harness(*arguments))
    assert files(fresh) == before


@pytest.mark.parametrize(("arguments", "sentence"), IN_A_FINISHED_FOLDER)
def test_where_trials_are_finished_no_file_is_touched(finished, harness, arguments, sentence):
    before = files(finished)
    assert sentence in sentence_of(harness(*arguments))
    assert files(finished) == before


@pytest.mark.parametrize(("arguments", "sentence"), BY_TYPER)
def test_an_argument_that_no_option_takes(finished, harness, arguments, sentence):
    before = files(finished)
    done = harness(*arguments)
    assert (done.code, done.out) == (2, "")
    assert sentence in " ".join(done.err.replace("│", " ").split())
    assert files(finished) == before
