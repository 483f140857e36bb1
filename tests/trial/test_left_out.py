"""Parts for GPUs that a trial leaves out: what runs instead, what its record says, and what a resumed trial does.

Forms of the loss are checked on the CPU here, with a planted fault.
"""

from functools import partial

import pytest
from handmade import interrupted_before, task

from harness import plan
from harness.kernels import rows
from harness.kernels.choice import Choice
from harness.kernels.forms import FORMS, LEAN, by_rows
from harness.trial import run, sessions


def wrong(*given):
    result = rows.combine_rows_(*given)
    return result._replace(scale=1.01 * result.scale)


FAULTY = by_rows("rows", "a planted kernel", combine=wrong, fits=LEAN.fits)


@pytest.fixture
def given(tiny_suite, tmp_path):
    return task(plan.load(tiny_suite).trials[0], tmp_path)


@pytest.fixture
def checked_here(monkeypatch):
    """Trials check their forms on the CPU, the planted one first."""
    monkeypatch.setattr(sessions, "Choice", partial(Choice, forms=(FAULTY, *FORMS), devices=("cpu",)))


def test_a_wrong_form_is_left_out_of_the_trial_whose_weights_are_the_same_and_whose_record_says_so(
    given, tmp_path, request
):
    expected = run.run(given)
    request.getfixturevalue("checked_here")
    found = run.run(task(given.spec, runs=tmp_path / "again"))
    assert found.weights_sha256 == expected.weights_sha256
    assert expected.environment.switched_off == ()
    (sentence,) = found.environment.switched_off
    assert sentence.startswith("Left out on this device: a planted kernel, since the gradient of the")
    assert sentence in (tmp_path / "again" / given.id / "trial.log").read_text()


def test_a_resumed_trial_leaves_out_what_its_checkpoint_names(given, checked_here, monkeypatch):
    with interrupted_before(18):
        run.run(given)
    monkeypatch.setattr(sessions, "Choice", partial(Choice, forms=(FAULTY, *FORMS)))  # nothing is checked now
    found = run.run(given)
    assert found.environment.sessions == 2
    (sentence,) = found.environment.switched_off
    assert sentence == (
        "Left out on this device: a planted kernel, since it was left out before the trial was resumed; torch's own "
        "operations run instead"
    )
    assert found.environment.changed == ()


def test_a_part_that_ended_the_attempt_before_for_silence_is_left_out_and_the_trial_goes_on(given):
    sessions.begin(given.folder, given.driver, (1, 0))
    never_left = sessions.trying(given.folder, "graph")
    never_left.__enter__()
    (given.folder / sessions.STUCK).write_text("where it was")
    found = run.run(given)
    assert found.status == "ok"
    assert "CUDA graph of the training step, since an attempt ended" in found.environment.switched_off[0]
    del never_left
