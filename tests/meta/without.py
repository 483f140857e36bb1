"""The tests of the core without an extension, or several: `python tests/meta/without.py board,gpu -q tests/report`.

They run in a copy of the repository in which the modules of the extensions and the folders of their tests are deleted.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from harness.extensions import EXTENSIONS

ROOT = Path(__file__).parents[2]
HIDE = """\
import sys

# Without pip's finder of a harness that is installed: it would lend the modules that are gone.
sys.meta_path[:] = [each for each in sys.meta_path if "Editable" not in str(each)]
"""


def copied(extensions: str, tree: Path) -> None:
    """Copy what git does not ignore to a new folder, without these extensions ('board,gpu')."""
    command = ["git", "ls-files", "-zco", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():  # it may be deleted, and not committed yet
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)
    (tree / "sitecustomize.py").write_text(HIDE)  # of each process whose PYTHONPATH names the copy
    for extension in extensions.split(","):
        shutil.rmtree(tree / "tests" / extension, ignore_errors=True)
        for module in EXTENSIONS[extension]:
            beside = module.removeprefix("harness.") if ".backbones." in module else module
            place = tree / beside.replace(".", "/")
            shutil.rmtree(place) if place.is_dir() else place.with_suffix(".py").unlink()


def main(extensions: str, *arguments: str) -> int:
    with TemporaryDirectory() as folder:
        copied(extensions, tree := Path(folder, "tree"))
        command = [sys.executable, "-m", "pytest", *arguments]
        data = {"HARNESS_TEST_DATA": str(ROOT.parent / "shared" / "data")}  # they are not beside the copy
        environment = {**data, **os.environ, "PYTHONPATH": str(tree), "HARNESS_TEST_WITHOUT": extensions}
        return subprocess.run(command, cwd=tree, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
