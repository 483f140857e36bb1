"""`bench plan-memory`: what its table says follows from the record."""

from pathlib import Path

from harness.benchmarks.plan_memory import PlannedStep, PlannedSteps, load, markdown, save

ABOUT = {"device": "a processor", "device_type": "cpu", "torch": "2.13.0", "commit": "abc", "started": "today"}


def measured(*pairs):
    steps = [PlannedStep(size="tiny", head="softmax", planned=p, measured=m, kept=1.25 * m) for p, m in pairs]
    return PlannedSteps(**ABOUT, steps=tuple(steps))


def test_the_verdict_is_that_of_every_step():
    assert measured((100, 81), (100, 130)).holds
    assert not measured((100, 100), (100, 79)).holds  # 1.27 times
    assert not measured((100, 135)).holds  # 0.74 times
    assert "every plan is.\n" in markdown(measured((100, 81)))
    assert "NOT every plan is.\n" in markdown(measured((100, 79)))


def test_the_record_is_read_back_and_the_table_quotes_it(tmp_path):
    record, table = save(measured((90, 100)), tmp_path)
    assert load(record) == measured((90, 100))
    assert "| tiny | softmax | 90 | 100 | 0.900 | 125 (0.72) |" in table.read_text()


def test_the_committed_record_holds_and_its_table_is_made_of_it():
    results = Path(__file__).parents[2] / "results" / "showcase"
    found = sorted((results / "bench").glob("plan_memory_*.json"))
    assert found
    for record in found:
        assert load(record).holds
        assert (results / "tables" / f"{record.stem}.md").read_text() == markdown(load(record))
