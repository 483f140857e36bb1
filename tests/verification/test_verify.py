"""`harness verify`: true records are identical, forged ones are not, and what cannot be checked is said."""

import json
import os
import shutil
import tempfile

import commands
import pytest

from harness.distributions import Mixture
from harness.execution import inline
from harness.records import sealed, sidecars, store
from harness.records.record import CurvePoint
from harness.training.checkpoint import BEST, load_weights, save, weights_sha256


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """Where temporary folders are made."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def ppl(place) -> float:
    return store.load(place.runs, place.one).metrics["test_ppl"]


def scores_file(place):
    return store.folder(place.runs, place.one) / sidecars.TOKEN_NLL.file


@pytest.mark.parametrize("head", ["softmax", "mos"])
@pytest.mark.parametrize("how", [(), ("--retrain",)])
def test_a_true_record_is_identical_by_its_weights_and_trained_again(place, verify, head, how):
    done = verify(place.ids[head, 1][:8], *how)
    assert done.code == 0, done.out + done.err
    assert f"tiny/{place.ids[head, 1]}" in done.out
    assert ": identical: " in done.out
    assert done.out.splitlines()[-1] == "1 record: 1 identical"


def test_nothing_is_written_and_nothing_stays(place, verify, scratch):
    before = commands.files(place.folder)
    assert verify(place.one, "--retrain").code == 0
    assert commands.files(place.folder) == before
    # the process that certifies stays until this one ends (tests/trial/test_certify.py)
    assert [each.name for each in scratch.iterdir() if not each.name.startswith("harness-certifier-")] == []


def test_a_perplexity_that_the_weights_do_not_have_is_different(place, verify, forge):
    forged = 0.9 * ppl(place)
    scores_file(place).unlink()
    forge(metrics={"test_ppl": forged})
    done = verify(place.one)
    assert done.code == 1
    assert (
        f"different: with its weights, evaluated here: test_ppl is {forged / 0.9:,.6g}, the record has {forged:,.6g}"
        in done.out
    )


def test_a_perplexity_that_training_does_not_give_is_different(place, verify, forge):
    forged = 0.8 * ppl(place)
    scores_file(place).unlink()
    (store.folder(place.runs, place.one) / BEST).unlink()
    forge(metrics={"test_ppl": forged}, weights_sha256="ab" * 32)
    done = verify(place.one, "--retrain")
    assert done.code == 1
    assert "different: after a second training here: test_ppl is" in done.out


@pytest.mark.guards("verify-exact-perplexity")
def test_a_slightly_better_perplexity_with_the_true_weights_named_is_different(place, verify, forge):
    scores_file(place).unlink()
    forge(metrics={"test_ppl": 0.999 * ppl(place)})
    assert "different: after a second training here: test_ppl" in verify(place.one, "--retrain").out


@pytest.mark.parametrize(
    ("metrics", "sentence"),
    [
        ({"valid_ppl": 1.5}, "valid_ppl is"),
        ({"params_head": 7}, "params_head is 108, the record has 7"),
        ({"unigram_test_ppl": 99.0}, "unigram_test_ppl is"),
        ({"test_ppl_standard": 1.5}, "test_ppl_standard is"),
        ({"scored_test_tokens": 3}, "do not add up"),
    ],
)
def test_no_other_number_of_the_weights_can_be_changed(place, verify, forge, metrics, sentence):
    forge(metrics=metrics)
    done = verify(place.one)
    assert done.code == 1
    assert ": different: " in done.out
    assert sentence in done.out
    assert "no token scores" not in done.out  # they are there, and contradict the record


def test_a_record_with_an_impossible_number_is_not_checked(place, verify, forge):
    forge(metrics={"test_ppl": -1.0})
    done = verify(place.one)
    assert done.code == 1
    assert "not checked: " in done.out
    assert "test_ppl is -1, expected" in done.out


def test_a_record_without_a_perplexity_is_not_checked_and_no_traceback(place, verify):
    record = store.load(place.runs, place.one)
    scores_file(place).unlink()
    metrics = {name: value for name, value in record.metrics.items() if name != "test_ppl"}
    store.save(record.model_copy(update={"metrics": metrics}), place.runs)
    done = verify(place.one)
    assert done.code == 1
    assert "not checked: " in done.out
    assert "it is ok and has no test_ppl; the record does not count" in done.out


@pytest.mark.guards("verify-weights")
def test_weights_of_another_training_are_different(place, verify):
    other = store.folder(place.runs, place.ids["softmax", 2]) / BEST
    shutil.copy(other, store.folder(place.runs, place.one) / BEST)
    done = verify(place.one)
    assert done.code == 1
    assert "different: with its weights, evaluated here: best.pt holds other weights" in done.out


def test_weights_and_their_digest_exchanged_are_found_by_their_perplexity(place, verify, forge):
    best = store.folder(place.runs, place.one) / BEST
    weights = {name: tensor * 0.5 for name, tensor in load_weights(best, "cpu").items()}
    save({"weights": weights}, best)
    scores_file(place).unlink()
    forge(weights_sha256=weights_sha256(weights))
    assert "different: with its weights, evaluated here: valid_ppl is" in verify(place.one).out


def test_damaged_weights_are_not_checked(place, verify):
    best = store.folder(place.runs, place.one) / BEST
    best.write_bytes(best.read_bytes()[:-50])
    done = verify(place.one)
    assert done.code == 1
    assert "not checked: " in done.out
    assert "SHA-256 does not fit" in done.out


def test_without_weights_a_record_is_not_checked_and_the_way_is_said(place, verify):
    (store.folder(place.runs, place.one) / BEST).unlink()
    done = verify(place.one)
    assert done.code == 1
    assert "not checked: there are no weights to evaluate; --retrain trains it again" in done.out


def test_missing_token_scores_are_said(place, verify):
    scores_file(place).unlink()
    done = verify(place.one)
    assert done.code == 0
    assert "identical" in done.out
    assert "; no token scores" in done.out


@pytest.mark.guards("verify-tokens")
def test_scores_of_tokens_that_add_up_but_are_others_are_different(place, verify):
    record = store.load(place.runs, place.one)
    scores = sidecars.TOKEN_NLL.load(place.runs, record)
    nll = scores.nll.copy()
    nll[scores.scored] = nll[scores.scored][::-1]
    changed = sidecars.TokenScores(nll=nll, count=scores.count, offset=scores.offset)
    sidecars.save_token_scores(changed, record.weights_sha256, scores_file(place))
    done = verify(place.one)
    assert done.code == 1
    assert "different: with its weights, evaluated here: the scores of single tokens differ" in done.out


def test_a_learning_curve_that_training_does_not_give_is_different(place, verify, forge):
    record = store.load(place.runs, place.one)
    curve = tuple(CurvePoint(**{**point.model_dump(), "train_loss": 0.1}) for point in record.curve)
    forge(curve=curve)
    assert verify(place.one).code == 0  # weights say nothing of it
    assert "different: after a second training here: the learning curve differs" in verify(place.one, "--retrain").out


def planted(place, forge, factor: float, **environment):
    """The first trial's record as another processor would have left it: other weights, a perplexity near."""
    record = store.load(place.runs, place.one)
    scores_file(place).unlink()
    names = ("valid_ppl", "test_ppl", "test_ppl_standard", "last_valid_ppl", "last_test_ppl")
    metrics = {name: factor * record.metrics[name] for name in names}
    environment = record.environment.model_copy(update=environment)
    forge(metrics=metrics, weights_sha256="cd" * 32, environment=environment)


def test_another_processors_record_within_the_seeds_spread_is_plausible(place, verify, forge):
    planted(place, forge, 1.002, device="another processor", torch="2.0.0")
    done = verify(place.one, "--retrain")
    assert done.code == 0, done.out
    assert "plausible: after a second training here: test perplexity" in done.out
    assert "allowed by the spread of 2 other seeds" in done.out
    assert "differences: processor or GPU another processor there, " in done.out
    assert "torch 2.0.0 there, " in done.out


def test_equal_bits_are_expected_where_nothing_differs(place, verify, forge):
    planted(place, forge, 1.002)
    assert "; equal bits were expected" in verify(place.one, "--retrain").out


def test_the_other_seeds_decide_what_is_plausible(place, verify, forge):
    planted(place, forge, 1.04)
    for seed, value in ((2, 10.0), (3, 10.3)):  # 2 sqrt(2) * log(1.03) / sqrt(2) = 5.9 %
        forge(place.ids["softmax", seed], metrics={"test_ppl": value})
    done = verify(place.one, "--retrain")
    assert (done.code, "5.9 % allowed by the spread of 2 other seeds" in done.out) == (0, True)
    forge(place.ids["softmax", 3], metrics={"test_ppl": 10.1})  # 2 * log(1.01) = 2.0 %
    assert verify(place.one, "--retrain").code == 1


@pytest.mark.guards("verify-limit")
def test_forged_seeds_do_not_widen_what_is_plausible_beyond_ten_percent(place, verify, forge):
    planted(place, forge, 0.88)
    for seed, value in ((2, 2.0), (3, 900.0)):
        forge(place.ids["softmax", seed], metrics={"test_ppl": value})
    assert ": different: " in verify(place.one, "--retrain").out


def test_one_other_seed_says_nothing_of_a_spread(place, verify, forge):
    planted(place, forge, 1.04)
    shutil.rmtree(store.folder(place.runs, place.ids["softmax", 3]))
    done = verify(place.one, "--retrain")
    assert (done.code, "5% allowed, because there are not 2 other seeds" in done.out) == (0, True)


@pytest.mark.guards("verify-id")
def test_a_forged_seed_is_no_record_of_its_trial(place, verify, forge):
    spec = store.load(place.runs, place.one).spec
    forge(spec=spec.model_copy(update={"seed": 9}))
    done = verify(place.one)
    assert done.code == 1
    assert ": different: the record of trial" in done.out
    assert "has id " in done.out


def test_a_file_that_is_no_record_is_not_checked(place, verify):
    (store.folder(place.runs, place.one) / store.FILE_NAME).write_text("{}")
    done = verify(place.one)
    assert (done.code, ": not checked: " in done.out) == (1, True)


@pytest.mark.guards("verify-certifies")
def test_weights_whose_perplexity_is_not_made_of_probabilities_are_different(place, verify, forge, monkeypatch):
    forge(certificate=None)  # as in records from before certificates
    nll = Mixture.nll
    monkeypatch.setattr(Mixture, "nll", lambda self, targets_BT: nll(self, targets_BT) + 0.01)
    done = verify(place.one)
    assert done.code == 1
    assert "different: with its weights, evaluated here: the status is 'invalid' (the nll that was counted" in done.out


@pytest.mark.guards("verify-own-certificate")
def test_a_record_that_says_ok_against_its_certificate_is_different(place, verify, forge):
    lie = store.load(place.runs, place.one).certificate.model_copy(update={"sum_error": 277.0})
    forge(certificate=lie)
    done = verify(place.one)
    assert done.code == 1
    assert "different: the record says ok, and its certificate says otherwise: the probabilities" in done.out


def test_a_record_that_failed_has_nothing_to_compare(place, verify, forge):
    forge(status="diverged")
    assert "not checked: its status is 'diverged'" in verify(place.one).out


def test_a_trial_that_does_not_end_well_here_is_different_or_not_checked(place, verify, monkeypatch):
    run = inline.run
    for status, outcome in {"diverged": "different", "oom": "not checked", "error": "not checked"}.items():

        def ended(*arguments, status=status):
            return run(*arguments).model_copy(update={"status": status, "message": "planted"})

        monkeypatch.setattr(inline, "run", ended)
        done = verify(place.one, "--retrain")
        assert (done.code, f": {outcome}: " in done.out) == (1, True), done.out


@pytest.mark.parametrize("target", ["folder", "file", "elsewhere"])
def test_a_record_is_named_by_its_file_or_folder(place, verify, tmp_path, target):
    folder = store.folder(place.runs, place.one)
    shutil.copy(folder / store.FILE_NAME, tmp_path / "sent.json")
    named = {"folder": folder, "file": folder / store.FILE_NAME, "elsewhere": tmp_path / "sent.json"}[target]
    done = verify(named, "--retrain")
    assert (done.code, done.out.splitlines()[-1]) == (0, "1 record: 1 identical")


@pytest.fixture
def sent(place, harness, tmp_path):
    """An export of all six records."""
    assert harness("export", tmp_path / "sent.zip").code == 0
    return tmp_path / "sent.zip"


def test_records_of_a_zip_are_trained_again_where_they_are_picked(sent, verify, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = verify(sent, "--retrain", "--only", "seed=1")
    assert done.code == 0, done.out + done.err
    assert done.out.splitlines()[-1] == "2 records: 2 identical"
    assert not (tmp_path / "results").exists()


def test_a_zip_has_no_weights(sent, verify):
    done = verify(sent)
    assert done.code == 1
    assert done.out.splitlines()[-1] == "6 records: 6 not checked"


def test_as_json(sent, verify):
    done = verify(sent, "--retrain", "--only", "head=mos,seed=2", "--json")
    shown = json.loads(done.out)
    assert shown["totals"] == {"identical": 1}
    (one,) = shown["records"]
    assert one["outcome"] == "identical"
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


@pytest.mark.guards("verify-names-file")
def test_no_file_is_opened_on_a_records_word(place, verify, forge, tmp_path):
    text = tmp_path / "mine"
    text.mkdir()
    os.mkfifo(text / "train.txt")  # a process that opens it waits forever
    spec = store.load(place.runs, place.one).spec
    corpus = spec.corpus.model_copy(update={"name": "text", "params": {"path": str(text)}})
    forge(spec=spec.model_copy(update={"corpus": corpus}), contents=None)
    for how in ((), ("--retrain",)):
        done = verify(place.one, *how)
        assert done.code == 1
        assert "not checked: it reads files that its record names" in done.out


def test_a_head_that_is_not_installed_is_not_checked(place, verify, forge):
    spec = store.load(place.runs, place.one).spec
    head = spec.head.model_copy(update={"name": "strangers"})
    forge(spec=spec.model_copy(update={"head": head}))
    for how in ((), ("--retrain",)):
        done = verify(place.one, *how)
        assert (done.code, "not checked: unknown head 'strangers'" in done.out) == (1, True), done.out


def test_an_id_that_is_a_path_is_refused(place, verify, tmp_path):
    record = store.load(place.runs, place.one)
    spec = record.spec.model_copy(update={"id": "../../escaped"})
    sealed.save(record.model_copy(update={"spec": spec}), tmp_path / "sent.json")
    done = verify(tmp_path / "sent.json", "--retrain")
    assert (done.code, ": not checked: " in done.out) == (1, True)
    assert not list(tmp_path.parent.glob("**/escaped*"))


def test_parameters_of_a_hostile_record_end_in_a_sentence(place, verify, forge):
    spec = store.load(place.runs, place.one).spec
    backbone = spec.backbone.model_copy(update={"params": {"d_model": -3, "num_layers": 1}})
    forge(spec=spec.model_copy(update={"backbone": backbone}), contents=None)
    assert verify(place.one).code == 1
