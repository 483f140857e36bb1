"""Ray is not started without its token, and nothing in the tree opens it. See tests/system/test_network.py, too."""

import re
import signal
import sys
from pathlib import Path

import commands
import pytest

from harness import cli
from harness.errors import ExecutionError
from harness.execution.ray import refuse_open_ray

ROOT = Path(__file__).parent.parent.parent
FORBIDDEN = (
    r"dashboard[-_]host",
    r"include_dashboard.{0,4}True",
    r"disable-security-middleware",
    r"""RAY_AUTH_MODE["']?\]?\s*[=:](?!=)""",  # an assignment, of whatever kind
    r"0\.0\.0\.0",
)


def sources() -> list[Path]:
    """All that runs or configures something, tests apart."""
    folders = [
        p for name in ("harness", "heads", "backbones", "benchmarks", "suites") for p in (ROOT / name).rglob("*")
    ]
    files = [ROOT / "Makefile", ROOT / "pyproject.toml", ROOT / ".ci" / "run", *folders]
    return [p for p in files if p.is_file() and p.suffix != ".pyc"]


def test_ray_token_on_nothing_in_the_tree_opens_ray_or_mlflow():
    text = {str(place): place.read_text(encoding="utf-8", errors="replace") for place in sources()}
    assert [(place, pattern) for place in text for pattern in FORBIDDEN if re.search(pattern, text[place])] == []


def test_ray_token_on_the_patterns_find_what_they_look_for():
    text = 'ray.init(dashboard_host="0.0.0.0", include_dashboard=True); os.environ["RAY_AUTH_MODE"] = "disabled"'
    text += " mlflow server --disable-security-middleware"
    assert [bool(re.search(pattern, text)) for pattern in FORBIDDEN] == [True] * len(FORBIDDEN)
    assert re.search(FORBIDDEN[3], "export RAY_AUTH_MODE=disabled")
    assert re.search(FORBIDDEN[3], '{"RAY_AUTH_MODE": "disabled"}')


def test_ray_token_on_or_refused(monkeypatch):
    for mode in ("disabled", "DISABLED", "k8s", ""):  # Ray 2.60 takes all but 'token' for disabled
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
        with pytest.raises(
            ExecutionError, match=f"RAY_AUTH_MODE={mode}: .* unset RAY_AUTH_MODE, or use --executor inl"
        ):
            refuse_open_ray()
    for mode in ("token", "TOKEN"):
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
        refuse_open_ray()
    monkeypatch.delenv("RAY_AUTH_MODE")
    refuse_open_ray()


def test_ray_token_on_or_harness_run_leaves_with_2(folder, monkeypatch, capsys):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["harness", "run", "suites/tiny.yaml", "--address", "192.0.2.2:6379"])
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as left:
        cli.main()
    signal.signal(signal.SIGTERM, before)
    err = capsys.readouterr().err
    assert (left.value.code, err.count("\n")) == (2, 1)
    assert err.startswith("RAY_AUTH_MODE=disabled: ")
    assert commands.record_files(folder) == {}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "tiny.yaml").write_text(commands.SUITE)
    return tmp_path
