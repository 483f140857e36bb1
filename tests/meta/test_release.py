"""`make release`: what is in its way, and what it writes."""

import importlib.util
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("release", ROOT / "tests" / "meta" / "release.py")
release = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(release)


def git(folder: Path, *arguments: str) -> str:
    user = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    return subprocess.run(["git", *user, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """The files that a release changes, at version 0.1.0, in a repository."""
    for place in release.PLACES:
        (tmp_path / place).parent.mkdir(exist_ok=True)
        text = (ROOT / place).read_text()
        (tmp_path / place).write_text(text.replace(release.present(ROOT), "0.1.0"))
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n### Added\n\n- Boards.\n")
    for variable, value in (("NAME", "a"), ("EMAIL", "a@example.com")):
        for role in ("AUTHOR", "COMMITTER"):
            monkeypatch.setenv(f"GIT_{role}_{variable}", value)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "start")
    return tmp_path


@pytest.mark.parametrize(
    ("version", "change", "message"),
    [
        ("0.2", None, "expected three numbers as 0.2.0, got '0.2'"),
        ("0.1.0", None, "expected a later version than 0.1.0, got 0.1.0"),
        ("0.0.9", None, "expected a later version than 0.1.0"),
        ("0.2.0", ("CHANGELOG.md", "- Boards.", "- Two boards."), "uncommitted: M CHANGELOG.md"),
        ("0.2.0", ("CITATION.cff", "version: 0.1.0", "version: 0.1.1"), "expected one version in all places"),
    ],
)
def test_what_is_in_the_way_of_a_release_is_named(version, change, message, checkout):
    if change is not None:
        place, old, new = change
        (checkout / place).write_text((checkout / place).read_text().replace(old, new))
    with pytest.raises(SystemExit, match=message):
        release.check(checkout, version)


def test_a_release_without_news_is_refused(checkout):
    (checkout / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n## 0.1.0\n\n- Boards.\n")
    git(checkout, "commit", "--quiet", "--all", "--message", "no news")
    with pytest.raises(SystemExit, match="nothing stands under Unreleased"):
        release.check(checkout, "0.2.0")


def test_a_release_is_one_commit_with_its_number_and_a_heading(checkout):
    release.check(checkout, "0.2.0")
    release.write(checkout, "0.2.0", "2026-12-01")
    assert release.present(checkout) == "0.2.0"
    assert (
        "## Unreleased\n\n## 0.2.0 (2026-12-01)\n\n### Added\n\n- Boards.\n" in (checkout / "CHANGELOG.md").read_text()
    )
    assert git(checkout, "log", "-1", "--format=%s").strip() == "Version 0.2.0"
    assert git(checkout, "status", "--porcelain") == ""


def test_this_checkout_has_one_version():
    assert release.parts(release.present(ROOT)) >= (0, 1, 0)
