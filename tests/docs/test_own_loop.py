"""The page on heads without the harness: its code runs where the rest of the package is hidden, and imports
no library but torch."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "own_loop.md").read_text(encoding="utf-8")
NEEDED = [
    *("protocols", "registry", "distributions", "dropout", "fading", "kernels", "gpu", "heads"),
    # modules without dependencies: messages, and what keeps a faulty component from ending the program
    *("errors", "extensions", "printable", "containment", "random_streams", "machine.stop_request"),
]
HIDE = """
import sys
NEEDED = {needed}
class Hidden:
    def find_spec(self, name, path=None, target=None):
        package, _, inside = name.partition(".")
        if package == "harness" and inside and inside != "machine":
            if not any(f"{{inside}}.".startswith(f"{{each}}.") for each in NEEDED):
                raise ImportError(f"hidden: {{name}}")
sys.meta_path.insert(0, Hidden())
"""
ALL_HEADS = """
for name in HEADS.names():
    HEADS.get(name)
assert log_probs.shape == (8, 35, V)
torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(8, 35))
torch.testing.assert_close(nll, -log_probs.gather(-1, tokens[:, 1:, None])[..., 0])
others = {"pydantic", "ray", "mlflow", "pandas", "scipy", "rich", "typer", "ruamel", "transformers", "psutil"}
assert not others & set(sys.modules)
print("loss", round(loss.item(), 3), len(HEADS.names()))
"""


def test_the_loop_of_the_page_runs_with_torch_alone(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    script = HIDE.format(needed=NEEDED) + code + ALL_HEADS
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.match(r"loss 6\.\d+ \d+", done.stdout)  # ln 1000 = 6.9, of random tokens
