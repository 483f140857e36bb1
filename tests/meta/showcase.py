"""Write the committed tables, pages and plots of results/showcase again, from its records: `make showcase`.

Only files that are there are written. `make showcase NEW=ptb_awd` also adds the table, page and forest plot of a suite.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from harness import plan
from harness.exchange.copying import import_records
from harness.report import study

ROOT = Path(__file__).resolve().parents[2]
SHOWCASE = ROOT / "results" / "showcase"


def renew(results: Path, added: list[str]) -> None:
    """Write what the records give to `results`, and copy it over what is committed."""
    files = sorted((SHOWCASE / "records").glob("*.zip"))
    for file in files:
        import_records(file, results)
    for name in sorted({file.name.split(".")[0] for file in files}):
        found = study.load(plan.load(ROOT / "suites" / f"{name}.yaml"), results, warn=print)
        found.write_table()
        found.write_report()
        new = {f"tables/{name}.md", f"tables/{name}.csv", f"reports/{name}.html"} if name in added else set()
        new |= {f"plots/{name}/forest.{ending}" for ending in ("svg", "png", "pdf")} if name in added else set()
        made = {file.relative_to(results).as_posix(): file for file in results.rglob("*") if name in file.as_posix()}
        for place, file in made.items():
            committed = SHOWCASE / place
            if file.is_file() and (place in new or committed.is_file()) and not same(file, committed):
                committed.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, committed)
                print(f"renewed: {place}", flush=True)


def same(file: Path, committed: Path) -> bool:
    return committed.is_file() and file.read_bytes() == committed.read_bytes()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        renew(Path(folder), sys.argv[1:])
