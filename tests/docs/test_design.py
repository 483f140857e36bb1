"""docs/design says what the source says, and the code of its walks works."""

import ast
import importlib.util
import re
from pathlib import Path

import torch
from torch import nn

ROOT = Path(__file__).parent.parent.parent
DESIGN = ROOT / "docs" / "design"


def test_the_index_has_the_packages_in_the_order_that_a_test_holds():
    tree = ast.parse((ROOT / "tests" / "test_architecture.py").read_text(encoding="utf-8"))
    (packages,) = [each.value for each in tree.body if isinstance(each, ast.AnnAssign) and each.target.id == "PACKAGES"]
    order = [name for together in ast.literal_eval(packages) for name in together]
    text = (DESIGN / "README.md").read_text(encoding="utf-8")
    (listed,) = re.findall(r"a test holds the order\.\n\n(.*?)\n\n", text, flags=re.DOTALL)
    shown = re.findall(r"`(\w+)`", listed)
    assert shown == order


def snippet(heading: str, which: int = 0) -> str:
    """A piece of Python of a walk."""
    text = (DESIGN / "walks.md").read_text(encoding="utf-8")
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", text, flags=re.DOTALL | re.MULTILINE)
    found = re.findall(r"^( *)```python\n(.*?)^ *```", section, flags=re.DOTALL | re.MULTILINE)[which]
    return re.sub(rf"^{found[0]}", "", found[1], flags=re.MULTILINE)


def module_of(folder: Path, *lines: str):
    """A module with these lines."""
    path = folder / "walk.py"
    path.write_text("\n".join(lines), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("walk", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_metric_of_the_walk_is_a_metric(tmp_path):
    from harness.records.metrics import METRICS

    entry = snippet("A new metric in all views").strip().rstrip(",")
    metric = module_of(tmp_path, "from harness.records.metrics import Metric", f"metric = {entry}").metric
    assert metric.name not in METRICS
    assert (metric.label, metric.direction, metric.required) == ("epoch minutes", "lower", False)


def test_the_column_of_the_walk_is_a_change_of_one_word():
    from harness.records.metrics import METRICS

    assert METRICS["train_minutes"].table == "never"


def test_the_averaging_of_the_walk_averages(tmp_path):
    from harness.training import averaging

    names = (
        "from harness.training.averaging import *",
        "import torch",
        "from torch import *",
        "from typing import Any",
    )
    namespace = vars(module_of(tmp_path, *names, snippet("Weight averaging")))
    model = nn.Linear(3, 2)
    first = model.weight.detach().clone()
    average = namespace["ExponentialAverage"](model, 0.75)
    with torch.no_grad():
        model.weight.add_(1)
    average.update()
    average.swap()
    torch.testing.assert_close(model.weight.detach(), first + 0.25)
    state = average.state_dict()
    other = namespace["ExponentialAverage"](nn.Linear(3, 2), 0.75)
    other.load_state_dict(state)
    torch.testing.assert_close(other.average[0], first + 1)
    assert issubclass(namespace["ExponentialAverage"], averaging.Averaging)


def test_the_command_of_the_walk_prints_the_seeds(capsys, tmp_path):
    from harness.cli.commands import COMMANDS

    names = (
        "from pathlib import Path as SuitePath",
        "from harness import plan as planning",
        "from harness.cli.commands import Command",
    )
    walk = module_of(tmp_path, *names, snippet("A new command"), f"added = {{{snippet('A new command', 1)}}}")
    walk.seeds(ROOT / "suites" / "quickstart.yaml")
    assert capsys.readouterr().out == "1\n2\n3\n4\n5\n6\n"
    added = walk.added
    (name,) = added
    command = added[name]
    assert name not in COMMANDS
    assert command.place.partition(":")[2] == walk.seeds.__name__
    assert command.example.startswith(name)
