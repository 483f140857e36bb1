"""`make release VERSION=0.2.0`: the number of a new version, and its part of the changelog, in one commit.

First all is checked: the number follows the present one, nothing is uncommitted, and the changelog has something that
was not released. `--check` ends there; `make release` runs all tests then. Nothing is sent anywhere.
"""

import argparse
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACES = {  # file -> where it has the number; pyproject.toml reads that of harness/__init__.py
    "harness/__init__.py": r'^__version__ = "(.*)"$',
    "CITATION.cff": r"^version: (.*)$",
}
UNRELEASED = "## Unreleased\n\n"


def parts(version: str) -> tuple[int, ...]:
    """(0, 2, 0) of 0.2.0."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise SystemExit(f"VERSION: expected three numbers as 0.2.0, got '{version}'")
    return tuple(map(int, version.split(".")))


def present(root: Path) -> str:
    """The version of a checkout. All places must agree."""
    found = {place: re.findall(form, (root / place).read_text(), flags=re.MULTILINE) for place, form in PLACES.items()}
    versions = {version for each in found.values() for version in each}
    if len(versions) != 1 or not all(found.values()):
        raise SystemExit(f"expected one version in all places, found {found}")
    return versions.pop()


def check(root: Path, version: str) -> None:
    """Raises SystemExit with the first thing that is in the way of a release."""
    if parts(version) <= parts(present(root)):
        raise SystemExit(f"VERSION: expected a later version than {present(root)}, got {version}")
    if changed := _git(root, "status", "--porcelain"):
        raise SystemExit(f"uncommitted: {changed}; commit or remove it")
    _, _, news = (root / "CHANGELOG.md").read_text().partition(UNRELEASED)
    if not news.startswith(("- ", "### ")):
        raise SystemExit("CHANGELOG.md: nothing stands under Unreleased")


def write(root: Path, version: str, date: str) -> None:
    """Write the number and the heading of the changelog, and commit them."""
    before = present(root)
    for place, form in PLACES.items():
        text = (root / place).read_text()
        line = re.search(form, text, flags=re.MULTILINE)[0]
        (root / place).write_text(text.replace(line, line.replace(before, version)))
    log = root / "CHANGELOG.md"
    log.write_text(log.read_text().replace(UNRELEASED, f"{UNRELEASED}## {version} ({date})\n\n", 1))
    _git(root, "commit", "--quiet", "--all", "--message", f"Version {version}")


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version")
    parser.add_argument("--check", action="store_true", help="check only")
    given = parser.parse_args()
    check(ROOT, given.version)
    if not given.check:
        write(ROOT, given.version, datetime.now(UTC).date().isoformat())
