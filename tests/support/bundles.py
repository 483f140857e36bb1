"""For tests of export and import: a results folder of finished trials made by hand, archives changed on purpose."""

import io
import math
import zipfile
from pathlib import Path

import handmade
import numpy as np

from harness import plan
from harness.plan.specs import Contents, TrialSpec
from harness.records import sidecars, store
from harness.records.record import TrialRecord
from harness.records.sidecars import Diagnosis, Timing, TokenScores
from harness.registry import CORPORA

NLL = np.array([math.nan, 1.0, 2.0, 3.0], dtype=np.float32)  # a mean of 2 nats over 3 tokens
WEIGHTS = "ab" * 32


def planned(folder: Path, text: str = handmade.SMALL) -> tuple[TrialSpec, ...]:
    """The trials of a suite's text, which is written into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "suite.yaml").write_text(text)
    return plan.load(folder / "suite.yaml").trials


def record_of(spec: TrialSpec, **changes) -> TrialRecord:
    """A finished trial's record."""
    metrics = {"test_ppl": math.exp(2.0), "scored_test_tokens": 3.0}
    contents = Contents(corpus=CORPORA.get(spec.corpus.name)(**spec.corpus.params).facts().content)
    about = {"spec": spec, "metrics": metrics, "weights_sha256": WEIGHTS, "contents": contents}
    return handmade.record(**{**about, **changes})


def contents_of(folder: Path, text: str = handmade.SMALL) -> Contents:
    """What the trials of the suite read."""
    (folder / "suite.yaml").write_text(text)
    suite = plan.load(folder / "suite.yaml")
    return suite.contents_of(suite.trials[0])


def timing_of(record: TrialRecord, **changes) -> Timing:
    """Its exclusive times."""
    values = {"metrics": {"train_ms_per_batch": 3.5}, "batches": 9, "rounds": 3, "passed": "p", "device": "a processor"}
    values |= {"threads": 1, "torch": "2", "commit": "abc", "taken": "2026-01-02T03:04:05+00:00", "busy": 0.0}
    told = {"trial": record.id, "weights_sha256": record.weights_sha256, "shared": False}
    return Timing(**{**values, **told, **changes})


def keep(results: Path, record: TrialRecord, *, timed: bool = True, scored: bool = True) -> Path:
    """Save a record and what lies beside it; its folder."""
    runs = store.runs_folder(results, record.suite)
    place = store.save(record, runs)
    if timed:
        sidecars.save_timing(timing_of(record), runs)
    if scored:
        scores = TokenScores(nll=NLL, count=np.array([5, 0, 2, 1]), offset=np.array([-1, 0, 1, 2]))
        sidecars.save_token_scores(scores, record.weights_sha256, place.with_name(sidecars.TOKEN_NLL.file))
    return place.parent


def diagnosis_of(**changes) -> Diagnosis:
    """A stored result of a diagnostic."""
    values = {"diagnostic": "gates", "settings": {"contexts": 9}, "code": "5" * 64, "content": {"used": 1.5}}
    values |= {"device": "a processor", "threads": 1, "torch": "2", "harness": "0.1.0", "commit": "abc"}
    return Diagnosis(**{**values, "taken": "2026-01-02T03:04:05+00:00", "seconds": 0.5, **changes})


def diagnose(results: Path, record: TrialRecord, **changes) -> None:
    """Store a result beside a record."""
    sidecars.add_diagnosis(store.runs_folder(results, record.suite), record, diagnosis_of(**changes))


def files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder but locks, by its path there."""
    found = [path for path in folder.rglob("*") if path.is_file() and store.LOCKS not in path.parts]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(found)}


def members(place: Path) -> dict[str, bytes]:
    """The members of an archive, by name."""
    with zipfile.ZipFile(place) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(content: dict[str, bytes], **abouts: zipfile.ZipInfo) -> bytes:
    """An archive of members, packed as exports are; `abouts` says otherwise of some, by the last part of their name."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for path, text in content.items():
            kind = zipfile.ZIP_STORED if path.endswith(".npz") else zipfile.ZIP_DEFLATED
            about = abouts.get(path.rpartition("/")[2].partition(".")[0], zipfile.ZipInfo(path))
            archive.writestr(about, text, kind)
    return written.getvalue()
