"""What a trial claims of GPUs, and the workers that follow from it."""

import pytest
from handmade import changed

from harness.plan import load


@pytest.fixture
def suite_of(write):
    """A function: what is replaced in SMALL, and values of the command line -> the suite."""
    return lambda *replacements, overrides=(): load(write(changed(*replacements)), overrides)


GPUS = ("seeds: [1, 2]", "seeds: [1, 2]\nresources: {{gpus: {}}}")


@pytest.mark.parametrize(
    ("gpus", "said", "workers"),
    [
        *[
            ("2", "", 2),
            ("4.0", "", 4),
            ("2", ", data_parallel: 2", 2),
            ("1", "", 1),
            ("0.5", "", 1),
        ],  # one for each GPU
        ("0", ", data_parallel: 2", 2),  # on the CPU
    ],
)
def test_gpus_of_a_trial_imply_its_workers(suite_of, gpus, said, workers):
    loaded = suite_of((GPUS[0], GPUS[1].format(gpus)), ("seq_len: 7", f"seq_len: 7{said}"))
    assert {trial.train.data_parallel for trial in loaded.trials} == {workers}
    plain = suite_of(("seq_len: 7", f"seq_len: 7, data_parallel: {workers}"))
    assert [trial.id for trial in loaded.trials] == [trial.id for trial in plain.trials]
    assert loaded.overrides == ()


def test_gpus_set_by_hand_that_change_the_trials_are_told_in_the_tables_name(suite_of):
    file = suite_of()
    four = suite_of(overrides=("resources.gpus=4",))
    assert four.overrides == (("train.data_parallel", "4", "1"),)
    assert four.trials[0].id != file.trials[0].id
    one = suite_of((GPUS[0], GPUS[1].format(4)), overrides=("resources.gpus=1",))
    assert one.overrides == (("train.data_parallel", "1", "4"),)
    assert one.trials[0].id == file.trials[0].id
    share = suite_of(overrides=("resources.gpus=0.5",))
    assert share.overrides == ()
    said = suite_of(overrides=("train.data_parallel=2",))
    assert [key for key, *_ in said.overrides] == ["train.data_parallel"]
