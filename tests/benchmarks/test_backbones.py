"""`bench backbone`: what is measured at tiny sizes, memory, and tables that say what is in the record."""

from pathlib import Path

import pytest
import torch

from harness.benchmarks import backbone_costs, backbone_tables
from harness.benchmarks.backbone_costs import BACKBONES, BackboneCosts, Cost, Step, made, measure, step_mib
from harness.errors import ExecutionError

CPU = torch.device("cpu")
ABOUT = {"device": "A CPU (64)", "device_type": "cpu", "torch": "2.13.0", "commit": "abc", "started": "today"}
ABOUT |= {"threads": 1, "load_average": 0.25, "contended": (), "rounds": 3}

Y_AXES = {"step_time": "milliseconds of a step", "step_memory": "MiB of a step"}


def known() -> BackboneCosts:
    """lstm: 1 + 0.5 T ms; gpt2: 2 + 0.1 T + 0.01 T^2 ms, so the parts are equal at 10; and only to 40 tokens."""
    costs = []
    for T in (5, 20, 40, 80):
        costs.append(Cost(backbone="lstm", params=1000, context=T, milliseconds=(9e9, 1 + 0.5 * T, 0), mib=None))
    for T in (5, 20, 40):
        taken = 2 + 0.1 * T + 0.01 * T**2
        costs.append(Cost(backbone="gpt2", params=2000, context=T, milliseconds=(0, taken, 9e9), mib=float(T)))
    return BackboneCosts(**ABOUT, costs=tuple(costs))


def test_the_tables_have_medians_fits_and_what_was_not_measured():
    header, *by_length = backbone_tables.rows(known())
    assert header == ["tokens", "lstm, ms", "gpt2, ms", "lstm, MiB", "gpt2, MiB"]
    assert by_length[0] == ["5", "3.5", "2.75", "-", "5.0"]
    assert by_length[3] == ["80", "41", "-", "-", "-"]
    _, lstm, gpt2 = backbone_tables.fit_rows(known())
    assert lstm == ["lstm", "1,000", "1", "500", "0", "never", "0%", "0%"]
    # 0.01 x 1600 of 2 + 4 + 16 ms: 73 %
    assert gpt2 == ["gpt2", "2,000", "2", "100", "1e+04", "10", "73%", "0%"]


def test_a_length_beyond_the_measured_ones_is_no_number():
    costs = [
        Cost(backbone="gpt2", params=1, context=T, milliseconds=(T + 0.001 * T**2,), mib=None) for T in (5, 20, 40, 999)
    ]
    few = BackboneCosts(**ABOUT, costs=tuple(costs))
    assert backbone_tables.fit_rows(few)[1][5] == "beyond 999"


def test_the_record_is_read_back_and_the_files_are_made_of_it(tmp_path):
    measured = known().model_copy(update={"contended": ("load 99.00",)})
    record, table, *plot = backbone_tables.save(measured, tmp_path)
    assert backbone_tables.load(record) == measured
    assert [place.relative_to(tmp_path).as_posix() for place in (record, table)] == [
        "bench/backbone_a_cpu_64.json",
        "tables/backbone_a_cpu_64.md",
    ]
    text = table.read_text()
    assert "CONTENDED: load 99.00. Medians of 3 interleaved rounds, A CPU (64), 1 thread(s)" in text
    assert "MALLOC_MMAP_THRESHOLD_=65536" in text
    assert {place.suffix for place in plot} == {".svg", ".png", ".pdf"}
    drawn = {place.stem: place.read_text() for place in plot if place.suffix == ".svg"}
    assert drawn.keys() == Y_AXES.keys()
    assert all(unit in drawn[name] and "gpt2" in drawn[name] for name, unit in Y_AXES.items())
    record.write_text("{}")
    with pytest.raises(ExecutionError, match="is not a record of harness bench backbone"):
        backbone_tables.load(record)


def test_memory_that_is_not_counted_is_said():
    none = tuple(each.model_copy(update={"mib": None}) for each in known().costs)
    assert "MiB: not counted" in backbone_tables.markdown(known().model_copy(update={"costs": none}))


def test_committed_tables_are_made_of_their_records():
    results = Path(__file__).parents[2] / "results"
    for record in (results / "bench").glob("backbone_*.json"):
        text = backbone_tables.markdown(backbone_tables.load(record))
        assert (results / "tables" / f"{record.stem}.md").read_text() == text


@pytest.mark.parametrize("name", BACKBONES)
def test_a_step_gives_every_parameter_a_gradient(name):
    backbone = made(name, CPU)
    assert backbone.training
    Step(backbone, 5, CPU)()
    without = [each for each, parameter in backbone.named_parameters() if parameter.grad is None]
    assert not without
    # 2 x 8 d^2 of an LSTM's matrices and 2 x 8 d of its biases
    if name == "lstm":
        assert backbone_costs.count_without_embedding(backbone) == 16 * 256**2 + 16 * 256


def test_lengths_beyond_the_positions_are_left_out(monkeypatch):
    monkeypatch.setattr(backbone_costs, "_in_fresh_process", lambda name, T, threads, device: 1.5)
    measured = measure(("gpt2", "lstm"), (4, 2, 3, 1500, 3), rounds=2, threads=1, device=CPU)
    found = [(each.backbone, each.context, len(each.milliseconds), each.mib) for each in measured.costs]
    assert found == [
        *(("gpt2", T, 2, 1.5) for T in (2, 3, 4)),
        *(("lstm", T, 2, 1.5) for T in (2, 3, 4, 1500)),
    ]
    assert all(value > 0 for each in measured.costs for value in each.milliseconds)


@pytest.mark.parametrize(
    ("backbones", "contexts", "said"),
    [
        (("rnn",), (1, 2, 3), "--backbones rnn: expected lstm, gru"),
        (("lstm",), (1, 2, 2), "expected at least 3 different lengths from 1$"),
        (("lstm",), (0, 1, 2), "expected at least 3 different lengths from 1$"),
        (("gpt2",), (8, 16, 2048), "from 1 up to 1,024, the positions of gpt2"),
    ],
)
def test_what_cannot_be_measured_is_a_users_mistake(backbones, contexts, said):
    with pytest.raises(ExecutionError, match=said):
        measure(backbones, contexts, rounds=1, threads=1, device=CPU)


def test_a_peak_that_is_not_reset_is_no_number(monkeypatch):
    monkeypatch.setattr(backbone_costs, "resident_mib", lambda: 10.0)
    monkeypatch.setattr(backbone_costs, "peak_memory_mib", lambda device: 500.0)
    assert step_mib("lstm", 3, CPU) is None


@pytest.mark.system
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="this system does not count it")
def test_memory_is_at_least_what_the_backward_pass_must_keep():
    """An LSTM layer keeps its four gates, its cell and its output: 6 T d floats for each of two layers."""
    found = backbone_costs._in_fresh_process("lstm", 2048, 1, CPU)
    least = 2 * 6 * 2048 * 256 * 4 / 2**20
    assert found is None or least < found < 10 * least
