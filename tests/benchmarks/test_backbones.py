"""`bench backbone`: what is measured at tiny sizes, the fit, memory, and tables that say what is in the record."""

from pathlib import Path

import numpy as np
import pytest
import rounding
import torch

from harness.benchmarks import backbones
from harness.benchmarks.backbones import BACKBONES, BackboneCosts, Cost, Quadratic, Step, fitted, made, step_mib
from harness.benchmarks.measure import in_new_process
from harness.benchmarks.record import load, save_with_table
from harness.errors import ExecutionError

CPU = torch.device("cpu")
LENGTHS = (32, 64, 128, 256, 512, 1024, 2048)
Y_AXES = {"step_time": "milliseconds of a step", "step_memory": "MiB of a step"}


def known(**changes) -> BackboneCosts:
    """lstm: 1 + 0.5 T ms; gpt2: 2 + 0.1 T + 0.01 T^2 ms, so the parts are equal at 10; and only to 40 tokens."""
    costs = []
    for T in (5, 20, 40, 80):
        costs.append(Cost(backbone="lstm", params=1000, context=T, milliseconds=(9e9, 1 + 0.5 * T, 0), mib=None))
    for T in (5, 20, 40):
        taken = 2 + 0.1 * T + 0.01 * T**2
        costs.append(Cost(backbone="gpt2", params=2000, context=T, milliseconds=(0, taken, 9e9), mib=float(T)))
    about = {"device": "A CPU (64)", "torch": "2.13.0", "commit": "abc", "started": "today", "rounds": 3}
    return BackboneCosts(**{**about, "costs": tuple(costs), **changes})


def measured(names, contexts) -> BackboneCosts:
    (found,) = backbones.measure("backbone", backbones=names, contexts=contexts, rounds=2, threads=1, device=CPU)
    return found


def test_the_tables_have_medians_fits_and_what_was_not_measured():
    (header, *by_length), (_, lstm, gpt2) = known().tables()
    assert header == ["tokens", "lstm, ms", "gpt2, ms", "lstm, MiB", "gpt2, MiB"]
    assert by_length[0] == ["5", "3.5", "2.75", "-", "5.0"]
    assert by_length[3] == ["80", "41", "-", "-", "-"]
    assert lstm == ["lstm", "1,000", "1", "500", "0", "never", "0%", "0%"]
    # 0.01 x 1600 of 2 + 4 + 16 ms: 73 %
    assert gpt2 == ["gpt2", "2,000", "2", "100", "1e+04", "10", "73%", "0%"]


def test_the_record_is_read_back_and_the_files_are_made_of_it(tmp_path):
    record, table, *plot = save_with_table(known(), tmp_path)
    assert load(BackboneCosts, record) == known()
    assert [place.relative_to(tmp_path).as_posix() for place in (record, table)] == [
        "bench/backbone_a_cpu_64.json",
        "tables/backbone_a_cpu_64.md",
    ]
    assert table.read_text() == known().markdown()
    assert {place.suffix for place in plot} == {".svg", ".png", ".pdf"}
    drawn = {place.stem: place.read_text() for place in plot if place.suffix == ".svg"}
    assert drawn.keys() == Y_AXES.keys()
    assert all(unit in drawn[name] and "gpt2" in drawn[name] for name, unit in Y_AXES.items())


def test_memory_that_is_not_counted_is_said():
    none = tuple(each.model_copy(update={"mib": None}) for each in known().costs)
    assert "MiB: not counted" in known(costs=none).markdown()


@pytest.mark.parametrize("name", BACKBONES)
def test_a_step_gives_every_parameter_a_gradient(name):
    backbone = made(name, CPU)
    assert backbone.training
    Step(backbone, 5, CPU)()
    without = [each for each, parameter in backbone.named_parameters() if parameter.grad is None]
    assert not without
    # 2 x 8 d^2 of an LSTM's matrices and 2 x 8 d of its biases
    if name == "lstm":
        assert backbones.count_without_embedding(backbone) == 16 * 256**2 + 16 * 256


@pytest.mark.system
def test_lengths_beyond_the_positions_are_left_out(monkeypatch):
    monkeypatch.setattr(backbones, "in_new_process", lambda *_, **__: 1.5)
    costs = measured(("gpt2", "lstm"), (4, 2, 3, 1500, 3)).costs
    found = [(each.backbone, each.context, len(each.milliseconds), each.mib) for each in costs]
    assert found == [*(("gpt2", T, 2, 1.5) for T in (2, 3, 4)), *(("lstm", T, 2, 1.5) for T in (2, 3, 4, 1500))]
    assert all(value > 0 for each in costs for value in each.milliseconds)


@pytest.mark.parametrize(
    ("names", "contexts", "said"),
    [
        (("lstm",), (0, 1, 2), "expected at least 3 different lengths from 1$"),
        (("gpt2",), (8, 16, 2048), "from 1 up to 1,024, the positions of gpt2"),
    ],
)
def test_what_cannot_be_measured_is_a_users_mistake(names, contexts, said):
    with pytest.raises(ExecutionError, match=said):
        measured(names, contexts)


def test_a_peak_that_is_not_reset_is_no_number(monkeypatch):
    def unknown(*_):
        raise ExecutionError("this system does not reset it")

    monkeypatch.setattr(backbones, "extra_mib", unknown)
    assert step_mib("lstm", 3, CPU) is None


@pytest.mark.system
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="this system does not count it")
def test_memory_is_at_least_what_the_backward_pass_must_keep():
    """An LSTM layer keeps its four gates, its cell and its output: 6 T d floats for each of two layers."""
    found = in_new_process(step_mib, "lstm", 2048, CPU)
    least = 2 * 6 * 2048 * 256 * 4 / 2**20
    assert found is None or least < found < 10 * least


def tolerances(values):
    """How far off rounding may leave each coefficient.

    A column T^i / y of the least squares has a size; of columns scaled to the size 1, the solution is off by at most
    n eps times the squared condition of the matrix.
    """
    columns = np.array([[float(T) ** power / y for power in range(3)] for T, y in zip(LENGTHS, values, strict=True)])
    sizes = np.linalg.norm(columns, axis=0)
    return rounding.bound(len(LENGTHS), np.linalg.cond(columns / sizes) ** 2) / sizes


@pytest.mark.parametrize("planted", [(3.0, 0.05, 2e-5), (0.0, 0.2, 1e-4), (1.5, 0.0, 3e-6), (2.0, 0.3, 0.0)])
def test_planted_coefficients_are_found(planted):
    values = [sum(c * T**power for power, c in enumerate(planted)) for T in LENGTHS]
    fit = fitted(dict(zip(LENGTHS, values, strict=True)))
    for found, expected, tolerance in zip(fit[:3], planted, tolerances(values), strict=True):
        assert found == pytest.approx(expected, rel=0, abs=tolerance)
    assert fit.deviation == pytest.approx(0, abs=1e-9)
    assert fit.at(100) == pytest.approx(planted[0] + 100 * planted[1] + 10_000 * planted[2], rel=1e-9)


@pytest.mark.parametrize(
    ("quadratic", "longest", "shown"), [(0.0002, 1000, "300"), (0.0002, 299, "beyond 299"), (0.0, 1000, "never")]
)
def test_the_parts_are_equal_at_c1_over_c2(quadratic, longest, shown):
    assert Quadratic(7, 0.06, quadratic).equal_at(longest) == shown


def test_no_coefficient_is_negative():
    """The square root bends the other way, so its best quadratic coefficient would be below 0."""
    fit = fitted({T: T**0.5 for T in LENGTHS})
    assert fit.quadratic == 0
    assert min(fit.constant, fit.linear) > 0
    assert fit.deviation > 0.1


def test_relative_differences_count_and_not_absolute_ones():
    """Values that fall with the length leave c0 alone: c1 = c2 = 0.

    The sum of (c0 / y - 1)^2 is least at sum(1 / y) / sum(1 / y^2) = (11 / 6) / (49 / 36) = 66 / 49; the
    mean 2 would be best for absolute differences.
    """
    fit = fitted({10: 3.0, 11: 2.0, 12: 1.0})
    assert (fit.linear, fit.quadratic) == (0, 0)
    assert fit.constant == pytest.approx(66 / 49, rel=1e-9)
    assert fit.deviation == pytest.approx(1 - 22 / 49)
