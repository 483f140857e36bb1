"""EvalSpec: the settings of `train` that evaluation reads, apart from those of training."""

import inspect

from harness.plan.specs import DECIDES_NO_RESULT, EvalSpec, TrainSpec
from harness.training import evaluation

SETTINGS = {"optimizer": "sgd", "lr": 1.0, "epochs": 1, "batch_size": 2, "seq_len": 4}


def test_it_has_the_values_of_the_mapping_train():
    train = TrainSpec(**SETTINGS, eval_batch_size=3, eval_stride=2, eval_batches=5)
    expected = {"seq_len": 4, "batching": "stream", "eval_batch_size": 3, "eval_stride": 2, "eval_batches": 5}
    assert train.evaluation.model_dump() == expected


def test_each_of_its_settings_is_one_of_train_and_part_of_the_id():
    assert EvalSpec.model_fields.keys() <= TrainSpec.model_fields.keys() - DECIDES_NO_RESULT


def test_settings_of_training_alone_do_not_change_it():
    plain = TrainSpec(**SETTINGS)
    other = TrainSpec(optimizer="adam", lr=0.1, epochs=3, batch_size=8, seq_len=4, clip=1.0, precision="bf16")
    assert plain.evaluation == other.evaluation


def test_functions_that_evaluate_take_no_training_spec():
    functions = [each for _, each in inspect.getmembers(evaluation, inspect.isfunction)]
    own = [inspect.signature(each) for each in functions if each.__module__ == evaluation.__name__]
    types = [parameter.annotation for each in own for parameter in each.parameters.values()]
    assert EvalSpec in types
    assert TrainSpec not in types
