"""The source of the installed package: what is kept of it depends on all of it."""

import hashlib
import json
import time
from functools import cache

import harness

BEGUN = time.time()  # of the process


@cache
def source_hash() -> str:
    """Return a hash of the source of the whole package and of all heads and backbones beside it; '' where a file was
    edited after this process had begun, which may have imported what it was before.
    """
    found = hashlib.sha256()
    for folder in (harness.FOLDER, harness.bundled("heads"), harness.bundled("backbones")):
        for file in sorted(folder.rglob("*.py")):
            if file.stat().st_ctime > BEGUN:
                return ""
            source = file.read_bytes()
            found.update(f"{file.relative_to(folder)} {len(source)}\n".encode() + source)
    return found.hexdigest()


@cache
def of_package() -> frozenset[str]:
    """Return the components of the package: 'head mos'. Those of others may import what no hash here covers."""
    return frozenset(json.loads((harness.FOLDER / "code" / "known.json").read_text(encoding="utf-8")))
