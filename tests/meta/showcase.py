"""Write the committed tables, pages and plots of suites in results/showcase again, from its records: `make showcase`.

Files that are there are written, and those that the records no longer give are named. `make showcase NEW=ptb_awd` also
adds the table, page and forest plots of a suite. `harness reproduce --no-run` and `harness diagnose` write their own
files again.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from stand_ins import planned_as_recorded

from harness.exchange.copying import import_records
from harness.report import study
from harness.report.study import Study

ROOT = Path(__file__).resolve().parents[2]
SHOWCASE = ROOT / "results" / "showcase"


def studies(results: Path) -> dict[str, Study]:
    """Stem of the files of each suite with committed records, shortened ones included -> its study."""
    files, shortened = (sorted((SHOWCASE / folder).glob("*.zip")) for folder in ("records", "records/shortened"))
    for file in [*files, *shortened]:
        import_records(file, results)
    changes = {name: () for name in sorted({file.name.split(".")[0] for file in files})}
    for file in shortened:
        changes[file.stem] = (f"train.{file.stem.split('.', 1)[1]}",)
    found = {}
    for stem, change in changes.items():
        folder = results / "planned" / stem
        folder.mkdir(parents=True)
        suite = planned_as_recorded(stem.split(".")[0], results, folder, change)
        found[stem] = study.load(suite, results, warn=print)
    return found


def renew(results: Path, added: list[str]) -> None:
    """Write what the records give to `results`, and copy it over what is committed."""
    found = studies(results)
    if unknown := set(added) - found.keys():
        raise SystemExit(f"NEW: results/showcase/records has none of {', '.join(sorted(unknown))}")
    for each in found.values():
        each.write_table()
        each.write_report()
    shown = {folder: SHOWCASE / folder for folder in ("tables", "reports", "plots")}
    made = {file.relative_to(results) for folder in shown for file in (results / folder).rglob("*") if file.is_file()}
    new = {place for place in made if place.parts[1].removesuffix(place.suffix) in added}
    new -= {place for place in new if place.suffix in (".tex", ".json")}
    new = {place for place in new if place.parts[0] != "plots" or place.name.startswith("forest")}
    for place in sorted(made):
        committed = SHOWCASE / place
        is_there = committed.is_file()
        if (is_there or place in new) and not (is_there and same(results / place, committed)):
            committed.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(results / place, committed)
            print(f"renewed: {place}")
    for stem in found:
        of_suite = [
            file for folder in shown.values() for file in [*folder.glob(f"{stem}.*"), *folder.glob(f"{stem}/*")]
        ]
        places = {
            file.relative_to(SHOWCASE) for file in of_suite if file.is_file() and ".diagnostics." not in file.name
        }
        for place in sorted(places - made):
            print(f"not made from the records any more: {place}")


def same(file: Path, committed: Path) -> bool:
    return file.read_bytes() == committed.read_bytes()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        renew(Path(folder), sys.argv[1:])
