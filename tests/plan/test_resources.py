"""What a trial claims of GPUs, and the workers that follow from it."""

import pytest
from handmade import changed

from harness.plan import load


def suite_of(tmp_path, *replacements, overrides=()):
    path = tmp_path / "suite.yaml"
    path.write_text(changed(*replacements))
    return load(path, overrides)


GPUS = ("seeds: [1, 2]", "seeds: [1, 2]\nresources: {{gpus: {}}}")


@pytest.mark.parametrize(
    ("gpus", "said", "workers"),
    [
        ("2", "", 2),  # a worker for each GPU
        ("4.0", "", 4),
        ("2", ", data_parallel: 2", 2),
        ("1", "", 1),
        ("0.5", "", 1),
        ("0", ", data_parallel: 2", 2),  # on the CPU
    ],
)
def test_gpus_of_a_trial_imply_its_workers(tmp_path, gpus, said, workers):
    loaded = suite_of(tmp_path, (GPUS[0], GPUS[1].format(gpus)), ("seq_len: 7", f"seq_len: 7{said}"))
    assert {trial.train.data_parallel for trial in loaded.trials} == {workers}
    plain = suite_of(tmp_path, ("seq_len: 7", f"seq_len: 7, data_parallel: {workers}"))
    assert [trial.id for trial in loaded.trials] == [trial.id for trial in plain.trials]
    assert loaded.overrides == ()


def test_gpus_set_by_hand_that_change_the_trials_are_told_in_the_tables_name(tmp_path):
    file = suite_of(tmp_path)
    four = suite_of(tmp_path, overrides=("resources.gpus=4",))
    assert four.overrides == (("train.data_parallel", "4", "1"),)
    assert four.trials[0].id != file.trials[0].id
    one = suite_of(tmp_path, (GPUS[0], GPUS[1].format(4)), overrides=("resources.gpus=1",))
    assert one.overrides == (("train.data_parallel", "1", "4"),)
    assert one.trials[0].id == file.trials[0].id
    share = suite_of(tmp_path, overrides=("resources.gpus=0.5",))
    assert share.overrides == ()
    said = suite_of(tmp_path, overrides=("train.data_parallel=2",))
    assert [key for key, *_ in said.overrides] == ["train.data_parallel"]
