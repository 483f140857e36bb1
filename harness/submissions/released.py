"""What the harness comes with, to which a submission is compared: its suites, and the committed records of them."""

from pathlib import Path

from harness import bundled
from harness.errors import RecordError, nearest
from harness.extensions import needed
from harness.plan.reader import suites_in
from harness.records.record import TrialRecord


def suite_file(name: str) -> Path:
    """The file of a suite that comes with the harness, never one of ./suites. Raises RecordError for another name."""
    known = suites_in(bundled("suites"))
    if name not in known:
        hint = nearest(name, list(known))
        raise RecordError(f"'{name}' is no suite that comes with this version of the harness{hint}")
    return known[name]


def records_of(name: str) -> list[TrialRecord]:
    """The committed records of a suite that verify; [] in an installed wheel, which has none."""
    found = []
    folder = bundled("results/showcase") / "records"
    for place in sorted([*folder.glob(f"{name}.zip"), *folder.glob(f"{name}.*.zip")]):
        try:
            with needed("harness.exchange.bundle:opened", "a submission")(place) as bundle:
                found += [bundle.files(trial).record for trial in bundle.trials if trial.suite == name]
        except RecordError:
            continue  # the tests of the repository find it
    return found
