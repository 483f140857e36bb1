"""`harness verify`: true records are identical, forged ones are not, and what cannot be checked is said."""

import hashlib
import json
import os
import shutil
import tempfile

import commands
import handmade
import pytest

from harness.distributions import Mixture
from harness.execution import inline
from harness.plan.specs import ComponentSpec, Contents
from harness.records import sealed, sidecars, store
from harness.records.contents import recomputed
from harness.records.record import CurvePoint, TrialRecord
from harness.training import loop
from harness.training.checkpoint import load_weights, save, weights_sha256
from harness.trial.watch import TimedOut

RETRAIN = ("--retrain",)


@pytest.mark.system
@pytest.mark.parametrize("head", ["softmax", "mos"])
@pytest.mark.parametrize("how", [(), RETRAIN])
def test_a_true_record_is_identical_by_its_weights_and_trained_again(place, verify, head, how):
    done = verify(place.ids[head, 1][:8], *how)
    assert done.code == 0, done.out + done.err
    assert f"tiny/{place.ids[head, 1]}" in done.out
    assert ": identical: " in done.out
    assert done.out.splitlines()[-1] == "1 record: 1 identical"


def test_nothing_is_written_and_nothing_stays(place, verify, tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    before = commands.files(place.folder)
    assert verify(place.one, "--retrain").code == 0
    assert commands.files(place.folder) == before
    # the process that certifies stays until this one ends (tests/integrity/test_certify.py)
    assert [each.name for each in scratch.iterdir() if not each.name.startswith("harness-certifier-")] == []


def times(factor: float, *names: str):
    """Changes of a record: metrics are so many times as large."""
    return lambda record: {"metrics": {name: factor * record.metrics[name] for name in names}}


def with_curve(record: TrialRecord) -> dict:
    return {"curve": tuple(CurvePoint(**{**point.model_dump(), "train_loss": 0.1}) for point in record.curve)}


FORGED = {  # changes of the first trial's record, or a function of it; what is removed; options; outcome; sentence
    "a perplexity": (times(0.9, "test_ppl"), "scores", (), "different", "evaluated here: test_ppl is"),
    "a perplexity trained again": (
        lambda record: {**times(0.8, "test_ppl")(record), "weights_sha256": "ab" * 32},
        "scores best",
        RETRAIN,
        "different",
        "after a second training here: test_ppl is",
    ),
    "slightly better": (times(0.999, "test_ppl"), "scores", RETRAIN, "different", "training here: test_ppl is"),
    "valid_ppl": ({"metrics": {"valid_ppl": 1.5}}, "", (), "different", "valid_ppl is"),
    "params_head": ({"metrics": {"params_head": 7}}, "", (), "different", "params_head is 108, the record has 7"),
    "unigram": ({"metrics": {"unigram_test_ppl": 99.0}}, "", (), "different", "unigram_test_ppl is"),
    "standard": ({"metrics": {"test_ppl_standard": 1.5}}, "", (), "different", "test_ppl_standard is"),
    "tokens": ({"metrics": {"scored_test_tokens": 3}}, "", (), "different", "do not add up"),
    "a curve": (with_curve, "", RETRAIN, "different", "the learning curve differs"),
    "a curve, by its weights": (with_curve, "", (), "identical", "the same weights"),
    "a seed": ({"spec": {"seed": 9}}, "", (), "different", "has id "),
    "against its certificate": (
        {"certificate": handmade.certificate(sum_error=277.0)},
        "",
        (),
        "different",
        "the record says ok, and its certificate says otherwise: the probabilities",
    ),
    "an impossible number": ({"metrics": {"test_ppl": -1.0}}, "", (), "not checked", "test_ppl is -1, expected"),
    "no perplexity": ({"metrics": {"test_ppl": None}}, "scores", (), "not checked", "it is ok and has no test_ppl"),
    "one that failed": ({"status": "diverged"}, "", (), "not checked", "its status is 'diverged'"),
    "no weights": ({}, "best", (), "not checked", "no weights to evaluate; --retrain trains it again"),
    "no scores": ({}, "scores", (), "identical", "; no token scores"),
    "a head of strangers": (
        {"spec": {"head": ComponentSpec(name="strangers")}},
        "",
        (),
        "not checked",
        "unknown head 'strangers'",
    ),
    "a head of strangers trained again": (
        {"spec": {"head": ComponentSpec(name="strangers")}},
        "",
        RETRAIN,
        "not checked",
        "unknown head 'strangers'",
    ),
    "hostile parameters": (
        {"spec": {"backbone": ComponentSpec(name="lstm", params={"d_model": -3, "num_layers": 1})}, "contents": None},
        "",
        (),
        "different",
        "does not say what it read",
    ),
}


@pytest.mark.parametrize("case", FORGED)
def test_a_forged_record(place, verify, forge, case):
    change, removed, how, outcome, sentence = FORGED[case]
    for name in removed.split():
        getattr(place, name).unlink()
    forge(**(change(place.record) if callable(change) else change))
    done = verify(place.one, *how)
    assert done.code == (0 if outcome == "identical" else 1)
    assert f": {outcome}: " in done.out
    assert sentence in done.out


def test_weights_of_another_training_are_different(place, verify):
    shutil.copy(place.runs / place.ids["softmax", 2] / place.best.name, place.best)
    done = verify(place.one)
    assert done.code == 1
    assert "different: with its weights, evaluated here: best.pt holds other weights" in done.out


def test_weights_and_their_digest_exchanged_are_found_by_their_perplexity(place, verify, forge):
    weights = {name: tensor * 0.5 for name, tensor in load_weights(place.best, "cpu").items()}
    save({"weights": weights}, place.best)
    place.scores.unlink()
    forge(weights_sha256=weights_sha256(weights))
    assert "different: with its weights, evaluated here: valid_ppl is" in verify(place.one).out


@pytest.mark.parametrize(
    ("name", "sentence"), {"best.pt": "SHA-256 does not fit", "record.json": "no valid record"}.items()
)
def test_a_torn_file_is_not_checked(place, verify, name, sentence):
    file = place.runs / place.one / name
    file.write_bytes(file.read_bytes()[:-50])
    done = verify(place.one)
    assert (done.code, ": not checked: " in done.out) == (1, True)
    assert sentence in done.out


def test_scores_of_tokens_that_add_up_but_are_others_are_different(place, verify):
    scores = sidecars.TOKEN_NLL.load(place.runs, place.record)
    nll = scores.nll.copy()
    nll[scores.scored] = nll[scores.scored][::-1]
    changed = sidecars.TokenScores(nll=nll, count=scores.count, offset=scores.offset)
    sidecars.save_token_scores(changed, place.record.weights_sha256, place.scores)
    done = verify(place.one)
    assert done.code == 1
    assert "different: with its weights, evaluated here: the scores of single tokens differ" in done.out


OTHERS = {  # perplexities are so many times as large, with other weights; those of seeds 2 and 3; outcome; sentence
    "within the spread": (1.002, None, "plausible", "allowed by the spread of 2 other seeds"),
    "2 sqrt(2) log(1.03) / sqrt(2)": (1.04, (10.0, 10.3), "plausible", "5.9 % allowed by the spread of 2 other seeds"),
    "2 log(1.01)": (1.04, (10.0, 10.1), "different", "valid_ppl is 9"),
    "forged seeds": (0.88, (8.0, 10.4), "different", "valid_ppl is 9"),
    "one other seed": (1.04, (10.0, None), "plausible", "5% allowed, because there are not 2 other seeds"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_the_other_seeds_decide_what_another_processor_may_give(place, verify, forge, case):
    factor, seeds, outcome, sentence = OTHERS[case]
    place.scores.unlink()
    names = ("valid_ppl", "test_ppl", "test_ppl_standard", "last_valid_ppl", "last_test_ppl")
    environment = place.record.environment.model_copy(update={"device": "another processor", "torch": "2.0.0"})
    forge(**times(factor, *names)(place.record), weights_sha256="cd" * 32, environment=environment)
    for seed, ppl in zip((2, 3), seeds or (), strict=False):
        if ppl is None:
            shutil.rmtree(place.runs / place.ids["softmax", seed])
        else:
            forge(place.ids["softmax", seed], metrics={"test_ppl": ppl})
    done = verify(place.one, "--retrain")
    assert done.code == (outcome == "different"), done.out
    assert f": {outcome}: after a second training here: " in done.out
    assert sentence in done.out
    assert "differences: device another processor there, " in done.out
    assert "torch 2.0.0 there, " in done.out


def test_equal_bits_are_expected_where_nothing_differs(place, verify, forge):
    place.scores.unlink()
    forge(**times(1.002, "test_ppl")(place.record), weights_sha256="cd" * 32)
    assert "; equal bits were expected" in verify(place.one, "--retrain").out


def test_weights_whose_perplexity_is_not_made_of_probabilities_are_different(place, verify, forge, monkeypatch):
    forge(certificate=None, not_certified="its process ended")
    nll = Mixture.nll
    monkeypatch.setattr(Mixture, "nll", lambda self, targets_BT: nll(self, targets_BT) + 0.01)
    done = verify(place.one)
    assert done.code == 1
    assert "different: with its weights, evaluated here: the status is 'invalid' (the nll that was counted" in done.out


@pytest.mark.parametrize(
    ("status", "outcome"), {"diverged": "different", "oom": "not checked", "error": "not checked"}.items()
)
def test_a_trial_that_does_not_end_well_here_is_different_or_not_checked(place, verify, monkeypatch, status, outcome):
    ended = place.record.model_copy(update={"status": status, "message": "planted"})
    monkeypatch.setattr(inline, "run", lambda *arguments: ended)
    done = verify(place.one, "--retrain")
    assert (done.code, f": {outcome}: " in done.out) == (1, True), done.out


@pytest.mark.parametrize(("factor", "outcome"), {1.0: "identical", 1.04: "plausible", 1.06: "different"}.items())
def test_a_training_that_is_ended_early_is_compared_by_its_first_epochs(place, verify, monkeypatch, factor, outcome):
    shutil.rmtree(store.folder(place.runs, place.ids["softmax", 3]))  # one other seed has no spread: 5 % are allowed
    point = place.record.curve[0]
    first = point.model_copy(update={"valid_ppl": factor * point.valid_ppl})
    ended = place.record.model_copy(update={"status": "timeout", "message": "planted", "curve": (first,)})
    monkeypatch.setattr(inline, "run", lambda *arguments: ended)
    done = verify(place.one, "--retrain", "--minutes", "1")
    assert f": {outcome}: after 1 of 2 epochs of a second training here: validation perplexity" in done.out
    assert done.code == (outcome == "different")
    assert ": not checked: " in verify(place.one, "--retrain").out


def test_the_epochs_before_the_end_of_the_minutes_are_the_same_bits(place, verify, monkeypatch):
    end_epoch = loop.Training._end_epoch

    def then_too_late(training, *arguments):
        end_epoch(training, *arguments)
        raise TimedOut("planted")

    monkeypatch.setattr(loop.Training, "_end_epoch", then_too_late)
    done = verify(place.one, "--retrain", "--minutes", "1")
    assert (done.code, ": identical: after 1 of 2 epochs" in done.out) == (0, True), done.out


@pytest.mark.parametrize("target", ["folder", "file", "elsewhere"])
def test_a_record_is_named_by_its_file_or_folder(place, verify, tmp_path, target):
    folder = store.folder(place.runs, place.one)
    shutil.copy(folder / store.FILE_NAME, tmp_path / "sent.json")
    named = {"folder": folder, "file": folder / store.FILE_NAME, "elsewhere": tmp_path / "sent.json"}[target]
    done = verify(named, "--retrain")
    assert (done.code, done.out.splitlines()[-1]) == (0, "1 record: 1 identical")


def test_records_of_a_zip_are_trained_again_where_they_are_picked(place, harness, verify, tmp_path, monkeypatch):
    sent = tmp_path / "sent.zip"
    assert harness("export", sent).code == 0
    monkeypatch.chdir(tmp_path)
    done = verify(sent)
    *_, total, lot = done.out.splitlines()
    assert (done.code, total) == (1, "6 records: 6 not checked")  # it has no weights
    named = [each["name"].rpartition("/")[2] for each in json.loads(verify(sent, "--json").out)["records"]]
    drawn = named[int(hashlib.sha256(sent.read_bytes()).hexdigest(), 16) % 6]
    command = f"harness verify {sent} --retrain --only id={drawn}"
    assert lot == f"`{command}` trains one of those without weights again, drawn by lot"
    done = harness(*command.split()[1:])
    assert (done.code, done.out.splitlines()[-1]) == (0, "1 record: 1 identical")
    done = verify(sent, "--retrain", "--only", "seed=1")
    assert done.code == 0, done.out + done.err
    assert done.out.splitlines()[-1] == "2 records: 2 identical"
    assert not (tmp_path / "results").exists()


def test_of_a_file_with_tuning_trials_one_of_the_table_is_drawn(place, forge, harness, tmp_path):
    *tuning, one, other = place.ids.values()
    for trial in tuning:
        forge(trial, tuning=True)
    sent = tmp_path / "sent.zip"
    assert harness("export", sent).code == 0
    *_, total, lot = harness("verify", sent).out.splitlines()
    digest = int(hashlib.sha256(sent.read_bytes()).hexdigest(), 16)
    assert total == "6 records: 6 not checked"
    assert f"--only id={sorted([one, other])[digest % 2]}`" in lot


def test_as_json(place, verify):
    shown = json.loads(verify(place.one, "--json").out)
    assert shown["totals"] == {"identical": 1}
    (one,) = shown["records"]
    assert one.keys() == {*("name", "outcome", "sentence", "trial", "record_ppl", "ppl", "limit", "differs", "notes")}
    assert one["ppl"] == one["record_ppl"] > 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nothing",), "nothing does not exist and is not the id of a trial"),
        (("000000000000",), "there is no finished trial 000000000000"),
        (("nowhere.zip",), "nowhere.zip does not exist and is not the id of a trial"),
        (("tiny.yaml",), "is damaged, or was not made by `harness export`"),
        (("{one}", "--only", "head:none"), "expected key=value"),
    ],
)
def test_a_users_mistake_is_one_sentence_and_code_2(place, verify, arguments, sentence):
    done = verify(*(argument.format(one=place.one) for argument in arguments))
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err.splitlines()[0]


@pytest.mark.parametrize("how", [(), RETRAIN])
def test_no_file_is_opened_on_a_records_word(place, verify, tmp_path, how):
    text = tmp_path / "mine"
    text.mkdir()
    os.mkfifo(text / "train.txt")  # a process that opens it waits forever
    corpus, contents = ComponentSpec(name="text", params={"path": str(text)}), Contents(corpus="0" * 64)
    spec = place.record.spec.model_copy(update={"corpus": corpus})
    spec = spec.model_copy(update={"id": recomputed(spec, contents)})
    saved = store.save(place.record.model_copy(update={"spec": spec, "contents": contents}), place.runs)
    shutil.copy(place.best, saved.parent)
    done = verify(spec.id, *how)
    assert done.code == 1
    assert "not checked: it reads files that its record names" in done.out


def test_an_id_that_is_a_path_is_refused(place, verify, tmp_path):
    spec = place.record.spec.model_copy(update={"id": "../../escaped"})
    sealed.save(place.record.model_copy(update={"spec": spec}), tmp_path / "sent.json")
    done = verify(tmp_path / "sent.json", "--retrain")
    assert (done.code, ": not checked: " in done.out) == (1, True)
    assert not list(tmp_path.parent.glob("**/escaped*"))
