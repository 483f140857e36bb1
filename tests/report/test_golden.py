"""Tables from planted numbers against files that were checked by hand: each shape in each form, and what tables say of
faults, of tuning and of special settings.

GOLDEN=write writes the files again: then check what changed.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import handmade
import pytest
from bundles import timing_of
from handmade import findings

from harness.records.sidecars import Timing
from harness.report import suite_table, table_forms
from harness.report.layouts import select
from harness.report.printed_numbers import PrintedCell, PrintedNumbers

GOLDEN = Path(__file__).parent / "golden"
SUITE = handmade.suite_text(
    name="golden",
    version="3",
    corpora="[CORPORA]",
    heads="[softmax, {mos: {num_mixtures: 2}}, mfs]",
    seeds="[1, 2, 3, 4, 5, 6]",
    table="{shape: SHAPE, compare: paper/1, baseline: softmax}",
)
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


def timing(record, **changes) -> Timing:
    """Half of what the record says: alone on the machine."""
    names = [name for name in ("train_ms_per_batch", "eval_ms_per_batch") if name in record.metrics]
    times = {name: record.metrics[name] / 2 for name in names}
    spreads = dict(zip([f"{name}_iqr" for name in names], (0.3, 0.1), strict=False))
    about = {
        "weights_sha256": "0" * 64,
        "metrics": {**times, **spreads},
        "batches": 40,
        "rounds": 5,
        "passed": "a pass",
    }
    about |= {"torch": "2.13.0", "taken": "2026-01-02T05:00:00+00:00", "busy": 0.1}
    return timing_of(record, **{**about, **changes})


def printed(corpus: str, **branching) -> PrintedNumbers:
    """Of softmax after the last epoch, of MoS 2 after the best, and a time on another device."""
    of = {f"corpus.{name}": value for name, value in branching.items()}
    rule = "sos_eos" if corpus == "ptb" else ""

    def cell(head, metric, value, params=(), weights="", counting="", note=""):
        about = {"corpus": corpus, "backbone": "lstm", "head": head, "params": {**dict(params), **of}, "note": note}
        return PrintedCell(**about, metric=metric, value=value, weights=weights, counting=counting)

    two = {"num_mixtures": 2}
    cells = (
        cell("softmax", "test_ppl", "95.00", weights="last", counting=rule),
        cell("mos", "test_ppl", "80.5", two, weights="best", counting=rule),
        cell("mos", "train_ms_per_batch", "19.20", two, note="GPU X"),
    )
    return PrintedNumbers(cells, ("paper/1: A Title, 2020",))


@pytest.mark.parametrize("shape", CORPORA)
def test_golden_table_of_a_shape_in_every_form(shape, suite_of, record_of):
    suite = suite_of(SUITE.replace("CORPORA", CORPORA[shape]).replace("SHAPE", shape))
    made = [planted(trial, record_of) for trial in suite.trials]
    # mfs has none of its own: what its trials noted while sharing the machine stands for it
    timings = {r.id: timing(r) for r in made if r.spec.seed == 1 and r.spec.head.name != "mfs"}
    numbers = printed("markov", branching=2) if shape == "heads" else printed("ptb")
    table = suite_table.build(findings(suite, made, numbers, timings=timings))
    for name, (ending, form) in suite_table.FORMS.items():
        compare(f"{shape}{ending}", form(select(table, wide=name in suite_table.WIDE)), made)
    compare(f"{shape}.wide.md", suite_table.text(table), made)
    compare(f"{shape}.compact.tex", table_forms.latex(select(table, compact=True), compact=True), made)


def compare(name: str, text: str, made) -> None:
    """Compare with a golden file, in which TRIAL_01 stands for the id of the second record."""
    for number, record in enumerate(made):
        text = text.replace(record.id, f"TRIAL_{number:02}")
    if os.environ.get("GOLDEN") == "write":
        (GOLDEN / name).write_text(text, encoding="utf-8")
    assert text == (GOLDEN / name).read_text(encoding="utf-8")


def compare_forms(name: str, table, made) -> None:
    """The default form and the wide one."""
    compare(f"{name}.md", suite_table.text(select(table)), made)
    compare(f"{name}.wide.md", suite_table.text(table), made)


FAULTS = """\
name: faults
version: 1
corpora: [{markov: {vocab_size: 12, num_tokens: 400, branching: 3}}]
backbones: [{lstm: {d_model: 8, num_layers: 1}}]
heads:
  - softmax
  - mos: {num_mixtures: [2, 3, 4, 5]}
  - moc: {num_mixtures: 2}
  - sigsoftmax: {compat: {log_epsilon: 1.0e-8}}
  - mfs
train: {optimizer: sgd, lr: 0.5, epochs: 2, batch_size: 4, seq_len: 7}
seeds: [1, 2, 3, 4, 5, 7]
table: {baseline: softmax, notes: ['A paper reports *90 %* <b>']}
"""


def faulty(trial, record_of):
    """A trial's record by its head: MoS 2 loses seeds, MoS 3 is collapsed, MoS 4 has not converged, of MoS 5 some code
    is old, MoC 2 is invalid, and MFS has one collapsed seed and another device. None: not run.
    """
    head, mixtures, seed = trial.head.name, trial.head.params.get("num_mixtures"), trial.seed
    ppl, valid, environment, code = 100.0 + seed % 4, (80.0, 79.5, 79.9), {}, handmade.code()
    if (head, mixtures) == ("mos", 2):
        if seed > 5:
            return None
        if seed > 2:
            status = {3: "diverged", 4: "oom", 5: "timeout"}[seed]
            return record_of(trial, status, f"{status.capitalize()}: in epoch 1 | <b>")
    if (head, mixtures) == ("mos", 3):
        ppl = 1150.0 + seed
    if (head, mixtures) == ("mos", 4):
        ppl, valid = 80.0 + seed % 3, (80.0, 70.0) if seed < 5 else (80.0, 80.5)
    if (head, mixtures) == ("mos", 5) and seed < 4:
        code = handmade.code(head="a" * 64)
    if head == "moc" and seed == 2:
        return record_of(trial, "invalid", "the certificate failed", test_ppl=0.5)
    if head == "mfs":
        ppl = 1046.0 if seed == 7 else 90.0
        environment = {"device": "GPU X", "cuda_graph": True, "shared": True}
        environment |= {"switched_off": ("Switched off: a kernel",)}
    if head == "softmax":
        environment = {"matmul_route": "onednn"}
    made = record_of(trial, environment=environment, code=code, test_ppl=ppl, train_ms_per_batch=5.0)
    return handmade.learned(made, *valid, loss=5.0 + seed)


def test_golden_table_of_faults(suite_of, record_of):
    suite = suite_of(FAULTS)
    made = [record for trial in suite.trials if (record := faulty(trial, record_of)) is not None]
    outdated = {each.id: ("head",) for each in made if each.code.head == "a" * 64}
    missing = frozenset(each.id for each in made if each.spec.head.name == "mfs")
    alone = {made[0].id: timing(made[0], busy=0.4), made[-1].id: timing(made[-1], shared=True, busy=1.5)}
    table = suite_table.build(findings(suite, made, timings=alone, outdated=outdated, unscored=missing))
    compare_forms("faults", table, made)


TUNED = handmade.suite_text(
    name="tuned",
    heads="[softmax, {mos: {num_mixtures: [2, 3, 4]}}, {moc: {num_mixtures: [2, 3]}}]",
    train="{optimizer: sgd, lr: 1.0, epochs: 2, batch_size: 4, seq_len: 7, schedule: {warmup: {steps: 9}}}",
    seeds="[1, 2]",
    tune="{epochs: 1, seed: 9, space: {train.lr: [0.5, 1, 2], head.dropout: [0, 0.4]}}",
    table="{baseline: softmax}",
)


def test_golden_table_of_a_tuned_suite(suite_of, record_of):
    # (lr, dropout): (0.5, 0), (0.5, 0.4), (1, 0), ...; the dropout does not apply to softmax, which has three points
    suite, old = suite_of(TUNED), handmade.code(head="a" * 64)
    found = [
        [9, 8, 9],  # within the range
        [9, None, 9, None, 9, 8],  # at the end of both, two failed
        [9, 9, 8, 9, 9, 9],
        [9, 9, 8, 9, 9, 9],  # its records give another point
        None,  # not finished
        [None] * 6,
    ]
    suite = handmade.chosen(suite, *found)
    two, three, four = (suite.tuning.rows[row].tuning_trials for row in (1, 2, 3))
    tuning = [record_of(two[1], "diverged"), record_of(two[3], "oom")]
    codes = [old] * 3 + [handmade.code()] * 3
    tuning += [record_of(each, code=codes[n], valid_ppl=8.0 if n == 2 else 9.0) for n, each in enumerate(three)]
    tuning += [record_of(each, valid_ppl=7.0 if n == 5 else 9.0) for n, each in enumerate(four)]
    made = [record_of(trial, test_ppl=90.0 + trial.seed, train_ms_per_batch=2.0) for trial in suite.trials]
    outdated = {each.id: ("head",) for each in tuning if each.code == old}
    known = findings(suite, made, tuning={each.id: each for each in tuning}, outdated=outdated)
    compare_forms("tuned", suite_table.build(known), made)


SPECIAL = handmade.suite_text(
    name="special",
    corpora="[{markov: {vocab_size: 5000, num_tokens: 400, branching: 3}}]",
    backbones="[{bilstm: {d_model: 250, num_layers: 1}}]",
    heads="[softmax, {mos: {num_mixtures: [2, 5], dropout: 0.2}}]",
    train="{optimizer: sgd, lr: 0.5, epochs: 0.4, batch_size: 4, seq_len: 7, precision: bf16, eval_batches: 9}",
    seeds="[1, 2]",
    match="{params: softmax, vary: d_model}",
    table="{baseline: softmax, test: welch, margin: 0.1}",
)


def test_golden_table_of_special_settings(suite_of, record_of):
    suite = suite_of(SPECIAL, "train.clip=0.25", "train.epochs=0.2")
    text = {"test_ppl_word": 30.0, "test_ppl_byte": 1.75, "test_bits_per_byte": 0.8074}
    more = {
        "test_bits_per_character": 0.8125,
        "start_valid_ppl": 20.0,
        "inference_ms_per_batch": 3.25,
        "source_test_ppl": 1.5,
        "state_carried": 0,
    }
    made = [
        record_of(each, test_ppl=9.0 + each.seed, inference_batch=4.0 * each.seed, **text, **more)
        for each in suite.trials[:4]
    ]
    compare_forms("special", suite_table.build(findings(suite, made)), made)


@pytest.mark.skipif(shutil.which("kpsewhich") is None, reason="TeX is not installed")
@pytest.mark.parametrize("place", sorted(GOLDEN.glob("*.tex")), ids=lambda place: place.name)
def test_tex_compiles_it_in_an_article(place, tmp_path):
    text = re.sub(r"TRIAL_\d+", "0123456789ab", place.read_text(encoding="utf-8"))  # ids that a golden file leaves open
    packages = text.splitlines()[0].lstrip("% ")
    document = [r"\documentclass{article}", packages, r"\begin{document}", text, r"\end{document}"]
    (tmp_path / "paper.tex").write_text("\n".join(document), encoding="utf-8")
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "paper.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout
