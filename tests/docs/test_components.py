"""The page of heads has every check of a component, and every parameter that heads share."""

import importlib.util
import re
from pathlib import Path

from harness.conformance.backbones import BACKBONE_CHECKS
from harness.conformance.heads import HEAD_CHECKS

ROOT = Path(__file__).parent.parent.parent
TEXT = (ROOT / "docs" / "heads.md").read_text(encoding="utf-8")


def test_the_page_of_heads_has_every_check_and_no_other():
    tables = re.findall(r"^\| check \|.*\n\|---\|---\|\n((?:\|.*\n)+)", TEXT, flags=re.MULTILINE)
    shown = [re.findall(r"^\| ([^|]+) \|", table, flags=re.MULTILINE) for table in tables]
    assert shown == [list(HEAD_CHECKS), list(BACKBONE_CHECKS)]


def test_the_page_of_heads_explains_every_parameter_that_is_only_named_elsewhere():
    spec = importlib.util.spec_from_file_location("reference", ROOT / "tests" / "meta" / "reference.py")
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    (section,) = re.findall(r"^## Parameters that heads share\n(.*?)^## ", TEXT, flags=re.DOTALL | re.MULTILINE)
    assert set(re.findall(r"^- `(\w+)`", section, flags=re.MULTILINE)) == reference.SHARED
