"""Each shape of the table in each form, from planted numbers, against files that were checked by hand."""

from pathlib import Path

import pytest
from handmade import findings

from harness.records.sidecars import Timing
from harness.report import suite_table
from harness.report.layouts import select
from harness.report.printed_numbers import PrintedCell, PrintedNumbers

GOLDEN = Path(__file__).parent / "golden"
SUITE = """\
name: golden
version: 3
corpora: [CORPORA]
backbones: [{lstm: {d_model: 8, num_layers: 1}}]
heads: [softmax, {mos: {num_mixtures: 2}}, mfs]
train: {optimizer: sgd, lr: 0.5, epochs: 2, batch_size: 4, seq_len: 7}
seeds: [1, 2, 3, 4, 5, 6]
table: {shape: SHAPE, compare: paper/1, baseline: softmax}
"""
PTB = "{ptb: {boundary: sos_eos}}"
CORPORA = {
    "mixtures": PTB,
    "heads": "{markov: {vocab_size: 12, num_tokens: 400, branching: [2, 3]}}",  # one vocabulary, so one size
    "corpora": f"{PTB}, {{markov: {{vocab_size: 12, num_tokens: 400, branching: 3}}}}",
}
TEST_PPL = {"softmax": (100.0, 100.0), "mos": (90.0, 81.0), "mfs": (81.0, 90.0)}  # of odd seeds, of even ones
TRAIN_MS = {"softmax": 10.0, "mos": 20.0, "mfs": 30.0}


def planted(trial, record_of):
    """A trial's record. All of its numbers follow from head, seed and corpus: golden/README.md says how."""
    head, seed = trial.head.name, trial.seed
    if head == "mfs" and seed == 6:
        return record_of(trial, "diverged", "Diverged: loss is nan | & _", environment={"finished": "2026-01-03"})
    scale = 2.0 if trial.corpus.params.get("branching") == 3 else 1.0
    ppl = scale * TEST_PPL[head][1 - seed % 2]
    return record_of(
        trial,
        environment={"shared": True},
        valid_ppl=ppl + 10,
        test_ppl=ppl,
        last_test_ppl=ppl + 2,
        test_ppl_standard=ppl + 20,
        train_ms_per_batch=TRAIN_MS[head],
        eval_ms_per_batch=TRAIN_MS[head] / 5,
        peak_memory_mib=10 * TRAIN_MS[head] + 2 * seed,
    )


def timing(record) -> Timing:
    """Half of what the record says: alone on the machine."""
    times = {f"{what}_ms_per_batch": record.metrics[f"{what}_ms_per_batch"] / 2 for what in ("train", "eval")}
    return Timing(
        trial=record.id,
        weights_sha256="0" * 64,
        metrics={**times, "train_ms_per_batch_iqr": 0.3, "eval_ms_per_batch_iqr": 0.1},
        batches=40,
        rounds=5,
        pass_id="a pass",
        device="a processor",
        threads=1,
        torch="2.13.0",
        commit="abc",
        taken="2026-01-02T05:00:00+00:00",
        busy=0.1,
        shared=False,
    )


def printed(corpus: str, **branching) -> PrintedNumbers:
    about = {"corpus": corpus, "backbone": "lstm"}
    rule = "sos_eos" if corpus == "ptb" else ""
    of = {f"corpus.{name}": value for name, value in branching.items()}
    return PrintedNumbers(
        (
            PrintedCell(
                **about,
                head="softmax",
                params=of,
                metric="test_ppl",
                value="95.00",
                weights="last",
                counting=rule,
                note="",
            ),
            PrintedCell(
                **about,
                head="mos",
                params={"num_mixtures": 2, **of},
                metric="test_ppl",
                value="80.5",
                weights="best",
                counting=rule,
                note="",
            ),
            PrintedCell(
                **about,
                head="mos",
                params={"num_mixtures": 2, **of},
                metric="train_ms_per_batch",
                value="19.20",
                weights="",
                counting="",
                note="GPU X",
            ),
        ),
        ("paper/1: A Title, 2020",),
    )


@pytest.mark.parametrize("shape", CORPORA)
def test_golden_table_of_a_shape_in_every_form(shape, suite_of, record_of):
    suite = suite_of(SUITE.replace("CORPORA", CORPORA[shape]).replace("SHAPE", shape))
    made = [planted(trial, record_of) for trial in suite.trials]
    # mfs has none of its own: what its trials noted while sharing the machine stands for it
    timings = {r.id: timing(r) for r in made if r.spec.seed == 1 and r.spec.head.name != "mfs"}
    numbers = printed("markov", branching=2) if shape == "heads" else printed("ptb")
    table = suite_table.build(findings(suite, made, numbers, timings=timings))
    forms = {ending: (form, name in suite_table.WIDE) for name, (ending, form) in suite_table.FORMS.items()}
    for ending, (form, wide) in {**forms, ".wide.md": (suite_table.FORMS["md"][1], True)}.items():
        golden = (GOLDEN / f"{shape}{ending}").read_text(encoding="utf-8")
        for number, record in enumerate(made):
            golden = golden.replace(f"TRIAL_{number:02}", record.id)
        assert form(select(table, wide=wide)) == golden
