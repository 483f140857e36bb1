"""The choice of the fastest form: by time, but for ties; kept for the machine; never one that is wrong."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import harness
from harness import kernels
from harness.kernels import fastest, forms, planted, products
from harness.kernels.choice import Choice

CPU = torch.device("cpu")
CASES = {case.name: case for case in planted.CASES}
BATCH = planted.batch(CASES["three components with bias"], CPU)[0]
LEAN, STORED = forms.LEAN, replace(forms.STORED, fits=lambda mixture, gradients: gradients)


@pytest.fixture
def times(monkeypatch, tmp_path):
    """A function: seconds by the name of a form, which are then measured. It returns the list of what was asked."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))

    def taking(**seconds):
        asked = []

        def measured(form, *_):
            asked.append(form.name)
            return seconds[form.name]

        monkeypatch.setattr(fastest, "_seconds", measured)
        return asked

    return taking


def trained_by(choice, name="three components with bias"):
    """The form that a choice takes for training on a planted batch."""
    mixture, targets_N = planted.batch(CASES[name], CPU)
    return choice.form(mixture, targets_N, 0.0).name


def choosing(*more, pieces="auto", **options):
    return Choice(forms=[LEAN, STORED, *more, forms.EQUATIONS], pieces=pieces, **options)


@pytest.mark.parametrize(
    ("lean", "stored", "taken"),
    [(4.0, 2.0, "stored"), (2.09, 2.0, "lean"), (2.1, 2.0, "lean"), (2.11, 2.0, "stored"), (2.0, 4.0, "lean")],
)
def test_the_fastest_form_is_taken_and_of_those_within_five_percent_the_first(times, lean, stored, taken):
    times(lean=lean, stored=stored)
    choice = choosing()
    assert trained_by(choice) == choice.trained_by == taken


@pytest.mark.parametrize(("seconds", "rounds"), [(0.1, 6), (0.7, 3), (1.0, 2), (10.0, 2)])
def test_rounds_are_six_or_fewer_where_they_take_long_but_two(times, monkeypatch, seconds, rounds):
    asked = times(lean=seconds, stored=seconds)
    monkeypatch.setattr(fastest, "time", SimpleNamespace(perf_counter=lambda: seconds * len(asked)))
    trained_by(choosing())
    assert asked == rounds * ["lean", "stored"]


def test_times_are_medians_after_the_first_round(monkeypatch):
    seconds = iter([1.0, 2.0, 3.0, 4.0, 5.0, 90.0])
    monkeypatch.setattr(fastest, "_seconds", lambda *_: next(seconds))
    assert fastest.measured([LEAN], BATCH, None, 0.0) == {"lean": 4.0}


def test_a_time_is_that_of_loss_and_gradients(monkeypatch):
    passed = []

    def mean_nll(mixture, *given):
        assert mixture.log_epsilon == 0.01
        loss = LEAN.mean_nll(mixture, *given)
        loss.register_hook(lambda gradient: passed.append("backward"))
        passed.append("forward")
        return loss

    clock = iter([10.0, 12.5])
    monkeypatch.setattr(fastest, "time", SimpleNamespace(perf_counter=lambda: (passed.append("time"), next(clock))[1]))
    mixture, targets_N = planted.batch(CASES["partitions 1, 3 with an epsilon"], CPU)
    frozen = mixture.changed(weight_VE=mixture.weight_VE.detach())
    assert fastest._seconds(replace(LEAN, mean_nll=mean_nll), frozen, targets_N, 0.0) == 2.5
    assert passed == ["time", "forward", "backward", "time"]


def test_the_time_is_read_when_a_gpu_is_ready(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    monkeypatch.setattr(fastest, "time", SimpleNamespace(perf_counter=lambda: float(len(waited))))
    assert (fastest._now(CPU), fastest._now(torch.device("cuda"))) == (0.0, 1.0)


def test_measuring_keeps_the_graph_of_facets_that_come_from_the_output_matrix():
    mixture, targets_N = planted.batch(CASES["one component"], CPU)
    facets_NFE = (mixture.weight_VE[:7] ** 2)[:, None]
    tied = mixture.changed(facets_NFE=facets_NFE)
    fastest.measured([LEAN, STORED], tied, targets_N, 0.0)
    assert mixture.weight_VE.grad is None
    kernels.mean_nll(tied, targets_N).backward()
    assert mixture.weight_VE.grad.isfinite().all()


def test_a_form_that_runs_out_of_memory_is_not_taken(times):
    times(lean=1.0, stored=float("inf"))
    assert trained_by(choosing()) == "lean"


@pytest.mark.parametrize("nth", [1, 6], ids=["in the round that does not count", "in the last one"])
def test_running_out_of_memory_once_is_an_infinite_time(nth):
    calls = []

    def mean_nll(*given):
        calls.append(given)
        if len(calls) == nth:
            raise torch.OutOfMemoryError
        return LEAN.mean_nll(*given)

    mixture, targets_N = planted.batch(CASES["one component"], CPU)
    seconds = fastest.measured([LEAN, replace(STORED, mean_nll=mean_nll)], mixture, targets_N, 0.0)
    assert seconds["stored"] == float("inf") > seconds["lean"]
    assert all(weight_N.tolist() == pytest.approx(7 * [1 / 7]) for _, _, weight_N, _ in calls)


def full(*_):
    raise torch.OutOfMemoryError


def test_stored_that_runs_out_of_memory_when_it_is_checked_is_left_out_and_the_next_form_is_taken(times):
    times(lean=2.0)
    told = []
    planted_form = replace(STORED, mean_nll=full)
    choice = Choice(forms=[planted_form, LEAN, forms.EQUATIONS], pieces="auto", devices=("cpu",), log=told.append)
    assert trained_by(choice) == "lean"
    assert choice.left_out == {"stored": "all logits at once do not fit into its memory"}
    assert len(told) == 1


def test_where_the_form_of_training_is_left_out_another_one_is_chosen(times):
    times(lean=2.0, stored=1.0, other=3.0)
    choice = choosing(replace(LEAN, name="other"), log=lambda sentence: None)
    assert trained_by(choice) == "stored"
    choice.leave_out("other", "it was wrong")
    assert choice.trained_by == "stored"
    choice.leave_out("stored", "it was wrong")
    assert trained_by(choice) == choice.trained_by == "lean"


def test_what_was_measured_is_read_on_the_same_machine_for_the_same_sizes(times):
    times(lean=2.0, stored=1.0)
    assert trained_by(choosing()) == "stored"
    asked = times(lean=1.0, stored=2.0)
    assert trained_by(choosing()) == "stored"
    assert asked == []
    assert trained_by(choosing(), "more tokens than are compared") == "lean"
    assert set(asked) == {"lean", "stored"}


OTHERS = {
    "the device": lambda patch: patch.setattr(fastest, "device_name", lambda device: "another"),
    "torch": lambda patch: patch.setattr(torch, "__version__", "1.0"),
    "harness": lambda patch: patch.setattr(harness, "__version__", "1.0"),
    "the processor's instructions": lambda patch: patch.setattr(products, "flags", lambda: "another"),
    "threads": lambda patch: patch.setattr(torch, "get_num_threads", lambda: 99),
}


@pytest.mark.parametrize("other", OTHERS)
def test_it_is_measured_again_on_another_machine_or_version(other, monkeypatch):
    before = fastest._key(["lean"], BATCH, 0.0)
    OTHERS[other](monkeypatch)
    assert fastest._key(["lean"], BATCH, 0.0) != before


def test_it_is_measured_again_for_another_loss():
    bend = planted.batch(CASES["a bend"], CPU)[0].logit_map
    keys = [
        fastest._key(["lean"], BATCH, 0.0),
        fastest._key(["lean", "stored"], BATCH, 0.0),
        fastest._key(["lean"], BATCH, 0.1),
        fastest._key(["lean"], BATCH.changed(log_epsilon=0.1), 0.0),
        fastest._key(["lean"], BATCH.changed(logit_map=bend), 0.0),
        fastest._key(["lean"], BATCH.changed(bias_V=None), 0.0),
        fastest._key(["lean"], BATCH.changed(bias_V=BATCH.bias_V[:, None]), 0.0),
        fastest._key(["lean"], BATCH.changed(partitions=(1, 2)), 0.0),
        fastest._key(["lean"], BATCH.changed(weight_VE=BATCH.weight_VE.detach()), 0.0),
        fastest._key(["lean"], BATCH.changed(weight_VE=BATCH.weight_VE.double()), 0.0),
    ]
    for other in (products.Products(precision="bf16"), products.Products(route="onednn")):
        with products.using(other):
            keys.append(fastest._key(["lean"], BATCH, 0.0))
    assert len(set(keys)) == len(keys)
    assert fastest._key(["lean"], BATCH, 0.2) == keys[2]


@pytest.mark.parametrize("content", ["", "{}", "[1]", '"gone"'])
def test_a_damaged_file_is_measured_again(times, content, tmp_path):
    times(lean=2.0, stored=1.0)
    trained_by(choosing())
    (place,) = (tmp_path / "cache" / "forms").glob("*.json")
    place.write_text(content)
    times(lean=1.0, stored=2.0)
    assert trained_by(choosing()) == "lean"


def test_without_a_folder_to_write_to_it_is_measured_each_time(times, tmp_path):
    (tmp_path / "cache").write_text("no folder")
    times(lean=2.0, stored=1.0)
    assert trained_by(choosing()) == "stored"


def test_workers_measure_one_after_the_other_and_only_the_first_does(times):
    asked = times(lean=1.0, stored=2.0)
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(trained_by, [choosing() for _ in range(4)])) == {"lean"}
    assert len(asked) == 2 * 6


def test_trials_of_other_sizes_do_not_measure_at_the_same_time(times, monkeypatch):
    times()
    measuring, together = [], []

    def measured(form, mixture, *_):
        measuring.append(id(mixture))
        together.append(len(set(measuring)))
        time.sleep(0.002)
        measuring.remove(id(mixture))
        return 1.0

    monkeypatch.setattr(fastest, "_seconds", measured)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(trained_by, [choosing() for _ in range(4)], list(CASES)[:4]))
    assert together == 4 * 2 * 6 * [1]


def test_a_form_that_is_fast_and_wrong_is_not_taken(times):
    def wrong(*given):
        return 1.001 * forms.LEAN.mean_nll(*given)

    times(lean=2.0, stored=1.0, wrong=0.1)
    choice = choosing(replace(LEAN, name="wrong", mean_nll=wrong), devices=("cpu",), log=lambda sentence: None)
    assert trained_by(choice) == "stored"
    assert set(choice.left_out) == {"wrong"}


@pytest.mark.parametrize(("pieces", "taken"), [("chunked", "lean"), ("stored", "stored"), ("", "lean")])
def test_a_form_that_is_asked_for_is_taken_unmeasured(times, pieces, taken):
    asked = times()
    assert trained_by(choosing(pieces=pieces)) == taken
    assert asked == []


def test_stored_is_refused_where_it_does_not_fit():
    with pytest.raises(ValueError, match=r"train\.loss_form is stored, which this head, batch or device cannot have"):
        trained_by(Choice(forms=[LEAN, forms.EQUATIONS], pieces="stored"))


def test_all_else_than_training_takes_the_first_form(times):
    asked = times(lean=2.0, stored=1.0)
    choice = choosing()
    choice.forms.insert(0, replace(LEAN, name="evaluation", fits=lambda mixture, gradients: not gradients))
    with torch.no_grad():
        assert (trained_by(choice), choice.trained_by, asked) == ("evaluation", "", [])
    assert trained_by(choice) == choice.trained_by == "stored"
    choice.trained_by = "lean"
    with torch.no_grad():
        assert trained_by(choice) == "evaluation"


def test_training_goes_on_with_its_form_at_other_sizes(times):
    times(lean=2.0, stored=1.0)
    choice = choosing()
    trained_by(choice)
    asked = times(lean=1.0, stored=2.0)
    assert (trained_by(choice, "more tokens than are compared"), choice.trained_by, asked) == ("stored", "stored", [])


def test_sizes_alone_are_neither_measured_nor_checked(times):
    asked = times()
    wrong = replace(LEAN, name="wrong", mean_nll=None, nll=lambda *given: 1.001 * LEAN.nll(*given))
    choice = Choice(forms=[wrong, LEAN, STORED, forms.EQUATIONS], pieces="auto", devices=("cpu",))
    with kernels.sizes_only():
        assert (trained_by(choice), choice.trained_by, asked, choice.left_out) == ("wrong", "", [], {})


def test_one_form_or_several_of_the_same_pieces_are_not_measured(times):
    asked = times()
    assert trained_by(Choice(forms=[LEAN, forms.EQUATIONS], pieces="auto")) == "lean"
    assert trained_by(choosing(replace(LEAN, name="other"), pieces="chunked")) == "lean"
    assert asked == []


@pytest.mark.parametrize("pieces", ["auto", "chunked"])
def test_where_no_form_has_pieces_the_equations_train(pieces):
    assert trained_by(Choice(forms=[forms.EQUATIONS], pieces=pieces)) == "equations"


def test_where_no_form_is_asked_for_none_is_noted(times):
    choice = choosing(pieces="")
    assert (trained_by(choice), choice.trained_by) == ("lean", "")


def test_what_was_left_out_before_is_a_copy():
    before = {"stored": "it was wrong"}
    Choice(before, log=lambda sentence: None).leave_out("lean", "it was wrong, too")
    assert before == {"stored": "it was wrong"}
